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
use tidegate_pipeline::ports::MarkStoreError;
use tidegate_state::OpenError;

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

#[test]
fn a_full_disk_is_a_clear_error_half_applies_nothing_and_heals() {
    let dir = tempfile::tempdir().unwrap();
    let Some(disk) = Disk::mount(&dir.path().join("disk"), "24m") else { return };
    let path = disk.0.join("s");
    let marks = open(&path);
    for n in 0..2 {
        open_partition(&marks, &partition(n));
    }
    let mut written = Vec::new();
    for round in 0..3_u64 {
        append(&marks, &partition(1), &[entry(round)], NOW);
        let filler = disk.fill();
        let mut batch = round * 1_000_000;
        let refused = loop {
            let entries: Vec<_> = (batch..batch + 500).map(entry).collect();
            match try_append(&marks, &partition(0), &entries, NOW) {
                Ok(()) => written.push(batch),
                Err(error) => break error,
            }
            batch += 500;
            assert!(batch < round * 1_000_000 + 900_000, "the disk was never full");
        };
        assert!(
            matches!(&refused, MarkStoreError::Write(text) if text.contains("No space left")),
            "{refused}"
        );
        // What was acknowledged is read meanwhile, as long as the database is there.
        assert!(is_done(&marks, &partition(1), round));
        fs::remove_file(filler).unwrap();
        let refused: Vec<_> = (batch..batch + 500).map(key).collect();
        batch += 500;
        let entries: Vec<_> = (batch..batch + 500).map(entry).collect();
        eventually("writing works again", || try_append(&marks, &partition(0), &entries, NOW).is_ok());
        written.push(batch);
        let found = look_up(&marks, &partition(0), &refused);
        assert!(
            found.iter().all(|mark| *mark == found[0]),
            "the refused batch is there as a whole or not at all"
        );
        // The other partition goes on, too.
        append(&marks, &partition(1), &[entry(1_000_000 + round)], NOW);
        for batch in written.iter().step_by(20) {
            let keys: Vec<_> = (*batch..batch + 500).map(key).collect();
            assert!(
                look_up(&marks, &partition(0), &keys).iter().all(|mark| *mark == done()),
                "batch {batch}"
            );
        }
    }
    drop(marks);
    let marks = open(&path);
    open_partition(&marks, &partition(0));
    for batch in &written {
        let keys: Vec<_> = (*batch..batch + 500).map(key).collect();
        assert!(look_up(&marks, &partition(0), &keys).iter().all(|mark| *mark == done()), "batch {batch}");
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
