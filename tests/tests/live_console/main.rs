//! The console over a real Kafka, in a real browser.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails where it stands")]

mod glance;
mod restart;
mod shop;
mod walk;
