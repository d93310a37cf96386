//! `./x demo`: a pipeline to watch. Not written yet.
#![allow(clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

fn main() -> ExitCode {
    eprintln!("tidegate-demo is not implemented yet");
    ExitCode::FAILURE
}
