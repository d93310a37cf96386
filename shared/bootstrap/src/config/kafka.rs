//! `[kafka]` and `[registry]`: the servers.

use std::collections::BTreeMap;
use std::num::NonZeroU16;
use std::time::Duration;

use serde::Serialize;

use super::error::InvalidValue;
use super::names::{BrokerAddress, HttpUrl};
use super::reader::{Raw, Section};
use super::secret::{MaskedMap, Secret};
use super::values::{self, write_duration};

/// How to reach Kafka.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Kafka {
    /// Some brokers of the cluster, as `host:port`: a list, or one text with commas. Required.
    pub bootstrap: Vec<BrokerAddress>,
    /// Copies of each partition of the topics that tidegate creates. Default: what the broker sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replication: Option<NonZeroU16>,
    /// Any librdkafka property, for all clients: security, buffers. Those that tidegate's promises rest on are refused.
    #[serde(skip_serializing_if = "MaskedMap::is_empty")]
    pub properties: MaskedMap,
    /// The same for consumers only; wins over `properties`.
    #[serde(skip_serializing_if = "MaskedMap::is_empty")]
    pub consumer_properties: MaskedMap,
    /// The same for producers only; wins over `properties`.
    #[serde(skip_serializing_if = "MaskedMap::is_empty")]
    pub producer_properties: MaskedMap,
}

impl Kafka {
    /// The brokers as librdkafka takes them.
    pub fn bootstrap_servers(&self) -> String {
        self.bootstrap.iter().map(BrokerAddress::as_str).collect::<Vec<_>>().join(",")
    }

    /// Whether a log-in is asked for, while nothing says by which mechanism: librdkafka's default is Kerberos.
    pub(super) fn lacks_its_mechanism(&self) -> bool {
        let maps = [&self.properties, &self.consumer_properties, &self.producer_properties];
        let any = |is: fn(&str, &str) -> bool| {
            maps.iter().flat_map(|map| map.iter()).any(|(name, value)| is(name, value))
        };
        any(|name, value| name == "security.protocol" && value.to_ascii_uppercase().starts_with("SASL_"))
            && !any(|name, _| is_mechanism(name))
    }

    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let bootstrap = section.required("bootstrap", "write bootstrap = \"host:9092\"", bootstrap);
        let replication = section.optional("replication", values::count(i16::MAX as u64));
        let properties = read_properties(section, "properties");
        let consumer_properties = read_properties(section, "consumer_properties");
        let producer_properties = read_properties(section, "producer_properties");
        Some(Self {
            bootstrap: bootstrap?,
            replication,
            properties,
            consumer_properties,
            producer_properties,
        })
    }
}

fn bootstrap(raw: &Raw) -> Result<Vec<BrokerAddress>, InvalidValue> {
    let toml::Value::String(text) = &raw.value else { return values::some(raw) };
    let parts = text.split(',').map(|part| toml::Value::String(part.trim().to_owned())).collect();
    values::some(&Raw { value: toml::Value::Array(parts), variable: raw.variable.clone() })
}

fn read_properties(section: &Section<'_>, key: &str) -> MaskedMap {
    let given: BTreeMap<String, String> =
        section.open(key, Some(|rest| rest.replace('_', ".")), |name, raw| match refusal(name) {
            Some((why, remedy)) => Err(InvalidValue::new(why, remedy)),
            None => values::as_text(raw).and_then(|value| known_mechanism(name, value)),
        });
    given.into_iter().collect()
}

/// What the client can do: it is built without Kerberos and without an HTTP client.
const MECHANISMS: [&str; 3] = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"];
pub(super) const WRITE_A_MECHANISM: &str = "write PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512";

fn is_mechanism(name: &str) -> bool {
    matches!(name, "sasl.mechanisms" | "sasl.mechanism")
}

fn known_mechanism(name: &str, value: String) -> Result<String, InvalidValue> {
    if !is_mechanism(name) || MECHANISMS.contains(&value.as_str()) {
        return Ok(value);
    }
    Err(InvalidValue::new(format!("this client has no SASL mechanism `{value}`"), WRITE_A_MECHANISM))
}

const FIXED: &str = "remove it";

/// Why a property isn't the user's to set, and what to do instead.
fn refusal(name: &str) -> Option<(&'static str, &'static str)> {
    Some(match name {
        "bootstrap.servers" | "metadata.broker.list" => {
            ("the brokers have a setting of their own", "use kafka.bootstrap")
        }
        "session.timeout.ms" => ("the time-out has a setting of its own", "use consume.session_timeout"),
        "message.max.bytes" => ("the limit has a setting of its own", "use topics.max_message_bytes"),
        "auto.commit.interval.ms" => ("tidegate commits by itself", "use consume.commit_interval"),
        "group.id" => ("the group is named after the pipeline and the service", "change pipeline.name"),
        "auto.offset.reset" => {
            ("where a source starts must be said once and kept", "use start of the source in [sources]")
        }
        "enable.auto.commit" | "auto.commit.enable" | "enable.auto.offset.store" => {
            ("an offset may be committed only when all records below it are settled", FIXED)
        }
        "enable.idempotence" | "acks" | "request.required.acks" | "max.in.flight" => {
            ("a record may be settled only when its copy is safely written, in order and once", FIXED)
        }
        "max.in.flight.requests.per.connection" => {
            ("a record may be settled only when its copy is safely written, in order and once", FIXED)
        }
        "partition.assignment.strategy" | "group.protocol" | "group.remote.assignor" => {
            ("partitions that a process keeps must go on while others move", FIXED)
        }
        "isolation.level" => ("an event of an aborted transaction must not become a job", FIXED),
        "enable.partition.eof" => ("tidegate finds the ends of partitions by itself", FIXED),
        "group.instance.id" => ("two processes with one id would fence each other", FIXED),
        "transactional.id" => ("tidegate works without transactions", FIXED),
        _ => return None,
    })
}

/// How to reach the schema registry.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Registry {
    /// One address or several of the same registry, tried in this order. Required as soon as there is a class.
    pub url: Vec<HttpUrl>,
    /// Name for basic authentication; needs `password`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// Password for basic authentication; needs `username`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret<String>>,
    /// Token for bearer authentication; excludes `username`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer_token: Option<Secret<String>>,
    /// How long one request may take. Default 5s.
    #[serde(serialize_with = "write_duration")]
    pub timeout: Duration,
    /// How long an unknown schema id is asked for again before its event is dead-lettered: registries replicate
    /// late. Default 1m.
    #[serde(serialize_with = "write_duration")]
    pub unknown_schema_grace: Duration,
}

impl Registry {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let url = section.required("url", "write url = \"http://host:8081\"", values::some);
        let username = section.optional("username", values::text);
        let password = section.optional("password", secret);
        let bearer_token = section.optional("bearer_token", secret);
        if username.is_some() != password.is_some() {
            let missing = if username.is_some() { "password" } else { "username" };
            section.problem(
                missing,
                "basic authentication needs a name and a password",
                "set both or neither",
            );
        }
        if username.is_some() && bearer_token.is_some() {
            section.problem(
                "bearer_token",
                "there are two ways to authenticate",
                "keep it or username and password",
            );
        }
        let timeout = section.or("timeout", Duration::from_secs(5), values::duration);
        let unknown_schema_grace =
            section.or("unknown_schema_grace", Duration::from_secs(60), values::duration);
        Some(Self { url: url?, username, password, bearer_token, timeout, unknown_schema_grace })
    }
}

fn secret(raw: &Raw) -> Result<Secret<String>, InvalidValue> {
    values::text(raw).map(Secret::new)
}
