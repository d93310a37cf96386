//! What tests allow for on a machine whose processes stand still for some seconds, each on its own.

use tidegate_tests::jobs::Jobs;
use tidegate_tests::pipeline::Pipeline;

const SHORT: &str = "session_timeout = \"6s\"";
const LONG: &str = "session_timeout = \"30s\"";

/// For where nobody is killed or frozen and runs are counted exactly: a process that stands still for some seconds must keep its
/// partitions, for else what it had in hand runs once more. Before the start.
pub(crate) fn keep_sessions(pipeline: &mut Pipeline) {
    pipeline.reconfigure(SHORT, LONG);
}

/// The same.
pub(crate) fn with_long_sessions(mut jobs: Jobs) -> Jobs {
    keep_sessions(&mut jobs.pipeline);
    jobs
}

/// For those that are started from now on, of which one is to be killed: the next one waits until the group counts it as dead.
pub(crate) fn shorten_sessions(pipeline: &mut Pipeline) {
    pipeline.reconfigure(LONG, SHORT);
}

/// What a command said on standard error, but for notes that it waits for Kafka: a broker may stand still for longer than a command
/// waits in silence.
pub(crate) fn without_waits(said: &str) -> String {
    let is_wait = |line: &str| line.contains("answers yet") && line.contains("still trying");
    said.split_inclusive('\n').filter(|line| !is_wait(line)).collect()
}

#[test]
fn only_notes_of_waiting_are_left_out() {
    let note = "note: no broker of `k:1` answers yet; still trying, for 10 s in all\n";
    assert_eq!(without_waits(&format!("note: one\n{note}error: two\n")), "note: one\nerror: two\n");
    assert_eq!(without_waits(note), "");
}
