//! What is asked for, as flags give it and as the configuration takes it.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

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

/// Writes the file. One that is there is left alone, even one that appears in the meantime, unless `force` says to replace it.
pub fn write_new(path: &Path, text: &str, force: Option<Replace>) -> Result<(), InitError> {
    let opened = match force {
        Some(Replace) => File::create(path),
        None => File::create_new(path),
    };
    let written = opened.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|source| match source.kind() {
        ErrorKind::AlreadyExists => InitError::Exists { path: path.to_owned() },
        _ => InitError::Unwritable { path: path.to_owned(), source },
    })
}

/// Refuses early what [`write_new`] would refuse in the end.
pub fn refuse_existing(path: &Path) -> Result<(), InitError> {
    match fs::symlink_metadata(path) {
        Ok(_) => Err(InitError::Exists { path: path.to_owned() }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(source) => Err(InitError::Unwritable { path: path.to_owned(), source }),
    }
}

/// That a file which is there is to be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Replace;
