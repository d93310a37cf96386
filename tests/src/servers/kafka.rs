use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer};

use super::{BOOTSTRAP_VARIABLE, Scratch, downloads, java_options};
use crate::guard::{Exit, Guarded, Launch, Signal, tail};
use crate::kafka_io::Client;
use crate::ports::free_port;
use crate::wait::look_until;

const TEMPLATE: &str = include_str!("../../servers/kafka.properties");
/// Generous: two busy cores start three brokers.
const START: Duration = Duration::from_secs(120);
const SHUTDOWN: Duration = Duration::from_secs(60);

/// A Kafka cluster (KRaft). The first nodes are controllers too; an even number of brokers has one controller less, because
/// two of two would be a quorum that one failure ends. So of three brokers any one may be killed, of two only the second.
#[derive(Debug)]
pub struct Kafka {
    bootstrap: String,
    brokers: Vec<Broker>,
    /// After `brokers`: data goes when nothing writes to it any more.
    _scratch: Option<Scratch>,
}

#[derive(Debug)]
struct Broker {
    process: Option<Guarded>,
    launch: Launch,
    port: u16,
}

impl Kafka {
    /// Starts a cluster of its own for this test and waits until it serves. Dropping it kills it.
    ///
    /// # Panics
    /// With the end of the broker's log, when it doesn't start.
    #[track_caller]
    pub fn start(brokers: usize) -> Self {
        Self::start_with(brokers, &[])
    }

    /// Like [`Kafka::start`], with broker settings added to those of `servers/kafka.properties`.
    #[track_caller]
    pub fn start_with(brokers: usize, settings: &[(&str, &str)]) -> Self {
        Self::start_tuned(brokers, settings, |_| {})
    }

    /// One broker as it would run in production: compiled fully, with a larger heap. Slower to start, for measurements.
    ///
    /// # Panics
    /// With the end of the broker's log, when it doesn't start.
    #[track_caller]
    pub fn start_for_measurements() -> Self {
        Self::start_tuned(1, &[], |arguments| {
            arguments.retain(|argument| !argument.starts_with("-XX:Tiered") && !argument.starts_with("-Xmx"));
            arguments.insert(0, "-Xmx2g".into());
        })
    }

    /// One broker with further listeners, which these settings are about.
    #[track_caller]
    pub(super) fn start_listening(further: Vec<Listener>, settings: &[(&str, &str)]) -> Self {
        Self::start_planned(1, Plan { further, ..Plan::new(1, settings) }, |_| {})
    }

    #[track_caller]
    fn start_tuned(brokers: usize, settings: &[(&str, &str)], tune: impl Fn(&mut Vec<String>)) -> Self {
        Self::start_planned(brokers, Plan::new(brokers, settings), tune)
    }

    #[track_caller]
    fn start_planned(brokers: usize, plan: Plan, tune: impl Fn(&mut Vec<String>)) -> Self {
        assert!(brokers > 0, "a cluster has a broker");
        let scratch = Scratch::new("kafka");
        let mut brokers: Vec<_> = (0..brokers).map(|index| plan.broker(&scratch, index)).collect();
        brokers.iter_mut().for_each(|broker| tune(&mut broker.launch.arguments));
        for broker in &mut brokers {
            broker.process = Some(Guarded::start(&broker.launch));
        }
        let addresses: Vec<_> = brokers.iter().map(Broker::address).collect();
        let mut kafka = Self { bootstrap: addresses.join(","), brokers, _scratch: Some(scratch) };
        (0..kafka.brokers.len()).for_each(|index| kafka.wait_ready(index));
        kafka
    }

    /// The Kafka that all tests share: never stop it, and use names from [`crate::unique`]. It's the one that
    /// `TIDEGATE_TEST_BOOTSTRAP` names, or else one broker that this process starts and that ends with it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Kafka> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(BOOTSTRAP_VARIABLE) {
            Ok(bootstrap) if !bootstrap.is_empty() => Self { bootstrap, brokers: Vec::new(), _scratch: None },
            _ => Self::start(1),
        })
    }

    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    pub fn client(&self) -> Client {
        Client::new(&self.bootstrap)
    }

    /// Kills the broker (from 0) as a power failure would: SIGKILL.
    pub fn kill_broker(&mut self, index: usize) {
        self.broker(index).take_running().kill();
    }

    /// Stops the broker in good order (SIGTERM): it hands its partitions over first.
    ///
    /// # Panics
    /// When it hasn't ended after a minute.
    pub fn stop_broker(&mut self, index: usize) {
        let broker = self.broker(index);
        let mut process = broker.take_running();
        process.signal(Signal::Term);
        if process.wait(SHUTDOWN).is_none() {
            panic!("broker {index} still runs {SHUTDOWN:?} after SIGTERM\n{}", broker.log_tail());
        }
    }

    /// Starts a stopped or killed broker again, on the same port and data, and waits until it serves. Its partitions may
    /// still be without a leader for a moment.
    pub fn start_broker(&mut self, index: usize) {
        let broker = self.broker(index);
        assert!(broker.process.is_none(), "broker {index} is running");
        broker.process = Some(Guarded::start(&broker.launch));
        self.wait_ready(index);
    }

    /// Freezes the broker (SIGSTOP): its connections stay open and nothing answers.
    pub fn pause_broker(&mut self, index: usize) {
        self.broker(index).running().freeze();
    }

    pub fn resume_broker(&mut self, index: usize) {
        self.broker(index).running().signal(Signal::Continue);
    }

    /// The last lines of the broker's log.
    pub fn log_tail(&mut self, index: usize) -> String {
        self.broker(index).log_tail()
    }

    fn broker(&mut self, index: usize) -> &mut Broker {
        assert!(!self.brokers.is_empty(), "the shared Kafka isn't this test's to touch: use Kafka::start(n)");
        &mut self.brokers[index]
    }

    /// Ready is what a client sees: the broker answers for metadata and knows every other broker that runs. A new client
    /// each time, because an old one might ask another broker.
    fn wait_ready(&mut self, index: usize) {
        let running = self.brokers.iter().filter(|broker| broker.process.is_some()).count();
        let broker = &mut self.brokers[index];
        let address = broker.address();
        let ready = look_until(START, || {
            if let Some(exit) = broker.running().wait(Duration::ZERO) {
                return Some(Err(exit));
            }
            (brokers_known_by(&address) >= running).then_some(Ok(()))
        });
        match ready {
            Some(Ok(())) => {}
            Some(Err(Exit(code))) => panic!("broker {index} ended with {code}\n{}", broker.log_tail()),
            None => panic!("broker {index} does not serve after {START:?}\n{}", broker.log_tail()),
        }
    }
}

impl Broker {
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn running(&mut self) -> &mut Guarded {
        self.process.as_mut().expect("the broker is running")
    }

    fn take_running(&mut self) -> Guarded {
        self.process.take().expect("the broker is running")
    }

    fn log_tail(&self) -> String {
        tail(&self.launch.stderr, 40)
    }
}

/// A listener beside the plain one.
#[derive(Debug, Clone)]
pub(super) struct Listener {
    pub(super) name: &'static str,
    pub(super) protocol: &'static str,
    pub(super) port: u16,
}

/// What the nodes of a cluster must agree on.
struct Plan {
    cluster_id: String,
    ports: Vec<u16>,
    controllers: Vec<u16>,
    further: Vec<Listener>,
    settings: String,
}

impl Plan {
    fn new(brokers: usize, settings: &[(&str, &str)]) -> Self {
        let controllers = if brokers.is_multiple_of(2) { brokers - 1 } else { brokers };
        let settings = settings.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        Self {
            cluster_id: cluster_id(),
            ports: (0..brokers).map(|_| free_port()).collect(),
            controllers: (0..controllers).map(|_| free_port()).collect(),
            further: Vec::new(),
            settings,
        }
    }

    /// Writes the node's files and says how to start it.
    fn broker(&self, scratch: &Scratch, index: usize) -> Broker {
        let downloads = downloads();
        let directory = scratch.path().join(format!("broker-{index}"));
        let data = directory.join("data");
        fs::create_dir_all(&data).expect("the data directory can be created");
        let properties = directory.join("server.properties");
        let text = self.properties(&data, index);
        let meta = format!("version=1\nnode.id={}\ncluster.id={}\n", index + 1, self.cluster_id);
        fs::write(&properties, text).expect("the broker's properties can be written");
        // These two files are what formatting does, without the seconds that its JVM needs.
        fs::write(data.join("meta.properties"), meta).expect("meta.properties can be written");
        fs::copy(downloads.join("bootstrap.checkpoint"), data.join("bootstrap.checkpoint"))
            .expect("the bootstrap checkpoint can be copied");
        let log = directory.join("broker.log");
        let mut arguments = java_options("kafka", "512m");
        arguments.extend(["-Dorg.slf4j.simpleLogger.showDateTime=true".into(), "-cp".into()]);
        arguments.push(format!("{}/kafka/*", downloads.display()));
        arguments.extend(["kafka.Kafka".into(), properties.display().to_string()]);
        let launch = Launch {
            program: PathBuf::from("java"),
            arguments,
            directory: Some(directory),
            stdout: log.clone(),
            stderr: log,
            remove: scratch.for_guard(),
            ..Launch::default()
        };
        Broker { process: None, launch, port: self.ports[index] }
    }

    fn properties(&self, data: &std::path::Path, index: usize) -> String {
        let mut roles = "broker";
        let mut listeners = format!("PLAINTEXT://127.0.0.1:{}", self.ports[index]);
        if let Some(port) = self.controllers.get(index) {
            roles = "broker,controller";
            listeners += &format!(",CONTROLLER://127.0.0.1:{port}");
        }
        let mut advertised = format!("PLAINTEXT://127.0.0.1:{}", self.ports[index]);
        let mut protocols = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT".to_owned();
        for Listener { name, protocol, port } in &self.further {
            let listener = format!(",{name}://127.0.0.1:{port}");
            listeners += &listener;
            advertised += &listener;
            protocols += &format!(",{name}:{protocol}");
        }
        let further =
            format!("\nadvertised.listeners={advertised}\nlistener.security.protocol.map={protocols}\n");
        let voter = |(index, port)| format!("{}@127.0.0.1:{port}", index + 1);
        let voters: Vec<String> = self.controllers.iter().enumerate().map(voter).collect();
        let text = TEMPLATE
            .replace("@ROLES@", roles)
            .replace("@NODE@", &(index + 1).to_string())
            .replace("@VOTERS@", &voters.join(","))
            .replace("@LISTENERS@", &listeners)
            .replace("@PORT@", &self.ports[index].to_string())
            .replace("@DATA@", &data.display().to_string())
            .replace("@REPLICATION@", &self.ports.len().min(3).to_string());
        text + &further + &self.settings
    }
}

/// 16 random bytes in URL-safe base 64 (22 characters), of which the last may only carry the two bits that are left.
fn cluster_id() -> String {
    use std::hash::{BuildHasher, RandomState};
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let random = RandomState::new();
    let character = |n: usize| ALPHABET[(random.hash_one(n) % ALPHABET.len() as u64) as usize] as char;
    (0..21).map(character).chain(['A']).collect()
}

fn brokers_known_by(address: &str) -> usize {
    let client: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", address)
        .set_log_level(RDKafkaLogLevel::Emerg) // refused connections are expected
        .create()
        .expect("a client can be created");
    client.fetch_metadata(None, Duration::from_secs(1)).map_or(0, |metadata| metadata.brokers().len())
}
