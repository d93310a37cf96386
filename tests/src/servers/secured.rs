use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use super::certificates::Authority;
use super::kafka::Listener;
use super::{Kafka, Scratch, downloads, java_options};
use crate::guard::{Guarded, Launch, tail};
use crate::ports::free_port;

/// The user that [`SecuredKafka`] has from its start.
pub const USER: &str = "tidegate-user";
/// The user's password.
pub const PASSWORD: &str = "correct-horse-battery";

/// One broker with three listeners: a plain one, by which the test itself looks on; one that asks for TLS and a log-in by
/// SCRAM-SHA-512; and one that asks for TLS and a certificate of the client. All certificates are signed by an authority made for it.
#[derive(Debug)]
pub struct SecuredKafka {
    kafka: Kafka,
    address: String,
    mutual: String,
    /// After `kafka`, which reads its key there.
    scratch: Scratch,
}

impl SecuredKafka {
    /// # Panics
    /// With the end of the log, when the broker does not start or the user can't be added.
    #[track_caller]
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with an authorizer: what no ACL allows is refused, but for whoever comes by the plain listener.
    #[track_caller]
    pub fn start_with_authorizer() -> Self {
        Self::start_with(&[
            ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
            ("super.users", "User:ANONYMOUS"),
        ])
    }

    #[track_caller]
    fn start_with(further: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("certificates");
        let ours = Authority::new("tidegate tests").expect("an authority can be made");
        let other = Authority::new("somebody else").expect("an authority can be made");
        let write = |name: &str, pem: Vec<u8>| {
            let path = scratch.path().join(name);
            std::fs::write(&path, pem).expect("a certificate can be written");
            path.display().to_string()
        };
        let key_store = write("broker.pem", ours.issue().expect("a certificate can be signed"));
        write("client.pem", ours.issue().expect("a certificate can be signed"));
        let trusted = write("ca.pem", ours.pem().expect("a certificate can be written"));
        write("other-ca.pem", other.pem().expect("a certificate can be written"));
        let secured = Listener { name: "SECURED", protocol: "SASL_SSL", port: free_port() };
        let mutual = Listener { name: "MUTUAL", protocol: "SSL", port: free_port() };
        let address = |listener: &Listener| format!("127.0.0.1:{}", listener.port);
        let (address, mutual_address) = (address(&secured), address(&mutual));
        let kafka = Kafka::start_listening(
            vec![secured, mutual],
            &[
                further,
                &[
                    ("ssl.keystore.type", "PEM"),
                    ("ssl.keystore.location", &key_store),
                    ("ssl.truststore.type", "PEM"),
                    ("ssl.truststore.location", &trusted),
                    ("listener.name.secured.sasl.enabled.mechanisms", "SCRAM-SHA-512"),
                    (
                        "listener.name.secured.scram-sha-512.sasl.jaas.config",
                        "org.apache.kafka.common.security.scram.ScramLoginModule required;",
                    ),
                    ("listener.name.mutual.ssl.client.auth", "required"),
                ],
            ]
            .concat(),
        );
        let secured = Self { kafka, address, mutual: mutual_address, scratch };
        secured.set_password(PASSWORD);
        secured
    }

    /// One that all tests of this process share: never stop it or change its password.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<SecuredKafka> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// The broker; its bootstrap address is that of the plain listener.
    pub fn kafka(&self) -> &Kafka {
        &self.kafka
    }

    /// The same, to stop and start it.
    pub fn kafka_mut(&mut self) -> &mut Kafka {
        &mut self.kafka
    }

    /// The address of the listener with TLS and log-in.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of the listener that asks for a certificate of the client.
    pub fn mutual_address(&self) -> &str {
        &self.mutual
    }

    /// A file with a client's key and certificate.
    pub fn client_certificate(&self) -> PathBuf {
        self.scratch.path().join("client.pem")
    }

    /// A file with the certificate of the authority that signed the broker's.
    pub fn authority(&self) -> PathBuf {
        self.scratch.path().join("ca.pem")
    }

    /// A file with the certificate of an authority that has nothing to do with it.
    pub fn other_authority(&self) -> PathBuf {
        self.scratch.path().join("other-ca.pem")
    }

    /// Sets the user's password. Connections that are logged in stay so.
    ///
    /// # Panics
    /// When Kafka's tool fails.
    #[track_caller]
    pub fn set_password(&self, password: &str) {
        self.set_password_of(USER, password);
    }

    /// The same for any user; one that is not known yet is added.
    ///
    /// # Panics
    /// When Kafka's tool fails.
    #[track_caller]
    pub fn set_password_of(&self, user: &str, password: &str) {
        let log = self.scratch.path().join("configs.log");
        let mut arguments = java_options("kafka", "256m");
        let classes = format!("{}/kafka/*", downloads().display());
        let credentials = format!("SCRAM-SHA-512=[password={password}]");
        arguments.extend(
            ["-cp", &classes, "kafka.admin.ConfigCommand", "--bootstrap-server", self.kafka.bootstrap()]
                .map(str::to_owned),
        );
        arguments.extend(
            ["--alter", "--entity-type", "users", "--entity-name", user, "--add-config", &credentials]
                .map(str::to_owned),
        );
        let mut tool = Guarded::start(&Launch {
            program: PathBuf::from("java"),
            arguments,
            stdout: log.clone(),
            stderr: log.clone(),
            ..Launch::default()
        });
        let exit = tool.wait(Duration::from_secs(60));
        assert!(exit.is_some_and(|exit| exit.is_success()), "{exit:?}\n{}", tail(&log, 20));
    }
}
