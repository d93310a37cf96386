//! Whose marks a directory holds. Written beside the database, so that it is read before RocksDB touches anything.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use tidegate_domain::Topic;

const FILE: &str = "provenance.json";
/// The version of all that is stored. A newer one is not read.
const FORMAT: u32 = 1;

/// Whose marks they are: marks of another cluster, or of a topic that was made anew, speak of other records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provenance {
    /// The cluster's id.
    pub cluster_id: String,
    /// The job topics whose partitions may be opened, and the changelogs that their marks are read from.
    pub topics: BTreeMap<Topic, TopicIdentity>,
}

/// What makes a topic the same one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TopicIdentity {
    /// Its id, which a topic of the same name made later does not have.
    pub id: String,
    /// How many partitions it has: with another count, keys are in other partitions.
    pub partitions: u32,
    /// The id of its changelog, of which its marks are a copy: positions in another one mean something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changelog: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct Stored {
    format: u32,
    cluster_id: String,
    topics: BTreeMap<String, TopicIdentity>,
}

/// Why what is in a directory is not trusted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Distrust {
    #[error("it does not say whose it is")]
    UnknownOrigin,
    #[error("it can't be read: {0}")]
    Corrupt(String),
    #[error("it has format {found}, and this version reads {FORMAT}")]
    Format { found: u32 },
    #[error("it belongs to cluster {found}, not {expected}")]
    Cluster { found: String, expected: String },
    #[error("topic {topic} was made anew: its id was {found}, and is {expected}")]
    TopicId { topic: Topic, found: String, expected: String },
    #[error("the changelog of topic {topic} was made anew: its id was {found}, and is {expected}")]
    Changelog { topic: Topic, found: String, expected: String },
    #[error("topic {topic} had {found} partitions, and has {expected}")]
    Partitions { topic: Topic, found: u32, expected: u32 },
}

impl Distrust {
    /// The end of the name of the directory that is set aside, and the label of the metric.
    pub(crate) fn slug(&self) -> &'static str {
        match self {
            Self::UnknownOrigin => "unknown-origin",
            Self::Corrupt(_) => "corrupt",
            Self::Format { .. } => "other-format",
            Self::Cluster { .. } => "foreign-cluster",
            Self::TopicId { .. } => "recreated-topic",
            Self::Changelog { .. } => "recreated-changelog",
            Self::Partitions { .. } => "partition-count",
        }
    }
}

/// What a directory says of itself.
pub(crate) enum Found {
    Nothing,
    Readable(Record),
    Distrusted(Distrust),
}

/// The provenance that a directory has on record.
pub(crate) struct Record(Stored);

/// Reads what `dir` has on record.
pub(crate) fn read(dir: &Path) -> io::Result<Found> {
    #[derive(Deserialize)]
    struct Format {
        format: u32,
    }
    let text = match fs::read(dir.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    // The format first: a newer one may have other fields.
    let parsed = serde_json::from_slice(&text).and_then(|Format { format }| match format {
        FORMAT => serde_json::from_slice(&text).map(|stored| Found::Readable(Record(stored))),
        found => Ok(Found::Distrusted(Distrust::Format { found })),
    });
    Ok(parsed.unwrap_or_else(|error| Found::Distrusted(Distrust::Corrupt(format!("{FILE}: {error}")))))
}

impl Record {
    /// Whether it may be trusted by one who expects `expected`.
    pub(crate) fn check(&self, expected: &Provenance) -> Result<(), Distrust> {
        let Self(Stored { cluster_id, topics, .. }) = self;
        if *cluster_id != expected.cluster_id {
            let (found, expected) = (cluster_id.clone(), expected.cluster_id.clone());
            return Err(Distrust::Cluster { found, expected });
        }
        for (topic, identity) in &expected.topics {
            let Some(found) = topics.get(topic.as_str()) else { continue };
            let topic = topic.clone();
            if found.id != identity.id {
                let (found, expected) = (found.id.clone(), identity.id.clone());
                return Err(Distrust::TopicId { topic, found, expected });
            }
            if let (Some(found), Some(expected)) = (&found.changelog, &identity.changelog)
                && found != expected
            {
                let (found, expected) = (found.clone(), expected.clone());
                return Err(Distrust::Changelog { topic, found, expected });
            }
            if found.partitions != identity.partitions {
                let (found, expected) = (found.partitions, identity.partitions);
                return Err(Distrust::Partitions { topic, found, expected });
            }
        }
        Ok(())
    }

    /// Whether all that `expected` names is on record.
    pub(crate) fn covers(&self, expected: &Provenance) -> bool {
        expected.topics.iter().all(|(topic, identity)| {
            let known = self.0.topics.get(topic.as_str());
            known.is_some_and(|known| identity.changelog.is_none() || known.changelog.is_some())
        })
    }
}

/// Puts `provenance` on record, beside topics that are there already: as a whole, and before any mark is written.
pub(crate) fn write(dir: &Path, known: Option<Record>, provenance: &Provenance) -> io::Result<()> {
    let mut topics = known.map(|Record(stored)| stored.topics).unwrap_or_default();
    for (topic, identity) in &provenance.topics {
        let mut identity = identity.clone();
        // Who knows of no changelog does not make the others forget it.
        let known = topics.get(topic.as_str()).and_then(|known| known.changelog.clone());
        identity.changelog = identity.changelog.or(known);
        topics.insert(topic.to_string(), identity);
    }
    let stored = Stored { format: FORMAT, cluster_id: provenance.cluster_id.clone(), topics };
    let fresh = dir.join("provenance.json.new");
    let mut file = File::create(&fresh)?;
    file.write_all(&serde_json::to_vec_pretty(&stored)?)?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}
