//! The operators' inbox, by its command line: against a real Kafka, registry, services and endpoint.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod decisions;
mod operators;
mod ramps;
mod records;
mod replays;
