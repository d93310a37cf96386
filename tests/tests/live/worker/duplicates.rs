//! Equal keys, copies that arrive twice, and records of the job topic that are no jobs.

use tidegate_domain::job::JOB_HEADER;
use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, attempt, job_header, tasks};
use tidegate_tests::kafka_io::{ReadRecord, Record};

use crate::standstill::keep_sessions;

const KEY: &str = r#"key = ["id"]"#;

fn copy(record: &ReadRecord) -> Record {
    let mut copy = Record::default().partition(record.partition);
    if let Some(key) = &record.key {
        copy = copy.key(key.clone());
    }
    if let Some(value) = &record.value {
        copy = copy.value(value.clone());
    }
    record
        .headers
        .iter()
        .fold(copy, |copy, (name, value)| copy.header(name, value.clone().unwrap_or_default()))
}

#[test]
fn equal_keys_in_one_batch_run_once_and_are_counted() {
    let tally = Tally::default();
    let noted = tally.clone();
    let mut jobs = Jobs::over_http("equal", KEY, move |call| {
        noted.note(call);
        Answer::ok()
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest"]);
    let once = tasks("t", 10);
    let all: Vec<Task> = (0..300).map(|n| once[n % once.len()].clone()).collect();
    jobs.publish(&all);
    // All of them stand in the job topic before the worker's first poll.
    jobs.pipeline.client.wait_for_count(&jobs.job_topic(), all.len(), SOON);
    jobs.start_one("worker");
    jobs.wait_settled(SOON);
    tally.assert_has(&once);
    assert_eq!(tally.other_than(1), [], "each key ran once");
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"done\""]), 10);
    assert_eq!(jobs.count("tidegate_jobs_total", &["outcome=\"skipped\""]), 290);
    assert_eq!(jobs.count("tidegate_duplicates_total", &["verdict=\"already_done\""]), 290);

    // And across a restart, by the marks on disk.
    jobs.pipeline.stop("worker");
    jobs.publish(&once);
    jobs.start_one("worker");
    jobs.wait_settled(SOON);
    assert_eq!(tally.other_than(1), []);
    assert_eq!(jobs.count("tidegate_duplicates_total", &["verdict=\"already_done\""]), 10);
}

#[test]
fn a_key_that_is_done_with_another_payload_is_skipped_or_dead_lettered_as_its_class_says() {
    let mut jobs = Jobs::over_http("conflict", KEY, |_| Answer::ok());
    keep_sessions(&mut jobs.pipeline);
    let strict = format!(
        "[classes.strict]\nsource = \"{}\"\nkey = [\"id\"]\non_conflict = \"dead_letter\"\n\
         handler = {{ type = \"http\", url = \"{}/strict\" }}\n",
        jobs.source,
        jobs.endpoint.url()
    );
    jobs.pipeline.configure(&strict);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("a").script("first")]);
    jobs.endpoint.wait_for_count(2, SOON);
    jobs.wait_settled(SOON);
    jobs.publish(&[Task::new("a").script("second"), Task::new("a").script("first")]);
    let [dead] = jobs.pipeline.wait_for_dead(1, SOON).try_into().expect("one record");
    jobs.wait_settled(SOON);
    assert_eq!(jobs.endpoint.calls().len(), 2, "only the first ran, once in each class");
    assert_eq!((dead.header("job-class"), dead.header("job-error-kind")), (Some("strict"), Some("conflict")));
    let second = jobs.pipeline.client.read_all(&jobs.source)[1].value.clone();
    assert_eq!(dead.value, second);
    assert_eq!(jobs.count("tidegate_duplicates_total", &["class=\"task\"", "verdict=\"conflict\""]), 1);
    assert_eq!(jobs.count("tidegate_duplicates_total", &["class=\"task\"", "verdict=\"already_done\""]), 1);
    assert_eq!(jobs.count("tidegate_duplicates_total", &["class=\"strict\"", "verdict=\"already_done\""]), 1);
    assert_eq!(jobs.count("tidegate_dead_letters_total", &["kind=\"conflict\""]), 1);
}

#[test]
fn a_record_of_the_job_topic_that_is_no_job_is_dead_lettered_with_its_bytes() {
    let mut jobs = Jobs::over_http("no-job", KEY, |_| Answer::ok());
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("real")]);
    let [real] = jobs.pipeline.client.wait_for_count(&jobs.job_topic(), 1, SOON).try_into().expect("one job");
    let text = real.header(JOB_HEADER).unwrap();
    let foreign = text.replace("class=task", "class=elsewhere");
    let cases = [
        ("none", None, "malformed", "job-header"),
        ("broken", Some("v=1 class="), "malformed", "job-header"),
        ("newer", Some("v=9"), "malformed", "job-header"),
        ("foreign", Some(foreign.as_str()), "unroutable", "unknown-class"),
    ];
    for (key, header, _, _) in &cases {
        let record = Record::default().key(*key).value(format!("value of {key}")).header("x", "1");
        let record = header.iter().fold(record, |record, header| record.header(JOB_HEADER, *header));
        jobs.pipeline.client.produce(&jobs.job_topic(), &record);
    }
    jobs.pipeline.client.produce(&jobs.job_topic(), &Record::default().key("null"));
    let dead = jobs.pipeline.wait_for_dead(cases.len() + 1, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(dead.len(), cases.len() + 1);
    let find = |key: &str| dead.iter().find(|dead| dead.key_text().as_deref() == Some(key)).expect(key);
    for (key, _, kind, code) in cases {
        let found = find(key);
        assert_eq!(found.value_text(), Some(format!("value of {key}")), "its bytes are kept");
        assert_eq!(found.header("x"), Some("1"), "and its own headers");
        assert_eq!(
            (found.header("job-error-kind"), found.header("job-error-code")),
            (Some(kind), Some(code))
        );
        // A header that can be read tells the event's own place, also when the class is unknown.
        let place = if key == "foreign" { &jobs.source } else { &jobs.job_topic() };
        assert_eq!(found.header("__connect.errors.topic"), Some(place.as_str()), "{found}");
    }
    assert_eq!((&find("null").value, find("null").header("job-error-kind")), (&None, Some("malformed")));
    assert_eq!(jobs.endpoint.calls().len(), 1, "the real job ran");
}

#[test]
fn a_retry_copy_that_was_published_twice_makes_no_second_chain() {
    let mut jobs = Jobs::over_http("chain", KEY, |_| Answer::status(500));
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&[Task::new("t")]);
    // A worker killed between the copy's acknowledgement and its mark publishes the same copy again.
    let [first] =
        jobs.pipeline.client.wait_for_count(&jobs.delay_topic("200ms"), 1, SOON).try_into().expect("one");
    jobs.pipeline.client.produce_all(&jobs.delay_topic("200ms"), &[copy(&first), copy(&first)]);
    jobs.start_one("retry");
    jobs.pipeline.wait_for_dead(1, SOON);
    jobs.wait_all_settled(SOON);
    let calls = jobs.endpoint.calls();
    assert_eq!(calls.iter().map(attempt).collect::<Vec<_>>(), [1, 2, 3], "one chain of attempts");
    assert_eq!(jobs.pipeline.client.read_all(&jobs.pipeline.topic("dlq")).len(), 1);
    assert_eq!(jobs.pipeline.client.read_all(&jobs.delay_topic("400ms")).len(), 1);
    assert_eq!(
        jobs.pipeline.client.read_all(&jobs.job_topic()).len(),
        5,
        "the event, three copies, one copy more"
    );
    let skipped = jobs.count("tidegate_duplicates_total", &["verdict=\"superseded\""])
        + jobs.count("tidegate_duplicates_total", &["verdict=\"already_dead\""]);
    assert_eq!(skipped, 2);
}

#[test]
fn a_job_record_that_arrives_again_later_is_skipped_by_what_became_of_it() {
    let mut jobs = Jobs::over_http("again", KEY, |call| match attempt(call) {
        1 => Answer::status(500),
        _ => Answer::ok(),
    });
    keep_sessions(&mut jobs.pipeline);
    jobs.start();
    jobs.publish(&[Task::new("t")]);
    jobs.endpoint.wait_for_count(2, SOON);
    jobs.wait_all_settled(SOON);
    let written = jobs.pipeline.client.read_all(&jobs.job_topic());
    assert_eq!(written.iter().map(|job| job_header(job).hop.0).collect::<Vec<_>>(), [0, 1]);
    let copies: Vec<Record> = written.iter().map(copy).collect();
    jobs.pipeline.client.produce_all(&jobs.job_topic(), &copies);
    jobs.wait_for_metric("tidegate_duplicates_total", &["verdict=\"resolved\""], 2);
    jobs.wait_all_settled(SOON);
    assert_eq!(jobs.endpoint.calls().len(), 2);
}
