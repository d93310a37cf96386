use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Action, Answer, Effect, Entry, Folded, RunState, Stage, State, Step, Void};
use super::{Journal, RUN, outcome, replay};

fn steps(run: &mut RunState, steps: &[Step]) -> Vec<Option<Effect>> {
    steps.iter().map(|step| run.step(*step)).collect()
}

#[test]
fn a_run_may_be_published_and_finish_only_when_all_of_its_orders_are_there() {
    let mut run = RunState::begun(2);
    assert!(run.chunk());
    assert_eq!(steps(&mut run, &[Step::Climb(1), Step::Finish]), [None, None]);
    assert!(run.chunk() && run.is_complete());
    assert!(!run.chunk(), "more than it announced");
    assert_eq!(steps(&mut run, &[Step::Climb(1), Step::Finish]), [Some(Effect::None); 2]);
    assert_eq!(run.stage, Stage::Finished);
}

#[test]
fn orders_that_come_after_a_run_was_closed_or_stopped_do_not_count() {
    for last in [Step::Close, Step::Stop] {
        let mut run = RunState::begun(3);
        assert!(run.chunk());
        assert!(run.step(last).is_some());
        assert!(!run.chunk(), "{last:?}");
        assert!(run.is_complete());
    }
}

#[test]
fn a_stop_releases_what_it_did_not_climb_to_and_a_resumption_takes_it_back() {
    let mut run = RunState { read: 1, ..RunState::begun(1) };
    let all = [Step::Climb(6), Step::Climb(5), Step::Stop, Step::Climb(7), Step::Stop, Step::Resume];
    let (none, release) = (Some(Effect::None), Some(Effect::Release { but_first: 6 }));
    assert_eq!(steps(&mut run, &all), [none, None, release, None, None, Some(Effect::Retake)]);
    assert_eq!(steps(&mut run, &[Step::Pause, Step::Climb(7), Step::Resume]), [none, None, none]);
}

#[test]
fn an_item_that_is_released_is_what_it_was_and_one_that_was_published_is_not_released() {
    let release = Entry::Release { run: RUN };
    for (before, state) in [(None, State::Open), (Some(Answer::FailedAgain), State::FailedAgain)] {
        let mut journal = Journal::default();
        if let Some(answer) = before {
            assert_eq!(journal.order(replay(1)), Folded::Accepted);
            journal.hear(1, answer);
        }
        assert_eq!(journal.order(replay(2)), Folded::Accepted);
        assert_eq!(journal.fold(release), Folded::Accepted);
        assert_eq!((journal.item.state, journal.item.released), (state, true));
        assert_eq!(journal.fold(Entry::Retake { run: RUN }), Folded::Accepted);
        assert_eq!((journal.item.state, journal.item.released), (State::Replaying, false));
    }
    let mut journal = Journal::default();
    journal.order(replay(1));
    journal.hear(1, Answer::WaitingUntil(crate::UnixMillis(5)));
    assert_eq!(journal.fold(release), Folded::Void(Void::NotHeld));
}

#[test]
fn what_was_decided_anew_since_its_release_is_not_taken_back() {
    let retake = Entry::Retake { run: RUN };
    for since in [replay(2), Action::Discard] {
        let mut journal = Journal::default();
        journal.order(replay(1));
        journal.fold(Entry::Release { run: RUN });
        let seen = journal.item.seen;
        let other = super::super::RunId(8);
        assert_eq!(journal.fold(Entry::Action { seen, run: other, action: since }), Folded::Accepted);
        assert_eq!(journal.fold(retake), Folded::Void(Void::NotHeld), "{since:?}");
    }
    // It was published all the same, and failed.
    let mut journal = Journal::default();
    journal.order(replay(1));
    journal.hear(1, Answer::FailedAgain);
    journal.order(replay(2));
    journal.fold(Entry::Release { run: RUN });
    assert_eq!(journal.fold(outcome(2, Answer::FailedAgain)), Folded::Accepted);
    assert_eq!(journal.fold(retake), Folded::Void(Void::NotHeld));
}

fn any_step() -> impl Strategy<Value = Option<Step>> {
    prop_oneof![
        Just(None),
        prop_oneof![
            Just(Step::Pause),
            Just(Step::Resume),
            Just(Step::Stop),
            Just(Step::Close),
            (1..9_u64).prop_map(Step::Climb),
            Just(Step::Finish),
        ]
        .prop_map(Some),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn in_any_order_of_steps_nothing_counts_that_a_reader_could_take_for_the_whole(
        chunks in 0..4_u32,
        events in vec(any_step(), 0..30),
    ) {
        let mut run = RunState::begun(chunks);
        for event in events {
            let before = run;
            let counted = match event {
                None => { run.chunk() }
                Some(step) => run.step(step).is_some(),
            };
            prop_assert!(counted || run == before, "what does not count changes nothing");
            prop_assert!(run.read <= chunks && run.climbed >= before.climbed);
            prop_assert!(before.is_complete() <= run.is_complete(), "no order counts after the last");
            prop_assert!(run.stage != Stage::Finished || run.is_complete());
            let complete_by = before.is_complete() || run.climbed == before.climbed;
            prop_assert!(complete_by, "it climbs only when all orders are there");
            if before.stage == Stage::Stopped && run.stage != Stage::Stopped {
                prop_assert_eq!(event, Some(Step::Resume));
            }
        }
    }
}
