//! What operators see: metrics and probes.

use tidegate_tests::endpoint::Answer;
use tidegate_tests::jobs::{Jobs, SOON, Task, attempt, script};
use tidegate_tests::kafka_io::Record;
use tidegate_tests::wait::look_until;

use crate::standstill::with_long_sessions;

const KEY: &str = r#"key = ["id"]"#;
const OF_CLASS: [&str; 2] = ["class=\"task\"", "tier=\"default\""];
/// Of the whole process, or with the labels that stand beside them.
const COUNTED: [&str; 5] = [
    "tidegate_fenced_results_total",
    "tidegate_at_risk_total",
    "tidegate_publish_errors_total",
    "tidegate_mark_errors_total",
    "tidegate_commit_errors_total",
];

struct Page(String);

impl Page {
    /// The sum of the samples of this name with all these labels.
    #[track_caller]
    fn value(&self, name: &str, labels: &[&str]) -> f64 {
        let samples: Vec<&str> = self
            .0
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])))
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .collect();
        assert!(!samples.is_empty(), "no sample of {name} with {labels:?} in\n{}", self.0);
        samples.iter().map(|line| line.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
    }

    /// A histogram with buckets, of which the last has all.
    #[track_caller]
    fn histogram(&self, name: &str, labels: &[&str], count: f64) {
        assert!(self.0.contains(&format!("# TYPE {name} histogram")), "{name} is no histogram");
        let with = |bound: &'static str| [labels, &[bound]].concat();
        assert_eq!(self.value(&format!("{name}_bucket"), &with("le=\"+Inf\"")), count, "{name}");
        assert_eq!(self.value(&format!("{name}_count"), labels), count, "{name}");
        for bound in ["le=\"0.001\"", "le=\"0.1\"", "le=\"10\"", "le=\"600\""] {
            assert!(self.value(&format!("{name}_bucket"), &with(bound)) <= count, "{name}");
        }
        assert!(self.value(&format!("{name}_sum"), labels) >= 0.0);
    }
}

fn page(jobs: &mut Jobs, service: &str) -> Page {
    let (status, text) = jobs.pipeline.get(service, "/metrics");
    assert_eq!(status, 200);
    let undescribed: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|rest| rest.split(' ').next().unwrap())
        .filter(|name| !text.contains(&format!("# HELP {name} ")))
        .collect();
    assert_eq!(undescribed, Vec::<&str>::new(), "each metric says what it is");
    Page(text)
}

#[test]
fn the_metrics_of_a_worker_add_up_with_class_and_tier() {
    let jobs = Jobs::over_http("observed", KEY, |call| match (script(call).as_str(), attempt(call)) {
        ("500", 1) => Answer::status(500),
        ("422", _) => Answer::status(422),
        _ => Answer::ok(),
    });
    let mut jobs = with_long_sessions(jobs);
    jobs.start();
    let told = |id: &str, script: &str| Task::new(id).script(script);
    jobs.publish(&[told("a", ""), told("a", ""), told("b", "500"), told("c", "422"), told("d", "")]);
    jobs.pipeline.client.produce(&jobs.source, &Record::default().value("garbage"));
    jobs.endpoint.wait_for_count(5, SOON);
    jobs.pipeline.wait_for_dead(2, SOON);
    jobs.wait_all_settled(SOON);

    let topic = jobs.job_topic();
    let worker = idle_page(&mut jobs, "worker", &topic);
    for (outcome, count) in
        [("done", 3.0), ("scheduled", 1.0), ("dead", 1.0), ("skipped", 1.0), ("snoozed", 0.0)]
    {
        let outcome_label = format!("outcome=\"{outcome}\"");
        let labels = [&OF_CLASS[..], &[&outcome_label]].concat();
        assert_eq!(worker.value("tidegate_jobs_total", &labels), count, "{outcome}");
    }
    worker.histogram("tidegate_job_wait_seconds", &OF_CLASS, 5.0);
    worker.histogram("tidegate_job_processing_seconds", &OF_CLASS, 5.0);
    assert_eq!(worker.value("tidegate_jobs_in_flight", &OF_CLASS), 0.0);
    let labels = |label: &'static str| [&OF_CLASS[..], &[label]].concat();
    assert_eq!(worker.value("tidegate_job_failures_total", &labels("kind=\"transient\"")), 1.0);
    assert_eq!(worker.value("tidegate_job_failures_total", &labels("kind=\"permanent\"")), 1.0);
    assert_eq!(worker.value("tidegate_job_overruns_total", &OF_CLASS), 0.0);
    assert_eq!(worker.value("tidegate_duplicates_total", &labels("verdict=\"already_done\"")), 1.0);
    assert_eq!(worker.value("tidegate_orphaned_total", &OF_CLASS), 0.0);
    assert_eq!(worker.value("tidegate_dead_letters_total", &["kind=\"permanent\""]), 1.0);
    assert!(worker.value("tidegate_state_marks_appended_total", &[]) >= 5.0);

    let topic = jobs.source.clone();
    let ingest = idle_page(&mut jobs, "ingest", &topic);
    let source = format!("topic=\"{}\"", jobs.source);
    assert_eq!(ingest.value("tidegate_events_total", &[&source, "fate=\"forwarded\""]), 5.0);
    assert_eq!(ingest.value("tidegate_events_total", &[&source, "fate=\"dead\""]), 1.0);
    assert_eq!(ingest.value("tidegate_event_jobs_total", &["class=\"task\""]), 5.0);
    assert_eq!(ingest.value("tidegate_dead_letters_total", &["kind=\"malformed\""]), 1.0);

    let topic = jobs.delay_topic("200ms");
    let retry = idle_page(&mut jobs, "retry", &topic);
    retry.histogram("tidegate_retry_lateness_seconds", &[], 1.0);
    assert_eq!(retry.value("tidegate_retry_records_total", &["to=\"jobs\""]), 1.0);
    assert_eq!(retry.value("tidegate_retry_waiting", &[]), 0.0);
    for page in [&worker, &ingest, &retry] {
        COUNTED.iter().for_each(|name| assert_eq!(page.value(name, &[]), 0.0, "{name}"));
    }
}

/// The page of a service that has settled this topic, once it says so: a commit is acknowledged before what it leaves is measured.
#[track_caller]
fn idle_page(jobs: &mut Jobs, service: &str, topic: &str) -> Page {
    let mut last = Vec::new();
    let idle = look_until(SOON, || {
        let page = page(jobs, service);
        last = left(&page, topic);
        last.is_empty().then_some(page)
    });
    idle.unwrap_or_else(|| panic!("{service} has settled {topic}, and shows: {last:?}"))
}

/// What the gauges of the topic's partitions say is not settled.
#[track_caller]
fn left(page: &Page, topic: &str) -> Vec<String> {
    let topic = format!("topic=\"{topic}\"");
    let mut left = Vec::new();
    for partition in 0..4 {
        let partition = format!("partition=\"{partition}\"");
        for name in ["lag", "window_records", "window_bytes", "head_age_seconds"] {
            let name = format!("tidegate_partition_{name}");
            let value = page.value(&name, &[&topic, &partition]);
            if value != 0.0 {
                left.push(format!("{name}{{{partition}}} {value}"));
            }
        }
    }
    left
}

#[test]
fn a_backlog_shows_as_lag_window_and_head_age() {
    let class = format!("{KEY}\ntime_limit = \"5m\"");
    let mut jobs = with_long_sessions(Jobs::over_http("backlog", &class, |_| Answer::hang()));
    jobs.set_concurrency(2);
    jobs.start_these(&["ingest", "worker"]);
    let tasks: Vec<Task> = (0..50).map(|n| Task::new(format!("t-{n}")).lane("one")).collect();
    jobs.publish(&tasks);
    jobs.endpoint.wait_for_count(2, SOON);
    for (metric, at_least) in [
        ("tidegate_partition_lag", 50),
        ("tidegate_partition_window_records", 50),
        ("tidegate_partition_window_bytes", 50 * 20),
        ("tidegate_partition_head_age_seconds", 1),
        ("tidegate_jobs_in_flight", 2),
    ] {
        jobs.wait_for_metric(metric, &[], at_least);
    }
    assert_eq!(jobs.pipeline.readyz("worker").0, 200, "slow handlers are no fault of the worker");
    assert_eq!(jobs.endpoint.most_at_once(), 2);
}

#[test]
fn probes_say_what_they_mean() {
    let mut jobs = Jobs::over_http("probes", KEY, |_| Answer::ok());
    jobs.start();
    for service in ["ingest", "retry", "worker"] {
        assert_eq!(jobs.pipeline.get(service, "/livez"), (200, r#"{"live":true,"reasons":[]}"#.to_owned()));
        assert_eq!(jobs.pipeline.readyz(service), (200, r#"{"ready":true,"reasons":[]}"#.to_owned()));
        let (status, index) = jobs.pipeline.get(service, "/");
        assert!(status == 200 && index.contains("/metrics"), "{index}");
        assert_eq!(jobs.pipeline.get(service, "/nothing").0, 404);
    }
}
