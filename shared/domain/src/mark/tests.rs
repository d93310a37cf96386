use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const BELIEF: Duration = Duration::from_secs(3600);
const WRITTEN: UnixMillis = UnixMillis(1_764_432_000_000);
const OURS: JobHash = JobHash(7);
/// Two others, because the order of jobs must not decide what it isn't meant to.
const OTHERS: [JobHash; 2] = [JobHash(3), JobHash(9)];
const PAYLOAD: PayloadHash = PayloadHash(1);

fn step(round: u32, hop: u32, phase: Phase) -> Step {
    Step { round: Round(round), hop: Hop(hop), phase, n: 0, job: OURS, payload: PAYLOAD, written_at: WRITTEN }
}

fn arrival(round: u32, hop: u32) -> Arrival {
    Arrival { round: Round(round), hop: Hop(hop), job: OURS, payload: PAYLOAD, forced: false }
}

fn forced(round: u32, hop: u32) -> Arrival {
    Arrival { forced: true, ..arrival(round, hop) }
}

/// The verdict while the step is believed, and when it is not any more.
fn check(mark: Mark, arrival: Arrival, believed: Verdict, later: Verdict) {
    let ends = WRITTEN.after(BELIEF);
    assert_eq!(verdict(&mark, &arrival, WRITTEN, BELIEF), believed, "{mark:?} {arrival:?}");
    assert_eq!(
        verdict(&mark, &arrival, ends, BELIEF),
        believed,
        "at the end of the belief: {mark:?} {arrival:?}"
    );
    assert_eq!(
        verdict(&mark, &arrival, UnixMillis(ends.0 + 1), BELIEF),
        later,
        "later: {mark:?} {arrival:?}"
    );
}

fn always(mark: Mark, arrival: Arrival, expected: Verdict) {
    check(mark, arrival, expected, expected);
}

#[test]
fn what_nothing_is_known_of_runs() {
    always(Mark::default(), arrival(0, 0), Verdict::Run);
    always(Mark::default(), arrival(2, 5), Verdict::Run);
    always(Mark::default(), forced(1, 0), Verdict::Run);
}

#[test]
fn a_done_round_is_resolved_and_any_other_round_or_job_is_already_done() {
    let done = Mark::done(step(1, 2, Phase::Started));
    always(done, arrival(1, 0), Verdict::Skip(Skip::Resolved));
    always(done, arrival(1, 9), Verdict::Skip(Skip::Resolved));
    always(done, arrival(0, 2), Verdict::Skip(Skip::AlreadyDone));
    always(done, arrival(2, 0), Verdict::Skip(Skip::AlreadyDone));
    always(done, Arrival { job: OTHERS[0], ..arrival(1, 2) }, Verdict::Skip(Skip::AlreadyDone));
}

#[test]
fn a_done_without_a_step_still_suppresses() {
    let done = Mark { step: None, ..Mark::done(step(1, 2, Phase::Started)) };
    always(done, arrival(1, 2), Verdict::Skip(Skip::Resolved));
    always(done, arrival(0, 0), Verdict::Skip(Skip::AlreadyDone));
    always(done, forced(2, 0), Verdict::Run);
}

#[test]
fn another_payload_of_a_done_key_is_a_conflict_that_names_the_first_job() {
    let done = Mark::done(step(0, 0, Phase::Started));
    let other = Arrival { job: OTHERS[1], payload: PayloadHash(2), ..arrival(0, 0) };
    always(done, other, Verdict::Conflict { first: OURS, done: true });
}

#[test]
fn a_forced_record_runs_when_its_round_is_later_than_the_done_one() {
    let done = Mark::done(step(1, 0, Phase::Started));
    always(done, forced(2, 0), Verdict::Run);
    always(done, forced(2, 3), Verdict::Run);
    always(done, forced(1, 0), Verdict::Skip(Skip::Resolved));
    always(done, forced(0, 0), Verdict::Skip(Skip::AlreadyDone));
    let other = Arrival { job: OTHERS[0], payload: PayloadHash(2), ..forced(2, 0) };
    always(done, other, Verdict::Run);
}

#[test]
fn a_forced_round_does_not_fork_and_is_dead_lettered_once() {
    let done = Mark::done(step(0, 0, Phase::Started));
    let scheduled = done.join(Mark::step(step(1, 2, Phase::Scheduled)));
    check(scheduled, forced(1, 1), Verdict::Skip(Skip::Superseded), Verdict::RunOrphaned);
    always(scheduled, forced(1, 2), Verdict::Run);
    let dead = done.join(Mark::step(step(1, 2, Phase::Dead)));
    always(dead, forced(1, 2), Verdict::Skip(Skip::AlreadyDead));
    always(dead, forced(2, 0), Verdict::Run);
}

#[test]
fn a_record_ahead_of_its_step_runs() {
    for phase in [Phase::Scheduled, Phase::Tried, Phase::Started] {
        always(Mark::step(step(1, 1, phase)), arrival(1, 2), Verdict::Run);
        always(Mark::step(step(1, 1, phase)), arrival(2, 0), Verdict::Run);
    }
    always(Mark::step(step(1, 1, Phase::Dead)), arrival(2, 0), Verdict::Run);
}

#[test]
fn a_record_at_its_step_runs_unless_it_is_dead() {
    for phase in [Phase::Scheduled, Phase::Tried, Phase::Started] {
        always(Mark::step(step(1, 1, phase)), arrival(1, 1), Verdict::Run);
    }
    always(Mark::step(step(1, 1, Phase::Dead)), arrival(1, 1), Verdict::Skip(Skip::AlreadyDead));
}

#[test]
fn a_record_behind_its_step_is_superseded_as_long_as_the_later_copy_is_believed() {
    for phase in [Phase::Scheduled, Phase::Tried, Phase::Started] {
        let mark = Mark::step(step(1, 2, phase));
        check(mark, arrival(1, 1), Verdict::Skip(Skip::Superseded), Verdict::RunOrphaned);
        check(mark, arrival(0, 7), Verdict::Skip(Skip::Superseded), Verdict::RunOrphaned);
    }
    let replayed = Mark::step(step(1, 0, Phase::Scheduled));
    check(replayed, arrival(0, 7), Verdict::Skip(Skip::Superseded), Verdict::RunOrphaned);
}

#[test]
fn a_record_that_began_as_a_later_round_goes_on_as_that_round() {
    // Its copy still says its old round: the new number exists in the mark alone.
    for phase in [Phase::Tried, Phase::Started] {
        always(Mark::step(step(3, 0, phase)), arrival(0, 0), Verdict::RunAsRound(Round(3)));
        always(Mark::step(step(3, 0, phase)), arrival(2, 4), Verdict::RunAsRound(Round(3)));
    }
}

#[test]
fn a_dead_round_and_all_before_it_are_not_run_again() {
    let dead = Mark::step(step(1, 1, Phase::Dead));
    always(dead, arrival(1, 0), Verdict::Skip(Skip::AlreadyDead));
    always(dead, arrival(1, 9), Verdict::Skip(Skip::AlreadyDead));
    always(dead, arrival(0, 3), Verdict::Skip(Skip::AlreadyDead));
}

#[test]
fn after_another_job_died_a_job_runs_as_the_next_round_whatever_its_payload() {
    for (job, payload) in [(OTHERS[0], PAYLOAD), (OTHERS[1], PAYLOAD), (OTHERS[1], PayloadHash(2))] {
        let dead = Mark::step(Step { job, payload, ..step(1, 4, Phase::Dead) });
        always(dead, arrival(0, 0), Verdict::RunAsRound(Round(2)));
        always(dead, arrival(1, 9), Verdict::RunAsRound(Round(2)));
        always(dead, arrival(2, 0), Verdict::Run);
    }
}

#[test]
fn the_same_payload_is_left_to_a_job_that_is_ahead_and_alive() {
    for phase in [Phase::Scheduled, Phase::Tried, Phase::Started] {
        for job in OTHERS {
            let alive = Mark::step(Step { job, ..step(1, 1, phase) });
            check(alive, arrival(1, 0), Verdict::Skip(Skip::Coalesced), Verdict::RunAsRound(Round(2)));
            check(alive, arrival(0, 5), Verdict::Skip(Skip::Coalesced), Verdict::RunAsRound(Round(2)));
        }
    }
}

#[test]
fn of_two_jobs_with_the_same_payload_at_most_one_is_left_to_the_other() {
    for (a, b) in [((0, 1), (1, 1)), ((0, 1), (0, 1)), ((1, 0), (0, 3)), ((0, 0), (0, 0))] {
        let [mark_a, mark_b] = [(a, OURS), (b, OTHERS[0])]
            .map(|((round, hop), job)| Mark::step(Step { job, ..step(round, hop, Phase::Scheduled) }));
        let arrival_b = Arrival { job: OTHERS[0], ..arrival(b.0, b.1) };
        let left = [(mark_a, arrival_b), (mark_b, arrival(a.0, a.1))].map(|(mark, arrival)| {
            verdict(&mark, &arrival, WRITTEN, BELIEF) == Verdict::Skip(Skip::Coalesced)
        });
        assert_eq!(left.iter().filter(|left| **left).count(), 1, "{a:?} {b:?}");
    }
}

#[test]
fn another_payload_of_a_job_that_is_alive_is_a_conflict_that_names_it() {
    for phase in [Phase::Scheduled, Phase::Tried, Phase::Started] {
        for job in OTHERS {
            let alive = Mark::step(Step { job, payload: PayloadHash(2), ..step(1, 1, phase) });
            let conflict = Verdict::Conflict { first: job, done: false };
            check(alive, arrival(0, 0), conflict, Verdict::RunAsRound(Round(2)));
            check(alive, arrival(1, 2), conflict, Verdict::RunAsRound(Round(2)));
            check(alive, arrival(2, 0), conflict, Verdict::Run);
        }
    }
}

#[test]
fn belief_does_not_overflow() {
    let mark = Mark::step(Step { written_at: UnixMillis(i64::MAX - 1), ..step(0, 2, Phase::Scheduled) });
    let verdict = verdict(&mark, &arrival(0, 1), UnixMillis(i64::MAX), Duration::MAX);
    assert_eq!(verdict, Verdict::Skip(Skip::Superseded));
}

#[test]
fn a_done_mark_remembers_where_and_for_whom() {
    let mark = Mark::done(step(2, 3, Phase::Started));
    assert_eq!(mark.done, Some(DoneAt { round: Round(2), hop: Hop(3) }));
    assert_eq!(mark.step, Some(step(2, 3, Phase::Started)));
    assert_eq!(Mark::step(step(2, 3, Phase::Dead)).done, None);
}

#[test]
fn every_skip_has_its_own_name() {
    let all = [Skip::Resolved, Skip::AlreadyDone, Skip::Superseded, Skip::AlreadyDead, Skip::Coalesced];
    let names: std::collections::BTreeSet<_> = all.iter().map(|skip| skip.as_str()).collect();
    assert_eq!(names.len(), all.len());
}

fn phases() -> impl Strategy<Value = Phase> {
    prop::sample::select(vec![Phase::Scheduled, Phase::Tried, Phase::Started, Phase::Dead])
}

/// Small numbers, so that ties are common, and now and then large ones.
fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![8 => 0..3_u32, 2 => any::<u32>(), 1 => Just(u32::MAX)]
}

fn steps() -> impl Strategy<Value = Step> {
    let times = prop_oneof![2 => 0..3_i64, 1 => any::<i64>()];
    let parts = (numbers(), numbers(), phases(), numbers(), numbers(), numbers(), times);
    parts.prop_map(|(round, hop, phase, n, job, payload, at)| Step {
        round: Round(round),
        hop: Hop(hop),
        phase,
        n,
        job: JobHash(job),
        payload: PayloadHash(payload),
        written_at: UnixMillis(at),
    })
}

fn marks() -> impl Strategy<Value = Mark> {
    let done = (numbers(), numbers()).prop_map(|(round, hop)| DoneAt { round: Round(round), hop: Hop(hop) });
    (option::of(done), option::of(steps())).prop_map(|(done, step)| Mark { done, step })
}

fn encoded(mark: &Mark) -> Vec<u8> {
    let mut bytes = Vec::new();
    mark.encode(&mut bytes);
    bytes
}

proptest! {
    #[test]
    fn join_is_associative_commutative_and_idempotent(a in marks(), b in marks(), c in marks()) {
        prop_assert_eq!(a.join(b).join(c), a.join(b.join(c)));
        prop_assert_eq!(a.join(b), b.join(a));
        prop_assert_eq!(a.join(a), a);
        prop_assert_eq!(a.join(Mark::default()), a);
        prop_assert_eq!(a.join(b).join(b), a.join(b));
    }

    #[test]
    fn join_only_grows_and_invents_nothing(a in marks(), b in marks()) {
        let both = a.join(b);
        prop_assert!(both.done >= a.done && both.step >= a.step);
        prop_assert!([a.done, b.done].contains(&both.done) && [a.step, b.step].contains(&both.step));
    }

    #[test]
    fn a_step_with_a_later_round_hop_or_phase_wins(a in steps(), b in steps()) {
        let place = |step: &Step| (step.round, step.hop, step.phase, step.n);
        let wins = Mark::step(a).join(Mark::step(b)).step.unwrap();
        prop_assert_eq!(place(&wins), place(&a).max(place(&b)));
    }

    #[test]
    fn a_mark_survives_being_stored(mark in marks()) {
        prop_assert_eq!(Mark::decode(&encoded(&mark)), Ok(mark));
    }

    #[test]
    fn marks_are_appended_to_what_is_there(mark in marks()) {
        let mut out = vec![1, 2, 3];
        mark.encode(&mut out);
        prop_assert_eq!(&out[..3], &[1, 2, 3]);
        prop_assert_eq!(&out[3..], encoded(&mark));
    }

    #[test]
    fn a_mark_that_is_cut_or_goes_on_is_refused(mark in marks(), more in vec(any::<u8>(), 1..20)) {
        let bytes = encoded(&mark);
        for cut in 0..bytes.len() {
            prop_assert_eq!(Mark::decode(&bytes[..cut]), Err(MarkFormatError::Length));
        }
        prop_assert_eq!(Mark::decode(&[bytes, more].concat()), Err(MarkFormatError::Length));
    }

    #[test]
    fn whatever_bytes_are_decoded_nothing_panics(flags in 0..8_u8, bytes in vec(any::<u8>(), 0..48)) {
        let bytes = [vec![flags], bytes].concat();
        if let Ok(mark) = Mark::decode(&bytes) {
            prop_assert_eq!(Mark::decode(&encoded(&mark)), Ok(mark));
        }
    }

    #[test]
    fn whatever_is_known_the_verdict_runs_nothing_that_is_done(mark in marks(), round in numbers(), hop in numbers(), job in numbers()) {
        let arrival = Arrival { round: Round(round), hop: Hop(hop), job: JobHash(job), payload: PAYLOAD, forced: false };
        let verdict = verdict(&mark, &arrival, WRITTEN, BELIEF);
        let runs = matches!(verdict, Verdict::Run | Verdict::RunOrphaned | Verdict::RunAsRound(_));
        prop_assert!(!(runs && mark.done.is_some()));
        if let Verdict::RunAsRound(as_round) = verdict {
            prop_assert!(as_round > arrival.round || as_round == Round(u32::MAX));
        }
    }
}

#[test]
fn the_stored_form_stays_what_it_is() {
    let mark = Mark {
        done: Some(DoneAt { round: Round(1), hop: Hop(300) }),
        step: Some(Step {
            round: Round(1),
            hop: Hop(300),
            phase: Phase::Dead,
            n: 2,
            job: JobHash(0x0102_0304),
            payload: PayloadHash(0xfffe_fdfc),
            written_at: UnixMillis(1_764_432_000_000),
        }),
    };
    let expected = [
        0x03, 0x01, 0xac, 0x02, 0x01, 0xac, 0x02, 0x03, 0x02, 1, 2, 3, 4, 0xff, 0xfe, 0xfd, 0xfc, 0x80, 0xe8,
        0xde, 0x82, 0xad, 0x33,
    ];
    assert_eq!(encoded(&mark), expected);
    assert_eq!(encoded(&Mark::default()), [0]);
}

#[test]
fn an_unknown_format_phase_or_number_is_refused() {
    assert_eq!(Mark::decode(&[0x10]), Err(MarkFormatError::Format(0x10)));
    assert_eq!(Mark::decode(&[0x04, 0, 0]), Err(MarkFormatError::Format(0x04)));
    assert_eq!(Mark::decode(&[0x02, 0, 0, 4]), Err(MarkFormatError::Format(4)));
    // 2^32 is no round; 2^64 is no number; a varint has at most ten bytes.
    assert_eq!(Mark::decode(&[0x01, 0x80, 0x80, 0x80, 0x80, 0x10, 0]), Err(MarkFormatError::Length));
    for last in [[0x02].as_slice(), &[0x80, 0x00]] {
        let too_long = [&[0x02, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], [0x80; 9].as_slice(), last].concat();
        assert_eq!(Mark::decode(&too_long), Err(MarkFormatError::Length));
    }
    let longest = [&[0x02, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8], [0x80; 9].as_slice(), &[0x01]].concat();
    assert_eq!(Mark::decode(&longest).unwrap().step.unwrap().written_at, UnixMillis(i64::MIN));
}

#[test]
fn what_a_started_step_counts_is_read_back_and_grows_from_turn_to_turn_and_from_run_to_run() {
    let starts = |tried, given_back, crashes| Starts { tried, given_back, crashes };
    let in_order = [
        starts(0, 0, 0),
        starts(0, 0, 1),
        starts(0, 0, 2),
        starts(0, 1, 1),
        starts(0, 1, 2),
        starts(0, 8191, 3),
        starts(1, 0, 0),
        starts(1, 0, 1),
        starts(65_535, 8191, 3),
    ];
    assert!(in_order.map(Starts::number).is_sorted_by(|one, next| one < next));
    assert_eq!(in_order.map(|starts| Starts::of(starts.number())), in_order);
    assert_eq!(starts(70_000, 9000, 5).number(), i32::MAX.unsigned_abs(), "the most that is stored");
}
