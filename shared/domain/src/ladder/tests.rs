use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::failure::FailureKind;

const NOW: UnixMillis = UnixMillis(1_764_432_000_000);
const UNLIMITED: Limits = Limits { max_attempts: u32::MAX, max_age: None, first_seen: NOW };

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn ladder() -> Ladder {
    Ladder::new(&[1000, 4000, 16_000].map(millis), &[60_000, 600_000].map(millis), 0.2).unwrap()
}

fn transient() -> Failure {
    Failure::transient("connection", "refused")
}

fn asking(wait: Duration) -> Failure {
    Failure::new(FailureKind::Overload, "http-429", "slow down").with_retry_after(wait)
}

fn waits(next: Next) -> Wait {
    match next {
        Next::Wait(wait) => wait,
        Next::DeadLetter(straw) => panic!("dead-lettered: {straw:?}"),
    }
}

fn ladders() -> impl Strategy<Value = Ladder> {
    let delays = btree_set(1..100_000_u64, 1..8);
    (delays, any::<prop::sample::Index>(), 0.0..=0.5).prop_map(|(delays, split, jitter)| {
        let delays: Vec<Duration> = delays.into_iter().map(millis).collect();
        let (rungs, wait_only) = delays.split_at(split.index(delays.len()) + 1);
        Ladder::new(rungs, wait_only, jitter).unwrap()
    })
}

fn draws() -> impl Strategy<Value = f64> {
    prop_oneof![8 => 0.0..1.0, 1 => Just(0.0), 1 => Just(1.0 - f64::EPSILON)]
}

/// Follows a record from delay topic to delay topic, each of which gets it `lag` after it left the one before.
/// Returns when it is run, and how often it was published.
fn follow(ladder: &Ladder, wait: Wait, lag: Duration) -> Result<(UnixMillis, u64), TestCaseError> {
    let (mut rung, mut appended) = (wait.rung, NOW.after(lag));
    for hops in 1.. {
        prop_assert!(ladder.delays().contains(&rung), "{:?} has no topic", rung);
        let longest = appended.after(round_up(rung.mul_f64(1.0 + ladder.jitter)));
        match ladder.hold(rung, appended, wait.due) {
            Hold::ThenRun(until) => {
                prop_assert!(until <= longest, "it stays too long in {:?}", rung);
                return Ok((until.max(appended), hops));
            }
            Hold::ThenHop { until, rung: next } => {
                prop_assert!(until <= longest && until > appended && until < wait.due);
                (rung, appended) = (next, until.after(lag));
            }
        }
        prop_assert!(hops < 2_000_000, "it goes from topic to topic without an end");
    }
    unreachable!("the loop has no other end")
}

proptest! {
    #[test]
    fn a_retry_waits_its_rung_give_or_take_the_jitter(
        ladder in ladders(), attempt in 1..12_u32, draw in draws(),
    ) {
        let wait = waits(ladder.after_failure(Attempt(attempt), &transient(), &UNLIMITED, NOW, draw));
        let rung = ladder.rungs()[(attempt as usize - 1).min(ladder.rungs().len() - 1)];
        prop_assert_eq!((wait.rung, wait.attempt), (rung, Attempt(attempt + 1)));
        let waited = wait.due.since(NOW);
        prop_assert!(waited >= rung.mul_f64(1.0 - ladder.jitter), "early: {:?} of {:?}", waited, rung);
        prop_assert!(waited <= rung.mul_f64(1.0 + ladder.jitter) + millis(1), "late: {:?} of {:?}", waited, rung);
    }

    #[test]
    fn what_the_dependency_asks_for_is_never_undercut(
        ladder in ladders(), attempt in 1..6_u32, draw in draws(), asked in 0..400_000_000_u64,
    ) {
        let asked = Duration::from_micros(asked);
        let wait = waits(ladder.after_failure(Attempt(attempt), &asking(asked), &UNLIMITED, NOW, draw));
        prop_assert!(wait.due.since(NOW) >= asked);
        prop_assert_eq!(wait.attempt, Attempt(attempt + 1));
        let own = waits(ladder.after_failure(Attempt(attempt), &transient(), &UNLIMITED, NOW, draw)).due;
        let latest = own.max(NOW.after(asked.mul_f64(1.0 + ladder.jitter) + millis(1)));
        prop_assert!(wait.due <= latest);
        prop_assert!(ladder.in_place(Attempt(attempt), &asking(asked), draw) >= asked);
    }

    #[test]
    fn hop_by_hop_every_wait_ends_and_never_before_it_is_due(
        ladder in ladders(), wait in 0..5_000_000_u64, lag in prop_oneof![Just(0_u64), 0..50_u64],
    ) {
        // The shortest delays need the most hops: keep the walk short enough to be walked.
        let wait = millis(wait.min(ladder.delays()[0].as_millis() as u64 * 20_000));
        let wait = ladder.snooze(Attempt(3), wait, NOW);
        let (ran, hops) = follow(&ladder, wait, millis(lag))?;
        prop_assert!(ran >= wait.due);
        prop_assert!(hops >= 1);
        prop_assert!(ran.since(wait.due) <= millis(lag), "it overshoots by more than the last hand-over");
    }

    #[test]
    fn a_retry_needs_one_hop(ladder in ladders(), attempt in 1..12_u32, draw in draws(), lag in 0..50_u64) {
        let wait = waits(ladder.after_failure(Attempt(attempt), &transient(), &UNLIMITED, NOW, draw));
        let (ran, hops) = follow(&ladder, wait, millis(lag))?;
        prop_assert_eq!(hops, 1);
        prop_assert_eq!(ran, wait.due.max(NOW.after(millis(lag))));
    }

    #[test]
    fn the_longest_wait_of_one_topic_uses_no_attempt_and_takes_one_publication(
        ladder in ladders(), attempt in 1..12_u32, draw in draws(),
    ) {
        let wait = ladder.longest(Attempt(attempt), NOW, draw);
        let longest = *ladder.delays().last().unwrap();
        prop_assert_eq!((wait.rung, wait.attempt), (longest, Attempt(attempt)));
        prop_assert!(wait.due.since(NOW) >= longest.mul_f64(1.0 - ladder.jitter));
        prop_assert!(wait.due.since(NOW) <= longest.mul_f64(1.0 + ladder.jitter) + millis(1));
        prop_assert_eq!(follow(&ladder, wait, Duration::ZERO)?, (wait.due, 1));
    }

    #[test]
    fn a_snooze_uses_no_attempt_and_is_not_shortened(
        ladder in ladders(), attempt in 1..9_u32, wait in 0..1_000_000_000_u64,
    ) {
        let snoozed = ladder.snooze(Attempt(attempt), Duration::from_micros(wait), NOW);
        prop_assert_eq!(snoozed.attempt, Attempt(attempt));
        prop_assert!(snoozed.due.since(NOW) >= Duration::from_micros(wait));
        prop_assert!(snoozed.due.since(NOW) < Duration::from_micros(wait + 1000));
    }

    #[test]
    fn attempts_are_used_up_after_the_last_one(attempt in 1..20_u32, max_attempts in 1..20_u32, draw in draws()) {
        let limits = Limits { max_attempts, ..UNLIMITED };
        let next = ladder().after_failure(Attempt(attempt), &transient(), &limits, NOW, draw);
        let used_up = next == Next::DeadLetter(LastStraw::AttemptsUsedUp);
        prop_assert_eq!(used_up, attempt >= max_attempts);
    }

    #[test]
    fn no_retry_is_due_after_the_class_s_age_limit(
        age in 0..40_000_u64, max_age in option::of(0..40_000_u64), attempt in 1..4_u32, draw in draws(),
    ) {
        let first_seen = UnixMillis(NOW.0 - age as i64);
        let limits = Limits { max_age: max_age.map(millis), first_seen, ..UNLIMITED };
        let free = waits(ladder().after_failure(Attempt(attempt), &transient(), &UNLIMITED, NOW, draw));
        let too_old = max_age.is_some_and(|max_age| free.due.since(first_seen) > millis(max_age));
        let expected = if too_old { Next::DeadLetter(LastStraw::TooOld) } else { Next::Wait(free) };
        prop_assert_eq!(ladder().after_failure(Attempt(attempt), &transient(), &limits, NOW, draw), expected);
    }

    #[test]
    fn the_name_of_a_rung_says_its_delay(delay in prop_oneof![1..100_000_u64, 1..=u64::MAX]) {
        prop_assert_eq!(parse_rung_name(&rung_name(millis(delay))), Some(millis(delay)));
    }

    #[test]
    fn whatever_a_topic_is_called_parsing_its_rung_does_not_panic(name in "\\PC{0,12}") {
        if let Some(delay) = parse_rung_name(&name) {
            prop_assert_eq!(parse_rung_name(&rung_name(delay)), Some(delay));
        }
    }
}

#[test]
fn only_what_may_heal_is_tried_again() {
    for kind in FailureKind::ALL {
        let next =
            ladder().after_failure(Attempt(1), &Failure::new(kind, "code", "text"), &UNLIMITED, NOW, 0.5);
        let hopeless = next == Next::DeadLetter(LastStraw::Hopeless);
        let heals = matches!(kind, FailureKind::Transient | FailureKind::Timeout | FailureKind::Overload);
        assert_eq!(hopeless, !heals, "{kind}");
    }
}

#[test]
fn a_wait_is_carried_by_the_longest_topic_that_it_can_fill() {
    let carrier = |wait| ladder().snooze(Attempt(1), millis(wait), NOW).rung;
    for (wait, rung) in [
        (0, 1000),
        (799, 1000),
        (3199, 1000),
        (3200, 4000),
        (12_800, 16_000),
        (48_000, 60_000),
        (479_999, 60_000),
        (480_000, 600_000),
        (86_400_000, 600_000),
    ] {
        assert_eq!(carrier(wait), millis(rung), "{wait}");
    }
}

#[test]
fn a_record_that_is_due_already_runs_at_once() {
    assert_eq!(ladder().hold(millis(1000), NOW, UnixMillis(NOW.0 - 5)), Hold::ThenRun(UnixMillis(NOW.0 - 5)));
}

#[test]
fn a_day_in_a_ladder_of_seconds_is_many_hops() {
    let ladder = Ladder::new(&[millis(1000), millis(16_000)], &[], 0.2).unwrap();
    let (ran, hops) =
        follow(&ladder, ladder.snooze(Attempt(1), millis(86_400_000), NOW), Duration::ZERO).unwrap();
    assert_eq!((ran, hops), (NOW.after(millis(86_400_000)), 5400));
}

#[test]
fn the_longest_wait_there_is_overflows_nothing() {
    let ladder = ladder();
    let wait = waits(ladder.after_failure(Attempt(1), &asking(Duration::MAX), &UNLIMITED, NOW, 0.9));
    assert_eq!((wait.due, wait.rung), (UnixMillis(i64::MAX), millis(600_000)));
    assert_eq!(ladder.snooze(Attempt(1), Duration::MAX, NOW).due, UnixMillis(i64::MAX));
    assert!(matches!(ladder.hold(millis(600_000), NOW, wait.due), Hold::ThenHop { .. }));
    assert_eq!(ladder.in_place(Attempt(1), &asking(Duration::MAX), 0.9), Duration::MAX);
    let longest = Ladder::new(&[millis(u64::MAX)], &[], 0.5).unwrap();
    assert!(longest.belief() > millis(u64::MAX) && longest.total().1 > millis(u64::MAX));
    let next = longest.after_failure(Attempt(u32::MAX - 1), &transient(), &UNLIMITED, NOW, 0.9);
    assert_eq!(waits(next).due, UnixMillis(i64::MAX));
}

#[test]
fn a_wait_that_a_float_can_not_hold_is_not_undercut_either() {
    let asked = Duration::from_secs((1 << 53) + 1);
    let wait = waits(ladder().after_failure(Attempt(1), &asking(asked), &UNLIMITED, NOW, 0.0));
    assert!(wait.due.since(NOW) >= asked);
}

#[test]
fn belief_outlasts_the_longest_rung_with_its_jitter() {
    assert_eq!(ladder().belief(), Duration::from_secs(720 + 3600));
}

#[test]
fn the_total_is_that_of_the_rungs_between_attempts() {
    assert_eq!(ladder().total(), (millis(16_800), millis(25_200)));
}

#[test]
fn without_jitter_every_wait_is_the_rung() {
    let ladder = Ladder::new(&[millis(7)], &[], 0.0).unwrap();
    let wait = |draw| waits(ladder.after_failure(Attempt(1), &transient(), &UNLIMITED, NOW, draw)).due;
    assert_eq!([wait(0.0), wait(0.99)], [NOW.after(millis(7)); 2]);
}

#[test]
fn waits_of_one_rung_are_spread() {
    let due =
        |draw| waits(ladder().after_failure(Attempt(2), &transient(), &UNLIMITED, NOW, draw)).due.since(NOW);
    assert_eq!([due(0.0), due(0.5), due(0.75)], [3200, 4000, 4400].map(millis));
}

#[test]
fn a_ladder_that_is_none_is_refused() {
    let new =
        |rungs: &[Duration], wait_only: &[Duration], jitter| Ladder::new(rungs, wait_only, jitter).err();
    let (one, two) = (millis(1000), millis(2000));
    assert_eq!(new(&[], &[one], 0.2), Some(LadderError::Empty));
    for jitter in [-0.1, 0.51, f64::NAN, f64::INFINITY] {
        assert_eq!(new(&[one], &[], jitter), Some(LadderError::Jitter));
    }
    for (rungs, wait_only) in [
        ([two, one].as_slice(), [].as_slice()),
        (&[one, one], &[]),
        (&[one], &[one]),
        (&[Duration::ZERO, one], &[]),
        (&[one], &[Duration::ZERO]),
        // These two would share the topic `retry-1ms`.
        (&[Duration::from_micros(1200), Duration::from_micros(1500)], &[]),
        (&[Duration::MAX], &[]),
    ] {
        assert_eq!(new(rungs, wait_only, 0.2), Some(LadderError::NotRising), "{rungs:?} {wait_only:?}");
    }
    // A wait-only rung may lie between the others.
    assert_eq!(Ladder::new(&[one, millis(3000)], &[two], 0.5).unwrap().delays(), [one, two, millis(3000)]);
}

#[test]
fn rung_names_are_known() {
    for (name, delay) in [
        ("1ms", 1),
        ("1500ms", 1500),
        ("1s", 1000),
        ("90s", 90_000),
        ("10m", 600_000),
        ("1h", 3_600_000),
        ("2d", 172_800_000),
    ] {
        assert_eq!(rung_name(millis(delay)), name);
        assert_eq!(parse_rung_name(name), Some(millis(delay)));
    }
    for name in [
        "",
        "s",
        "1",
        "1x",
        "0s",
        "-1s",
        "+1s",
        "1 s",
        "1S",
        "1.5s",
        "1s1",
        "١s",
        "99999999999999999999s",
        "99999999999999999d",
    ] {
        assert_eq!(parse_rung_name(name), None, "{name}");
    }
}
