//! `./x bench`: measures a pipeline. Not written yet.
#![allow(clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("tidegate-bench is not implemented yet");
    ExitCode::FAILURE
}
