//! Workers whose local copy is gone or is not to be trusted.

use std::fs;
use std::path::{Path, PathBuf};

use tidegate_tests::jobs::{Jobs, SOON, Tally, Task, tasks};

use super::{nothing_runs_again, restored, run_once};
use crate::standstill::keep_sessions;

/// Runs jobs, stops the worker, lets its state meet a fate, starts it again: it knows all that was done. Gives the state's folder.
fn after_a_fate(prefix: &str, fate: impl FnOnce(&Path)) -> (Jobs, PathBuf) {
    let (mut jobs, tally) = Jobs::noting(prefix);
    keep_sessions(&mut jobs.pipeline);
    jobs.start_these(&["ingest", "worker"]);
    let done = tasks("before", 400);
    run_once(&jobs, &tally, &done);
    jobs.pipeline.stop("worker");
    let dir = jobs.pipeline.state_dir("worker").join("default");
    fate(&dir);
    jobs.start_one("worker");
    assert_eq!(restored(&mut jobs, "worker"), done.len() as u64, "it is ready when its marks are there");
    knows_it_all(&mut jobs, &tally, &done);
    run_once(&jobs, &tally, &tasks("after", 10));
    super::none_is_dead(&jobs);
    (jobs, dir)
}

fn knows_it_all(jobs: &mut Jobs, tally: &Tally, done: &[Task]) {
    nothing_runs_again(jobs, "worker", tally, done);
    assert_eq!(restored(jobs, "worker"), done.len() as u64);
    let said = jobs.pipeline.process("worker").stderr();
    let told = said.lines().filter(|line| line.contains("restored marks from the changelog"));
    let marks = told.filter_map(|line| line.split("marks=").nth(1)?.split(' ').next()?.parse::<usize>().ok());
    assert_eq!(marks.sum::<usize>(), done.len(), "the log says what was restored:\n{said}");
}

fn set_aside(dir: &Path) -> Vec<String> {
    let siblings = fs::read_dir(dir.parent().unwrap()).unwrap();
    let names = siblings.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.contains(".set-aside-")).collect()
}

#[test]
fn a_worker_whose_state_is_gone_restores_it_and_runs_nothing_again() {
    let (_jobs, dir) = after_a_fate("gone", |dir| fs::remove_dir_all(dir).unwrap());
    assert_eq!(set_aside(&dir), Vec::<String>::new());
}

#[test]
fn state_of_another_cluster_is_set_aside_and_restored() {
    let (mut jobs, dir) = after_a_fate("foreign", |dir| {
        let record = dir.join("provenance.json");
        let text = fs::read_to_string(&record).unwrap();
        let (_, rest) = text.split_once("\"cluster_id\": \"").expect("it names its cluster");
        let (cluster, _) = rest.split_once('"').unwrap();
        fs::write(record, text.replace(cluster, "another-cluster")).unwrap();
    });
    let aside = set_aside(&dir);
    assert!(aside.len() == 1 && aside[0].contains("foreign-cluster"), "{aside:?}");
    assert_eq!(jobs.count("tidegate_state_set_aside_total", &[]), 1);
}

#[test]
fn state_with_a_flipped_bit_is_set_aside_and_restored() {
    let (mut jobs, dir) = after_a_fate("bit", |dir| {
        let files = fs::read_dir(dir.join("db")).unwrap().map(|entry| entry.unwrap().path());
        let tables = files.filter(|path| path.extension().is_some_and(|extension| extension == "sst"));
        // The small one is read when the database is opened.
        let table = tables.max_by_key(|path| fs::metadata(path).unwrap().len()).expect("marks are in files");
        let mut bytes = fs::read(&table).unwrap();
        let place = bytes.len() / 3;
        bytes[place] ^= 1;
        fs::write(table, bytes).unwrap();
    });
    let aside = set_aside(&dir);
    assert!(aside.len() == 1 && aside[0].contains("corrupt"), "{aside:?}");
    assert_eq!(jobs.count("tidegate_state_set_aside_total", &[]), 1);
}

#[test]
fn a_worker_that_was_killed_reads_only_what_its_copy_misses() {
    let (mut jobs, tally) = Jobs::noting("misses");
    jobs.start_these(&["ingest", "worker"]);
    let kept = tasks("kept", 200);
    run_once(&jobs, &tally, &kept);
    // A clean stop writes the copy to its files; a kill leaves what came after it in the changelog alone.
    jobs.pipeline.stop("worker");
    jobs.start_one("worker");
    let lost = tasks("lost", 50);
    run_once(&jobs, &tally, &lost);
    jobs.pipeline.kill("worker");
    jobs.start_one("worker");
    nothing_runs_again(&mut jobs, "worker", &tally, &[kept, lost.clone()].concat());
    assert_eq!(restored(&mut jobs, "worker"), lost.len() as u64);
    jobs.wait_settled(SOON);
}
