//! What a process needs of its machine: the state folder and a port.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tidegate_tests::guard::Exit;
use tidegate_tests::jobs::{Jobs, SOON, tasks};

use crate::standstill::with_long_sessions;

const WORKER: [&str; 3] = ["worker", "--tier", "default"];

/// Runs ten jobs, stops the worker, lets its state meet a fate, and runs ten others.
fn after_a_fate(prefix: &str, fate: impl FnOnce(&Path)) -> (Jobs, PathBuf) {
    let (jobs, tally) = Jobs::noting(prefix);
    let mut jobs = with_long_sessions(jobs);
    jobs.start_these(&["ingest", "worker"]);
    jobs.publish(&tasks("before", 10));
    tally.wait_for_tasks(10, SOON);
    jobs.wait_settled(SOON);
    jobs.pipeline.stop("worker");
    let dir = jobs.pipeline.state_dir("worker").join("default");
    assert!(dir.join("db").is_dir(), "the state is in {}", dir.display());
    fate(&dir);
    jobs.start_one("worker");
    jobs.publish(&tasks("after", 10));
    tally.wait_for_tasks(20, SOON);
    jobs.wait_settled(SOON);
    assert_eq!(tally.other_than(1), [], "what was committed does not come again");
    (jobs, dir)
}

fn set_aside(dir: &Path) -> Vec<String> {
    let siblings = std::fs::read_dir(dir.parent().unwrap()).unwrap();
    let names = siblings.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".set-aside-")).collect()
}

#[test]
fn a_worker_whose_state_is_gone_works_on() {
    let (jobs, dir) = after_a_fate("state-gone", |dir| std::fs::remove_dir_all(dir).unwrap());
    assert_eq!(set_aside(&dir), Vec::<String>::new());
    drop(jobs);
}

#[test]
fn state_that_is_corrupt_is_set_aside_with_a_warning_and_the_worker_works_on() {
    let corrupt = |dir: &Path| std::fs::write(dir.join("db/CURRENT"), "garbage\n").unwrap();
    let (mut jobs, dir) = after_a_fate("state-corrupt", corrupt);
    let aside = set_aside(&dir);
    assert_eq!(aside.len(), 1, "{aside:?}");
    assert!(
        dir.with_file_name(&aside[0]).join("db/CURRENT").is_file(),
        "it is kept for whoever wants to look"
    );
    assert!(jobs.pipeline.process("worker").stderr().contains("was set aside"));
    assert_eq!(jobs.count("tidegate_state_set_aside_total", &[]), 1);
}

#[test]
fn state_of_another_cluster_is_set_aside() {
    let foreign = |dir: &Path| {
        let record = dir.join("provenance.json");
        let text = std::fs::read_to_string(&record).unwrap();
        let (_, rest) = text.split_once("\"cluster_id\": \"").expect("it names its cluster");
        let (cluster, _) = rest.split_once('"').unwrap();
        std::fs::write(record, text.replace(cluster, "another-cluster")).unwrap();
    };
    let (_jobs, dir) = after_a_fate("state-foreign", foreign);
    assert_eq!(set_aside(&dir).len(), 1);
}

#[test]
fn a_second_process_on_one_state_folder_is_refused_and_the_first_goes_on() {
    let (mut jobs, tally) = Jobs::noting("state-shared");
    jobs.start_these(&["ingest", "worker"]);
    let dir = jobs.pipeline.state_dir("worker").display().to_string();
    jobs.pipeline.launch("second", &WORKER, &[("TIDEGATE_STATE__DIR", &dir)]);
    let exit = jobs.pipeline.process("second").wait(SOON);
    let said = jobs.pipeline.process("second").stderr();
    assert_eq!(exit, Exit(1), "{said}");
    let error = said.lines().last().unwrap();
    assert!(error.contains("another process uses") && error.contains("own state directory"), "{error}");
    jobs.publish(&tasks("t", 10));
    tally.wait_for_tasks(10, SOON);
    jobs.wait_settled(SOON);
}

#[test]
fn a_port_in_use_is_named_with_the_setting_that_changes_it() {
    let (mut jobs, _) = Jobs::noting("port");
    jobs.pipeline.apply_topics();
    let taken = jobs.endpoint.url().replace("http://", "");
    for arguments in [&["ingest"][..], &["retry"], &WORKER] {
        jobs.pipeline.launch("service", arguments, &[("TIDEGATE_OBSERVE__LISTEN", &taken)]);
        let exit = jobs.pipeline.process("service").wait(Duration::from_secs(90));
        let said = jobs.pipeline.process("service").stderr();
        assert_eq!(exit, Exit(2), "{said}");
        assert!(said.contains(&taken) && said.contains("observe.listen"), "{said}");
    }
}
