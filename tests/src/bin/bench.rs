//! `./x bench`: measures a pipeline beside bare rdkafka loops on the same broker, in the same run.
//!
//! `tidegate-bench worker-process …` is the worker that is measured: its handlers do nothing, or wait.
#![allow(clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "worker-process") {
        return tidegate_tests::bench::worker_process(&arguments[1..]);
    }
    match tidegate_tests::bench::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
