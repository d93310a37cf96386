//! The parts of the support that need no server.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tidegate_tests::endpoint::{Answer, Endpoint};
use tidegate_tests::guard::Exit;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::wait::{look_until, wait_until};
use tidegate_tests::{ports, unique};

#[test]
fn names_and_ports_are_given_out_once() {
    let names: HashSet<_> = (0..1000).map(|_| unique("pay")).collect();
    assert_eq!(names.len(), 1000);
    assert!(names.iter().all(|name| name.starts_with("pay-")));
    let ports: HashSet<_> = (0..100).map(|_| ports::free_port()).collect();
    assert_eq!(ports.len(), 100);
}

#[test]
fn a_condition_is_looked_at_even_when_no_time_is_left() {
    assert_eq!(look_until(Duration::ZERO, || Some(1)), Some(1));
    assert_eq!(look_until(Duration::ZERO, || None::<u8>), None);
}

#[test]
#[should_panic(expected = "waited 30ms for Godot")]
fn a_condition_that_never_holds_fails_the_test() {
    wait_until("Godot", Duration::from_millis(30), || false);
}

#[tokio::test]
async fn the_support_can_be_called_from_an_async_test() {
    assert_eq!(tidegate_tests::background::block_on(async { 7 }), 7);
}

const SOON: Duration = Duration::from_secs(60);

fn shell(script: &str) -> Process {
    Setup::new("shell", &["-c", script]).program("sh").config("a = 1\n").env("GREETING", "hello").start()
}

#[test]
fn a_process_gets_its_configuration_and_environment_and_its_output_is_kept() {
    let mut process = shell("echo $GREETING; echo $0 $1 >&2; cat tidegate.toml; exit 3");
    assert_eq!(process.wait(SOON), Exit(3));
    assert_eq!(process.stdout(), "hello\na = 1\n");
    assert_eq!(process.stderr(), "--config tidegate.toml\n");
    let directory = process.directory().to_owned();
    drop(process);
    assert!(!directory.exists());
}

#[test]
fn a_process_can_be_asked_to_end_and_be_killed() {
    let mut process = shell("trap 'exit 7' TERM; echo ready; while :; do sleep 0.02; done");
    process.wait_for_output("ready", SOON);
    process.sigterm();
    assert_eq!(process.wait(SOON), Exit(7));

    let mut process = shell("trap '' TERM; echo ready; while :; do sleep 0.02; done");
    process.wait_for_output("ready", SOON);
    process.sigterm();
    assert!(process.is_running());
    process.sigkill();
    assert_eq!(process.wait(SOON), Exit::KILLED);
}

#[test]
fn a_paused_process_does_nothing_until_it_is_resumed() {
    let mut process = shell("while :; do echo x; sleep 0.01; done");
    process.wait_for_output("x", SOON);
    process.pause();
    // The signal is on its way; what follows is only that the output ends.
    let mut last = (process.stdout().len(), Instant::now());
    wait_until("the output to stand still", SOON, || {
        let length = process.stdout().len();
        if length != last.0 {
            last = (length, Instant::now());
        }
        last.1.elapsed() > Duration::from_millis(300)
    });
    process.resume();
    wait_until("more output", SOON, || process.stdout().len() > last.0);
}

#[test]
fn readiness_is_an_answer_of_200() {
    let endpoint = Endpoint::start(|call| match call.number {
        0..=2 => Answer::status(503),
        _ => Answer::ok(),
    });
    let mut process = shell("exec sleep 60");
    process.wait_for_url(&(endpoint.url() + "/readyz"), SOON);
    assert_eq!(endpoint.calls().len(), 4);
}

#[test]
#[should_panic(expected = "shell ended with 5; waited for http://127.0.0.1:1/readyz to answer 200")]
fn waiting_for_a_process_that_ended_fails_the_test_at_once() {
    shell("echo cannot start >&2; exit 5")
        .wait_for_url("http://127.0.0.1:1/readyz", Duration::from_secs(600));
}
