//! Replays: each item once a round, whoever replays it, and however often.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Task, tasks};
use tidegate_tests::servers::Registry;
use tidegate_tests::wait::wait_until;

use super::operators::{Broken, LONG};

const ALL: [&str; 6] = ["dlq", "replay", "--class", "task", "--no-ramp", "--json"];

/// What a dry run says, told once more where marks could not be read in the time that it has: nothing else depends on that.
#[track_caller]
fn dry_run(broken: &Broken) -> Value {
    let told = broken.json("ann", 0, &ALL[..5]);
    let too_slow = told["keys_unchecked"]
        .as_object()
        .is_some_and(|unchecked| unchecked.keys().any(|reason| reason.contains("within")));
    if too_slow { broken.json("ann", 0, &ALL[..5]) } else { told }
}

#[test]
fn ten_thousand_items_that_two_operators_replay_at_once_run_once_each() {
    let broken = Broken::with_dead("race", &tasks("t", 10_000));
    broken.repair();
    // Both know all items before either acts.
    for operator in ["ann", "bob"] {
        assert_eq!(broken.json(operator, 0, &ALL[..5])["fit"], 10_000);
    }
    let mut ann = broken.start("ann", &[&ALL[..], &["--yes"]].concat());
    let mut bob = broken.start("bob", &[&ALL[..], &["--yes"]].concat());
    let exits = [ann.wait(LONG), bob.wait(LONG)];
    assert!(
        exits.contains(&Exit(0)) && exits.iter().all(|exit| [Exit(0), Exit(3)].contains(exit)),
        "{exits:?}\n{}\n{}",
        ann.stderr(),
        bob.stderr()
    );
    broken.calls.wait_for_tasks(10_000, LONG);
    broken.jobs.wait_settled(LONG);
    assert_eq!(broken.calls.other_than(1), []);
    assert_eq!(broken.states(), json!({ "resolved": 10_000 }));
    let runs = broken.run("cyd", &["dlq", "history", "--runs", "--json"]).1;
    let runs: Vec<Value> = runs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let sum = |name: &str| runs.iter().map(|run| run[name].as_u64().unwrap()).sum::<u64>();
    // Who begins later may find that nothing is left to order.
    assert!((1..=2).contains(&runs.len()), "{runs:?}");
    assert_eq!((sum("accepted"), sum("passed")), (10_000, 10_000), "{runs:?}");
}

#[test]
fn a_replay_whose_console_is_killed_at_half_is_seen_through_by_another() {
    let broken = Broken::with_dead("killed", &tasks("t", 1000));
    broken.repair();
    let mut ann = broken.start("ann", &[&ALL[..], &["--yes", "--rate", "40"]].concat());
    broken.calls.wait_for_tasks(400, LONG);
    ann.sigkill();
    ann.wait(Duration::from_secs(10));
    let before = broken.calls.tasks();
    assert!(before < 900, "it was killed too late to tell anything: {before}");
    let run = broken.only_run("bob");
    assert_eq!((&run["accepted"], &run["status"]), (&json!(1000), &json!("running")));
    let end = broken.json("bob", 0, &["dlq", "replay", "--resume", run["run"].as_str().unwrap()]);
    assert_eq!((&end["end"], &end["run"]["passed"]), (&json!("finished"), &json!(1000)));
    broken.jobs.wait_settled(LONG);
    assert_eq!((broken.calls.tasks(), broken.calls.other_than(1)), (1000, vec![]));
    // Once more changes nothing.
    let again = broken.json("bob", 0, &["dlq", "replay", "--resume", run["run"].as_str().unwrap()]);
    assert_eq!((&again["end"], &again["progress"]["published"]), (&json!("finished"), &json!(0)));
    assert_eq!(broken.states(), json!({ "resolved": 1000 }));
}

#[test]
fn a_replay_that_is_left_to_a_console_is_carried_out_by_one_that_runs() {
    let broken = Broken::with_dead("detached", &tasks("t", 20));
    broken.repair();
    let _console = broken.console("bob");
    let told = broken.json("ann", 0, &[&ALL[..5], &["--yes", "--detach"]].concat());
    assert_eq!(told["accepted"], 20, "{told}");
    broken.calls.wait_for_tasks(20, LONG);
    broken.jobs.wait_settled(LONG);
    wait_until("the run to end", LONG, || broken.only_run("ann")["status"] == "finished");
    assert_eq!(broken.states(), json!({ "resolved": 20 }));
    assert_eq!(broken.calls.other_than(1), []);
}

#[test]
fn a_command_beside_a_console_on_one_index_works_while_letters_keep_coming() {
    let broken = Broken::with_dead("beside", &tasks("t", 30));
    broken.repair();
    let mut console = broken.console("ann");
    let (client, dlq) = (&broken.jobs.pipeline.client, broken.jobs.pipeline.topic("dlq"));
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                client.produce(&dlq, &tidegate_tests::kafka_io::Record::default().value("v"));
                came.fetch_add(1, Ordering::Relaxed);
            }
        });
        let commands = || {
            wait_until("letters to come", LONG, || came.load(Ordering::Relaxed) > 0);
            let before = came.load(Ordering::Relaxed);
            let listed = broken.run("ann", &["dlq", "list", "--class", "task", "--json"]);
            let replayed = broken.run("ann", &[&ALL[..], &["--yes"]].concat());
            assert!(came.load(Ordering::Relaxed) > before, "letters came meanwhile");
            (listed, replayed)
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(commands));
        stop.store(true, Ordering::Relaxed);
        let (listed, replayed) = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        assert_eq!((listed.0, listed.1.lines().count()), (Exit(0), 30), "{}", listed.2);
        assert_eq!(replayed.0, Exit(0), "{}\n{}", replayed.1, replayed.2);
    });
    broken.jobs.wait_settled(LONG);
    assert_eq!((broken.calls.tasks(), broken.calls.other_than(1)), (30, vec![]));
    assert!(console.is_running());
}

#[test]
fn a_dry_run_is_the_default_and_changes_nothing() {
    let broken = Broken::with_dead("dry", &tasks("t", 5));
    let dry = dry_run(&broken);
    assert_eq!((&dry["selected"], &dry["fit"], &dry["keys_done"]), (&json!(5), &json!(5), &json!(0)));
    let class = &dry["classes"][0];
    assert_eq!(class["topic"], broken.jobs.job_topic());
    assert_eq!((&class["decodable"], &class["fit_today"], &class["gone"]), (&json!(5), &json!(5), &json!(0)));
    assert_eq!((&class["unchecked"], &dry["keys_unchecked"]), (&json!({}), &json!({})));
    let (exit, stdout, _) = broken.run("ann", &["dlq", "replay", "--class", "task"]);
    assert!(exit == Exit(0) && stdout.contains("nothing was done: add --yes"), "{stdout}");
    assert_eq!(broken.run("ann", &["dlq", "history"]).1, "");
    assert_eq!(broken.states(), json!({ "open": 5 }));
    let (exit, _, stderr) = broken.run("ann", &["dlq", "replay", "--yes"]);
    assert!(exit == Exit(2) && stderr.contains("--all"), "{stderr}");
    let nothing = broken.json("ann", 3, &["dlq", "replay", "--class", "other", "--yes"]);
    assert_eq!(nothing, json!({ "fit": 0, "left_out": {} }));
}

#[test]
fn events_of_another_type_than_the_latest_schema_of_their_source_are_told_as_not_checked() {
    let broken = Broken::with_dead("types", &tasks("t", 2));
    let subject = format!("{}-value", broken.jobs.source);
    let refund = r#"{"type": "record", "name": "Refund", "fields": [{"name": "id", "type": "long"}]}"#;
    Registry::shared().register(&subject, refund);
    let class = broken.json("ann", 0, &ALL[..5])["classes"][0].clone();
    assert_eq!((&class["decodable"], &class["fit_today"]), (&json!(2), &json!(0)), "{class}");
    let reasons = class["unchecked"].as_object().unwrap();
    assert_eq!(reasons.len(), 1, "{class}");
    let reason = format!("the latest schema of {subject} is of Refund");
    assert!(reasons.iter().all(|(told, items)| told.starts_with(&reason) && *items == 2), "{class}");
    let told = broken.run("ann", &["dlq", "replay", "--class", "task"]).1;
    assert!(told.contains("not checked against today's schema: 2 (the latest schema of"), "{told}");
}

#[test]
fn a_dry_run_tells_which_keys_are_done_by_their_marks_and_says_so_where_it_can_not_read_them() {
    let mut broken = Broken::with_dead("keys", &tasks("t", 5));
    broken.repair();
    // Two of them come again and pass: of that, nothing is in the dead-letter topic.
    broken.jobs.publish(&tasks("t", 2));
    broken.calls.wait_for_tasks(2, LONG);
    broken.jobs.wait_settled(LONG);
    let dry = dry_run(&broken);
    assert_eq!((&dry["fit"], &dry["keys_done"], &dry["keys_unchecked"]), (&json!(5), &json!(2), &json!({})));
    assert_eq!(dry["keys_done_by_inbox"], 0, "{dry}");
    let told = broken.run("ann", &["dlq", "replay", "--class", "task"]).1;
    assert!(told.contains("with a key that is done by its mark, which a worker skips: 2"), "{told}");
    broken.jobs.pipeline.stop("worker");
    let marks = broken.jobs.pipeline.topic("default.marks");
    broken.jobs.pipeline.client.delete_topic(&marks);
    let dry = dry_run(&broken);
    assert_eq!(dry["keys_done"], 0);
    let reason = format!("there is no topic {marks}, or this user may not see it");
    assert_eq!(dry["keys_unchecked"], json!({ reason: 5 }));
}

#[test]
fn an_event_that_is_done_by_its_mark_is_already_done_when_it_is_replayed() {
    let broken = Broken::with_dead("marked", &[Task::new("one")]);
    broken.repair();
    broken.jobs.publish(&[Task::new("one")]);
    broken.calls.wait_for_tasks(1, LONG);
    broken.jobs.wait_settled(LONG);
    assert_eq!(dry_run(&broken)["keys_done"], 1);
    broken.run("ann", &[&ALL[..], &["--yes"]].concat());
    assert_eq!(broken.states(), json!({ "already-done": 1 }), "as the dry run said");
    assert_eq!(broken.calls.calls(), 1);
}

#[test]
fn an_item_that_is_done_runs_again_only_by_force_and_with_a_reason() {
    let broken = Broken::with_dead("forced", &[Task::new("one")]);
    broken.repair();
    let replay = |more: &[&str]| broken.run("ann", &[&ALL[..], &["--yes"], more].concat());
    assert_eq!(replay(&[]).0, Exit(0));
    assert_eq!(replay(&[]).0, Exit(3), "it is done");
    let (exit, _, stderr) = replay(&["--force-done"]);
    assert!(exit == Exit(2) && stderr.contains("reason"), "{stderr}");
    assert_eq!(replay(&["--force-done", "--reason", "the bank lost it"]).0, Exit(0));
    assert_eq!(broken.calls.other_than(2), [], "the repaired endpoint saw it twice");
    let history = broken.run("ann", &["dlq", "history"]).1;
    assert!(history.contains("forced replay") && history.contains("the bank lost it"), "{history}");
}

#[test]
fn an_event_that_ingest_refused_is_corrected_and_replayed_and_its_original_stays() {
    let mut broken = Broken::new("edited");
    broken.jobs.start();
    broken.repair();
    broken.jobs.publish(&[Task::new("").lane("lane")]);
    let dead = broken.jobs.pipeline.wait_for_dead(1, LONG);
    let folder = tempfile::tempdir().unwrap();
    let (corrected, wrong) = (folder.path().join("corrected.json"), folder.path().join("wrong.json"));
    std::fs::write(&corrected, r#"{"id": "corrected", "lane": "lane", "script": ""}"#).unwrap();
    std::fs::write(&wrong, r#"{"id": 7}"#).unwrap();
    let place = format!("{}/{}", dead[0].partition, dead[0].offset);
    let edit = |file: &std::path::Path, more: &[&str]| {
        let file = file.display().to_string();
        let arguments = ["dlq", "replay", &place, "--edit", &file, "--reason", "typo", "--timeout", "30s"];
        broken.run("ann", &[&arguments[..], more].concat())
    };
    let (exit, _, stderr) = edit(&wrong, &["--yes"]);
    assert!(exit == Exit(2) && stderr.contains("does not fit"), "{stderr}");
    let (exit, stdout, _) = edit(&corrected, &[]);
    assert!(exit == Exit(0) && stdout.contains("\"before\""), "{stdout}");
    let (exit, stdout, stderr) = edit(&corrected, &["--yes"]);
    assert_eq!(exit, Exit(0), "{stdout}\n{stderr}");
    broken.calls.wait_for_tasks(1, LONG);
    broken.calls.assert_has(&[Task::new("corrected")]);
    let shown = broken.json("bob", 0, &["dlq", "show", &place]);
    assert_eq!((&shown["state"], &shown["event"]["id"]), (&json!("resolved"), &json!("")), "{shown}");
}
