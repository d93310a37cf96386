//! `tidegate-servers`: one Kafka and one registry for a whole run of `./x test`.
//!
//! Prints one line, `bootstrap=ADDRESS registry=URL`, when both serve, and runs until its standard input is closed: so the
//! servers end with whoever started this, however that ends.
#![allow(clippy::print_stdout, reason = "the line is this program's answer")]

use std::io::stdin;
use std::process::ExitCode;
use std::thread;

use tidegate_tests::servers::{Kafka, Registry};

fn main() -> ExitCode {
    let registry = thread::spawn(Registry::start);
    let kafka = Kafka::start(1);
    let Ok(registry) = registry.join() else { return ExitCode::FAILURE };
    println!("bootstrap={} registry={}", kafka.bootstrap(), registry.url());
    // A closed or broken input means the same: whoever wanted the servers is gone.
    drop(std::io::copy(&mut stdin().lock(), &mut std::io::sink()));
    ExitCode::SUCCESS
}
