//! After an outage: what is replayed stands behind all that was published meanwhile.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use serde_json::json;
use tidegate_domain::inbox::RunId;
use tidegate_operator::RunEnd;
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Task, tasks};

use super::operators::{Broken, LONG};

const DEAD: usize = 6;

#[test]
fn a_replay_waits_behind_a_backlog_that_takes_longer_than_an_outcome_may() {
    let mut broken = Broken::new("backlog");
    let tier = "[tiers.default]\npartitions = ";
    broken.jobs.pipeline.reconfigure(&format!("{tier}4"), &format!("{tier}1\nconcurrency = 1"));
    broken.jobs.start();
    broken.jobs.publish(&tasks("dead", DEAD));
    broken.jobs.pipeline.wait_for_dead(DEAD, LONG);
    broken.repair();
    // Half a second each, one after the other: most of a minute.
    let backlog: Vec<Task> = tasks("late", 100).into_iter().map(|task| task.script("slow")).collect();
    broken.jobs.publish(&backlog);
    broken.jobs.pipeline.client.wait_for_count(&broken.jobs.pipeline.topic("default.jobs"), DEAD + 100, LONG);
    // One after the other: each would be missed at a time of its own.
    let ramp = ["--no-ramp", "--rate", "2", "--timeout", "20s"];
    let arguments = [&["dlq", "replay", "--class", "task", "--yes", "--detach"], &ramp[..]].concat();
    let (exit, stdout, stderr) = broken.run("ann", &arguments);
    assert_eq!(exit, Exit(0), "{stdout}\n{stderr}");
    let run = RunId::parse(broken.only_run("ann")["run"].as_str().unwrap()).unwrap();
    let mut told = BTreeSet::new();
    let end = broken.inbox("ann").carry_out(run, "ann", &mut |progress| {
        told.extend(progress.waits_for.clone());
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), RunEnd::Finished);
    let name = &broken.jobs.pipeline.name;
    let queue = format!(" in {name}.default.jobs/0, which {name}.default.worker gets through");
    assert!(told.iter().any(|told| told.starts_with("behind ") && told.ends_with(&queue)), "{told:?}");
    assert_eq!((broken.calls.calls(), broken.states()), (DEAD + 100, json!({ "resolved": DEAD })));
}
