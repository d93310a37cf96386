//! A real Kafka and a real schema registry as child processes, on free ports of 127.0.0.1.
//!
//! Both are Java programs that `./x servers` downloads once; starting one takes seconds. So most tests use the shared ones
//! ([`Kafka::shared`], [`Registry::shared`]) under names of their own, and only a test that stops or kills a server starts
//! its own. `./x test` starts one of each for *all* test binaries and names them by [`BOOTSTRAP_VARIABLE`] and
//! [`REGISTRY_VARIABLE`]; without these, each test binary starts its own on first use.

mod certificates;
mod kafka;
mod registry;
mod secured;
mod tls;

use std::path::{Path, PathBuf};

pub use kafka::Kafka;
pub use registry::Registry;
pub use secured::{PASSWORD, SecuredKafka, USER};
pub use tls::TlsFront;

/// Names the bootstrap servers of a running Kafka for [`Kafka::shared`].
pub const BOOTSTRAP_VARIABLE: &str = "TIDEGATE_TEST_BOOTSTRAP";
/// Names the URL (with `/apis/ccompat/v7`) of a running registry for [`Registry::shared`].
pub const REGISTRY_VARIABLE: &str = "TIDEGATE_TEST_REGISTRY";
/// When set (to anything), the servers' data and logs stay on disk after the test.
pub const KEEP_VARIABLE: &str = "TIDEGATE_TEST_KEEP";

/// Where `./x servers` puts what it downloads. Versions stand in `servers/pom.xml` only.
fn downloads() -> PathBuf {
    let pom = include_str!("../servers/pom.xml");
    let version = |name: &str| {
        let (_, rest) = pom.split_once(&format!("<{name}>")).expect("the pom names the version");
        rest.split_once('<').expect("the element is closed").0
    };
    let directory = cache_directory().join(format!(
        "tidegate/servers/kafka-{}-apicurio-{}",
        version("kafka.version"),
        version("apicurio.version")
    ));
    assert!(directory.is_dir(), "no Kafka in {}: run `./x servers`, which downloads it", directory.display());
    directory
}

fn cache_directory() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("XDG_CACHE_HOME")
        .or_else(|| Some(set("HOME")?.join(".cache")))
        .expect("HOME or XDG_CACHE_HOME is set")
}

/// Options of every server's JVM: a short start matters more to tests than peak throughput, and two cores run all of it.
/// The archive of loaded classes that `./x servers` made makes the start three times as quick.
fn java_options(server: &str, heap: &str) -> Vec<String> {
    let mut options =
        vec![format!("-Xmx{heap}"), "-XX:TieredStopAtLevel=1".into(), "-XX:+UseSerialGC".into()];
    let archive = downloads().join(format!("archives/{server}.jsa"));
    if archive.is_file() {
        options.push(format!("-XX:SharedArchiveFile={}", archive.display()));
    }
    options
}

/// Writes scripts by the names of Kafka's tools into the folder, each running the tool of the downloaded Kafka.
///
/// # Panics
/// When a file can't be written.
pub fn kafka_tools(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let options = java_options("kafka", "256m").join(" ");
    for (name, class) in [
        ("kafka-acls.sh", "org.apache.kafka.tools.AclCommand"),
        ("kafka-consumer-groups.sh", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"),
    ] {
        let script = format!(
            "#!/bin/sh\nexec java {options} -cp '{}/kafka/*' {class} \"$@\"\n",
            downloads().display()
        );
        let path = folder.join(name);
        std::fs::write(&path, script).expect("a script can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a script can be run");
    }
}

/// A directory for one server's data and logs, deleted on drop, or by the guards when statics are never dropped.
#[derive(Debug)]
struct Scratch {
    directory: PathBuf,
    kept: bool,
}

impl Scratch {
    fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new()
            .prefix(&format!("tidegate-{name}-"))
            .tempdir()
            .expect("a temporary directory can be created")
            .keep();
        Self { directory, kept: std::env::var_os(KEEP_VARIABLE).is_some() }
    }

    fn path(&self) -> &Path {
        &self.directory
    }

    /// What a guard should delete when this process has ended.
    fn for_guard(&self) -> Option<PathBuf> {
        (!self.kept).then(|| self.directory.clone())
    }
}

impl Drop for Scratch {
    #[allow(clippy::print_stderr, reason = "a person who asked to keep it must learn where it is")]
    fn drop(&mut self) {
        if self.kept {
            eprintln!("kept {}", self.directory.display());
        } else {
            // Nothing depends on it: a leftover in the temporary directory is only untidy.
            drop(std::fs::remove_dir_all(&self.directory));
        }
    }
}
