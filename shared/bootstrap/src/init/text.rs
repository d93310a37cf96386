//! The file.

use std::path::Path;

use toml::Value;

use super::answers::Answers;
use super::error::InitError;
use crate::Config;
use crate::config::{BrokerAddress, Start};

impl Answers {
    /// The commented configuration. It is checked as every configuration is: what this returns, `config check` accepts.
    pub fn text(&self, path: &Path) -> Result<String, InitError> {
        let text = self.written();
        Config::parse(&path.display().to_string(), &text, std::iter::empty())
            .map_err(|error| InitError::Refused(Box::new(error)))?;
        Ok(text)
    }

    fn written(&self) -> String {
        format!("{HEAD}\n{}\n{}\n{}", self.servers(), self.jobs(), self.ignored())
    }

    fn servers(&self) -> String {
        let bootstrap: Vec<&str> = self.bootstrap.iter().map(BrokerAddress::as_str).collect();
        format!(
            "\
[kafka]
bootstrap = {bootstrap}
# replication = 3  # copies of tidegate's own topics; else what the brokers set

# Any librdkafka property. For a cluster with TLS and a log-in:
# [kafka.properties]
# \"security.protocol\" = \"SASL_SSL\"
# \"sasl.mechanisms\" = \"SCRAM-SHA-512\"
# \"sasl.username\" = \"tidegate\"  # the password belongs into TIDEGATE_KAFKA__PROPERTIES__SASL_PASSWORD

[registry]
url = {registry}
# username = \"tidegate\"  # the password belongs into TIDEGATE_REGISTRY__PASSWORD
",
            bootstrap = quoted(&bootstrap.join(",")),
            registry = quoted(self.registry.as_str()),
        )
    }

    fn jobs(&self) -> String {
        let key: Vec<String> = self.key.iter().map(|path| quoted(path.as_str())).collect();
        let start = match self.start {
            Start::Earliest => "earliest".to_owned(),
            Start::Latest => "latest".to_owned(),
            Start::At(time) => humantime::format_rfc3339(time).to_string(),
        };
        format!(
            "\
# A topic whose events become jobs. It must exist: it is its publishers' to create.
[sources.{topic}]
start = {start}  # where the very first start begins: \"latest\", \"earliest\" or a time

# A class: jobs of one kind.
[classes.{class}]
source = {topic}
key = [{key}]  # events with equal key fields are one job, and a job that is done does not run again
tier = {tier}  # critical, default or bulk: each has topics and workers of its own
# time_limit = \"30s\"  # of one attempt; then it counts as failed
# ordering = \"key\"  # a failed job holds up those behind it that have the same key
handler = {{ type = \"http\", url = {url} }}
",
            topic = quoted(self.topic.as_str()),
            start = quoted(&start),
            class = bare_or_quoted(self.class.as_str()),
            key = key.join(", "),
            tier = quoted(self.tier.as_str()),
            url = quoted(self.url.as_str()),
        )
    }

    fn ignored(&self) -> String {
        format!(
            "\
# Events that are no job must be named, else they are dead-lettered as unroutable:
# [[ignore]]
# name = \"tests\"
# source = {topic}
# when = {{ currency = \"TEST\" }}
",
            topic = quoted(self.topic.as_str()),
        )
    }
}

const HEAD: &str = "\
# One topic of Avro events becomes jobs, and each job is one POST to an HTTP endpoint.
#
#   tidegate config check       shows every setting with its default
#   tidegate topics apply       creates what is missing of tidegate's own topics
#
# Any setting can be overridden by the environment: TIDEGATE_KAFKA__BOOTSTRAP=kafka-1:9092
";

/// A table's name: the dots of one that is not quoted would make tables within tables.
fn bare_or_quoted(name: &str) -> String {
    if name.contains('.') { quoted(name) } else { name.to_owned() }
}

/// As TOML writes text.
fn quoted(text: &str) -> String {
    Value::String(text.to_owned()).to_string()
}
