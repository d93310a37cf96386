//! `tidegate-chaos`: a real cluster, real services and a steady load, harmed at random; in the end every event is accounted for.
//!
//! Reading order: [`plan`] (what happens, drawn from the seed), [`faults`] (how it is done), [`servers`], [`fleet`], [`endpoint`]
//! and [`load`] (to what), [`watcher`] and [`gather`] (what is seen of it), [`history`] (the facts), [`account`] (the rules),
//! [`report`] (the table).
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

mod account;
mod config;
mod dice;
mod endpoint;
mod faults;
mod fleet;
mod gather;
mod history;
mod journal;
mod load;
mod plan;
mod report;
mod run;
mod servers;
mod watcher;

use std::hash::{BuildHasher, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

#[derive(Debug, Parser)]
#[command(name = "./x chaos", about = "Harm a real pipeline at random, and account for every event")]
struct Arguments {
    /// Draws faults and events [default: a new one, which is printed]
    #[arg(long)]
    seed: Option<u64>,
    /// For how long faults are injected; starting and settling come on top
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seed = arguments.seed.unwrap_or_else(|| RandomState::new().hash_one("seed") % 1_000_000);
    let seconds = (arguments.minutes * 60.0).clamp(1.0, 7.0 * 24.0 * 3600.0);
    match run::run(seed, Duration::from_secs_f64(seconds)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("\nThe chaos run with seed {seed} failed: {reason}");
            ExitCode::FAILURE
        }
    }
}
