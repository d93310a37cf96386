//! What tests of tidegate stand on: real servers, a client that reads Kafka back, the real binary, an HTTP endpoint.
//!
//! Reading order: [`servers`] (a Kafka cluster and a schema registry as child processes), [`kafka_io`] (produce, read back,
//! wait), [`process`] (the `tidegate` binary, to be killed), [`endpoint`] (the HTTP handler that tests script), [`browser`] (Chromium, for
//! the console). Beneath them:
//! [`guard`] (no child outlives the test), [`wait`] (conditions with a deadline, no blind sleeps) and [`background`] (a
//! runtime of its own, so that everything here can be called from plain and from async tests). Apart from these: [`documents`]
//! (README and docs, with their code blocks) and [`walk`] (does what a page says).
//!
//! Everything blocks and panics with what it saw: a test wants a failure at the line that asked. In an async test use
//! `#[tokio::test(flavor = "multi_thread")]`, or the calls here hold up what the test itself has spawned.
//!
//! A test that needs the servers is an ordinary integration test in `tests/tests/live`, which is one program; `./x test --fast`
//! leaves it out. Names of topics, groups and subjects come from [`unique`]: the shared servers are never cleaned.

pub mod background;
pub mod bench;
pub mod browser;
pub mod compose;
pub mod dead_letters;
pub mod demo;
pub mod documents;
pub mod endpoint;
pub mod events;
pub mod guard;
pub mod http;
pub mod jobs;
pub mod kafka_io;
pub mod pipeline;
pub mod ports;
pub mod process;
pub mod servers;
pub mod wait;
pub mod walk;

pub use kafka_io::unique;
