//! `./x bench`: measures a pipeline beside bare rdkafka loops on the same broker, in the same run.
//!
//! `tidegate-bench worker-process …` is the worker that is measured: its handlers do nothing, or wait. `marks-process …` is the one that
//! is measured with its changelog and without.
#![allow(clippy::print_stderr, reason = "a program for people")]

use std::process::ExitCode;

/// As in `tidegate` itself; the bare loops have it too.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "worker-process") {
        return tidegate_tests::bench::worker_process(&arguments[1..]);
    }
    if arguments.first().is_some_and(|first| first == "marks-process") {
        return tidegate_tests::bench::marks_process(&arguments[1..]);
    }
    match tidegate_tests::bench::run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("error: {reason}");
            ExitCode::FAILURE
        }
    }
}
