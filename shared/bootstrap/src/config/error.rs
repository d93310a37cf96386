//! Why a configuration is refused: every problem at once, each with its place and its remedy.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::DEFAULT_FILE;

/// Why [`Config::load`](super::Config::load) gave no configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("cannot read {}: {source}; {}", path.display(), remedy(path, source))]
    Unreadable {
        /// The file that was asked for.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
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

/// What to do about a file that can't be read.
fn remedy(path: &Path, source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::NotFound => "create the file, or name another with --config".to_owned(),
        io::ErrorKind::IsADirectory => {
            format!("name a file with --config, like {}", path.join(DEFAULT_FILE).display())
        }
        io::ErrorKind::PermissionDenied => "let this user read it, or name another with --config".to_owned(),
        io::ErrorKind::InvalidData => "it is no text: name a TOML file with --config".to_owned(),
        _ => "name another file with --config".to_owned(),
    }
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

/// What is wrong with a name in the file that no setting has.
pub(super) const NO_SUCH_SETTING: &str = "there is no such setting";
/// What is wrong with such a variable.
pub(super) const NAMES_NO_SETTING: &str = "it names no setting";

impl Problem {
    /// Whether there is no setting of this name.
    pub(super) fn is_unknown_name(&self) -> bool {
        [NO_SUCH_SETTING, NAMES_NO_SETTING].contains(&self.wrong.as_str())
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
