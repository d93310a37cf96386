//! What is asked for, as flags give it and as the configuration takes it.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tempfile::NamedTempFile;

use super::error::InitError;
use crate::config::{BrokerAddress, ClassName, FieldPath, HttpUrl, Start, TierName, TopicName};

/// What the flags say; nothing of it is checked.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Some brokers, separated by commas.
    pub bootstrap: Option<String>,
    /// The address of the schema registry.
    pub registry: Option<String>,
    /// The topic with the events.
    pub topic: Option<String>,
    /// The class's name.
    pub class: Option<String>,
    /// The fields of the key, separated by commas.
    pub key: Option<String>,
    /// The tier.
    pub tier: Option<String>,
    /// The endpoint that runs the jobs.
    pub url: Option<String>,
    /// Where the first start begins.
    pub start: Option<String>,
    /// What is taken where no flag says it.
    pub environment: FromEnvironment,
}

/// What the variables of the environment say that override a configuration's servers; nothing of it is checked.
#[derive(Debug, Clone, Default)]
pub struct FromEnvironment {
    /// `TIDEGATE_KAFKA__BOOTSTRAP`
    pub bootstrap: Option<String>,
    /// `TIDEGATE_REGISTRY__URL`
    pub registry: Option<String>,
}

/// Overrides `kafka.bootstrap`.
pub(super) const BOOTSTRAP_VARIABLE: &str = "TIDEGATE_KAFKA__BOOTSTRAP";
/// Overrides `registry.url`.
pub(super) const REGISTRY_VARIABLE: &str = "TIDEGATE_REGISTRY__URL";

impl FromEnvironment {
    /// Takes what there is; an empty variable counts as none.
    pub fn of(environment: impl Iterator<Item = (String, String)>) -> Self {
        let mut found = Self::default();
        for (name, value) in environment.filter(|(_, value)| !value.is_empty()) {
            match name.as_str() {
                BOOTSTRAP_VARIABLE => found.bootstrap = Some(value),
                // One is asked for fields, and written; all of them are of one registry.
                REGISTRY_VARIABLE => {
                    found.registry = value.split(',').next().map(|url| url.trim().to_owned())
                }
                _ => {}
            }
        }
        found
    }
}

impl Given {
    /// The flags that are not given and have no default.
    pub fn missing(&self) -> Vec<&'static str> {
        let required =
            [("--topic", &self.topic), ("--start", &self.start), ("--key", &self.key), ("--url", &self.url)];
        required.into_iter().filter(|(_, value)| value.is_none()).map(|(flag, _)| flag).collect()
    }
}

/// All that a first configuration needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answers {
    /// Some brokers; at least one.
    pub bootstrap: Vec<BrokerAddress>,
    /// The schema registry.
    pub registry: HttpUrl,
    /// The topic with the events.
    pub topic: TopicName,
    /// Where the first start begins.
    pub start: Start,
    /// The class's name.
    pub class: ClassName,
    /// The fields of the key; at least one.
    pub key: Vec<FieldPath>,
    /// The tier.
    pub tier: TierName,
    /// The endpoint that runs the jobs.
    pub url: HttpUrl,
}

/// Writes the file, whole or not at all. One that is there is left alone, even one that appears in the meantime, unless `force` says
/// to replace it.
pub fn write_new(path: &Path, text: &str, force: Option<Replace>) -> Result<(), InitError> {
    let written = match force {
        // What is no file, like /dev/stdout, is written to and stays what it is.
        Some(Replace) if fs::metadata(path).is_ok_and(|there| !there.is_file()) => fs::write(path, text),
        Some(Replace) => {
            // What a link leads to is replaced, and not the link.
            let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
            whole(&path, text).and_then(|file| file.persist(&path).map(drop).map_err(|error| error.error))
        }
        None => whole(path, text)
            .and_then(|file| file.persist_noclobber(path).map(drop).map_err(|error| error.error)),
    };
    written.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => InitError::Exists { path: path.to_owned() },
        _ => InitError::Unwritable { path: path.to_owned(), source },
    })
}

/// The text in a file beside the one that it is to be: whoever interrupts leaves no half of it.
fn whole(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    // As any new file: less what the user's mask takes away.
    let readable = fs::Permissions::from_mode(0o666);
    let mut file =
        tempfile::Builder::new().prefix(".tidegate-init-").permissions(readable).tempfile_in(folder(path))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Refuses early what [`write_new`] would refuse in the end.
pub fn check_place(path: &Path, force: Option<Replace>) -> Result<(), InitError> {
    if path.is_dir() {
        return Err(InitError::IsFolder { path: path.to_owned() });
    }
    if !folder(path).is_dir() {
        return Err(InitError::NoFolder { path: path.to_owned(), folder: folder(path).to_owned() });
    }
    match fs::symlink_metadata(path) {
        Ok(_) if force.is_some() => Ok(()),
        Ok(_) => Err(InitError::Exists { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(InitError::Unwritable { path: path.to_owned(), source }),
    }
}

/// That a file which is there is to be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Replace;
