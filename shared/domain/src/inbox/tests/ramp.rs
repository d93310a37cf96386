use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Answer, End, Ends, Move, Ramp, RampLimits, Stop};
use crate::position::UnixMillis;

const LIMITS: RampLimits =
    RampLimits { first: 1, factor: 5, cap: 100, failures: 0.1, timeout: Duration::from_secs(60) };

fn at(seconds: i64) -> UnixMillis {
    UnixMillis(seconds * 1000)
}

/// Publishes what may be, now. Which places that were.
fn publish(ramp: &mut Ramp, now: UnixMillis) -> Vec<usize> {
    let mut places = Vec::new();
    while let Move::Publish(range) = ramp.next(now) {
        for place in range.filter(|&place| ramp.is_unpublished(place)).collect::<Vec<_>>() {
            ramp.published(place, now);
            places.push(place);
        }
    }
    places
}

#[test]
fn steps_grow_by_their_factor_up_to_their_cap_and_all_is_published_once() {
    let mut ramp = Ramp::new(LIMITS, 400);
    let (mut steps, mut next, mut missed) = (Vec::new(), 0, at(60));
    loop {
        let places = publish(&mut ramp, at(0));
        if places.is_empty() {
            break;
        }
        assert_eq!(places, (next..next + places.len()).collect::<Vec<_>>());
        next += places.len();
        steps.push(places.len());
        assert_eq!(ramp.next(at(1)), Move::Wait(missed), "the next step waits for this one's outcomes");
        missed = at(61);
        places.iter().for_each(|&place| ramp.heard(place, Answer::Resolved, at(1)));
    }
    assert_eq!(steps, [1, 5, 25, 100, 100, 100, 69]);
    assert_eq!(ramp.next(at(0)), Move::Finished);
    assert_eq!(ramp.ends(), Ends { passed: 400, failed: 0, withdrawn: 0 });
}

#[test]
fn a_poison_stops_a_ramp_at_its_first_step() {
    let mut ramp = Ramp::new(LIMITS, 1000);
    assert_eq!(publish(&mut ramp, at(0)), [0]);
    ramp.heard(0, Answer::FailedAgain, at(1));
    let stop = Stop::TooManyFailures { step: 1, failed: 1, ended: 1 };
    assert_eq!(ramp.next(at(1)), Move::Stopped(stop));
    assert!(stop.to_string().starts_with("the only replay of step 1 that ended failed again"), "{stop}");
    // It stays stopped, whatever comes.
    ramp.go_on(at(2));
    assert_eq!(ramp.next(at(999)), Move::Stopped(stop));
}

#[test]
fn a_step_goes_on_below_its_limit_and_stops_as_soon_as_it_can_no_longer_stay_below() {
    let limits = RampLimits { first: 10, factor: 2, failures: 0.25, ..LIMITS };
    let mut ramp = Ramp::new(limits, 30);
    publish(&mut ramp, at(0));
    for place in 0..10 {
        let answer = if place < 2 { Answer::FailedAgain } else { Answer::AlreadyDone };
        ramp.heard(place, answer, at(1));
    }
    assert_eq!(publish(&mut ramp, at(1)).len(), 20, "2 of 10 is less than a quarter");
    (10..14).for_each(|place| ramp.heard(place, Answer::FailedAgain, at(2)));
    assert!(matches!(ramp.next(at(2)), Move::Wait(_)), "4 of 20 may still be less");
    ramp.heard(14, Answer::FailedAgain, at(2));
    let stop = Stop::TooManyFailures { step: 2, failed: 5, ended: 5 };
    assert_eq!(ramp.next(at(2)), Move::Stopped(stop), "5 of 20 is a quarter, whatever the others do");
    assert!(stop.to_string().starts_with("5 of the 5 replays of step 2 that ended failed again"), "{stop}");
}

#[test]
fn a_limit_of_zero_stops_at_the_first_failure_and_not_before() {
    let mut ramp = Ramp::new(RampLimits { failures: 0.0, ..LIMITS }, 6);
    publish(&mut ramp, at(0));
    ramp.heard(0, Answer::Coalesced, at(0));
    assert_eq!(publish(&mut ramp, at(0)).len(), 5);
    ramp.heard(3, Answer::FailedAgain, at(0));
    assert!(matches!(ramp.next(at(0)), Move::Stopped(Stop::TooManyFailures { step: 2, .. })));
}

#[test]
fn a_missing_outcome_stops_the_ramp_and_is_told() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    ramp.heard(0, Answer::Resolved, at(1));
    publish(&mut ramp, at(2));
    [1, 2, 4].iter().for_each(|&place| ramp.heard(place, Answer::Resolved, at(3)));
    assert_eq!(ramp.next(at(62)), Move::Wait(at(63)), "the last outcome came at 3");
    assert_eq!((ramp.late(at(62)), ramp.late(at(63))), (vec![], vec![3, 5]));
    let stop = Stop::MissingOutcomes { step: 2, place: 3, missing: 2, waited: 0 };
    assert_eq!(ramp.next(at(63)), Move::Stopped(stop));
    assert!(stop.to_string().starts_with("2 outcomes of step 2 did not come in time: see whether"), "{stop}");
}

#[test]
fn a_large_step_is_not_stopped_while_its_outcomes_come() {
    let mut ramp = Ramp::new(RampLimits { timeout: Duration::from_secs(60), ..RampLimits::ALL_AT_ONCE }, 10);
    assert_eq!(publish(&mut ramp, at(0)).len(), 10);
    for place in 0..9 {
        let now = 50 * (place as i64 + 1);
        assert!(matches!(ramp.next(at(now)), Move::Wait(_)), "it is heard of at {now}");
        ramp.heard(place, Answer::Resolved, at(now));
    }
    assert_eq!(ramp.next(at(509)), Move::Wait(at(510)));
    let stop = Stop::MissingOutcomes { step: 1, place: 9, missing: 1, waited: 0 };
    assert_eq!(ramp.next(at(510)), Move::Stopped(stop), "60 seconds of silence");
}

#[test]
fn what_waits_has_until_its_due_time_and_a_timeout_more() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    ramp.heard(0, Answer::WaitingUntil(at(600)), at(1));
    assert_eq!(ramp.next(at(599)), Move::Wait(at(660)));
    // Said later and due earlier: an outcome that came out of order.
    ramp.heard(0, Answer::WaitingUntil(at(16)), at(17));
    assert_eq!(ramp.next(at(599)), Move::Wait(at(660)));
    ramp.heard(0, Answer::Superseded, at(650));
    assert_eq!(ramp.next(at(660)), Move::Wait(at(710)), "a later copy of it lives");
    assert!(matches!(ramp.next(at(710)), Move::Stopped(Stop::MissingOutcomes { place: 0, waited: 0, .. })));
}

#[test]
fn what_is_seen_behind_records_that_workers_get_through_is_not_missed_for_a_timeout_more() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    assert_eq!((ramp.misses_at(), ramp.late(at(60))), (Some(at(60)), vec![0]));
    ramp.seen_queued(0, at(60));
    assert_eq!((ramp.next(at(60)), ramp.queued(), ramp.waiting()), (Move::Wait(at(120)), 1, 0));
    ramp.seen_queued(0, at(119));
    assert_eq!(ramp.next(at(178)), Move::Wait(at(179)));
    // A worker has it: what it says counts, and how long it may take.
    ramp.heard(0, Answer::Superseded, at(130));
    assert_eq!(ramp.queued(), 0);
    let stop = Stop::MissingOutcomes { step: 1, place: 0, missing: 1, waited: 0 };
    assert_eq!((ramp.next(at(189)), ramp.next(at(190))), (Move::Wait(at(190)), Move::Stopped(stop)));
    assert_eq!(ramp.misses_at(), None, "it has stopped");
    // What is not published, or has its end, is in no queue.
    let mut ramp = Ramp::new(LIMITS, 6);
    ramp.seen_queued(0, at(0));
    assert!(ramp.is_unpublished(0));
    publish(&mut ramp, at(0));
    ramp.heard(0, Answer::Resolved, at(1));
    ramp.seen_queued(0, at(2));
    assert_eq!((ramp.queued(), ramp.outstanding()), (0, 0));
}

#[test]
fn a_worker_that_died_after_it_said_that_a_job_waits_stops_the_ramp_when_its_word_is_over() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    ramp.heard(0, Answer::WaitingUntil(at(120)), at(1));
    assert_eq!((ramp.waiting(), ramp.outstanding()), (1, 1));
    // It says so again before that is over, as long as it lives.
    ramp.heard(0, Answer::WaitingUntil(at(300)), at(60));
    assert_eq!(ramp.next(at(359)), Move::Wait(at(360)), "nothing is missed while the last word holds");
    let stop = Stop::MissingOutcomes { step: 1, place: 0, missing: 1, waited: 1 };
    assert_eq!(ramp.next(at(360)), Move::Stopped(stop));
    let told = "1 outcome of step 1 did not come in time, and what its worker said last, that it waits, is no longer so: see whether workers run";
    assert!(stop.to_string().starts_with(told), "{stop}");
    let several = Stop::MissingOutcomes { step: 2, place: 3, missing: 3, waited: 2 };
    assert!(several.to_string().contains("last of 2 of them, to wait, is no longer so: see"), "{several}");
}

#[test]
fn what_was_said_before_a_ramp_began_holds_as_long_as_a_later_word_would_and_then_it_is_published_again() {
    let said = Answer::WaitingUntil(at(120));
    let mut within = Ramp::new(LIMITS, 1);
    within.known(0, said, at(179));
    assert!(!within.is_unpublished(0), "it is with a worker, and expected");
    assert_eq!(within.next(at(179)), Move::Wait(at(239)));
    let mut after = Ramp::new(LIMITS, 1);
    after.known(0, said, at(180));
    assert_eq!(after.next(at(180)), Move::Publish(0..1), "nobody knows where it is");
    after.known(0, Answer::Resolved, at(180));
    assert_eq!(after.next(at(180)), Move::Finished);
}

#[test]
fn what_waited_and_goes_on_is_no_longer_told_as_waiting() {
    let mut ramp = Ramp::new(RampLimits { first: 3, ..LIMITS }, 3);
    publish(&mut ramp, at(0));
    (0..3).for_each(|place| ramp.heard(place, Answer::WaitingUntil(at(120)), at(1)));
    assert_eq!((ramp.waiting(), ramp.outstanding()), (3, 3));
    ramp.heard(0, Answer::Superseded, at(2));
    ramp.heard(1, Answer::Resolved, at(2));
    ramp.ended(2, End::Withdrawn, at(2));
    ramp.heard(2, Answer::WaitingUntil(at(900)), at(3));
    assert_eq!((ramp.waiting(), ramp.outstanding()), (0, 1));
}

#[test]
fn a_paused_ramp_publishes_nothing_and_misses_nothing() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    ramp.pause();
    assert_eq!(ramp.next(at(1000)), Move::Paused);
    ramp.go_on(at(1000));
    assert_eq!(ramp.next(at(1001)), Move::Wait(at(1060)));
    ramp.pause();
    ramp.heard(0, Answer::Resolved, at(1002));
    assert_eq!(ramp.next(at(1002)), Move::Paused);
    ramp.go_on(at(1003));
    assert_eq!(publish(&mut ramp, at(1003)), [1, 2, 3, 4, 5]);
}

#[test]
fn what_was_given_up_neither_holds_a_step_up_nor_counts() {
    let mut ramp = Ramp::new(LIMITS, 6);
    publish(&mut ramp, at(0));
    ramp.ended(0, End::Withdrawn, at(0));
    publish(&mut ramp, at(0));
    ramp.ended(1, End::Withdrawn, at(0));
    (2..5).for_each(|place| ramp.heard(place, Answer::Resolved, at(1)));
    assert!(matches!(ramp.next(at(1)), Move::Wait(_)));
    ramp.ended(5, End::Withdrawn, at(1));
    assert_eq!(ramp.next(at(1)), Move::Finished);
    assert_eq!(ramp.ends(), Ends { passed: 3, failed: 0, withdrawn: 3 });
}

#[test]
fn a_ramp_over_nothing_is_finished_and_one_without_steps_publishes_all_at_once() {
    assert_eq!(Ramp::new(LIMITS, 0).next(at(0)), Move::Finished);
    let mut ramp = Ramp::new(RampLimits::ALL_AT_ONCE, 50_000);
    assert_eq!(ramp.next(at(0)), Move::Publish(0..50_000));
    assert_eq!(publish(&mut ramp, at(0)).len(), 50_000);
}

/// The worker's answers to what is published, in any order; and the console dies at any time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Publishes(usize),
    Hears(usize, u8),
    Passes(u16),
    Dies,
    Pauses,
    GoesOn,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        4 => (1..20_usize).prop_map(Event::Publishes),
        8 => (any::<usize>(), any::<u8>()).prop_map(|(which, says)| Event::Hears(which, says)),
        1 => (0..90_u16).prop_map(Event::Passes),
        1 => Just(Event::Dies),
        1 => Just(Event::Pauses),
        1 => Just(Event::GoesOn),
    ]
}

fn limits() -> impl Strategy<Value = RampLimits> {
    (1..5_u32, 1..6_u32, 1..40_u32, 0..=10_u32).prop_map(|(first, factor, cap, tenths)| RampLimits {
        first,
        factor,
        cap,
        failures: f64::from(tenths) / 10.0,
        ..LIMITS
    })
}

/// What the journal and Kafka know: more than any console.
#[derive(Default)]
struct World {
    published: BTreeSet<usize>,
    answers: BTreeMap<usize, Answer>,
}

impl World {
    fn outstanding(&self) -> usize {
        let has_ended = |place: &&usize| self.answers.get(place).is_none_or(|answer| answer.end().is_none());
        self.published.iter().filter(has_ended).count()
    }

    /// A console that was started anew, and read the journal.
    fn resumed(&self, limits: RampLimits, items: usize, now: UnixMillis) -> Ramp {
        let mut ramp = Ramp::new(limits, items);
        self.answers.iter().for_each(|(&place, &answer)| ramp.known(place, answer, now));
        ramp
    }
}

/// The size of each step, by the limits alone.
fn steps(limits: &RampLimits, items: usize) -> Vec<std::ops::Range<usize>> {
    let (mut steps, mut begin, mut size) = (Vec::new(), 0, limits.first.min(limits.cap) as usize);
    while begin < items {
        steps.push(begin..(begin + size).min(items));
        begin += size;
        size = (size * limits.factor as usize).min(limits.cap as usize);
    }
    steps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    /// The time-out of an outcome counts from the latest time that was said of its item, so a ramp holds as long as a word does, and
    /// no longer than the last one and a time-out.
    #[test]
    fn a_ramp_stops_for_a_missing_outcome_only_when_every_word_of_it_is_over_and_always_then(
        words in vec((0..5_usize, 0..400_u16, 0..90_u16, any::<bool>()), 0..40),
    ) {
        let limits = RampLimits { first: 5, ..LIMITS };
        let (mut ramp, mut now) = (Ramp::new(limits, 5), at(0));
        publish(&mut ramp, now);
        // From when on each of them is missed, unless something else is heard; none: it ended.
        let mut missed_at = [Some(now.after(limits.timeout)); 5];
        let mut heard = None;
        let missed = |places: &[Option<UnixMillis>; 5], heard: Option<UnixMillis>| {
            let next = places.iter().flatten().min().copied()?;
            Some(heard.map_or(next, |heard: UnixMillis| next.max(heard.after(limits.timeout))))
        };
        for (place, holds, passes, waits) in words {
            now = now.after(Duration::from_secs(passes.into()));
            let found = ramp.next(now);
            match missed(&missed_at, heard) {
                None => prop_assert_eq!(found, Move::Finished),
                Some(missed) if missed > now => prop_assert_eq!(found, Move::Wait(missed)),
                Some(_) => {
                    prop_assert!(matches!(found, Move::Stopped(Stop::MissingOutcomes { .. })), "{found:?}");
                    return Ok(());
                }
            }
            if waits {
                let until = now.after(Duration::from_secs(holds.into()));
                ramp.heard(place, Answer::WaitingUntil(until), now);
                missed_at[place] = missed_at[place].map(|at| at.max(until.after(limits.timeout)));
                heard = Some(now);
            } else {
                ramp.heard(place, Answer::Resolved, now);
                heard = missed_at[place].take().map(|_| now).or(heard);
            }
        }
        // No more comes: it ends when the last word is over, and a time-out later.
        let end = ramp.next(missed(&missed_at, heard).unwrap_or(now));
        prop_assert!(matches!(end, Move::Finished | Move::Stopped(Stop::MissingOutcomes { .. })), "{end:?}");
    }

    #[test]
    fn a_ramp_never_has_more_outstanding_than_its_step_and_a_console_that_dies_changes_nothing(
        limits in limits(),
        items in 0..120_usize,
        events in vec(event(), 0..200),
    ) {
        let (mut world, mut now) = (World::default(), at(0));
        let mut ramp = Ramp::new(limits, items);
        let steps = steps(&limits, items);
        for event in events {
            match event {
                Event::Publishes(most) => {
                    if let Move::Publish(range) = ramp.next(now) {
                        let places: Vec<usize> = range.filter(|&p| ramp.is_unpublished(p)).take(most).collect();
                        prop_assert!(!places.is_empty());
                        for place in places {
                            ramp.published(place, now);
                            world.published.insert(place);
                        }
                    }
                }
                Event::Hears(which, says) if !world.published.is_empty() => {
                    let place = *world.published.iter().nth(which % world.published.len()).unwrap();
                    let answer = match says {
                        0..=40 => Answer::WaitingUntil(now.after(Duration::from_secs(says.into()))),
                        41..=50 => Answer::Superseded,
                        51..=70 => Answer::FailedAgain,
                        _ => Answer::Resolved,
                    };
                    // The first end counts: an item ends once in a round.
                    if world.answers.get(&place).is_none_or(|known| known.end().is_none()) {
                        world.answers.insert(place, answer);
                    }
                    ramp.heard(place, answer, now);
                }
                Event::Hears(..) => {}
                Event::Passes(seconds) => now = now.after(Duration::from_secs(seconds.into())),
                Event::Dies => ramp = world.resumed(limits, items, now),
                Event::Pauses => ramp.pause(),
                Event::GoesOn => ramp.go_on(now),
            }
            // It goes on to the next step when it is asked what to do.
            ramp.next(now);
            let (number, size) = ramp.step();
            prop_assert!(world.outstanding() <= size, "{} of {size}", world.outstanding());
            // Nothing of a step is published while one before it is not in, or went badly.
            let Some(&last) = world.published.iter().next_back() else { continue };
            for step in steps.iter().filter(|step| step.end <= last) {
                let ends: Vec<End> = step.clone().filter_map(|p| world.answers.get(&p)?.end()).collect();
                let failed = ends.iter().filter(|end| **end == End::Failed).count();
                prop_assert_eq!(ends.len(), step.len());
                prop_assert!(failed == 0 || (failed as f64) < limits.failures * step.len() as f64);
            }
            prop_assert!(steps.get(number as usize - 1).is_none_or(|step| last < step.end));
        }
        // Whoever goes on comes to the same end, unless it is an end by a timeout, which is its own.
        let mut after = world.resumed(limits, items, now);
        match (ramp.next(now), after.next(now)) {
            (Move::Finished, after) => prop_assert_eq!(after, Move::Finished),
            (Move::Stopped(Stop::TooManyFailures { step, .. }), after) => {
                let stops_there = matches!(after, Move::Stopped(Stop::TooManyFailures { step: at, .. }) if at == step);
                prop_assert!(stops_there, "{after:?} and not at step {step}");
            }
            _ => {}
        }
    }
}
