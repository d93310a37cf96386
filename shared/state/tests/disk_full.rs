//! A full disk stops writing with a clear error, and writing goes on when there is room.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test ends there, and says what it could not try"
)]

mod support;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::*;
use tidegate_domain::{CommitPosition, IdempotencyKey};
use tidegate_pipeline::TopicPartition;
use tidegate_pipeline::changelog::{LocalCopy, MarkTable};
use tidegate_pipeline::ports::MarkStoreError;
use tidegate_state::{Marks, OpenError};

/// A small disk of its own, until it is dropped.
struct Disk(PathBuf);

impl Disk {
    fn mount(at: &Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let options = format!("size={size}");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_owned())),
            refused => {
                println!("NOT TESTED: a full disk, since this user may not mount one: {refused:?}");
                None
            }
        }
    }

    fn make_read_only(&self) {
        let made = Command::new("mount").args(["-o", "remount,ro"]).arg(&self.0).status().unwrap();
        assert!(made.success());
    }

    /// Fills it to the last byte.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = File::create(&path).unwrap();
        for chunk in [1 << 20, 1 << 12, 1] {
            while file.write_all(&vec![1; chunk]).is_ok() {}
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        println!("unmounted: {unmounted:?}");
    }
}

/// A changelog whose record at each position has 500 marks, applied to a copy as its owner would.
struct Owner {
    at: TopicPartition,
    /// The end of the changelog.
    end: u64,
}

impl Owner {
    fn keys(position: u64) -> Vec<IdempotencyKey> {
        (position * 500..(position + 1) * 500).map(key).collect()
    }

    fn apply(&self, marks: &Marks, position: u64) -> Result<(), MarkStoreError> {
        let entries: Vec<_> = (position * 500..(position + 1) * 500).map(entry).collect();
        apply(marks, &self.at, &entries, NOW, copy(position as i64 + 1, None))
    }

    /// Opens the copy until that works, and applies what it misses.
    fn catch_up(&self, marks: &Marks) {
        let mut found = LocalCopy::default();
        eventually("the partition opens", || match try_open(marks, &self.at) {
            Ok(copy) => {
                found = copy;
                true
            }
            Err(_) => false,
        });
        let position = found.position.map_or(0, |CommitPosition(position)| position as u64);
        assert!(position <= self.end, "more than was ever applied");
        for missed in position..self.end {
            self.apply(marks, missed).unwrap();
        }
    }

    /// As `check`, until the database is opened anew, which begins by itself.
    fn check_meanwhile(&self, marks: &Marks) {
        for position in 0..self.end {
            let mut found = Vec::new();
            match marks.look_up(&self.at, &Self::keys(position), &mut found) {
                Ok(()) => assert!(found.iter().all(|mark| *mark == done()), "{position} of {}", self.end),
                Err(MarkStoreError::NotOpen(_)) => return,
                Err(error) => assert!(error.to_string().contains("opened again"), "{error}"),
            }
        }
    }

    fn check(&self, marks: &Marks, step: usize) {
        for position in (0..self.end).step_by(step) {
            let found = look_up(marks, &self.at, &Self::keys(position));
            assert!(found.iter().all(|mark| *mark == done()), "{position} of {}", self.end);
        }
    }
}

#[test]
fn a_full_disk_is_a_clear_error_half_applies_nothing_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&dir.path().join("disk"), "48m") else { return };
    let path = disk.0.join("s");
    let marks = open(&path);
    let mut owners = [0, 1].map(|n| Owner { at: partition(n), end: 0 });
    for _round in 0..3_u64 {
        for owner in &mut owners {
            owner.catch_up(&marks);
            owner.apply(&marks, owner.end).unwrap();
            owner.end += 1;
        }
        let filler = disk.fill();
        let owner = &mut owners[0];
        let refused = loop {
            match owner.apply(&marks, owner.end) {
                Ok(()) => owner.end += 1,
                Err(error) => break error,
            }
            assert!(owner.end < 3_000, "the disk was never full");
        };
        assert!(
            matches!(&refused, MarkStoreError::Write(text) if text.contains("No space left")),
            "{refused}"
        );
        owners[1].check_meanwhile(&marks);
        fs::remove_file(filler).unwrap();
        eventually("the database is opened anew", || {
            let looked = marks.look_up(&owners[1].at, &[key(1)], &mut Vec::new());
            matches!(looked, Err(MarkStoreError::NotOpen(_)))
        });
        for owner in &owners {
            owner.catch_up(&marks);
            owner.check(&marks, 20);
        }
    }
    drop(marks);
    let marks = open(&path);
    for owner in &owners {
        let found = open_partition(&marks, &owner.at);
        assert_eq!(found, copy(owner.end as i64, None), "a clean end flushes all");
        owner.check(&marks, 1);
    }
    assert!(set_aside(&path).is_empty());
}

#[test]
fn a_disk_that_is_full_at_the_start_is_a_clear_error_and_nothing_is_set_aside() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&dir.path().join("disk"), "16m") else { return };
    let path = disk.0.join("s");
    {
        let marks = open(&path);
        open_partition(&marks, &partition(0));
        append(&marks, &partition(0), &[entry(1)], NOW);
    }
    let filler = disk.fill();
    let error = open_error(settings(&path));
    assert!(matches!(error, OpenError::NoSpace { .. }), "{error}");
    assert!(error.to_string().starts_with("no room on the disk of"), "{error}");
    fs::remove_file(filler).unwrap();
    let marks = open(&path);
    open_partition(&marks, &partition(0));
    assert!(is_done(&marks, &partition(0), 1));
    assert!(set_aside(&path).is_empty());
}

#[test]
fn a_disk_that_may_not_be_written_is_a_clear_error() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&dir.path().join("disk"), "32m") else { return };
    let path = disk.0.join("s");
    drop(open(&path));
    disk.make_read_only();
    for dir in [path, disk.0.join("new")] {
        let error = open_error(settings(&dir));
        assert!(matches!(error, OpenError::Denied { .. }), "{error}");
        assert!(error.to_string().starts_with("no right to use"), "{error}");
    }
}
