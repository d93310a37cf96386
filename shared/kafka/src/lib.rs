//! Kafka behind the ports of `pipeline`, by librdkafka.
//!
//! [`consumer`]: an event thread serves rebalances, shards poll the split queue of each of their partitions. [`publisher`]: an
//! idempotent producer whose delivery reports come back as acknowledgements. [`log_reader`]: stretches of a changelog. [`topics`]:
//! what `topics apply` and `check` need, and the configuration that must not drift. [`embedded`]: a broker inside the process, to try
//! things out. This crate alone names rdkafka.
#![deny(missing_docs)]

mod classify;
mod clock;
pub mod consumer;
mod context;
pub mod embedded;
mod end;
mod fatal;
mod lag;
pub mod log_reader;
mod look;
mod lost_place;
mod native;
mod offsets;
mod patience;
pub mod publisher;
mod refusal;
mod settings;
pub mod single;
mod source;
mod topic_id;
pub mod topics;

pub use clock::SystemClock;
pub use end::end_process;
pub use fatal::Fatal;
pub use lag::GroupLag;
pub use log_reader::{LogReader, ReadError};
pub use patience::WAITING;
pub use publisher::Publisher;
pub use refusal::Refusal;
pub use settings::{ConnectError, KafkaSettings};
