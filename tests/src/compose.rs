//! `docker-compose.yml` and the `Dockerfile`, as far as tests compare them with the code and run what they say.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

/// The image that is built from this repository.
pub const OWN_IMAGE: &str = "tidegate:compose";

/// The folder of the workspace.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root").to_owned()
}

/// A file of the repository.
///
/// # Panics
/// When it can't be read.
pub fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A compose file, its anchors and merges resolved.
#[derive(Debug, Clone)]
pub struct Compose {
    /// The whole document.
    pub document: Value,
    /// Its services by name.
    pub services: BTreeMap<String, Service>,
}

/// One service.
#[derive(Debug, Clone)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// What stands under it.
    pub value: Value,
}

impl Compose {
    /// The repository's.
    pub fn of_repository() -> Self {
        Self::parse(&read("docker-compose.yml"))
    }

    /// # Panics
    /// When the text is no YAML, or has no services.
    pub fn parse(text: &str) -> Self {
        let document: Value = serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}"));
        let services = document["services"].as_object().expect("there are services");
        let service = |(name, value): (&String, &Value)| {
            (name.clone(), Service { name: name.clone(), value: value.clone() })
        };
        Self { services: services.iter().map(service).collect(), document }
    }

    /// The services that run tidegate's own binary.
    pub fn own(&self) -> impl Iterator<Item = &Service> {
        self.services.values().filter(|service| service.image() == OWN_IMAGE)
    }

    /// The services in an order in which each comes after those that it waits for.
    ///
    /// # Panics
    /// When they wait for each other, or for a service that is not there.
    pub fn in_order(&self) -> Vec<&Service> {
        let mut ordered: Vec<&Service> = Vec::new();
        let mut placed = BTreeSet::new();
        while ordered.len() < self.services.len() {
            let next = self.services.values().find(|service| {
                !placed.contains(&service.name)
                    && service.depends_on().keys().all(|other| placed.contains(other))
            });
            let next = next.unwrap_or_else(|| panic!("after {placed:?} every service waits for another"));
            placed.insert(next.name.clone());
            ordered.push(next);
        }
        ordered
    }
}

impl Service {
    /// The image's name and tag.
    pub fn image(&self) -> &str {
        self.value["image"].as_str().unwrap_or_default()
    }

    /// What follows the entry point.
    pub fn command(&self) -> Vec<String> {
        texts(&self.value["command"])
    }

    /// The words of its health check, without `CMD`; none: it has no check.
    pub fn health_check(&self) -> Vec<String> {
        let words = texts(&self.value["healthcheck"]["test"]);
        assert!(words.is_empty() || words[0] == "CMD", "{}: no shell is needed: {words:?}", self.name);
        words.into_iter().skip(1).collect()
    }

    /// Its environment, as it is in an empty shell.
    pub fn environment(&self) -> BTreeMap<String, String> {
        let variables = self.value["environment"].as_object().into_iter().flatten();
        variables.map(|(name, value)| (name.clone(), interpolated(&plain(value)))).collect()
    }

    /// The services that it waits for, and the condition.
    pub fn depends_on(&self) -> BTreeMap<String, String> {
        let services = self.value["depends_on"].as_object().into_iter().flatten();
        let condition = |value: &Value| value["condition"].as_str().unwrap_or_default().to_owned();
        services.map(|(name, value)| (name.clone(), condition(value))).collect()
    }

    /// Its published ports: address and port of the host, port of the container.
    pub fn ports(&self) -> Vec<(String, u16, u16)> {
        let parse = |text: String| {
            let parts: Vec<&str> = text.split(':').collect();
            let [address, host, container] = parts[..] else {
                panic!("{}: {text} is not ADDRESS:PORT:PORT", self.name)
            };
            (address.to_owned(), host.parse().expect("a port"), container.parse().expect("a port"))
        };
        texts(&self.value["ports"]).into_iter().map(parse).collect()
    }

    /// Its volumes: name and where it is mounted.
    pub fn volumes(&self) -> Vec<(String, String)> {
        let parse = |text: String| {
            let (name, place) = text.split_once(':').expect("a volume has a name and a place");
            (name.to_owned(), place.to_owned())
        };
        texts(&self.value["volumes"]).into_iter().map(parse).collect()
    }

    /// How long it may take to stop; Docker's default is 10 s.
    pub fn stop_grace_period(&self) -> Duration {
        match self.value["stop_grace_period"].as_str() {
            Some(text) => duration(text),
            None => Duration::from_secs(10),
        }
    }
}

/// `40s`, `1m`.
pub fn duration(text: &str) -> Duration {
    let (number, unit) = text.split_at(text.len() - 1);
    let number: u64 = number.parse().unwrap_or_else(|_| panic!("{text} is no duration"));
    match unit {
        "s" => Duration::from_secs(number),
        "m" => Duration::from_secs(60 * number),
        _ => panic!("{text} is no duration"),
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(plain).collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// `${NAME:-default}` with nothing set.
fn interpolated(text: &str) -> String {
    match text.split_once("${") {
        None => text.to_owned(),
        Some((before, rest)) => {
            let (inner, after) = rest.split_once('}').expect("the brace is closed");
            let (_, default) = inner.split_once(":-").expect("every variable has a default");
            format!("{before}{default}{}", interpolated(after))
        }
    }
}

/// A Dockerfile's stages.
#[derive(Debug)]
pub struct Dockerfile {
    /// In order.
    pub stages: Vec<Stage>,
}

/// One stage.
#[derive(Debug)]
pub struct Stage {
    /// What it starts from.
    pub image: String,
    /// Its name.
    pub name: String,
    /// Its instructions after `FROM`: the word in upper case and the rest of the line, continued lines joined.
    pub instructions: Vec<(String, String)>,
}

impl Dockerfile {
    /// The repository's.
    ///
    /// # Panics
    /// When an instruction stands before the first `FROM`, or a stage has no name.
    pub fn of_repository() -> Self {
        let text = read("Dockerfile");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        let joined = lines.collect::<Vec<_>>().join("\n").replace("\\\n", " ");
        let mut stages: Vec<Stage> = Vec::new();
        for line in joined.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            let rest = rest.split_whitespace().collect::<Vec<_>>().join(" ");
            if word == "FROM" {
                let (image, name) = rest.split_once(" AS ").expect("every stage has a name");
                let (image, name) = (image.to_owned(), name.to_owned());
                stages.push(Stage { image, name, instructions: Vec::new() });
            } else {
                let stage = stages.last_mut().expect("FROM comes first");
                stage.instructions.push((word.to_owned(), rest));
            }
        }
        Self { stages }
    }

    /// A stage by its name.
    pub fn stage(&self, name: &str) -> &Stage {
        let found = self.stages.iter().find(|stage| stage.name == name);
        found.unwrap_or_else(|| panic!("there is no stage {name}"))
    }
}

impl Stage {
    /// The rests of all instructions of this word.
    pub fn all<'a>(&'a self, word: &'a str) -> impl Iterator<Item = &'a str> {
        self.instructions.iter().filter(move |(known, _)| known == word).map(|(_, rest)| rest.as_str())
    }

    /// The last instruction of this word, which is the one that counts.
    pub fn last<'a>(&'a self, word: &'a str) -> &'a str {
        self.all(word).last().unwrap_or_else(|| panic!("{} has no {word}", self.name))
    }

    /// The Debian packages that it installs.
    pub fn packages(&self) -> BTreeSet<String> {
        let installed =
            self.all("RUN").filter_map(|run| run.split_once("install -y ")?.1.split(" && ").next());
        let words = installed.flat_map(str::split_whitespace).filter(|word| !word.starts_with('-'));
        words.map(str::to_owned).collect()
    }
}
