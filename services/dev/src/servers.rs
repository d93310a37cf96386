//! The embedded broker and registry, and a configuration that fits them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidegate_bootstrap::config::{StandIn, process_environment};
use tidegate_bootstrap::{Config, ConfigError};
use tidegate_kafka::embedded::EmbeddedBroker;
use tidegate_kafka::topics::TopicSpec;
use tidegate_service::plan;

use crate::error::DevError;
use crate::registry::Registry;

/// Both servers; they end when dropped.
#[derive(Debug)]
pub(crate) struct Servers {
    broker: EmbeddedBroker,
    registry: Registry,
}

/// Where clients find the servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addresses {
    /// The broker, as `host:port`.
    pub bootstrap: String,
    /// The registry's URL.
    pub registry: String,
}

impl Servers {
    pub(crate) async fn start() -> Result<Self, DevError> {
        Ok(Self { broker: EmbeddedBroker::start()?, registry: Registry::start().await? })
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses { bootstrap: self.broker.bootstrap(), registry: self.registry.url() }
    }

    /// Creates every topic of the pipeline, and its sources: nobody else could.
    pub(crate) fn create_topics(&self, config: &Config) -> Result<(), DevError> {
        let mut specs = plan::topics(config);
        specs.extend(config.sources.keys().map(|source| TopicSpec {
            name: source.to_string(),
            partitions: None,
            keyed: false,
            replication: None,
            settings: Default::default(),
        }));
        Ok(self.broker.create(&specs)?)
    }
}

/// The configuration of a file, or of the demo's text, on the embedded servers: what it says of Kafka and the registry does not count,
/// passwords that are not at hand included, and marks are kept in `state`, which is gone at the end.
pub(crate) fn config(
    source: Source<'_>,
    addresses: &Addresses,
    state: &Path,
) -> Result<Arc<Config>, ConfigError> {
    config_in(process_environment(), source, addresses, state)
}

fn config_in(
    environment: impl Iterator<Item = (String, String)>,
    source: Source<'_>,
    addresses: &Addresses,
    state: &Path,
) -> Result<Arc<Config>, ConfigError> {
    let own = [
        ("TIDEGATE_KAFKA__BOOTSTRAP", addresses.bootstrap.clone()),
        ("TIDEGATE_REGISTRY__URL", addresses.registry.clone()),
        ("TIDEGATE_STATE__DIR", state.display().to_string()),
    ];
    let own = own.map(|(name, value)| (name.to_owned(), value));
    let config = match source {
        Source::Text(text) => Config::parse("the demo", text, own.into_iter())?,
        Source::File(path) => StandIn { own: own.into(), log: LOG }.load(path, environment)?,
    };
    Ok(Arc::new(config))
}

/// Starts and hand-overs go as they should here, and are no news. Nor is it that no schema is there before the first event.
const LOG: &str = "warn,tidegate_codec::registry=error";

/// The configuration with another time after which the group gives up a member that is not heard of. So long, but for a second, the
/// embedded broker also waits for the others whenever a member joins or leaves, whoever has answered.
pub(crate) fn with_session(config: Arc<Config>, session: Duration) -> Arc<Config> {
    let mut config = Arc::unwrap_or_clone(config);
    config.consume.session_timeout = session;
    Arc::new(config)
}

/// Where a configuration comes from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Source<'a> {
    File(&'a Path),
    Text(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_classes_and_leaves_its_servers_and_their_passwords() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        let text = r#"
[kafka]
bootstrap = "kafka.example.org:9093"
properties = { "security.protocol" = "SASL_SSL", "sasl.mechanisms" = "PLAIN", "sasl.password" = "secret" }
[registry]
url = "https://registry.example.org"
username = "me"
[sources.events]
start = "latest"
[classes.charge]
source = "events"
key = ["id"]
handler = { type = "log" }
"#;
        std::fs::write(&file, text).unwrap();
        let addresses = Addresses {
            bootstrap: "127.0.0.1:1234".to_owned(),
            registry: "http://127.0.0.1:5678".to_owned(),
        };
        let config =
            config_in(std::iter::empty(), Source::File(&file), &addresses, Path::new("/state")).unwrap();
        assert_eq!(config.kafka.bootstrap_servers(), "127.0.0.1:1234");
        assert!(config.kafka.properties.is_empty());
        let registry = config.registry.as_ref().unwrap();
        assert_eq!((registry.url[0].as_str(), &registry.username), ("http://127.0.0.1:5678", &None));
        assert_eq!((config.classes.len(), config.state.dir.as_path()), (1, Path::new("/state")));
        assert_eq!(config.observe.log.as_str(), LOG);
        // What somebody asks for is told.
        std::fs::write(&file, format!("{text}[observe]\nlog = \"debug\"\n")).unwrap();
        let asked = |environment: Option<(&str, &str)>| {
            let environment = environment.map(|(name, value)| (name.to_owned(), value.to_owned()));
            let config =
                config_in(environment.into_iter(), Source::File(&file), &addresses, Path::new("/state"));
            config.unwrap().observe.log.as_str().to_owned()
        };
        assert_eq!(asked(None), "debug");
        assert_eq!(asked(Some(("TIDEGATE_OBSERVE__LOG", "info"))), "info");
    }

    #[test]
    fn a_slip_among_the_settings_of_servers_is_refused_with_the_name_that_was_meant() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        let text = "[kafka]\nboostrap = \"a:1\"\n[registry]\nusrname = \"me\"\n[sources.events]\nstrt = \"latest\"\n";
        std::fs::write(&file, text).unwrap();
        let addresses = Addresses {
            bootstrap: "127.0.0.1:1234".to_owned(),
            registry: "http://127.0.0.1:5678".to_owned(),
        };
        let variable = ("TIDEGATE_KAFKA__REPLICATON".to_owned(), "3".to_owned());
        let refused =
            config_in(std::iter::once(variable), Source::File(&file), &addresses, Path::new("/state"));
        let told = refused.unwrap_err().to_string();
        for slip in [
            "kafka.boostrap: there is no such setting; did you mean `bootstrap`?",
            "registry.usrname: there is no such setting; did you mean `username`?",
            "TIDEGATE_KAFKA__REPLICATON: it names no setting; did you mean TIDEGATE_KAFKA__REPLICATION?",
            "sources.events.strt: there is no such setting; did you mean `start`?",
        ] {
            assert!(told.contains(slip), "{slip}: {told}");
        }
        // What is not said of the embedded servers is missing nowhere.
        assert!(!told.contains("kafka.bootstrap:") && !told.contains("registry.password"), "{told}");
    }

    #[test]
    fn a_file_that_names_no_servers_will_do() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("tidegate.toml");
        std::fs::write(&file, "[sources.events]\nstart = \"latest\"\n").unwrap();
        let addresses = Addresses {
            bootstrap: "127.0.0.1:1234".to_owned(),
            registry: "http://127.0.0.1:5678".to_owned(),
        };
        assert!(config_in(std::iter::empty(), Source::File(&file), &addresses, Path::new("/state")).is_ok());
    }
}
