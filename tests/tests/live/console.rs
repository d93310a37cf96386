//! The console over a real Kafka, in a real browser.

mod fresh;
mod glance;
mod restart;
mod shop;
mod walk;
