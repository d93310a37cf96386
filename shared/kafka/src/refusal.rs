//! Why brokers turn a client away, told from what librdkafka reports, and what to do about it.

use rdkafka::error::RDKafkaErrorCode as Code;

/// Why a broker turns this client away. Each text goes on from "refuses this client: " and says what to do next; none holds a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The user or the password is wrong, or the user is not known.
    #[error(
        "it does not accept the user name or the password; correct `sasl.username` and `sasl.password` in `[kafka.properties]`"
    )]
    Credentials,
    /// It offers other mechanisms.
    #[error(
        "it does not offer this SASL mechanism; set `sasl.mechanisms` in `[kafka.properties]` to one that it has: {offered}"
    )]
    Mechanism {
        /// What it offers.
        offered: String,
    },
    /// Its certificate is not signed by an authority that is trusted here, is out of date, or names another host.
    #[error(
        "its TLS certificate can't be verified; set `ssl.ca.location` in `[kafka.properties]` to the certificate of the authority \
         that signed it, and write brokers in `kafka.bootstrap` by the names that are in their certificates"
    )]
    Certificate,
    /// It answers, but not in TLS.
    #[error(
        "it does not speak TLS at this address; write the port of its TLS listener in `kafka.bootstrap`, or correct \
         `security.protocol` in `[kafka.properties]`"
    )]
    NoTls,
    /// It ends every connection during the TLS handshake.
    #[error(
        "it closes the connection when TLS begins, as a listener without TLS does; write the port of its TLS listener in \
         `kafka.bootstrap`, or correct `security.protocol` in `[kafka.properties]`"
    )]
    ProbablyNoTls,
    /// It ends every connection at its first request.
    #[error(
        "it closes the connection at the first request, as a listener with another `security.protocol` than {used} does; set that in \
         `[kafka.properties]` to the listener's, such as SASL_SSL"
    )]
    ProbablyOtherProtocol {
        /// What this client speaks.
        used: String,
    },
    /// What listens there is no broker.
    #[error("a web server answers there, and no broker; write the addresses of brokers in `kafka.bootstrap`")]
    WebServer,
    /// What listens there is neither a broker nor a web server.
    #[error(
        "what answers there is no broker: it begins with `{begin}`; write the addresses of brokers in `kafka.bootstrap`"
    )]
    NoBroker {
        /// The first four characters that it sent.
        begin: String,
    },
    /// It answers in TLS, to a client that does not speak it.
    #[error(
        "it speaks TLS; set `security.protocol` in `[kafka.properties]` to SSL, or with a log-in to SASL_SSL"
    )]
    Tls,
    /// It asks for a certificate of the client, and got none, or one that it does not trust.
    #[error(
        "it takes no client without a certificate that it trusts; set `ssl.certificate.location` and `ssl.key.location` in \
         `[kafka.properties]` to such a one"
    )]
    ClientCertificate,
    /// Something else about logging in or TLS.
    #[error("{0}; correct the security settings in `[kafka.properties]`")]
    Other(String),
}

impl Refusal {
    /// What an error of a client says, if it is a refusal.
    pub(crate) fn of(code: Code, reason: &str) -> Option<Self> {
        let says = |part: &str| reason.contains(part);
        match code {
            Code::Authentication | Code::SaslAuthenticationFailed | Code::UnsupportedSASLMechanism => {
                Some(of_login(reason))
            }
            Code::SSL if says("certificate verify failed") || says("error:0A000086") => {
                Some(Self::Certificate)
            }
            Code::SSL if says("wrong version number") || says("packet length too long") => Some(Self::NoTls),
            Code::SSL | Code::BrokerTransportFailure
                if says(" alert ") && (says("certificate") || says("unknown ca"))
                    || says("unexpected message") =>
            {
                Some(Self::ClientCertificate)
            }
            Code::SSL => Some(Self::Other(essence(reason))),
            Code::BrokerTransportFailure if says("PLAINTEXT broker listener") => Some(Self::ProbablyNoTls),
            _ => of_foreign_answer(reason),
        }
    }

    /// What it means that a broker took a connection and closed it, for a client of this `security.protocol`. With TLS and a log-in,
    /// the broker would have said what it does not like.
    pub(crate) fn of_closed_connection(reason: &str, protocol: &str) -> Option<Self> {
        let closed =
            ["Disconnected", "reset by peer", "Broken pipe"].iter().any(|sign| reason.contains(sign));
        let used = protocol.to_uppercase();
        (closed && used != "SASL_SSL").then_some(Self::ProbablyOtherProtocol { used })
    }

    /// Whether the broker has said so. Otherwise it is concluded from connections that it closes, which have other causes too.
    pub fn is_certain(&self) -> bool {
        !matches!(self, Self::ProbablyNoTls | Self::ProbablyOtherProtocol { .. })
    }
}

/// An answer in another protocol: librdkafka takes its first four bytes for a size, and is told by no code.
fn of_foreign_answer(reason: &str) -> Option<Refusal> {
    let (_, size) = reason.split_once("Invalid response size ")?;
    let digits = size.split(|c: char| !c.is_ascii_digit()).next()?;
    match digits.parse::<u32>().ok()?.to_be_bytes() {
        // Some answer what they can't read by a page without a status line.
        [b'H', b'T', b'T', b'P'] | [b'<', ..] => Some(Refusal::WebServer),
        // An alert or a handshake message.
        [0x15 | 0x16, 3, _, _] => Some(Refusal::Tls),
        // As a size it would be half a gigabyte or more.
        begin if begin.iter().all(|byte| (b' '..=b'~').contains(byte)) => {
            Some(Refusal::NoBroker { begin: begin.map(char::from).iter().collect() })
        }
        _ => None,
    }
}

fn of_login(reason: &str) -> Refusal {
    const OFFERED: &str = "supported mechanisms: ";
    if let Some((_, offered)) = reason.split_once(OFFERED) {
        let offered = essence(offered);
        let offered = if offered.is_empty() { "none".to_owned() } else { offered };
        return Refusal::Mechanism { offered };
    }
    if reason.contains("SASL authentication error") {
        return Refusal::Credentials;
    }
    Refusal::Other(essence(reason))
}

/// The reason without what librdkafka puts around it: the names of thread and connection before, and how long it took after.
pub(crate) fn essence(reason: &str) -> String {
    let mut text = reason;
    while let Some((name, rest)) = text.split_once(": ")
        && (name.starts_with("[thrd:") || name.contains("://") || name.ends_with("/bootstrap"))
    {
        text = rest;
    }
    let text = text.rfind(" (after ").map_or(text, |end| &text[..end]);
    // librdkafka goes on to guess at brokers of before 2016.
    if text.starts_with("ApiVersionRequest failed: Local: Timed out") {
        return "it takes the connection and does not answer the first request, as a broker that hangs does, or what is no broker"
            .to_owned();
    }
    text.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_report_is_told_as_a_refusal_with_the_next_step() {
        let name = "sasl_ssl://kafka:9094/bootstrap: ";
        for (code, reason, expected) in [
            (
                Code::Authentication,
                "SASL authentication error: Authentication failed during authentication due to invalid credentials with SASL \
                 mechanism SCRAM-SHA-512 (after 2ms in state AUTH_REQ)",
                Some(Refusal::Credentials),
            ),
            (
                Code::Authentication,
                "SASL PLAIN mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: \
                 SCRAM-SHA-512,SCRAM-SHA-256 (after 3ms in state AUTH_HANDSHAKE)",
                Some(Refusal::Mechanism { offered: "SCRAM-SHA-512,SCRAM-SHA-256".to_owned() }),
            ),
            (
                Code::SSL,
                "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker certificate could not be \
                 verified, verify that ssl.ca.location is correctly configured (after 5ms in state SSL_HANDSHAKE)",
                Some(Refusal::Certificate),
            ),
            (
                Code::SSL,
                "SSL handshake failed: error:0A00010B:SSL routines::wrong version number (after 1ms in state SSL_HANDSHAKE)",
                Some(Refusal::NoTls),
            ),
            (
                Code::BrokerTransportFailure,
                "SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 1ms in state SSL_HANDSHAKE)",
                Some(Refusal::ProbablyNoTls),
            ),
            (
                Code::BrokerTransportFailure,
                "Receive failed: error:0A000412:SSL routines::sslv3 alert bad certificate: SSL alert number 42 (after 3ms in state \
                 APIVERSION_QUERY)",
                Some(Refusal::ClientCertificate),
            ),
            (Code::BrokerTransportFailure, "Connect to ipv4#127.0.0.1:9094 failed: Connection refused", None),
            (Code::AllBrokersDown, "1/1 brokers are down", None),
        ] {
            let refusal = Refusal::of(code, &format!("{name}{reason}"));
            assert_eq!(refusal, expected, "{reason}");
        }
    }

    #[test]
    fn a_connection_that_is_closed_at_once_means_another_protocol_unless_the_broker_could_have_spoken() {
        let closed = "Disconnected: connection closed by peer: receive 0 after POLLIN";
        let meant = |reason, protocol| Refusal::of_closed_connection(reason, protocol);
        assert_eq!(
            meant(closed, "plaintext"),
            Some(Refusal::ProbablyOtherProtocol { used: "PLAINTEXT".to_owned() })
        );
        assert!(meant("Send failed: SSL transport error: Broken pipe", "SSL").is_some());
        assert_eq!(meant(closed, "SASL_SSL"), None);
        assert_eq!(meant("Connect to ipv4#127.0.0.1:9094 failed: Connection refused", "PLAINTEXT"), None);
    }

    #[test]
    fn an_answer_in_another_protocol_is_known_by_its_first_characters() {
        for (size, expected) in [
            (0x4854_5450, Some(Refusal::WebServer)),
            (0x3c21_444f, Some(Refusal::WebServer)),
            (0x5353_482d, Some(Refusal::NoBroker { begin: "SSH-".to_owned() })),
            (0x1503_0300, Some(Refusal::Tls)),
            // That is a broker's, and the advice is right.
            (100_000_001, None),
        ] {
            let reason = format!(
                "Receive failed: Invalid response size {size} (0..100000000): increase receive.message.max.bytes (after 1ms in state \
                 APIVERSION_QUERY)"
            );
            assert_eq!(Refusal::of(Code::BadMessage, &reason), expected, "{size:x}");
        }
    }

    #[test]
    fn what_takes_a_connection_and_keeps_silent_is_told_without_a_guess() {
        let reason = "127.0.0.1:9092/bootstrap: ApiVersionRequest failed: Local: Timed out: probably due to broker version < 0.10 \
                      (see api.version.request configuration) (after 10006ms in state APIVERSION_QUERY)";
        assert_eq!(Refusal::of(Code::OperationTimedOut, reason), None, "it may be a broker");
        assert!(
            essence(reason).starts_with("it takes the connection and does not answer"),
            "{}",
            essence(reason)
        );
    }

    #[test]
    fn a_refusal_that_is_not_known_is_told_by_its_essence() {
        let reason = "ssl://kafka:9094/1: SSL handshake failed: something new (after 12ms in state SSL_HANDSHAKE, 3 identical error(s) suppressed)";
        let refusal = Refusal::of(Code::SSL, reason).expect("an error of TLS is a refusal");
        assert_eq!(
            refusal.to_string(),
            "SSL handshake failed: something new; correct the security settings in `[kafka.properties]`"
        );
    }
}
