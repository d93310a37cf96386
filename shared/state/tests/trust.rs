//! Whose directory it is, and what becomes of one that can't be trusted.
#![allow(clippy::unwrap_used, reason = "a test ends there")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use support::*;
use tempfile::TempDir;
use tidegate_domain::Topic;
use tidegate_pipeline::changelog::{LocalCopy, MarkTable};
use tidegate_pipeline::ports::MarkStoreError;
use tidegate_state::{Marks, OpenError, Parents, Settings, TopicIdentity};

/// A store with some marks in one file and some in another. The directory around it is removed with the first value.
fn filled() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let marks = open(&path);
    open_partition(&marks, &partition(0));
    append(&marks, &partition(0), &(0..20_000).map(entry).collect::<Vec<_>>(), NOW);
    marks.compact(&partition(0)).unwrap();
    append(&marks, &partition(0), &[entry(1_000_000), entry(1_000_001)], NOW);
    (dir, path)
}

/// No room for a filter: so nothing is read at open, and what comes later meets the damage.
fn open_without_filter(path: &Path) -> Marks {
    let mut settings = settings(path);
    settings.memory.filter_per_partition = 0;
    Marks::open_dir(settings).unwrap()
}

fn damage_blocks(path: &Path) {
    for file in files(path, ".sst") {
        flip(&file, |len| len / 3);
    }
}

fn flip(file: &Path, place: impl Fn(usize) -> usize) {
    let mut bytes = fs::read(file).unwrap();
    let place = place(bytes.len());
    bytes[place] ^= 0x40;
    fs::write(file, bytes).unwrap();
}

/// Opens `settings` over a filled store: it is empty, works, and the old one is beside it.
fn check_set_aside(path: &Path, settings: Settings, reason: &str) {
    let marks = Marks::open_dir(settings.clone()).unwrap();
    let at = partition(0);
    assert_eq!(open_partition(&marks, &at), LocalCopy::default());
    assert!(!is_done(&marks, &at, 1));
    append(&marks, &at, &[entry(2)], NOW);
    assert!(is_done(&marks, &at, 2));
    let aside = set_aside(path);
    assert_eq!(aside.len(), 1);
    assert!(aside[0].to_str().unwrap().ends_with(reason), "{aside:?}");
    assert!(!files(&aside[0], "").is_empty(), "its content is kept");
    drop(marks);
    let marks = Marks::open_dir(settings).unwrap();
    open_partition(&marks, &at);
    assert!(is_done(&marks, &at, 2), "the new one is trusted");
    assert_eq!(set_aside(path).len(), 1);
}

#[test]
fn state_of_another_cluster_topic_changelog_or_partition_count_is_set_aside() {
    let identity = |id: &str, changelog: &str, partitions| TopicIdentity {
        id: id.to_owned(),
        partitions,
        changelog: Some(changelog.to_owned()),
    };
    let check = |reason, change: &dyn Fn(&mut Settings)| {
        let (_dir, path) = filled();
        let mut settings = settings(&path);
        change(&mut settings);
        check_set_aside(&path, settings, reason);
    };
    check("foreign-cluster", &|s| s.provenance.cluster_id = "cluster-2".to_owned());
    check("recreated-topic", &|s| {
        _ = s.provenance.topics.insert(topic(), identity("topic-id-2", "changelog-id-1", 8))
    });
    let other = identity("topic-id-1", "changelog-id-2", 8);
    check("recreated-changelog", &|s| _ = s.provenance.topics.insert(topic(), other.clone()));
    check("partition-count", &|s| {
        _ = s.provenance.topics.insert(topic(), identity("topic-id-1", "changelog-id-1", 9))
    });
}

#[test]
fn the_changelog_is_put_on_record_once_it_is_known_and_stays_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let known = |changelog: Option<&str>| {
        let mut settings = settings(&path);
        settings.provenance.topics.get_mut(&topic()).unwrap().changelog = changelog.map(str::to_owned);
        settings
    };
    for changelog in [None, Some("a"), None, Some("a")] {
        drop(Marks::open_dir(known(changelog)).unwrap());
        assert!(set_aside(&path).is_empty(), "{changelog:?}");
    }
    drop(Marks::open_dir(known(Some("b"))).unwrap());
    assert_eq!(set_aside(&path).len(), 1);
}

#[test]
fn state_without_a_readable_origin_is_set_aside() {
    let check = |reason, damage: &dyn Fn(&Path)| {
        let (_dir, path) = filled();
        damage(&path.join("provenance.json"));
        check_set_aside(&path, settings(&path), reason);
    };
    check("unknown-origin", &|file| fs::remove_file(file).unwrap());
    check("corrupt", &|file| fs::write(file, "{\"format\":1,").unwrap());
    check("other-format", &|file| fs::write(file, "{\"format\":2,\"new\":true}").unwrap());
}

#[test]
fn the_retention_and_another_topic_are_no_reason_to_distrust() {
    let (_dir, path) = filled();
    let mut settings = settings(&path);
    settings.retention *= 2;
    let other = TopicIdentity { id: "topic-id-9".to_owned(), partitions: 3, changelog: None };
    settings.provenance.topics.insert(Topic::new("other"), other);
    let marks = Marks::open_dir(settings).unwrap();
    open_partition(&marks, &partition(0));
    assert!(is_done(&marks, &partition(0), 1));
    drop(marks);
    let text = fs::read_to_string(path.join("provenance.json")).unwrap();
    assert!(text.contains("topic-id-1") && text.contains("topic-id-9"), "{text}");
    assert_eq!(set_aside(&path), Vec::<PathBuf>::new());
}

#[test]
fn a_database_that_can_not_be_opened_for_corruption_is_set_aside() {
    let check = |damage: &dyn Fn(&Path)| {
        let (_dir, path) = filled();
        damage(&path);
        check_set_aside(&path, settings(&path), "corrupt");
    };
    let manifest =
        |path: &Path| files(path, "").into_iter().find(|f| f.to_str().unwrap().contains("MANIFEST")).unwrap();
    check(&|path| flip(&manifest(path), |len| len / 2));
    check(&|path| fs::remove_file(manifest(path)).unwrap());
    check(&|path| fs::remove_file(path.join("db/CURRENT")).unwrap());
    check(&|path| fs::remove_file(&files(path, ".sst")[0]).unwrap());
    check(&|path| fs::write(&files(path, ".sst")[0], b"short").unwrap());
}

/// Damage that only the scan at open meets is found there; the owner opens again, and gets an empty store.
#[test]
fn a_damaged_block_is_found_when_the_partition_is_opened() {
    let (_dir, path) = filled();
    // The small one is read when the database is opened.
    let largest = files(&path, ".sst").into_iter().max_by_key(|f| fs::metadata(f).unwrap().len()).unwrap();
    flip(&largest, |len| len / 3);
    let marks = open(&path);
    let error = try_open(&marks, &partition(0)).unwrap_err();
    assert!(matches!(&error, MarkStoreError::Read(text) if text.contains("corrupt")), "{error}");
    eventually("the partition opens", || try_open(&marks, &partition(0)).is_ok());
    assert_eq!(open_partition(&marks, &partition(0)), LocalCopy::default());
    assert_eq!(set_aside(&path).len(), 1);
    assert!(!is_done(&marks, &partition(0), 1));
    append(&marks, &partition(0), &[entry(1)], NOW);
    assert!(is_done(&marks, &partition(0), 1));
}

#[test]
fn a_damaged_block_that_a_look_up_meets_sets_the_state_aside_and_closes_the_partitions() {
    let (_dir, path) = filled();
    let marks = open_without_filter(&path);
    for n in 0..3 {
        open_partition(&marks, &partition(n));
    }
    damage_blocks(&path);
    let keys: Vec<_> = (0..20_000).map(key).collect();
    let error = marks.look_up(&partition(0), &keys, &mut Vec::new()).unwrap_err();
    assert!(matches!(&error, MarkStoreError::Read(text) if text.contains("corrupt")), "{error}");
    check_closed(&marks, 3);
    assert_eq!(set_aside(&path).len(), 1, "once, however often it was reported");
    for n in 0..3 {
        append(&marks, &partition(n), &[entry(n as u64)], NOW);
        assert!(is_done(&marks, &partition(n), n as u64));
    }
}

/// Waits until the partitions are closed for a fault; none is answered for nor written to before it is opened again, and then there
/// is no copy.
fn check_closed(marks: &Marks, partitions: i32) {
    eventually("the database is opened anew", || {
        let looked = marks.look_up(&partition(0), &[key(1)], &mut Vec::new());
        matches!(looked, Err(MarkStoreError::NotOpen(_)))
    });
    for n in 0..partitions {
        let at = partition(n);
        let looked = marks.look_up(&at, &[key(1)], &mut Vec::new());
        assert!(matches!(looked, Err(MarkStoreError::NotOpen(_))), "{looked:?}");
        let applied = try_append(marks, &at, &[entry(1)], NOW);
        assert!(matches!(applied, Err(MarkStoreError::NotOpen(_))), "{applied:?}");
        eventually("it opens", || try_open(marks, &at).is_ok());
        assert_eq!(try_open(marks, &at).unwrap(), LocalCopy::default());
    }
}

#[test]
fn damage_that_a_compaction_meets_stops_writing_until_the_state_is_set_aside() {
    let (_dir, path) = filled();
    let marks = open_without_filter(&path);
    let at = partition(0);
    open_partition(&marks, &at);
    damage_blocks(&path);
    append(&marks, &at, &[entry(7)], NOW);
    // The compaction fails silently: RocksDB shows it at the next write.
    marks.compact(&at).unwrap();
    let error = try_append(&marks, &at, &[entry(8)], NOW).unwrap_err();
    assert!(matches!(&error, MarkStoreError::Write(text) if text.contains("corrupt")), "{error}");
    check_closed(&marks, 1);
    append(&marks, &at, &[entry(8)], NOW);
    assert!(is_done(&marks, &at, 8) && !is_done(&marks, &at, 7));
    assert_eq!(set_aside(&path).len(), 1);
}

#[test]
fn a_directory_that_is_deleted_while_it_is_used_is_made_anew() {
    let (around, path) = filled();
    let marks = open(&path);
    let at = partition(0);
    open_partition(&marks, &at);
    append(&marks, &at, &[entry(2_000_000)], NOW);
    // Under another name nothing comes into it while it is emptied.
    let deleted = around.path().join("deleted");
    fs::rename(&path, &deleted).unwrap();
    fs::remove_dir_all(&deleted).unwrap();
    marks.flush().unwrap_err();
    eventually("it is made anew", || try_open(&marks, &at).is_ok_and(|copy| copy == LocalCopy::default()));
    append(&marks, &at, &[entry(2)], NOW);
    marks.flush().unwrap();
    assert!(is_done(&marks, &at, 2) && !is_done(&marks, &at, 1));
    assert_eq!(set_aside(&path), Vec::<PathBuf>::new(), "nothing was left to set aside");
}

#[test]
fn a_file_in_the_database_s_place_is_set_aside() {
    let (_around, path) = filled();
    fs::remove_dir_all(path.join("db")).unwrap();
    fs::write(path.join("db"), "garbage").unwrap();
    let marks = open(&path);
    assert_eq!(open_partition(&marks, &partition(0)), LocalCopy::default());
    let aside = set_aside(&path);
    assert_eq!(aside.len(), 1);
    assert_eq!(fs::read_to_string(aside[0].join("db")).unwrap(), "garbage", "it is kept");
}

#[test]
fn a_directory_in_use_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let marks = open(&path);
    open_partition(&marks, &partition(0));
    append(&marks, &partition(0), &[entry(1)], NOW);
    let mut foreign = settings(&path);
    foreign.provenance.cluster_id = "cluster-2".to_owned();
    for settings in [settings(&path), foreign] {
        let error = open_error(settings);
        assert!(matches!(&error, OpenError::InUse(_)), "{error}");
        assert!(error.to_string().starts_with("another process uses"), "{error}");
    }
    assert!(set_aside(&path).is_empty());
    append(&marks, &partition(0), &[entry(2)], NOW);
    drop(marks);
    let marks = open(&path);
    open_partition(&marks, &partition(0));
    assert!(is_done(&marks, &partition(0), 1) && is_done(&marks, &partition(0), 2));
}

#[test]
fn a_directory_that_can_not_be_made_is_told_with_its_path_the_reason_and_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a-file");
    fs::write(&file, "kept").unwrap();
    // The last one: where not even root may write.
    for path in [file.clone(), file.join("s"), Path::new("/proc/tidegate/s").to_owned()] {
        let error = open_error(settings(&path));
        let (OpenError::NoDirectory { reason, .. } | OpenError::Denied { reason, .. }) = &error else {
            panic!("{path:?}: {error:?}")
        };
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()) && text.contains(&format!("({reason})")), "{text}");
        assert!(text.contains("set another"), "{text}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_store_whose_parents_were_removed_for_good_brings_none_of_them_back() {
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("home");
    fs::create_dir(&home).unwrap();
    let settings = || Settings { parents: Parents::Required, ..settings(&home.join("s")) };
    drop(Marks::open_dir(settings()).unwrap());
    // One that is there already is opened as ever.
    drop(Marks::open_dir(settings()).unwrap());
    fs::remove_dir_all(&home).unwrap();
    let refused = open_error(settings());
    assert!(matches!(refused, OpenError::NoDirectory { .. }), "{refused}");
    assert!(!home.exists(), "it is made anew");
    assert!(Marks::open_dir(Settings { parents: Parents::Made, ..settings() }).is_ok());
}
