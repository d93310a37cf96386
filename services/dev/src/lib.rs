//! Dev mode: the whole pipeline in one process, with nothing installed. A broker and a schema registry are embedded, the three services
//! run on threads, and either a shop is played (`demo`: a producer, and an endpoint with moods) or a user's own configuration runs.
//!
//! Reading order: `session` (what all runs share), [`run`] with `shop` and `own` (what is played), `kill` (the worker as a process of its
//! own, to be killed), `snapshot` and `figures` (the services' own metrics), `view` (how it is shown), `registry`.
//!
//! Nothing here is for production: the embedded broker forgets what does not fit into its memory. That is never passed over: a record that
//! was lost unread ends the run as an error.
#![deny(missing_docs)]

mod dead_letters;
mod demo;
mod error;
mod figures;
mod held;
mod kill;
mod leave;
mod others;
mod own;
mod patience;
mod registry;
mod servers;
mod services;
mod session;
mod shop;
mod snapshot;
mod sum;
mod view;
mod worker_process;

use std::path::PathBuf;

pub use error::DevError;
pub use registry::Registry;
pub use servers::Addresses;
pub use view::Show;
pub use worker_process::{WorkerPlace, work};

/// What dev mode is to do.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is played.
    pub play: Play,
    /// How it is shown.
    pub show: Show,
}

/// What is played.
#[derive(Debug, Clone)]
pub enum Play {
    /// The shop: it publishes, and ends by itself with a sum.
    Shop(Load),
    /// The shop, whose worker is killed once.
    KillWorker(Load),
    /// The pipeline of a configuration file, until somebody ends it. Others publish.
    Own(PathBuf),
}

/// How much the shop publishes.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Records in a second.
    pub rate: u32,
    /// After how many records it ends; none: when somebody ends it.
    pub records: Option<u64>,
}

/// The highest rate that the embedded broker keeps up with for certain, in records a second.
pub const HIGHEST_RATE: u32 = 500;

/// How dev mode ended, when it did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// In order: what was begun is finished and told, and it was all that there was to do, or somebody was to end it.
    InOrder,
    /// By a signal before its own end, or at once because somebody asked twice.
    Interrupted {
        /// The exit code: 128 and the signal's number.
        code: u8,
    },
}

/// Plays until it ends by itself or somebody ends it. Blocks.
///
/// # Errors
/// When anything does not work, when records were lost unread, and when the sum does not add up.
pub fn run(options: &Options) -> Result<End, DevError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let end = runtime.block_on(async {
        match &options.play {
            Play::Shop(load) => shop::run(*load, options.show).await,
            Play::KillWorker(load) => kill::run(*load).await,
            Play::Own(file) => own::run(file, options.show).await,
        }
    });
    // The process is about to end. Whatever was not waited for, since it failed or somebody was in a hurry, must not find its runtime gone.
    std::mem::forget(runtime);
    match end {
        // As other tools do whose output goes to one that has read enough.
        Err(DevError::Unread) => Ok(End::InOrder),
        end => end,
    }
}
