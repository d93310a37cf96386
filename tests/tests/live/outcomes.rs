//! What operators are told of replays, by real services over a real Kafka.

use std::time::Duration;

use crate::standstill::with_long_sessions;
use tidegate_domain::inbox::{Answer as Told, Entry as Folding, Folded, Item, ReplayHeader, State, fold};
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Attempt, Hop, JobHeader, Offset, Round};
use tidegate_pipeline::journal::{Entry, OutcomeEntry};
use tidegate_tests::endpoint::{Answer, Call};
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, id, job_header, script, tasks};
use tidegate_tests::kafka_io::{ReadRecord, Record};

const KEY: &str = r#"key = ["id"]"#;
const LONG: Duration = Duration::from_secs(180);

/// Each task dies at its first call, and is answered by its script after that: one status for each call, the last one for all
/// that follow.
fn endpoint() -> impl Fn(&Call) -> Answer + Send + Sync + 'static {
    let tally = Tally::default();
    move |call| {
        let calls = tally.note(call) as usize;
        if calls == 1 && !id(call).starts_with("healthy") {
            return Answer::status(422);
        }
        let script = script(call);
        let statuses: Vec<&str> = script.split(' ').collect();
        match statuses[calls.saturating_sub(2).min(statuses.len() - 1)].parse() {
            Ok(status) => Answer::status(status),
            Err(_) => Answer::ok(),
        }
    }
}

fn all_headers(record: &ReadRecord, copy: Record) -> Record {
    let with = |copy: Record, (name, value): &(String, Option<Vec<u8>>)| match value {
        Some(value) => copy.header(name, value.clone()),
        None => copy.null_header(name),
    };
    record.headers.iter().filter(|(name, _)| name != JOB_HEADER).fold(copy, with)
}

/// The dead letter as a record of its job topic, in this round.
fn replay(letter: &ReadRecord, round: u32, partition: i32) -> Record {
    let header = JobHeader { round: Round(round), hop: Hop(0), attempt: Attempt(1), ..job_header(letter) };
    let copy = Record::default()
        .partition(partition)
        .key(letter.key.clone().unwrap())
        .value(letter.value.clone().unwrap())
        .header(JOB_HEADER, header.to_text());
    all_headers(letter, copy)
}

/// Where the job of a dead letter stood in its job topic.
fn partition_of(jobs: &Jobs, letter: &ReadRecord) -> i32 {
    job_header(letter).lane.partition(jobs.pipeline.client.partitions(&jobs.job_topic()) as u32).0
}

fn outcomes(jobs: &Jobs) -> Vec<(i64, OutcomeEntry)> {
    let records = jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq-journal"));
    let read = |record: &ReadRecord| match Entry::read(record.value.as_deref()) {
        Ok(Entry::Outcome(outcome)) => (record.offset, outcome),
        other => panic!("{other:?} in the journal"),
    };
    records.iter().map(read).collect()
}

/// What a reader of the journal makes of the item of this dead letter.
fn item(jobs: &Jobs, letter: &ReadRecord) -> Item {
    let mut item = Item::default();
    for (offset, entry) in outcomes(jobs) {
        if entry.id.to_string() == job_header(letter).job_id() {
            let folded = fold(&mut item, Offset(offset), &Folding::Outcome(entry.outcome));
            assert!(folded == Folded::Accepted || item.seen.is_some(), "{entry:?}");
        }
    }
    item
}

fn letter_of<'a>(letters: &'a [ReadRecord], task: &Task) -> &'a ReadRecord {
    let of_task = |letter: &&ReadRecord| letter.key.as_deref() == Some(task.lane.as_bytes());
    letters.iter().find(of_task).expect("it is dead")
}

#[test]
fn every_fate_of_a_replay_is_told_and_a_round_that_is_sent_twice_runs_once() {
    let tasks = [
        Task::new("done").script("200"),
        Task::new("again").script("422"),
        Task::new("later").script("503 200"),
    ];
    let mut jobs = with_long_sessions(Jobs::over_http("told", KEY, endpoint()));
    jobs.start();
    jobs.publish(&tasks);
    let letters = jobs.pipeline.wait_for_dead(3, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(outcomes(&jobs).len(), 0, "first lives are nobody's replay");

    let client = &jobs.pipeline.client;
    for task in &tasks {
        let letter = letter_of(&letters, task);
        let copy = replay(letter, 1, partition_of(&jobs, letter));
        client.produce_all(&jobs.job_topic(), &[copy.clone(), copy]);
    }
    // Two for each of the two that end at once; the third waits, its second copy is superseded, and it ends.
    client.wait_for_count(&jobs.pipeline.topic("dlq-journal"), 7, SOON);
    jobs.wait_all_settled(SOON);

    let told = outcomes(&jobs);
    let of = |task: &Task| -> Vec<Told> {
        let name = job_header(letter_of(&letters, task)).job_id();
        let of_task = told.iter().filter(|(_, entry)| entry.id.to_string() == name);
        of_task.map(|(_, entry)| entry.outcome.answer).collect()
    };
    assert_eq!(of(&tasks[0]), [Told::Resolved, Told::Resolved]);
    assert_eq!(of(&tasks[1]), [Told::FailedAgain, Told::FailedAgain]);
    assert!(
        matches!(of(&tasks[2])[..], [Told::WaitingUntil(_), Told::Superseded, Told::Resolved]),
        "{told:?}"
    );
    assert!(told.iter().all(|(_, entry)| entry.outcome.round == Round(1)));
    let error = told.iter().find_map(|(_, entry)| entry.error.clone().filter(|e| e.kind == "permanent"));
    assert_eq!(error.unwrap().code, "http-422");
    let states = tasks.clone().map(|task| item(&jobs, letter_of(&letters, &task)).state);
    assert_eq!(states, [State::Resolved, State::FailedAgain, State::Resolved]);
    // First lives, then one run of each round, and one retry.
    assert_eq!(jobs.endpoint.calls().len(), 3 + 3 + 1);
}

#[test]
fn while_the_journal_is_gone_replays_wait_and_other_jobs_are_done() {
    let mut jobs = with_long_sessions(Jobs::over_http("no-journal", KEY, endpoint()));
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("dead").script("200")]);
    let letters = jobs.pipeline.wait_for_dead(1, SOON);
    jobs.wait_settled(SOON);
    let journal = jobs.pipeline.topic("dlq-journal");
    let partition = partition_of(&jobs, &letters[0]);
    // The producer knows the journal from before.
    jobs.pipeline.client.produce(&jobs.job_topic(), &replay(&letters[0], 1, partition));
    jobs.pipeline.client.wait_for_count(&journal, 1, SOON);
    jobs.wait_settled(SOON);
    jobs.pipeline.client.delete_topic(&journal);

    let before = jobs.pipeline.client.committed(&jobs.pipeline.topic("default.worker"), &jobs.job_topic());
    jobs.pipeline.client.produce(&jobs.job_topic(), &replay(&letters[0], 2, partition));
    // So many that each partition has some.
    let healthy: Vec<Task> = tasks("healthy", 40).into_iter().map(|task| task.script("200")).collect();
    jobs.publish(&healthy);
    let healthy = |calls: &[Call]| calls.iter().filter(|call| id(call).starts_with("healthy")).count();
    jobs.endpoint.wait_until(SOON, |calls| healthy(calls) == 40);
    jobs.pipeline.wait_not_ready("worker", "outcomes of replays can't be written", LONG);
    let after = jobs.pipeline.client.committed(&jobs.pipeline.topic("default.worker"), &jobs.job_topic());
    assert_eq!(after[&partition], before[&partition], "the replay is not settled");
    assert_eq!(jobs.pipeline.get("worker", "/livez").0, 200);

    jobs.pipeline.apply_topics();
    jobs.pipeline.client.wait_for_count(&journal, 1, LONG);
    jobs.wait_settled(LONG);
    jobs.pipeline.wait_ready("worker");
    let told: Vec<_> = outcomes(&jobs).into_iter().map(|(_, entry)| entry.outcome).collect();
    assert!(
        told.iter().all(|outcome| (outcome.round, outcome.answer) == (Round(2), Told::AlreadyDone)),
        "{told:?}"
    );
}

#[test]
fn a_worker_that_is_killed_before_it_could_tell_is_followed_by_one_that_does() {
    let mut jobs = Jobs::over_http("untold", KEY, endpoint());
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("dead").script("200")]);
    let letters = jobs.pipeline.wait_for_dead(1, SOON);
    jobs.wait_settled(SOON);
    let journal = jobs.pipeline.topic("dlq-journal");
    jobs.pipeline.client.delete_topic(&journal);
    let partition = partition_of(&jobs, &letters[0]);
    jobs.pipeline.client.produce(&jobs.job_topic(), &replay(&letters[0], 1, partition));
    // It ran, and its mark is there: what is missing is the outcome.
    jobs.pipeline.wait_not_ready("worker", "outcomes of replays can't be written", LONG);
    assert_eq!(jobs.endpoint.calls().len(), 2);
    jobs.pipeline.kill("worker");
    jobs.pipeline.apply_topics();
    jobs.start_one("worker");
    jobs.pipeline.client.wait_for_count(&journal, 1, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(item(&jobs, &letters[0]).state, State::Resolved);
    assert_eq!(jobs.endpoint.calls().len(), 2, "what is done is not run again to be told");
}

#[test]
fn what_ingest_gets_again_is_told_by_it_and_keeps_its_source() {
    let mut jobs = with_long_sessions(Jobs::over_http("reingest", KEY, endpoint()));
    jobs.start_these(&["ingest"]);
    // No event of the registry's form: it dies at every try.
    let broken = Record::default().partition(2).value(b"no event".to_vec());
    jobs.pipeline.client.produce(&jobs.source, &broken);
    let letter = jobs.pipeline.wait_for_dead(1, SOON).remove(0);
    let item = format!("{}/2/0/", jobs.source).parse().unwrap();
    let send = |jobs: &Jobs, letter: &ReadRecord, round: u32| {
        let header =
            ReplayHeader { item: format!("{}/2/0/", jobs.source).parse().unwrap(), round: Round(round) };
        let copy =
            Record::default().value(letter.value.clone().unwrap()).header("job-replay", header.to_string());
        jobs.pipeline.client.produce(&jobs.pipeline.topic("reingest"), &all_headers(letter, copy));
    };
    send(&jobs, &letter, 1);
    let again = jobs.pipeline.wait_for_dead(2, SOON);
    let again = again.iter().find(|letter| letter.header("job-round") == Some("1")).expect("the second one");
    assert_eq!(again.value.as_deref(), Some(&b"no event"[..]));
    assert_eq!(again.header("__connect.errors.topic"), Some(jobs.source.as_str()));
    assert_eq!((again.header("__connect.errors.partition"), again.header("job-replay")), (Some("2"), None));
    // The second dead letter is as good a start as the first.
    send(&jobs, again, 2);
    jobs.pipeline.client.wait_for_count(&jobs.pipeline.topic("dlq-journal"), 2, SOON);
    let told = outcomes(&jobs);
    let rounds: Vec<_> =
        told.iter().map(|(_, entry)| (entry.outcome.round.0, entry.outcome.answer)).collect();
    assert_eq!(rounds, [(1, Told::FailedAgain), (2, Told::FailedAgain)]);
    assert!(told.iter().all(|(_, entry)| entry.id == item));
    let group = format!("{}.ingest", jobs.pipeline.name);
    jobs.pipeline.client.wait_for_no_lag(&group, &jobs.pipeline.topic("reingest"), SOON);
}
