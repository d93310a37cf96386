//! What a worker makes of its handlers' answers, of duplicates and of order: against a real Kafka, registry and endpoint.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod answers;
mod duplicates;
mod flood;
mod handlers;
mod order;
