use tidegate_domain::mark::{Phase, Step};
use tidegate_domain::{Hop, JobHash, PayloadHash, Round};
use tidegate_pipeline::changelog::OpenerId;
use tidegate_pipeline::ports::MarkEntry;
use tidegate_pipeline::record::RecordBuilder;

use super::*;

/// Marks are remembered for ten milliseconds, and it is 100.
const MEMORY: Memory = Memory { retention: Duration::from_millis(10), now: UnixMillis(100) };

pub(crate) fn key(number: u8) -> IdempotencyKey {
    IdempotencyKey([number; 16])
}

/// That a key is done; or, of a phase, that it came so far.
fn entry(number: u8, phase: Option<Phase>) -> MarkEntry {
    let step = Step {
        round: Round(0),
        hop: Hop(0),
        phase: phase.unwrap_or(Phase::Started),
        n: 1,
        job: JobHash(1),
        payload: PayloadHash(1),
        written_at: UnixMillis(5),
    };
    MarkEntry { key: key(number), mark: if phase.is_some() { Mark::step(step) } else { Mark::done(step) } }
}

fn record(at: i64, entries: &[MarkEntry]) -> Record {
    let mut value = Vec::new();
    format::write_marks(OpenerId([7; 16]), entries, &mut value);
    RecordBuilder::new(Offset(at), Some(UnixMillis(at)), None, Some(&value), 0).build()
}

impl Marks {
    /// It is read that this key is done, just now.
    pub(crate) fn look_at_done(&mut self, number: u8) {
        let now = UnixMillis(now());
        self.look(&record(now.0, &[entry(number, None)]), &Memory { now, ..MEMORY });
    }
}

fn done(marks: &Marks, number: u8) -> bool {
    marks.get(&key(number)).is_some_and(Found::is_done)
}

#[test]
fn a_key_is_done_whose_mark_says_so_and_no_other() {
    let mut marks = Marks::of([1, 2, 3].map(key));
    marks.look(&record(95, &[entry(2, None), entry(4, None), entry(1, Some(Phase::Dead))]), &MEMORY);
    marks.look(&record(96, &[entry(2, None)]), &MEMORY);
    assert_eq!([1, 2, 3, 4].map(|number| done(&marks, number)), [false, true, false, false]);
    assert!(!marks.are_all_done());
    marks.look(&record(97, &[entry(1, None), entry(3, None), entry(3, None)]), &MEMORY);
    assert!(marks.are_all_done());
}

#[test]
fn what_workers_have_forgotten_is_found_and_is_not_done() {
    let mut marks = Marks::of([1, 2].map(key));
    marks.look(&record(89, &[entry(1, None)]), &MEMORY);
    marks.look(&record(90, &[entry(2, None)]), &MEMORY);
    let found = *marks.get(&key(1)).unwrap();
    assert!(found.mark.done.is_some() && found.is_forgotten && found.offset == Offset(89), "{found:?}");
    assert_eq!([1, 2].map(|number| done(&marks, number)), [false, true]);
}

#[test]
fn a_later_entry_keeps_what_was_not_forgotten_by_then_and_brings_nothing_back() {
    let mut marks = Marks::of([1, 2].map(key));
    marks.look(&record(85, &[entry(1, None)]), &MEMORY);
    marks.look(&record(70, &[entry(2, None)]), &MEMORY);
    marks.look(&record(95, &[entry(1, Some(Phase::Dead)), entry(2, Some(Phase::Dead))]), &MEMORY);
    assert_eq!([1, 2].map(|number| done(&marks, number)), [true, false]);
    assert_eq!(marks.get(&key(2)).unwrap().mark.done, None);
}

#[test]
fn a_done_key_that_a_later_entry_finds_forgotten_is_open_again() {
    let mut marks = Marks::of([key(1)]);
    marks.look(&record(95, &[entry(1, None)]), &MEMORY);
    assert!(marks.are_all_done());
    // By a clock that is ahead of this one.
    marks.look(&record(106, &[entry(1, Some(Phase::Dead))]), &MEMORY);
    assert!(!marks.are_all_done() && !done(&marks, 1));
    marks.look(&record(107, &[entry(1, None)]), &MEMORY);
    assert!(marks.are_all_done() && done(&marks, 1));
}

#[test]
fn what_is_no_entry_says_nothing() {
    let mut marks = Marks::of([key(1)]);
    for value in [None, Some(&b"x"[..])] {
        marks.look(&RecordBuilder::new(Offset(0), None, None, value, 0).build(), &MEMORY);
    }
    assert_eq!(marks.get(&key(1)), None);
}
