use std::sync::OnceLock;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;

use super::{REGISTRY_VARIABLE, Scratch, downloads, java_options};
use crate::guard::{Exit, Guarded, Launch, tail};
use crate::http;
use crate::ports::free_port;
use crate::wait::look_until;

const START: Duration = Duration::from_secs(120);

/// An Apicurio Registry with Confluent's API. Its content is in a file, so it survives [`Registry::stop`] and
/// [`Registry::start_again`].
#[derive(Debug)]
pub struct Registry {
    url: String,
    /// `None` is the shared registry that another process started.
    own: Option<Own>,
}

#[derive(Debug)]
struct Own {
    process: Option<Guarded>,
    launch: Launch,
    _scratch: Scratch,
}

impl Registry {
    /// Starts a registry of its own for this test and waits until it answers. Dropping it kills it.
    ///
    /// # Panics
    /// With the end of its log, when it doesn't start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with variables in its environment, which may have it keep its content elsewhere.
    ///
    /// # Panics
    /// With the end of its log, when it doesn't start.
    pub fn start_with(environment: &[(&str, &str)]) -> Self {
        let scratch = Scratch::new("registry");
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/apis/ccompat/v7");
        let mut launch = launch(&scratch, port);
        launch.environment =
            environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut registry = Self { url, own: Some(Own { process: None, launch, _scratch: scratch }) };
        registry.start_again();
        registry
    }

    /// The registry that all tests share: never stop it, and use subjects from [`crate::unique`]. It's the one that
    /// `TIDEGATE_TEST_REGISTRY` names, or else one that this process starts and that ends with it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Registry> = OnceLock::new();
        SHARED.get_or_init(|| match std::env::var(REGISTRY_VARIABLE) {
            Ok(url) if !url.is_empty() => Self { url, own: None },
            _ => Self::start(),
        })
    }

    /// The base of the Confluent API, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Kills the registry: connections to it are refused from now on.
    pub fn stop(&mut self) {
        self.own().process.take().expect("the registry is running").kill();
    }

    /// Starts a stopped registry on the same port and with the same content, and waits until it answers.
    pub fn start_again(&mut self) {
        let subjects = format!("{}/subjects", self.url);
        let own = self.own();
        assert!(own.process.is_none(), "the registry is running");
        let mut process = Guarded::start(&own.launch);
        let ready = look_until(START, || {
            if let Some(exit) = process.wait(Duration::ZERO) {
                return Some(Err(exit));
            }
            matches!(http::get(&subjects), Ok((200, _))).then_some(Ok(()))
        });
        let log = || tail(&own.launch.stderr, 40);
        match ready {
            Some(Ok(())) => own.process = Some(process),
            Some(Err(Exit(code))) => panic!("the registry ended with {code}\n{}", log()),
            None => panic!("the registry does not answer after {START:?}\n{}", log()),
        }
    }

    /// Registers the Avro schema under the subject and returns its id.
    ///
    /// # Panics
    /// When the registry refuses it.
    pub fn register(&self, subject: &str, schema: &str) -> u32 {
        #[derive(Deserialize)]
        struct Registered {
            id: u32,
        }
        let url = format!("{}/subjects/{subject}/versions", self.url);
        let body = json!({ "schema": schema });
        let (status, text) = http::post_json(&url, &body).expect("the registry answers");
        assert_eq!(status, 200, "the registry refuses a schema for {subject}: {text}");
        serde_json::from_str::<Registered>(&text).expect("the answer names the id").id
    }

    /// The schema's text; `None` when the registry doesn't know the id.
    pub fn schema(&self, id: u32) -> Option<String> {
        #[derive(Deserialize)]
        struct Found {
            schema: String,
        }
        let (status, text) =
            http::get(&format!("{}/schemas/ids/{id}", self.url)).expect("the registry answers");
        match status {
            200 => Some(serde_json::from_str::<Found>(&text).expect("the answer has the schema").schema),
            404 => None,
            _ => panic!("the registry answers {status} for schema {id}: {text}"),
        }
    }

    fn own(&mut self) -> &mut Own {
        self.own.as_mut().expect("the shared registry isn't this test's to touch: use Registry::start()")
    }
}

fn launch(scratch: &Scratch, port: u16) -> Launch {
    let directory = downloads().join("registry");
    let log = scratch.path().join("registry.log");
    let mut arguments = java_options("registry", "384m");
    arguments.extend([
        "-Dquarkus.http.host=127.0.0.1".into(),
        format!("-Dquarkus.http.port={port}"),
        // No delay between an answer and the file: a killed registry has kept what it answered for.
        format!("-Dapicurio.datasource.url=jdbc:h2:file:{}/registry;WRITE_DELAY=0", scratch.path().display()),
    ]);
    // By default it opens 60 connections to its databases before it answers.
    for pool in ["", ".blue", ".green"] {
        arguments.push(format!("-Dapicurio.datasource{pool}.jdbc.initial-size=1"));
        arguments.push(format!("-Dapicurio.datasource{pool}.jdbc.min-size=1"));
    }
    arguments.push("-jar".into());
    arguments.push(runner(&directory));
    Launch {
        program: "java".into(),
        arguments,
        directory: Some(directory),
        stdout: log.clone(),
        stderr: log,
        remove: scratch.for_guard(),
        ..Launch::default()
    }
}

fn runner(directory: &std::path::Path) -> String {
    std::fs::read_dir(directory)
        .expect("the registry is downloaded")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .find(|name| name.ends_with("-runner.jar"))
        .expect("the download has the runner jar")
}
