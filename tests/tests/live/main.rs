//! What needs real servers: processes of the real binary against a real Kafka and registry, which all of it shares, or brokers of its own.
//!
//! One program, since its tests mostly wait: side by side they take a third of the time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod acls;
mod compose;
mod console;
mod documentation;
mod faults;
mod inbox;
mod ingest;
mod init;
mod marks;
mod mistakes;
mod outcomes;
mod records;
mod registry;
mod retry;
mod schemas;
mod security;
mod standstill;
mod starts;
mod support;
mod topics;
mod worker;
