//! The configuration: one TOML file and `TIDEGATE_…` variables, read once into the types that are used later.
//!
//! A value of [`Config`] is valid: names are names, references lead somewhere, limits fit each other. Reading it
//! touches nothing but the one file; whether servers answer is another question.
//!
//! To follow a setting: `reader` finds it in file or environment, `values` and `names` turn it into its type, the
//! file named after the section says its default and meaning, `coherence` compares sections.

mod class;
mod class_key;
mod coherence;
mod console;
mod environment;
mod error;
mod flood;
mod handler;
mod kafka;
mod names;
mod reader;
mod reference;
mod retry;
mod secret;
mod sections;
mod selection;
mod slip;
mod stand_in;
mod suggestion;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::Path;

use serde::Serialize;
use toml::Table;

pub use class::{Class, OnConflict, Ordering};
pub use class_key::{KeySource, KeyWindow};
pub use console::{Console, Others, Proxy, Role, TokenHash, User};
pub use error::{ConfigError, InvalidValue, Problem, Problems};
pub use flood::Flood;
pub use handler::{BodyFormat, Handler, HttpHandler};
pub use kafka::{Kafka, Registry};
pub use names::{
    BrokerAddress, ClassName, FieldPath, HeaderName, HttpUrl, KeyScope, LogFilter, MetricsAddress,
    PipelineName, RecordName, RuleName, TierName, TimeZoneName, TopicName, UserName,
};
pub use reference::{Presence, Setting, reference};
pub use retry::{Jitter, Retry, Rung};
pub use secret::{MaskedMap, Secret};
pub use sections::{Consume, LogFormat, Observe, Pipeline, Retention, Source, Start, State, Tier, Topics};
pub use selection::{Ignore, Scalar, When};
pub use stand_in::StandIn;
pub(crate) use suggestion::nearest;
pub use suggestion::suggest;
pub use values::{ByteSize, duration_text};

use class::Declared;
use environment::Overrides;
use reader::{Reader, Section};
use slip::Corrected;

/// The file that is read if none is named.
pub const DEFAULT_FILE: &str = "tidegate.toml";

/// The whole configuration, with every default filled in.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    /// `[pipeline]`
    pub pipeline: Pipeline,
    /// `[kafka]`
    pub kafka: Kafka,
    /// `[registry]`; there if there is a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub registry: Option<Registry>,
    /// `[sources."topic"]`
    pub sources: BTreeMap<TopicName, Source>,
    /// `[tiers.NAME]`
    pub tiers: BTreeMap<TierName, Tier>,
    /// `[retry]`
    pub retry: Retry,
    /// `[classes.NAME]`
    pub classes: BTreeMap<ClassName, Class>,
    /// `[[ignore]]`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<Ignore>,
    /// `[state]`
    pub state: State,
    /// `[topics]`
    pub topics: Topics,
    /// `[consume]`
    pub consume: Consume,
    /// `[observe]`
    pub observe: Observe,
    /// `[console]`
    pub console: Console,
}

impl Config {
    /// Reads the file at `path` and the overrides in `env`.
    ///
    /// Without a path, [`DEFAULT_FILE`] in the working directory is read if it is there.
    pub fn load(
        path: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let file = path.unwrap_or(Path::new(DEFAULT_FILE));
        match read_file(file) {
            Err(ConfigError::Unreadable { source, .. })
                if path.is_none() && source.kind() == std::io::ErrorKind::NotFound =>
            {
                let origin = format!(
                    "the environment alone (there is no {DEFAULT_FILE} here: `tidegate init` writes one, --config names another file)"
                );
                Self::parse(&origin, "", env)
            }
            text => Self::parse(&file.display().to_string(), &text?, env),
        }
    }

    /// Reads a configuration from its text. `origin` says in errors where the text came from.
    pub fn parse(
        origin: &str,
        text: &str,
        env: impl Iterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        Self::of_table(origin, table(origin, text)?, env, Vec::new())
    }

    /// Reads a table; `problems` are known already.
    fn of_table(
        origin: &str,
        mut table: Table,
        env: impl Iterator<Item = (String, String)>,
        mut problems: Vec<Problem>,
    ) -> Result<Self, ConfigError> {
        let cores = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
        let mut env: Vec<_> = env.collect();
        let mut corrected = Corrected::default();
        // Each turn but the last corrects a name that no setting has, and makes none that was corrected before.
        let (config, found) = loop {
            let reader = Reader::after(Overrides::collect(env.iter().cloned()), corrected.slips().to_vec());
            let config = reader.document(table.clone(), |root| Self::read(root, cores));
            if let Some(config) = &config
                && reader.is_clean()
            {
                coherence::check(config, &reader);
            }
            let (found, slips) = reader.finish();
            if corrected.add(slips, &mut table, &mut env) == 0 {
                break (config, found);
            }
        };
        problems.extend(found);
        match config {
            Some(config) if problems.is_empty() => Ok(config),
            _ => Err(Problems::new(origin.to_owned(), problems).into()),
        }
    }

    fn read(root: &Section<'_>, cores: NonZeroUsize) -> Option<Self> {
        let pipeline = root.section("pipeline", Pipeline::read);
        let kafka = root.section("kafka", Kafka::read);
        let wants_registry = root.has("registry");
        let registry =
            root.section("registry", |section| if wants_registry { Registry::read(section) } else { None });
        let sources = root.each("sources", &[], |_: &TopicName, section| Source::read(section));
        let tiers =
            root.each("tiers", &Tier::DEFAULT_NAMES, |_: &TierName, section| Some(Tier::read(section)));
        let retry = root.section("retry", Retry::read);
        let source_names = root.names("sources", &[]);
        let tier_names = root.names("tiers", &Tier::DEFAULT_NAMES);
        let declared = Declared { sources: &source_names, tiers: &tier_names, retry: &retry };
        let classes = root.each("classes", &[], |name, section| Class::read(name, section, &declared));
        let ignore = root.list("ignore", |section| Ignore::read(section, &source_names));
        let state = root.section("state", State::read);
        let topics = root.section("topics", Topics::read);
        let consume = root.section("consume", |section| Consume::read(section, cores));
        let observe = root.section("observe", Observe::read);
        let console = root.section("console", Console::read);
        Some(Self {
            pipeline: pipeline?,
            kafka: kafka?,
            registry,
            sources,
            tiers,
            retry,
            classes,
            ignore,
            state,
            topics,
            consume,
            observe: observe?,
            console: console?,
        })
    }

    /// A tier by its name.
    pub fn tier(&self, name: &TierName) -> Option<&Tier> {
        self.tiers.get(name)
    }

    /// The classes whose jobs a tier carries, in alphabetical order.
    pub fn classes_of<'a>(&'a self, tier: &'a TierName) -> impl Iterator<Item = &'a Class> {
        self.classes.values().filter(move |class| class.tier == *tier)
    }

    /// The configuration in effect as TOML: defaults filled in, secrets as `***`.
    pub fn effective(&self) -> String {
        toml::to_string(self).unwrap_or_else(|error| format!("# it can't be shown: {error}\n"))
    }

    /// What is allowed, but probably not meant: for a warning at the start, and for `config check`.
    pub fn notes(&self) -> Vec<String> {
        coherence::notes(self)
    }

    /// For how long a duplicate is refused, and what an older one does: for the start, and for `config check`.
    pub fn duplicates_summary(&self) -> String {
        coherence::duplicates_summary(self)
    }

    /// What the default ladder amounts to: `4 attempts; waits 1s + 4s + 16s = 21s (17s to 25s with jitter)`.
    pub fn ladder_summary(&self) -> String {
        let rungs = u32::try_from(self.retry.ladder.len()).unwrap_or(u32::MAX);
        self.retry.summary(&self.retry.ladder, rungs.saturating_add(1))
    }
}

/// The text of a configuration file.
fn read_file(path: &Path) -> Result<String, ConfigError> {
    std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })
}

fn table(origin: &str, text: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| ConfigError::Syntax {
        origin: origin.to_owned(),
        message: syntax_message(text, &error),
    })
}

/// The parser's own text quotes the line, which may hold a password.
fn syntax_message(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
    format!("line {line}, column {column}: {}", error.message().trim_end().replace('\n', ", "))
}

/// The variables of this process, without those that are not text: they can't be settings.
pub fn process_environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
