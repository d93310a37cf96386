//! Why no configuration was written.

use std::io;
use std::path::PathBuf;

use super::fields::SchemaTrouble;
use crate::ExitCode;
use crate::config::{ConfigError, DEFAULT_FILE, InvalidValue};

/// Why no configuration was written. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The file is there already.
    #[error("{} is there already, and nothing was changed; write another file with --out, or replace it with --force", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// There is a folder in the file's place.
    #[error("{} is a folder; name a file in it: --out {}", path.display(), path.join(DEFAULT_FILE).display())]
    IsFolder {
        /// The folder.
        path: PathBuf,
    },
    /// There is no folder for the file.
    #[error(
        "there is no folder {} for the file {}; make it with `mkdir -p`, or write another file with --out",
        folder.display(),
        path.display()
    )]
    NoFolder {
        /// The file.
        path: PathBuf,
        /// The folder that it would be in.
        folder: PathBuf,
    },
    /// Nobody can be asked for what has no default.
    #[error("there is no default for {}: give it by flag, or run `tidegate init` on a terminal, which asks", flags.join(", "))]
    Missing {
        /// The flags that would give it.
        flags: Vec<&'static str>,
    },
    /// The value of a flag, or of a variable that stands for it, is none.
    #[error("{flag}: {invalid}")]
    Invalid {
        /// The flag or variable.
        flag: &'static str,
        /// What is wrong with its value, and what to write.
        #[source]
        invalid: InvalidValue,
    },
    /// The schema can't be had, so the names of fields can't be checked.
    #[error("{trouble}, or write the file with its fields unchecked: --offline")]
    Unchecked {
        /// Why.
        #[source]
        trouble: SchemaTrouble,
    },
    /// The input ended before the last answer.
    #[error(
        "the input ended before the last answer, and nothing was written; answer each question, or give its flag"
    )]
    Ended,
    /// The terminal can't be read or written.
    #[error("the terminal can't be used: {0}; give every answer as a flag, see `tidegate init --help`")]
    Terminal(#[source] io::Error),
    /// The file can't be written.
    #[error("{} can't be written: {source}; write another file with --out", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The answers do not fit each other.
    #[error("these answers make no configuration: {0}")]
    Refused(#[source] Box<ConfigError>),
}

impl InitError {
    /// The exit code of a command that ends with this.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Unchecked { trouble: SchemaTrouble::Unreachable { .. } }
            | Self::Ended
            | Self::Terminal(_)
            | Self::Unwritable { .. } => ExitCode::Failed,
            _ => ExitCode::Usage,
        }
    }
}
