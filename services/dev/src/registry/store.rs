//! What the registry knows, and what it takes.

use std::collections::BTreeMap;

use serde_json::Value;
use tidegate_codec::CompiledSchema;
use tidegate_codec::compatibility::{self, Incompatible};

/// Why a request is refused; `http` gives each its code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    #[error("Subject '{0}' not found.")]
    Subject(String),
    #[error("Version {0} not found.")]
    Version(String),
    #[error("Schema not found")]
    Schema,
    #[error("The specified version '{0}' is not a valid version id: write a number from 1 on, or latest.")]
    InvalidVersion(String),
    #[error("{0}")]
    InvalidSchema(String),
    #[error("Invalid compatibility level '{0}': write {LEVELS}.")]
    InvalidLevel(String),
    #[error(
        "Schema being registered is incompatible with an earlier schema for subject \"{subject}\": {reason}"
    )]
    Incompatible { subject: String, reason: String },
    #[error("Subject '{0}' does not have subject-level compatibility configured")]
    NoLevel(String),
}

const LEVELS: &str =
    "NONE, BACKWARD, BACKWARD_TRANSITIVE, FORWARD, FORWARD_TRANSITIVE, FULL or FULL_TRANSITIVE";

/// Against which versions, and in which direction, a new version is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Level {
    name: &'static str,
    /// The new schema reads what older ones have written.
    backward: bool,
    /// Older schemas read what the new one writes.
    forward: bool,
    /// All older versions count, and not the latest alone.
    transitive: bool,
}

impl Level {
    const ALL: [Self; 7] = [
        Self { name: "NONE", backward: false, forward: false, transitive: false },
        Self { name: "BACKWARD", backward: true, forward: false, transitive: false },
        Self { name: "BACKWARD_TRANSITIVE", backward: true, forward: false, transitive: true },
        Self { name: "FORWARD", backward: false, forward: true, transitive: false },
        Self { name: "FORWARD_TRANSITIVE", backward: false, forward: true, transitive: true },
        Self { name: "FULL", backward: true, forward: true, transitive: false },
        Self { name: "FULL_TRANSITIVE", backward: true, forward: true, transitive: true },
    ];
    const DEFAULT: Self = Self::ALL[1];

    pub(super) fn parse(name: &str) -> Result<Self, Refusal> {
        let known = Self::ALL.into_iter().find(|level| level.name == name);
        known.ok_or_else(|| Refusal::InvalidLevel(name.to_owned()))
    }

    pub(super) fn name(self) -> &'static str {
        self.name
    }
}

/// Which version of a subject is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    Latest,
    Number(usize),
}

impl Wanted {
    pub(super) fn parse(text: &str) -> Result<Self, Refusal> {
        match text {
            "latest" | "-1" => Ok(Self::Latest),
            number => match number.parse() {
                Ok(number) if number > 0 => Ok(Self::Number(number)),
                _ => Err(Refusal::InvalidVersion(text.to_owned())),
            },
        }
    }
}

/// One version of a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) number: usize,
    pub(super) id: u32,
    pub(super) schema: String,
}

/// All schemas and subjects.
#[derive(Debug)]
pub(super) struct Store {
    /// Id 1 is the first. With each text, what it says: spaces and the order of keys make no other schema.
    schemas: Vec<(String, Value)>,
    /// The ids of each subject's versions, the first version first.
    subjects: BTreeMap<String, Vec<u32>>,
    level: Level,
    levels: BTreeMap<String, Level>,
}

impl Default for Store {
    fn default() -> Self {
        let (schemas, subjects, levels) = Default::default();
        Self { schemas, subjects, level: Level::DEFAULT, levels }
    }
}

impl Store {
    pub(super) fn subjects(&self) -> Vec<&str> {
        self.subjects.keys().map(String::as_str).collect()
    }

    pub(super) fn schema(&self, id: u32) -> Result<&str, Refusal> {
        let place = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        place.and_then(|place| self.schemas.get(place)).map(|(text, _)| text.as_str()).ok_or(Refusal::Schema)
    }

    pub(super) fn versions(&self, subject: &str) -> Result<Vec<usize>, Refusal> {
        self.ids(subject).map(|ids| (1..=ids.len()).collect())
    }

    fn ids(&self, subject: &str) -> Result<&[u32], Refusal> {
        self.subjects.get(subject).map(Vec::as_slice).ok_or_else(|| Refusal::Subject(subject.to_owned()))
    }

    pub(super) fn version(&self, subject: &str, wanted: Wanted) -> Result<Version, Refusal> {
        let ids = self.ids(subject)?;
        let number = match wanted {
            Wanted::Latest => ids.len(),
            Wanted::Number(number) => number,
        };
        let id = number.checked_sub(1).and_then(|place| ids.get(place));
        let id = *id.ok_or_else(|| Refusal::Version(number.to_string()))?;
        Ok(Version { number, id, schema: self.schema(id)?.to_owned() })
    }

    /// The version of the subject that has this schema.
    pub(super) fn find(&self, subject: &str, text: &str) -> Result<Version, Refusal> {
        let ids = self.ids(subject)?;
        let wanted = parse(text)?;
        let place = self.id_of(&wanted).and_then(|id| ids.iter().position(|&known| known == id));
        self.version(subject, Wanted::Number(place.ok_or(Refusal::Schema)? + 1))
    }

    /// Registers the schema as the subject's next version, unless the subject has it; returns its id.
    pub(super) fn register(&mut self, subject: &str, text: &str) -> Result<u32, Refusal> {
        let value = parse(text)?;
        let known = self.id_of(&value);
        let ids = self.subjects.get(subject).map(Vec::as_slice).unwrap_or_default();
        if let Some(id) = known.filter(|id| ids.contains(id)) {
            return Ok(id);
        }
        let level = self.level_of(subject);
        let against = if level.transitive { ids } else { &ids[ids.len().saturating_sub(1)..] };
        if let Some(reason) = self.first_conflict(text, against, level)? {
            return Err(Refusal::Incompatible { subject: subject.to_owned(), reason });
        }
        let id = known.unwrap_or_else(|| {
            self.schemas.push((text.to_owned(), value));
            u32::try_from(self.schemas.len()).unwrap_or(u32::MAX)
        });
        self.subjects.entry(subject.to_owned()).or_default().push(id);
        Ok(id)
    }

    /// Why the schema could not follow this version; nothing if it could.
    pub(super) fn conflict(
        &self,
        subject: &str,
        wanted: Wanted,
        text: &str,
    ) -> Result<Option<String>, Refusal> {
        parse(text)?;
        let version = self.version(subject, wanted)?;
        self.first_conflict(text, &[version.id], self.level_of(subject))
    }

    fn first_conflict(&self, text: &str, against: &[u32], level: Level) -> Result<Option<String>, Refusal> {
        for &id in against.iter().rev() {
            let older = self.schema(id)?;
            let checks = [(level.backward, text, older), (level.forward, older, text)];
            for (_, reader, writer) in checks.into_iter().filter(|(is_asked, _, _)| *is_asked) {
                match compatibility::check(reader, writer) {
                    Ok(()) => {}
                    Err(Incompatible::Unreadable(reason)) => return Ok(Some(reason)),
                    Err(Incompatible::Schema(error)) => {
                        return Err(Refusal::InvalidSchema(error.to_string()));
                    }
                }
            }
        }
        Ok(None)
    }

    fn id_of(&self, value: &Value) -> Option<u32> {
        let place = self.schemas.iter().position(|(_, known)| known == value)?;
        u32::try_from(place + 1).ok()
    }

    pub(super) fn level(&self) -> Level {
        self.level
    }

    pub(super) fn set_level(&mut self, level: Level) {
        self.level = level;
    }

    /// The level that the subject has of its own.
    pub(super) fn own_level(&self, subject: &str) -> Result<Level, Refusal> {
        self.levels.get(subject).copied().ok_or_else(|| Refusal::NoLevel(subject.to_owned()))
    }

    pub(super) fn set_own_level(&mut self, subject: &str, level: Level) {
        self.levels.insert(subject.to_owned(), level);
    }

    pub(super) fn level_of(&self, subject: &str) -> Level {
        self.levels.get(subject).copied().unwrap_or(self.level)
    }
}

/// What the text says, if it is a schema that tidegate reads.
fn parse(text: &str) -> Result<Value, Refusal> {
    CompiledSchema::parse(0, text, &[])
        .map_err(|error| Refusal::InvalidSchema(format!("Invalid schema: {error}")))?;
    serde_json::from_str(text).map_err(|error| Refusal::InvalidSchema(format!("Invalid schema: {error}")))
}
