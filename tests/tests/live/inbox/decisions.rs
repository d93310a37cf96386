//! Discards, groups, and operators who decide at once.

use std::ops::ControlFlow;
use std::sync::Barrier;

use serde_json::json;
use tidegate_domain::inbox::RampLimits;
use tidegate_operator::{Filter, Inbox, Ordering, Pace, RunEnd, Selection, Snapshot};
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Task, tasks};

use super::operators::{Broken, LONG};

/// Each of several orders about this many items is more than one record of the journal.
const MANY: usize = 6000;

#[test]
fn of_a_discard_and_a_replay_of_what_both_operators_saw_one_counts_for_each_item_and_the_other_is_refused() {
    let broken = Broken::with_dead("decide", &tasks("t", MANY));
    broken.repair();
    let all = Selection::Filter(Filter::default());
    let (ann, bob) = (broken.inbox("ann"), broken.inbox("bob"));
    let seen = [ann.snapshot(&all).unwrap(), bob.snapshot(&all).unwrap()];
    let replay = Ordering::Replay { forced: false, pace: Pace { rate: None, ramp: RampLimits::ALL_AT_ONCE } };
    let at_once = Barrier::new(2);
    let order = |inbox: &Inbox, snapshot: &Snapshot, ordering, by| {
        at_once.wait();
        inbox.order(snapshot, ordering, by, Some("test data")).unwrap()
    };
    let (replayed, discarded) = std::thread::scope(|scope| {
        let replayed = scope.spawn(|| order(&ann, &seen[0], replay, "ann"));
        let discarded = scope.spawn(|| order(&bob, &seen[1], Ordering::Discard, "bob"));
        (replayed.join().unwrap(), discarded.join().unwrap())
    });
    for (order, other) in [(&replayed, &discarded), (&discarded, &replayed)] {
        let refused = order.refused.values().sum::<u64>();
        assert_eq!(
            (order.accepted + refused, refused),
            (MANY as u64, other.accepted),
            "{replayed:?} {discarded:?}"
        );
        assert!(order.refused.keys().all(|reason| reason == "stale"), "{order:?}");
    }
    if replayed.accepted > 0 {
        let end = ann.carry_out(replayed.run, "ann", &mut |_| ControlFlow::Continue(())).unwrap();
        assert_eq!(end, RunEnd::Finished);
    }
    broken.jobs.wait_settled(LONG);
    let states = broken.states();
    let count = |state: &str| states[state].as_u64().unwrap_or(0);
    assert_eq!((count("resolved"), count("discarded")), (replayed.accepted, discarded.accepted), "{states}");
    assert_eq!(broken.calls.tasks() as u64, replayed.accepted, "what was discarded did not run");
    assert_eq!(broken.calls.other_than(1), []);
}

#[test]
fn a_discard_is_audited_and_may_be_taken_back_and_a_discarded_item_is_not_replayed() {
    let broken = Broken::with_dead("discard", &tasks("t", 3));
    let (exit, _, stderr) = broken.run("ann", &["dlq", "discard", "--class", "task", "--yes"]);
    assert!(exit == Exit(2) && stderr.contains("--reason"), "{stderr}");
    let (exit, stdout, _) =
        broken.run("ann", &["dlq", "discard", "--class", "task", "--reason", "test data"]);
    assert!(exit == Exit(0) && stdout.contains("nothing was done"), "{stdout}");
    let done =
        broken.json("ann", 0, &["dlq", "discard", "--class", "task", "--reason", "test data", "--yes"]);
    assert_eq!(done["accepted"], 3);
    assert_eq!(broken.run("bob", &["dlq", "replay", "--class", "task", "--yes"]).0, Exit(3));
    assert_eq!(broken.states(), json!({ "discarded": 3 }));
    let history = broken.run("bob", &["dlq", "history"]).1;
    assert!(history.contains("ann") && history.contains("test data"), "{history}");
    assert_eq!(broken.json("bob", 0, &["dlq", "reopen", "--state", "discarded", "--yes"])["accepted"], 3);
    assert_eq!(broken.states(), json!({ "open": 3 }));
}

#[test]
fn a_group_that_was_resolved_and_fails_again_is_regressed() {
    let broken = Broken::with_dead("regress", &[Task::new("before")]);
    let state = || broken.json("ann", 0, &["dlq", "groups"])["groups"][0]["state"].clone();
    assert_eq!(state(), "open");
    broken.repair();
    assert_eq!(broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]).0, Exit(0));
    assert_eq!(state(), "closed");
    broken.break_again();
    broken.jobs.publish(&[Task::new("after")]);
    broken.jobs.pipeline.wait_for_dead(2, LONG);
    assert_eq!(state(), "regressed");
    assert_eq!(broken.states(), json!({ "open": 1, "resolved": 1 }));
}

#[test]
fn a_group_whose_item_is_run_again_although_it_is_done_and_fails_is_regressed() {
    let broken = Broken::with_dead("relapse", &[Task::new("only")]);
    let state = || broken.json("ann", 0, &["dlq", "groups"])["groups"][0]["state"].clone();
    broken.repair();
    assert_eq!(broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]).0, Exit(0));
    assert_eq!(state(), "closed");
    broken.break_again();
    let again = ["dlq", "replay", "--class", "task", "--force-done", "--reason", "lost it", "--yes"];
    assert_eq!(broken.run("ann", &again).0, Exit(3), "it fails");
    assert_eq!(broken.states(), json!({ "failed-again": 1 }));
    assert_eq!(state(), "regressed");
}

#[test]
fn where_a_job_is_is_told_by_its_key_or_by_its_fields() {
    let broken = Broken::with_dead("where", &tasks("t", 3));
    broken.repair();
    let by_fields = ["job", "where", "--class", "task", "--field", "id=t-1"];
    let found = broken.json("ann", 0, &by_fields);
    assert_eq!(
        (&found["marks"][0]["phase"], &found["marks"][0]["done_round"]),
        (&json!("dead"), &json!(null))
    );
    assert_eq!(found["items"][0]["state"], "open");
    assert_eq!(broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]).0, Exit(0));
    let key = found["key"].as_str().unwrap();
    let found = broken.json("ann", 0, &["job", "where", key]);
    assert_eq!(
        (&found["marks"][0]["done_round"], &found["items"][0]["state"]),
        (&json!(1), &json!("resolved"))
    );
    assert_eq!(broken.run("ann", &["job", "where", "--class", "task", "--field", "id=nobody"]).0, Exit(3));
    let (exit, _, stderr) = broken.run("ann", &["job", "where", "--class", "task", "--field", "lane=x"]);
    assert!(exit == Exit(2) && stderr.contains("--field id="), "{stderr}");
}
