//! `./x demo --real`: a whole pipeline to watch. A real Kafka and a real registry, the three services as processes of their own, an
//! endpoint that plays flaky dependencies, and events of three classes with duplicates, failures and garbage. It ends with a sum
//! that must add up: published = done + dead + duplicates.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]
#![allow(clippy::unwrap_used, reason = "a broken demo must stop with what it saw")]

use std::process::ExitCode;

fn main() -> ExitCode {
    match tidegate_tests::demo::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("\nThe demo failed: {reason}");
            ExitCode::FAILURE
        }
    }
}
