//! What stops a replay by itself.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use serde_json::json;
use tidegate_domain::inbox::RampLimits;
use tidegate_operator::{Filter, Ordering, Pace, RunEnd, Selection};
use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Task, tasks};
use tidegate_tests::wait::wait_until;

use super::operators::{Broken, LONG};

#[test]
fn a_poison_stops_the_ramp_at_its_first_step() {
    let poison: Vec<Task> = tasks("p", 40).into_iter().map(|task| task.script("poison")).collect();
    let broken = Broken::with_dead("poison", &poison);
    broken.repair();
    let (exit, stdout, stderr) = broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]);
    assert_eq!(exit, Exit(3), "{stdout}\n{stderr}");
    assert!(stdout.contains("stopped: the only replay of step 1"), "{stdout}");
    assert_eq!(broken.calls.calls(), 1, "the others were not published");
    assert_eq!(broken.states(), json!({ "failed-again": 1, "open": 39 }));
    // What it did not send may be decided anew, and does not come back to the run then.
    let run = broken.only_run("bob")["run"].as_str().unwrap().to_owned();
    let discard = ["dlq", "discard", "--state", "open", "--reason", "poison", "--yes"];
    assert_eq!(broken.json("bob", 0, &discard)["accepted"], 39);
    assert_eq!(
        broken.run("ann", &["dlq", "replay", "--resume", &run]).0,
        Exit(3),
        "it ends, and nothing passed"
    );
    assert_eq!(broken.calls.calls(), 1);
    assert_eq!(broken.states(), json!({ "failed-again": 1, "discarded": 39 }));
}

#[test]
fn a_ramp_climbs_while_its_steps_pass_and_begins_anew_after_a_stop() {
    let mut mixed = tasks("t", 30);
    mixed[10].script = "poison".to_owned();
    mixed[11].script = "poison".to_owned();
    let broken = Broken::with_dead("climb", &mixed);
    broken.repair();
    let arguments = ["dlq", "replay", "--class", "task", "--yes", "--failures", "0.05"];
    let stopped = broken.json("ann", 3, &arguments);
    let run = stopped["run"]["run"].as_str().unwrap().to_owned();
    assert!(stopped["run"]["failed"].as_u64().unwrap() >= 1, "{stopped}");
    assert!(stopped["run"]["passed"].as_u64().unwrap() >= 1, "the first steps passed: {stopped}");
    // The steps after it hold no poison, so it goes on to its end.
    let mut ends = Vec::new();
    for _ in 0..3 {
        let (exit, _, _) = broken.run("bob", &["dlq", "replay", "--resume", &run]);
        ends.push(exit);
        if exit == Exit(0) {
            break;
        }
    }
    assert_eq!(ends.last(), Some(&Exit(0)), "{ends:?}");
    broken.jobs.wait_settled(LONG);
    assert_eq!(broken.states(), json!({ "failed-again": 2, "resolved": 28 }));
    assert_eq!(broken.calls.other_than(1), []);
}

#[test]
fn a_replay_whose_worker_is_gone_stops_and_goes_on_when_it_is_back() {
    let mut broken = Broken::with_dead("lost", &tasks("t", 3));
    broken.repair();
    broken.jobs.pipeline.stop("worker");
    let (exit, stdout, stderr) =
        broken.run("ann", &["dlq", "replay", "--class", "task", "--yes", "--timeout", "20s"]);
    assert_eq!(exit, Exit(3), "{stdout}\n{stderr}");
    assert!(stdout.contains("did not come in time"), "{stdout}");
    // What is with a worker later counts all the same, and the run goes on with the rest.
    broken.jobs.start_one("worker");
    let run = broken.only_run("ann")["run"].as_str().unwrap().to_owned();
    let end = broken.json("bob", 0, &["dlq", "replay", "--resume", &run]);
    assert_eq!(end["end"], "finished", "{end}");
    broken.jobs.wait_settled(LONG);
    assert_eq!(broken.states(), json!({ "resolved": 3 }));
    assert_eq!(broken.calls.other_than(1), []);
}

#[test]
fn a_replay_into_a_parked_class_holds_beyond_its_time_out_and_goes_on_to_its_end_when_the_class_heals() {
    let flood = "flood = { failures = 0.5, of = 4, probe_after = \"45s\", probe_at_most = \"45s\" }\n";
    let mut broken = Broken::of_class_with_dead("parked", flood, &tasks("t", 6));
    let (ann, timeout) = (broken.inbox("ann"), Duration::from_secs(12));
    let snapshot = ann.snapshot(&Selection::Filter(Filter::default())).unwrap();
    let pace = Pace { rate: None, ramp: RampLimits { timeout, ..RampLimits::CANARY } };
    let run = ann.order(&snapshot, Ordering::Replay { forced: false, pace }, "ann", None).unwrap().run;
    broken.jobs.publish(&tasks("away", 4).into_iter().map(|task| task.script("away")).collect::<Vec<_>>());
    wait_until("the class to be parked", LONG, || {
        broken.jobs.count("tidegate_class_parked", &["class=\"task\""]) == 1
    });
    let (mut holds_since, mut told) = (None, None);
    let end = ann.carry_out(run, "ann", &mut |progress| {
        if progress.waiting > 0 {
            let since: &mut Instant = holds_since.get_or_insert_with(Instant::now);
            told = progress.waits_for.clone().or(told.take());
            if since.elapsed() > 2 * timeout {
                broken.repair();
            }
        }
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), RunEnd::Finished, "{told:?}");
    assert!(holds_since.is_some_and(|since| since.elapsed() > 2 * timeout));
    let told = told.unwrap();
    assert!(told.starts_with("class task is parked since 20") && told.contains("probe"), "{told}");
    broken.jobs.wait_settled(LONG);
    // What made the class be parked was dead-lettered after the replay was ordered.
    assert_eq!(broken.states(), json!({ "open": 4, "resolved": 6 }));
    assert_eq!((broken.calls.tasks(), broken.calls.other_than(1)), (6, vec![]));
}

#[test]
fn an_outcome_that_is_lost_after_its_job_ran_stops_the_run_and_the_job_runs_no_more() {
    let mut broken = Broken::with_dead("lost", &[Task::new("one")]);
    broken.repair();
    broken.jobs.pipeline.stop("worker");
    let client = broken.jobs.pipeline.client.clone();
    let records = |topic: &str| client.offsets(topic).values().map(|(first, end)| end - first).sum::<i64>();
    let (job_topic, journal) = (broken.jobs.job_topic(), broken.jobs.pipeline.topic("dlq-journal"));
    let before = records(&job_topic);
    let mut ann = broken.start("ann", &["dlq", "replay", "--class", "task", "--yes", "--timeout", "20s"]);
    wait_until("the replay to be published", LONG, || records(&job_topic) > before);
    ann.pause();
    broken.jobs.start_one("worker");
    broken.calls.wait_for_tasks(1, LONG);
    broken.jobs.wait_settled(LONG);
    // It ran, its outcome is in the journal, and nobody read it.
    client.delete_records(&journal, 0, client.offsets(&journal)[&0].1);
    ann.resume();
    assert_eq!(ann.wait(LONG), Exit(3), "{}", ann.stderr());
    assert!(ann.stdout().contains("1 outcome of step 1 did not come in time"), "{}", ann.stdout());
    let run = broken.only_run("ann")["run"].as_str().unwrap().to_owned();
    let end = broken.json("ann", 0, &["dlq", "replay", "--resume", &run]);
    assert_eq!((&end["end"], &end["run"]["passed"]), (&json!("finished"), &json!(1)), "{end}");
    assert_eq!((broken.calls.calls(), broken.calls.other_than(1)), (1, vec![]));
}

#[test]
fn what_has_no_topic_to_go_back_to_is_given_up_with_the_reason_and_the_run_ends() {
    let mut broken = Broken::with_dead("topicless", &tasks("t", 3));
    broken.jobs.pipeline.stop("worker");
    broken.jobs.pipeline.client.delete_topic(&broken.jobs.job_topic());
    let end = broken.json("ann", 3, &["dlq", "replay", "--class", "task", "--yes"]);
    assert_eq!((&end["end"], &end["progress"]["withdrawn"]), (&json!("finished"), &json!(3)), "{end}");
    assert_eq!(broken.states(), json!({ "open": 3 }));
    let history = broken.run("bob", &["dlq", "history"]).1;
    assert!(history.contains("there is no topic"), "{history}");
}

#[test]
fn only_a_run_that_goes_on_can_be_paused_or_stopped() {
    let broken = Broken::with_dead("steered", &tasks("t", 2));
    broken.repair();
    assert_eq!(broken.run("ann", &["dlq", "replay", "--class", "task", "--yes"]).0, Exit(0));
    let finished = broken.only_run("ann")["run"].as_str().unwrap().to_owned();
    for (run, told) in [(finished.as_str(), "rests already"), ("00000000000000ab", "there is no run")] {
        for steer in ["--pause", "--stop"] {
            let (exit, _, stderr) = broken.run("ann", &["dlq", "replay", steer, run]);
            assert!(exit == Exit(3) && stderr.contains(told), "{steer} {run}: {exit:?} {stderr}");
        }
    }
}

#[test]
fn a_run_that_is_paused_publishes_nothing_until_it_is_resumed() {
    let broken = Broken::with_dead("paused", &tasks("t", 300));
    broken.repair();
    let mut ann =
        broken.start("ann", &["dlq", "replay", "--class", "task", "--yes", "--no-ramp", "--rate", "10"]);
    broken.calls.wait_for_tasks(5, LONG);
    let told = ann.stdout();
    let (_, run) = told.lines().next().unwrap().split_once("run ").expect("it tells its run");
    assert_eq!(broken.json("bob", 0, &["dlq", "replay", "--pause", run])["run"]["status"], "paused");
    wait_until("the run to rest", LONG, || {
        let before = broken.calls.calls();
        std::thread::sleep(Duration::from_secs(4));
        broken.calls.calls() == before
    });
    assert!(broken.calls.tasks() < 300, "it was paused too late to tell anything");
    assert!(ann.is_running(), "it waits for its resumption");
    assert_eq!(broken.run("bob", &["dlq", "replay", "--resume", run]).0, Exit(0));
    assert_eq!(ann.wait(LONG), Exit(0));
    broken.jobs.wait_settled(LONG);
    assert_eq!((broken.calls.tasks(), broken.calls.other_than(1)), (300, vec![]));
}
