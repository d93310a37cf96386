use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::{Lane, hold};
use crate::fleet::{Disk, Fleet, own_mounts};
use crate::plan::{Deck, Drawn, Role, ServiceFault};

/// How long a fault of services waits at most for the service to be ready again, before the next one.
const READY_WITHIN: Duration = Duration::from_secs(15);
const STORM: [&str; 2] = ["worker-8", "worker-9"];
const FULL: &str = "worker-7";

/// Harms the services, until the lane ends.
pub(crate) fn harm_services(lane: &Lane, mut fleet: Fleet, mut deck: Deck<ServiceFault>) -> Fleet {
    while lane.goes_on() {
        let drawn = deck.draw();
        let harmed = harm(lane, &mut fleet, &drawn);
        fleet.supervise();
        // Every other time the next fault comes while it still starts.
        if let Some(name) = harmed
            && drawn.luck & 1 == 0
        {
            fleet.wait_ready(&name, READY_WITHIN);
        }
        hold(drawn.gap);
    }
    fleet
}

/// Does it, and names the service that was harmed, if it is one of those that should run.
fn harm(lane: &Lane, fleet: &mut Fleet, drawn: &Drawn<ServiceFault>) -> Option<String> {
    let (time, journal) = (drawn.hold, &lane.journal);
    let role = match drawn.fault {
        ServiceFault::Kill(role) | ServiceFault::Stop(role) | ServiceFault::Freeze(role) => role,
        _ => Role::Worker,
    };
    let names = fleet.names(role);
    let name = names.get((drawn.luck >> 8) as usize % names.len().max(1))?.clone();
    match drawn.fault {
        ServiceFault::RebalanceStorm => {
            journal.fault("rebalance storm", &format!("workers come and go for {time:?}"), || {
                storm(fleet, time, drawn.luck);
            });
            return None;
        }
        ServiceFault::DiskFull => {
            full_disk(lane, fleet, time);
            return None;
        }
        ServiceFault::Freeze(_) => {
            journal.fault(named("frozen", role), &format!("{name} is frozen for {time:?}"), || {
                fleet.freeze(&name, || hold(time));
            });
        }
        fault => away(lane, fleet, &name, (fault, drawn)),
    }
    Some(name)
}

/// Ends the service, perhaps harms what it left, and starts it again.
fn away(lane: &Lane, fleet: &mut Fleet, name: &str, (fault, drawn): (ServiceFault, &Drawn<ServiceFault>)) {
    let time = drawn.hold;
    let (kind, what) = match fault {
        ServiceFault::Stop(role) => (named("stopped", role), "stopped"),
        ServiceFault::Kill(role) => (named("killed", role), "killed"),
        ServiceFault::StateDeleted => ("state deleted", "killed and loses its state"),
        _ => ("state bit-flipped", "killed and has a bit of its state flipped"),
    };
    lane.journal.fault(kind, &format!("{name} is {what}, and away for {time:?}"), || {
        let state = fleet.state_dir(name);
        match fault {
            ServiceFault::Stop(_) => fleet.stop(name),
            _ => fleet.kill(name),
        }
        match fault {
            // Where nothing is there, it had not come to write any.
            ServiceFault::StateDeleted => drop(fs::remove_dir_all(state)),
            ServiceFault::StateFlipped => {
                let flipped = flip_a_bit(&state, drawn.luck);
                let file = flipped.as_deref().map_or("nothing".into(), Path::to_string_lossy);
                lane.journal.say(&format!("a bit was flipped in {file}"));
            }
            _ => {}
        }
        hold(time);
        fleet.start(name, Disk::Shared);
    });
}

fn named(what: &str, role: Role) -> &'static str {
    match (what, role) {
        ("killed", Role::Ingest) => "ingest killed",
        ("killed", Role::Worker) => "worker killed",
        ("killed", Role::Retry) => "retry killed",
        ("stopped", Role::Ingest) => "ingest stopped",
        ("stopped", Role::Worker) => "worker stopped",
        ("stopped", Role::Retry) => "retry stopped",
        (_, Role::Ingest) => "ingest frozen",
        (_, Role::Worker) => "worker frozen",
        (_, Role::Retry) => "retry frozen",
    }
}

/// Workers join and leave, in good order and not.
fn storm(fleet: &mut Fleet, time: Duration, luck: u64) {
    let until = Instant::now() + time;
    let mut turn = luck;
    while Instant::now() < until {
        STORM.iter().for_each(|name| fleet.start(name, Disk::Shared));
        hold(Duration::from_millis(500 + (turn % 16) * 150));
        for name in STORM {
            turn = turn.rotate_right(5);
            if turn & 1 == 0 { fleet.kill(name) } else { fleet.stop(name) }
        }
    }
}

/// A worker of its own, whose disk has room for nothing more for a while.
fn full_disk(lane: &Lane, fleet: &mut Fleet, time: Duration) {
    if own_mounts().is_none() {
        return lane.journal.say("no file system of its own can be mounted here: no disk is filled");
    }
    // It may end at its start, when a broker is away; the small disk is a process's own.
    let started = |fleet: &mut Fleet| {
        fleet.start(FULL, Disk::Small);
        fleet.wait_ready(FULL, READY_WITHIN) || {
            fleet.stop(FULL);
            false
        }
    };
    if !(0..5).any(|_| started(fleet)) {
        return lane.journal.say(&format!("{FULL} did not start: no disk is filled"));
    }
    lane.journal.fault("disk full", &format!("the disk of {FULL} is full for {time:?}"), || {
        let filler = fleet.small_disk(FULL).map(|path| path.join("filler"));
        if let Some(filler) = &filler {
            fill(filler, Instant::now() + time);
            // The process may have ended, and the file with it.
            drop(fs::remove_file(filler));
        }
    });
    fleet.wait_ready(FULL, Duration::from_secs(5));
    fleet.stop(FULL);
}

/// Writes until nothing more fits, again and again: what is compacted away makes room.
fn fill(path: &Path, until: Instant) {
    while Instant::now() < until {
        if let Ok(mut file) = fs::OpenOptions::new().create(true).append(true).open(path) {
            while file.write_all(&[7; 4096]).is_ok() {}
        }
        hold(Duration::from_millis(20));
    }
}

/// Flips a bit of one of the files under the folder.
fn flip_a_bit(folder: &Path, luck: u64) -> Option<PathBuf> {
    let mut files = Vec::new();
    list(folder, &mut files);
    files.sort();
    let path = files.get((luck >> 16) as usize % files.len().max(1))?.clone();
    flip(&path, luck).ok().map(|()| path)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            list(&path, files);
        } else if fs::metadata(&path).is_ok_and(|file| file.len() > 0) {
            files.push(path);
        }
    }
}

fn flip(path: &Path, luck: u64) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let place = luck % file.metadata()?.len().max(1);
    let mut byte = [0];
    file.seek(SeekFrom::Start(place))?;
    file.read_exact(&mut byte)?;
    byte[0] ^= 1 << (luck >> 40 & 7);
    file.seek(SeekFrom::Start(place))?;
    file.write_all(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_bit_is_flipped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("deep");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("file"), [0; 100]).unwrap();
        fs::write(directory.path().join("empty"), []).unwrap();
        for luck in 0..200_u64 {
            let luck = luck.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let before = fs::read(path.join("file")).unwrap();
            assert_eq!(flip_a_bit(directory.path(), luck), Some(path.join("file")));
            let after = fs::read(path.join("file")).unwrap();
            let bits: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
            assert_eq!(bits, 1);
        }
    }
}
