//! What a worker makes of its handlers' answers, of duplicates and of order: against a real Kafka, registry and endpoint.

mod answers;
mod duplicates;
mod flood;
mod handlers;
mod order;
