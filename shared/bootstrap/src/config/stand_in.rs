//! A configuration on other servers than its own: dev mode brings a broker and a registry along.

use std::path::Path;

use toml::{Table, Value};

use super::environment::Overrides;
use super::error::{ConfigError, Problem};
use super::reader::Reader;
use super::{Config, Kafka, Registry, read_file, table};

/// The sections of servers.
const SERVERS: [&str; 2] = ["kafka", "registry"];

/// Servers that stand in for those that a configuration names.
#[derive(Debug, Clone)]
pub struct StandIn {
    /// The variables that take the place of its own, as `TIDEGATE_…` and value.
    pub own: Vec<(String, String)>,
    /// What is logged unless file or environment say it, in the syntax of `observe.log`.
    pub log: &'static str,
}

impl StandIn {
    /// Reads the file at `path` and the overrides in `env`, as [`Config::load`] does. What they say of the servers does not count: a
    /// password may be missing. Only what is no setting at all is refused there as everywhere, for it is most likely a slip.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load(
        &self,
        path: &Path,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Config, ConfigError> {
        let origin = path.display().to_string();
        let mut table = table(&origin, &read_file(path)?)?;
        let servers = SERVERS.iter().filter_map(|name| table.remove_entry(*name)).collect();
        if let Value::Table(observe) = table.entry("observe").or_insert_with(|| Table::new().into()) {
            observe.entry("log").or_insert_with(|| self.log.into());
        }
        let (of_servers, others): (Vec<_>, Vec<_>) = env.partition(|(name, _)| is_of_servers(name));
        let others = others.into_iter().filter(|(name, _)| !self.replaces(name));
        Config::of_table(&origin, table, others.chain(self.own.clone()), misspelt(servers, of_servers))
    }

    fn replaces(&self, variable: &str) -> bool {
        self.own.iter().any(|(own, _)| own == variable)
    }
}

fn is_of_servers(variable: &str) -> bool {
    let of = |section: &&str| variable.starts_with(&format!("TIDEGATE_{}__", section.to_uppercase()));
    SERVERS.iter().any(of)
}

/// The names of these sections and variables that are no settings.
fn misspelt(servers: Table, variables: Vec<(String, String)>) -> Vec<Problem> {
    let reader = Reader::new(Overrides::collect(variables.into_iter()));
    reader.document(servers, |root| {
        root.section("kafka", Kafka::read);
        root.section("registry", Registry::read);
    });
    reader.finish().0.into_iter().filter(Problem::is_unknown_name).collect()
}
