//! In-memory ports, deterministic on a current-thread runtime with paused time.
//!
//! What outlives a process stands in [`World`]: the [`log`] (topics), the committed [`offsets`], the [`marks`] and the [`clock`].
//! A [`Node`] is one process with one shard; it can be assigned partitions, be revoked, lose them, and be killed. Every port call
//! of a node asks [`Faults`] for its fate: scripted, or drawn from the world's seed.
//!
//! Reading order: [`faults`], [`log`], [`world`], [`node`].

pub mod clock;
pub mod copies;
pub mod dice;
pub mod events;
pub mod faults;
pub mod gauge;
pub mod handlers;
pub mod log;
pub mod marks;
pub mod node;
pub mod offsets;
mod parcels;
pub mod publisher;
pub mod world;

pub use clock::FakeClock;
pub use copies::{Disk, FakeReader, FakeTable};
pub use dice::Dice;
pub use events::{Event, FnRouter};
pub use faults::{Fate, Faults, Port};
pub use gauge::OneGauge;
pub use handlers::{Reply, Run, Runs, ScriptedHandler};
pub use log::{FakeLog, FakeSource};
pub use marks::{FakeMarks, MarkTable};
pub use node::Node;
pub use offsets::{FakeCommitter, GroupOffsets};
pub use publisher::FakePublisher;
pub use world::World;
