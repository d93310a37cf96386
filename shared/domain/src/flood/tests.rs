use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::failure::Failure;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

const LIMITS: FloodLimits = FloodLimits {
    failures: 0.5,
    of: 4,
    within: Duration::from_secs(10),
    probe_after: SECOND,
    probe_at_most: Duration::from_secs(5),
};

fn failed(failed: u64) -> Runs {
    Runs { done: 0, failed }
}

fn done(done: u64) -> Runs {
    Runs { done, failed: 0 }
}

/// A guard that was parked at 0 s.
fn parked() -> FloodGuard {
    let mut guard = FloodGuard::new(LIMITS);
    assert_eq!(guard.note(Generation(0), failed(4), Duration::ZERO), Some(failed(4)));
    guard
}

#[derive(Clone, Debug)]
enum Call {
    Note { stale: bool, runs: Runs },
    Probe,
    Found(Finding),
    Forget,
}

fn findings() -> impl Strategy<Value = Finding> {
    let asked = prop_oneof![Just(None), (0..20_u64).prop_map(|n| Some(SECOND * n as u32))];
    prop_oneof![Just(Finding::Heals), asked.prop_map(Finding::Fails), Just(Finding::Nothing)]
}

fn calls() -> impl Strategy<Value = (Call, u64)> {
    let runs = (0..4_u64, 0..4_u64).prop_map(|(done, failed)| Runs { done, failed });
    let call = prop_oneof![
        6 => (prop::bool::weighted(0.1), runs).prop_map(|(stale, runs)| Call::Note { stale, runs }),
        3 => Just(Call::Probe),
        3 => findings().prop_map(Call::Found),
        1 => Just(Call::Forget),
    ];
    (call, prop_oneof![4 => 0..1500_u64, 1 => 0..30_000_u64])
}

/// The same rules over a list of everything that was counted.
struct Naive {
    limits: FloodLimits,
    /// The share that parks, in tenths: whole numbers need no rounding.
    tenths: u64,
    counted: Vec<(u128, Runs)>,
    times_parked: u64,
    parked_since: Option<Duration>,
    probing: bool,
    probe_at: Duration,
    pause: Duration,
}

impl Naive {
    fn note(&mut self, stale: bool, runs: Runs, now: Duration) -> Option<Runs> {
        if stale || self.parked_since.is_some() {
            return None;
        }
        let part = now.as_millis() / (self.limits.within.as_millis() / 10);
        self.counted.push((part, runs));
        let latest = self.counted.iter().filter(|(at, _)| at + 10 > part);
        let (good, bad) = latest.fold((0, 0), |(good, bad), (_, r)| (good + r.done, bad + r.failed));
        let enough = bad > 0 && good + bad >= self.limits.of;
        if !enough || 10 * bad < self.tenths * (good + bad) {
            return None;
        }
        self.counted.clear();
        self.times_parked += 1;
        self.parked_since = Some(now);
        self.pause = self.limits.probe_after;
        self.probe_at = now + self.pause;
        Some(Runs { done: good, failed: bad })
    }

    fn probe(&mut self, now: Duration) -> bool {
        let may = self.parked_since.is_some() && !self.probing && now >= self.probe_at;
        self.probing |= may;
        may
    }

    fn found(&mut self, finding: Finding, now: Duration) -> Option<Duration> {
        if !std::mem::take(&mut self.probing) {
            return None;
        }
        if finding != Finding::Nothing {
            self.pause = (2 * self.pause).min(self.limits.probe_at_most);
        }
        let asked = if let Finding::Fails(Some(asked)) = finding { asked } else { Duration::ZERO };
        self.probe_at = now + self.pause.max(asked).min(self.limits.probe_at_most);
        if finding != Finding::Heals {
            return None;
        }
        Some(now - self.parked_since.take()?)
    }

    fn outlook(&self) -> Outlook {
        match self.parked_since {
            None => Outlook::Closed,
            Some(_) if self.probing => Outlook::Probing,
            Some(_) => Outlook::ProbeAt(self.probe_at),
        }
    }
}

proptest! {
    #[test]
    fn a_guard_does_what_a_list_of_all_runs_says(calls in vec(calls(), 1..300), of in 1..20_u64, tenths in 1..=10_u64) {
        let limits = FloodLimits { of, failures: tenths as f64 / 10.0, ..LIMITS };
        let mut guard = FloodGuard::new(limits);
        let mut naive = Naive {
            limits, tenths, counted: Vec::new(), times_parked: 0, parked_since: None, probing: false,
            probe_at: Duration::ZERO, pause: Duration::ZERO,
        };
        let mut now = Duration::ZERO;
        for (call, later) in calls {
            now += MILLI * u32::try_from(later).unwrap();
            match call {
                Call::Note { stale, runs } => {
                    let generation = Generation(naive.times_parked + u64::from(stale));
                    prop_assert_eq!(guard.note(generation, runs, now), naive.note(stale, runs, now));
                }
                Call::Probe => prop_assert_eq!(guard.probe(now), naive.probe(now)),
                Call::Found(finding) => prop_assert_eq!(guard.found(finding, now), naive.found(finding, now)),
                Call::Forget => {
                    guard.forget();
                    naive.probing = false;
                }
            }
            prop_assert_eq!(guard.generation(), Generation(naive.times_parked));
            prop_assert_eq!((guard.outlook(), guard.parked_since()), (naive.outlook(), naive.parked_since));
            if let Outlook::ProbeAt(at) = guard.outlook() {
                prop_assert!(at <= now + limits.probe_at_most, "a probe is never further away than the bound");
            }
        }
    }

    #[test]
    fn threads_whose_clocks_differ_a_little_lose_no_count(
        nows in vec(9_000..9_900_u64, 1..50),
    ) {
        let mut guard = FloodGuard::new(FloodLimits { of: nows.len() as u64, failures: 1.0, ..LIMITS });
        let parked: Vec<bool> = nows
            .iter()
            .map(|&now| guard.note(Generation(0), failed(1), Duration::from_millis(now)).is_some())
            .collect();
        prop_assert_eq!(parked.iter().position(|&parked| parked), Some(nows.len() - 1));
    }
}

#[test]
fn a_class_is_parked_by_its_share_of_failures_and_only_if_there_are_enough_runs() {
    let mut guard = FloodGuard::new(LIMITS);
    assert_eq!(guard.note(Generation(0), failed(3), SECOND), None, "three are not enough");
    assert_eq!(guard.note(Generation(0), done(10), SECOND), None);
    assert_eq!(guard.note(Generation(0), failed(6), SECOND), None, "9 of 19");
    assert_eq!(guard.note(Generation(0), failed(1), SECOND), Some(Runs { done: 10, failed: 10 }));
    assert_eq!((guard.generation(), guard.outlook()), (Generation(1), Outlook::ProbeAt(2 * SECOND)));
}

#[test]
fn runs_that_left_the_window_count_no_more() {
    let mut guard = FloodGuard::new(LIMITS);
    assert_eq!(guard.note(Generation(0), done(1000), SECOND), None);
    assert_eq!(
        guard.note(Generation(0), failed(4), 10 * SECOND),
        None,
        "the window still holds what was good"
    );
    assert_eq!(guard.note(Generation(0), failed(1), 11 * SECOND), Some(failed(5)));
}

#[test]
fn one_probe_at_a_time_and_each_that_fails_doubles_the_wait_up_to_its_bound() {
    let mut guard = parked();
    let mut now = Duration::ZERO;
    for wait in [1, 2, 4, 5, 5] {
        assert!(!guard.probe(now + SECOND * wait - MILLI), "not before {wait} s");
        now += SECOND * wait;
        assert!(guard.probe(now) && !guard.probe(now), "one, and no second");
        assert_eq!((guard.outlook(), guard.found(Finding::Fails(None), now)), (Outlook::Probing, None));
    }
}

#[test]
fn a_probe_that_is_answered_heals_and_what_began_before_says_nothing_any_more() {
    let mut guard = parked();
    assert!(guard.probe(SECOND));
    assert_eq!(guard.found(Finding::Heals, 3 * SECOND), Some(3 * SECOND));
    assert_eq!(guard.outlook(), Outlook::Closed);
    assert_eq!(guard.note(Generation(0), failed(1000), 3 * SECOND), None, "of before it was parked");
    assert_eq!(guard.note(Generation(1), failed(3), 3 * SECOND), None, "the window began anew");
}

#[test]
fn a_class_that_fails_again_after_it_healed_is_probed_as_soon_as_the_first_time() {
    // A dependency that asks for less load answers a probe, and fails again under all of it: long waits would starve it.
    let mut guard = parked();
    assert!(guard.probe(SECOND));
    guard.found(Finding::Fails(None), SECOND);
    assert!(guard.probe(3 * SECOND));
    guard.found(Finding::Heals, 3 * SECOND);
    assert!(guard.note(Generation(1), failed(4), 4 * SECOND).is_some());
    assert_eq!(guard.outlook(), Outlook::ProbeAt(5 * SECOND));
}

#[test]
fn a_dependency_that_asks_for_a_wait_gets_it_within_the_bound() {
    for (asked, wait) in [(1, 2), (3, 3), (86_400, 5)] {
        let mut guard = parked();
        assert!(guard.probe(SECOND));
        guard.found(Finding::Fails(Some(SECOND * asked)), SECOND);
        assert_eq!(guard.outlook(), Outlook::ProbeAt(SECOND + SECOND * wait), "asked for {asked} s");
    }
}

#[test]
fn a_probe_that_says_nothing_is_followed_by_another_after_the_same_wait_and_one_that_never_ran_at_once() {
    let mut guard = parked();
    assert!(guard.probe(SECOND));
    guard.found(Finding::Nothing, SECOND);
    assert_eq!(guard.outlook(), Outlook::ProbeAt(2 * SECOND));
    assert!(guard.probe(2 * SECOND));
    guard.forget();
    assert!(guard.probe(2 * SECOND));
}

#[test]
fn only_what_may_heal_counts_as_failed_and_a_refusal_is_an_answer() {
    let fails = |kind| Outcome::Failed(Failure::new(kind, "c", "m"));
    for kind in FailureKind::ALL {
        let runs = Runs { done: 0, failed: u64::from(kind.may_heal()) };
        assert_eq!(Runs::of(&fails(kind)), runs, "{kind}");
        let finding = match kind {
            FailureKind::Permanent => Finding::Heals,
            kind if kind.may_heal() => Finding::Fails(None),
            _ => Finding::Nothing,
        };
        assert_eq!(Finding::of(&fails(kind)), finding, "{kind}");
    }
    assert_eq!((Runs::of(&Outcome::Done), Finding::of(&Outcome::Done)), (done(1), Finding::Heals));
    let snooze = Outcome::Snooze(SECOND);
    assert_eq!((Runs::of(&snooze), Finding::of(&snooze)), (Runs::default(), Finding::Nothing));
    let asked = Outcome::Failed(Failure::transient("c", "m").with_retry_after(SECOND));
    assert_eq!(Finding::of(&asked), Finding::Fails(Some(SECOND)));
}
