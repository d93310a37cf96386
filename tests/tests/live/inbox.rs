//! The operators' inbox, by its command line: against a real Kafka, registry, services and endpoint.

mod backlog;
mod decisions;
mod operators;
mod ramps;
mod records;
mod replays;
