//! When items fail and end, and what that makes of their group.

use super::super::*;
use crate::position::UnixMillis;

fn life(failed: i64, ended: Option<i64>) -> Life {
    Life { failed_at: UnixMillis(failed), ended_at: ended.map(UnixMillis) }
}

#[test]
fn a_group_that_was_closed_altogether_and_failed_again_is_regressed() {
    let state = |lives: &[Life]| group_state(lives.iter().copied());
    assert_eq!(state(&[]), GroupState::Closed);
    assert_eq!(state(&[life(1, None)]), GroupState::Open);
    assert_eq!(state(&[life(1, Some(5)), life(2, Some(4))]), GroupState::Closed);
    assert_eq!(state(&[life(7, None), life(1, Some(5))]), GroupState::Regressed);
    assert_eq!(state(&[life(3, None), life(1, Some(5))]), GroupState::Open, "one was open all the time");
    assert_eq!(state(&[life(1, Some(5)), life(7, Some(8)), life(7, None)]), GroupState::Regressed);
    assert_eq!(state(&[life(1, Some(5)), life(7, Some(8))]), GroupState::Closed);
    assert_eq!(state(&[life(1, None), life(7, None)]), GroupState::Open);
    assert_eq!(state(&[life(1, Some(9)), life(2, Some(3)), life(5, None)]), GroupState::Open);
}

/// The lives of an item that died at these times, and ended at those, or was taken back; and when it died late.
fn lives_of(deaths: &[i64], endings: &[(i64, Option<i64>)], state: State) -> Lives {
    let death = |at: &i64| Death { at: UnixMillis(*at), is_of_group: true };
    let ending =
        |(at, back): &(i64, Option<i64>)| Ending { at: UnixMillis(*at), taken_back_at: back.map(UnixMillis) };
    lives(deaths.iter().map(death).collect(), endings.iter().map(ending).collect(), state)
}

/// The same, of an item that did not die late.
fn lived(deaths: &[i64], endings: &[(i64, Option<i64>)], state: State) -> Vec<Life> {
    let lives = lives_of(deaths, endings, state);
    assert_eq!(lives.late, None);
    lives.all
}

#[test]
fn an_item_that_never_ended_lives_since_its_first_letter() {
    assert_eq!(lived(&[3, 1, 2], &[], State::FailedAgain), [life(1, None)]);
}

#[test]
fn an_item_that_is_dead_lettered_after_its_end_lives_again_as_soon_as_it_is_open_or_replayed() {
    let again = [life(1, Some(5)), life(7, None)];
    assert_eq!(lived(&[1, 7, 8], &[(5, None)], State::FailedAgain), again);
    assert_eq!(lived(&[1, 7, 8], &[(5, None)], State::Replaying), again);
    assert_eq!(group_state(again), GroupState::Regressed);
    assert_eq!(
        lived(&[1, 7], &[(9, None), (5, None)], State::Resolved),
        [life(1, Some(5)), life(7, Some(9))]
    );
}

#[test]
fn a_letter_of_an_item_that_is_done_or_discarded_is_late_and_opens_no_group() {
    let late = |deaths: &[i64], state| {
        let Lives { all, late } = lives_of(deaths, &[(5, None)], state);
        assert_eq!(group_state(all.iter().copied()), GroupState::Closed);
        (all, late.map(|at| at.0))
    };
    assert_eq!(late(&[1, 7, 8], State::Resolved), (vec![life(1, Some(5))], Some(7)));
    assert_eq!(late(&[1, 7], State::Discarded), (vec![life(1, Some(5))], Some(7)));
    assert_eq!(late(&[1], State::AlreadyDone), (vec![life(1, Some(5))], None));
    assert_eq!(late(&[7], State::Discarded), (vec![], Some(7)), "its first letters are gone");
}

#[test]
fn what_is_run_again_although_it_is_done_is_done_since_it_was() {
    assert_eq!(lived(&[1], &[(5, None)], State::Replaying), [life(1, Some(5))]);
    assert_eq!(lived(&[1], &[(5, None), (9, None)], State::Resolved), [life(1, Some(5))]);
    assert_eq!(
        lived(&[1], &[(5, None)], State::Open),
        [life(1, None)],
        "it was given up, and needs attention"
    );
}

#[test]
fn a_discard_that_is_taken_back_in_time_was_no_end() {
    assert_eq!(lived(&[1], &[(5, Some(6))], State::Open), [life(1, None)]);
    assert_eq!(lived(&[1, 7], &[(5, Some(6))], State::FailedAgain), [life(1, None)]);
    assert_eq!(lived(&[1], &[(5, Some(6)), (9, None)], State::Resolved), [life(1, Some(9))]);
    let late = [life(1, Some(5)), life(7, None)];
    assert_eq!(lived(&[1, 7], &[(5, Some(8))], State::Open), late, "it had failed again before");
}

#[test]
fn of_an_item_that_failed_of_something_else_the_group_has_what_is_its_own() {
    let death = |at, is_of_group| Death { at: UnixMillis(at), is_of_group };
    let ended = Ending { at: UnixMillis(5), taken_back_at: None };
    let new = vec![death(1, false), death(7, true)];
    let of = |deaths| lives(deaths, vec![ended], State::FailedAgain).all;
    assert_eq!(of(new), [life(7, None)], "the group never was closed");
    let both = vec![death(1, false), death(3, true), death(7, true)];
    assert_eq!(of(both), [life(3, Some(5)), life(7, None)]);
}

#[test]
fn an_item_that_needs_attention_lives_whatever_the_clocks_say() {
    assert_eq!(lived(&[7], &[(5, None)], State::FailedAgain), [life(7, None)]);
    assert_eq!(lived(&[1, 4], &[(5, None)], State::FailedAgain), [life(1, None)]);
}
