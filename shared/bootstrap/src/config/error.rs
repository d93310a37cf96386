//! Why a configuration is refused: every problem at once, each with its place and its remedy.

use std::fmt;
use std::path::PathBuf;

/// Why [`Config::load`](super::Config::load) gave no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read {}: {source}; create the file, or name another with --config", path.display())]
    Unreadable {
        /// The file that was asked for.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: std::io::Error,
    },
    /// The text is not TOML, so nothing else could be checked.
    #[error("{origin} is not valid TOML at {message}; correct that line")]
    Syntax {
        /// Where the text came from.
        origin: String,
        /// Line and column, and what the parser expected there.
        message: String,
    },
    /// The text was read, and these settings are wrong.
    #[error(transparent)]
    Invalid(#[from] Problems),
}

/// All that is wrong with one configuration; never empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems {
    origin: String,
    found: Vec<Problem>,
}

impl Problems {
    pub(super) fn new(origin: String, found: Vec<Problem>) -> Self {
        Self { origin, found }
    }

    /// The problems, in the order of the sections.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.found.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.found.len() == 1 { "problem" } else { "problems" };
        write!(f, "{} {noun} in {}", self.found.len(), self.origin)?;
        self.found.iter().try_for_each(|problem| write!(f, "\n  {problem}"))
    }
}

/// One wrong setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The setting, as `section.key`; with the variable's name if the environment set it.
    pub path: String,
    /// What is wrong.
    pub wrong: String,
    /// What to do next.
    pub remedy: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path, self.wrong, self.remedy)
    }
}

/// Why a single value can't be what its setting needs, without the place it stood in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{wrong}; {remedy}")]
pub struct InvalidValue {
    /// What is wrong.
    pub wrong: String,
    /// What to do next.
    pub remedy: String,
}

impl InvalidValue {
    pub(crate) fn new(wrong: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { wrong: wrong.into(), remedy: remedy.into() }
    }
}
