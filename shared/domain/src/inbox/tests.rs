mod lives;
mod ramp;
mod run;

use super::*;
use crate::job::{JobHeader, Round};
use crate::key::{IdempotencyKey, Lane};
use crate::position::{Offset, Partition, Topic, UnixMillis};
use crate::{Attempt, Hop};

const RUN: RunId = RunId(7);

/// An item and its journal; every entry has the next offset.
#[derive(Default)]
struct Journal {
    item: Item,
    end: i64,
}

impl Journal {
    fn fold(&mut self, entry: Entry) -> Folded {
        let folded = fold(&mut self.item, Offset(self.end), &entry);
        self.end += 1;
        folded
    }

    /// Ordered by someone who knows all that is accepted.
    fn order(&mut self, action: Action) -> Folded {
        let seen = self.item.seen;
        self.fold(Entry::Action { seen, run: RUN, action })
    }

    fn hear(&mut self, round: u32, answer: Answer) -> Folded {
        self.fold(outcome(round, answer))
    }

    /// What happens to a new item, all of it accepted.
    fn after(happened: &[Happened]) -> Self {
        let mut journal = Self::default();
        for happened in happened {
            let folded = match *happened {
                Ordered(action) => journal.order(action),
                Heard(round, answer) => journal.hear(round, answer),
            };
            assert_eq!(folded, Folded::Accepted, "{happened:?}");
        }
        journal
    }
}

#[derive(Clone, Copy, Debug)]
enum Happened {
    Ordered(Action),
    Heard(u32, Answer),
}
use Happened::{Heard, Ordered};

fn outcome(round: u32, answer: Answer) -> Entry {
    Entry::Outcome(Outcome { round: Round(round), answer })
}

fn replay(round: u32) -> Action {
    Action::Replay { round: Round(round), forced: false, edited: false }
}

fn forced(round: u32) -> Action {
    Action::Replay { round: Round(round), forced: true, edited: false }
}

fn check(happened: &[Happened], then: Happened, folded: Folded, state: State) {
    let mut journal = Journal::after(happened);
    let got = match then {
        Ordered(action) => journal.order(action),
        Heard(round, answer) => journal.hear(round, answer),
    };
    assert_eq!((got, journal.item.state), (folded, state), "{happened:?}, then {then:?}");
}

fn refused(happened: &[Happened], action: Action, void: Void, state: State) {
    check(happened, Ordered(action), Folded::Void(void), state);
}

fn accepted(happened: &[Happened], then: Happened, state: State) {
    check(happened, then, Folded::Accepted, state);
}

fn void(happened: &[Happened], then: Happened, void: Void, state: State) {
    check(happened, then, Folded::Void(void), state);
}

#[test]
fn of_two_orders_by_authors_who_knew_the_same_the_first_counts() {
    for (first, second) in
        [(replay(1), Action::Discard), (Action::Discard, replay(1)), (replay(1), replay(1))]
    {
        let mut journal = Journal::default();
        let mut order = |action| journal.fold(Entry::Action { seen: None, run: RUN, action });
        assert_eq!(order(first), Folded::Accepted);
        assert_eq!(order(second), Folded::Void(Void::Stale), "{second}");
        assert_eq!(journal.item.seen, Some(Offset(0)), "a void entry is nobody's last accepted one");
    }
}

#[test]
fn an_order_by_one_who_does_not_know_the_latest_outcome_is_refused() {
    let mut journal = Journal::after(&[Ordered(replay(1)), Heard(1, Answer::FailedAgain)]);
    let stale = Entry::Action { seen: Some(Offset(0)), run: RUN, action: replay(2) };
    assert_eq!(journal.fold(stale), Folded::Void(Void::Stale));
    let ahead = Entry::Action { seen: Some(Offset(2)), run: RUN, action: replay(2) };
    assert_eq!(journal.fold(ahead), Folded::Void(Void::Stale));
    assert_eq!(journal.order(replay(2)), Folded::Accepted);
}

#[test]
fn a_discard_after_a_replay_is_refused_until_its_outcome_is_in_or_it_is_given_up() {
    let replaying = [Ordered(replay(1))];
    refused(&replaying, Action::Discard, Void::UnderWay, State::Replaying);
    refused(&replaying, replay(2), Void::UnderWay, State::Replaying);
    accepted(&replaying, Ordered(Action::Reopen), State::Open);
    let failed = [Ordered(replay(1)), Heard(1, Answer::FailedAgain)];
    accepted(&failed, Ordered(Action::Discard), State::Discarded);
}

#[test]
fn what_is_discarded_is_neither_replayed_nor_discarded_before_it_is_open_again() {
    let discarded = [Ordered(Action::Discard)];
    refused(&discarded, replay(1), Void::Discarded, State::Discarded);
    refused(&discarded, forced(1), Void::Discarded, State::Discarded);
    refused(&discarded, Action::Discard, Void::Discarded, State::Discarded);
    accepted(&discarded, Ordered(Action::Reopen), State::Open);
    for state in [&[][..], &[Ordered(replay(1)), Heard(1, Answer::FailedAgain)]] {
        let known = Journal::after(state).item.state;
        refused(state, Action::Reopen, Void::NothingToReopen, known);
    }
}

#[test]
fn what_is_done_runs_again_only_by_force() {
    for answer in [Answer::Resolved, Answer::AlreadyDone] {
        let done = [Ordered(replay(1)), Heard(1, answer)];
        let state = Journal::after(&done).item.state;
        assert!(state.is_done());
        refused(&done, replay(2), Void::Done, state);
        refused(&done, Action::Discard, Void::Done, state);
        refused(&done, Action::Reopen, Void::NothingToReopen, state);
        accepted(&done, Ordered(forced(2)), State::Replaying);
    }
}

#[test]
fn a_round_is_ordered_once() {
    let failed = [Ordered(replay(3)), Heard(3, Answer::FailedAgain)];
    for round in 0..=3 {
        refused(&failed, replay(round), Void::RoundUsed, State::FailedAgain);
    }
    accepted(&failed, Ordered(replay(4)), State::Replaying);
    refused(&[], replay(0), Void::RoundUsed, State::Open);
    // A job that took over its key ran as a later round than was ordered.
    let later = [Ordered(replay(1)), Heard(2, Answer::FailedAgain)];
    refused(&later, replay(2), Void::RoundUsed, State::FailedAgain);
    assert_eq!(Journal::after(&later).item.next_round(Round(0)), Round(3));
    assert_eq!(Journal::after(&later).item.next_round(Round(5)), Round(6));
}

#[test]
fn each_outcome_of_a_replay_makes_its_state_and_waiting_ends_nothing() {
    let replaying = [Ordered(replay(1))];
    accepted(&replaying, Heard(1, Answer::Resolved), State::Resolved);
    accepted(&replaying, Heard(1, Answer::AlreadyDone), State::AlreadyDone);
    accepted(&replaying, Heard(1, Answer::FailedAgain), State::FailedAgain);
    accepted(&replaying, Heard(1, Answer::Coalesced), State::Open);
    void(&replaying, Heard(1, Answer::Superseded), Void::Known, State::Replaying);
    accepted(&replaying, Heard(1, Answer::WaitingUntil(UnixMillis(9))), State::Replaying);
    let waiting = Journal::after(&[Ordered(replay(1)), Heard(1, Answer::WaitingUntil(UnixMillis(9)))]);
    assert_eq!(waiting.item.waiting_until, Some(UnixMillis(9)));
    let ended = Journal::after(&[
        Ordered(replay(1)),
        Heard(1, Answer::WaitingUntil(UnixMillis(9))),
        Heard(1, Answer::Resolved),
    ]);
    assert_eq!(ended.item.waiting_until, None);
}

#[test]
fn an_outcome_that_is_told_twice_counts_once() {
    let ends =
        [Answer::Resolved, Answer::AlreadyDone, Answer::FailedAgain, Answer::WaitingUntil(UnixMillis(9))];
    for answer in ends {
        let happened = [Ordered(replay(1)), Heard(1, answer)];
        let state = Journal::after(&happened).item.state;
        void(&happened, Heard(1, answer), Void::Known, state);
    }
    // What was said before the end is no news after it.
    let failed = [Ordered(replay(1)), Heard(1, Answer::FailedAgain)];
    void(&failed, Heard(1, Answer::WaitingUntil(UnixMillis(9))), Void::Known, State::FailedAgain);
}

#[test]
fn an_outcome_of_an_older_round_ends_no_later_replay_unless_it_says_done() {
    let second = [Ordered(replay(1)), Ordered(Action::Reopen), Ordered(replay(2))];
    void(&second, Heard(1, Answer::FailedAgain), Void::OlderRound, State::Replaying);
    void(&second, Heard(1, Answer::Coalesced), Void::OlderRound, State::Replaying);
    void(&second, Heard(1, Answer::WaitingUntil(UnixMillis(9))), Void::OlderRound, State::Replaying);
    accepted(&second, Heard(1, Answer::Resolved), State::Resolved);
}

#[test]
fn done_wins_over_every_failure_and_decision_and_no_failure_over_done() {
    accepted(&[], Heard(1, Answer::Resolved), State::Resolved);
    let failed = [Ordered(replay(1)), Heard(1, Answer::FailedAgain)];
    accepted(&failed, Heard(1, Answer::Resolved), State::Resolved);
    let discarded = [Ordered(replay(1)), Ordered(Action::Reopen), Ordered(Action::Discard)];
    accepted(&discarded, Heard(1, Answer::Resolved), State::Resolved);
    let done = [Ordered(replay(1)), Heard(1, Answer::Resolved)];
    void(&done, Heard(1, Answer::FailedAgain), Void::Known, State::Resolved);
    void(&done, Heard(1, Answer::AlreadyDone), Void::Known, State::Resolved);
}

#[test]
fn a_late_word_of_an_older_round_does_not_end_a_forced_run() {
    let again = [Ordered(replay(1)), Heard(1, Answer::Resolved), Ordered(forced(2))];
    void(&again, Heard(1, Answer::Resolved), Void::OlderRound, State::Replaying);
    let unknown = [Ordered(replay(1)), Ordered(Action::Reopen), Ordered(forced(2))];
    accepted(&unknown, Heard(1, Answer::Resolved), State::Replaying);
    let failed = [Ordered(forced(2)), Heard(2, Answer::FailedAgain)];
    accepted(&failed, Heard(1, Answer::Resolved), State::FailedAgain);
    accepted(&again, Heard(2, Answer::Resolved), State::Resolved);
    accepted(&again, Heard(2, Answer::FailedAgain), State::FailedAgain);
}

#[test]
fn what_fails_after_it_was_given_up_and_discarded_is_told_and_stays_discarded() {
    let discarded = [Ordered(replay(1)), Ordered(Action::Reopen), Ordered(Action::Discard)];
    accepted(&discarded, Heard(1, Answer::FailedAgain), State::Discarded);
    let mut journal = Journal::after(&discarded);
    journal.hear(1, Answer::FailedAgain);
    assert_eq!(journal.item.answer.map(|outcome| outcome.answer), Some(Answer::FailedAgain));
    void(
        &[
            Ordered(replay(1)),
            Ordered(Action::Reopen),
            Ordered(Action::Discard),
            Heard(1, Answer::FailedAgain),
        ],
        Heard(1, Answer::FailedAgain),
        Void::Known,
        State::Discarded,
    );
}

#[test]
fn an_outcome_of_a_round_that_nobody_ordered_is_a_fact_and_its_round_is_used() {
    accepted(&[], Heard(3, Answer::FailedAgain), State::FailedAgain);
    refused(&[Heard(3, Answer::FailedAgain)], replay(3), Void::RoundUsed, State::FailedAgain);
    accepted(&[Heard(3, Answer::WaitingUntil(UnixMillis(9)))], Ordered(replay(4)), State::Replaying);
}

#[test]
fn a_replay_is_to_be_published_while_it_is_neither_ended_nor_given_up() {
    let at = Offset(0);
    assert!(Journal::after(&[Ordered(replay(1))]).item.orders(at));
    assert!(
        Journal::after(&[Ordered(replay(1)), Heard(1, Answer::WaitingUntil(UnixMillis(9)))]).item.orders(at)
    );
    for then in [Heard(1, Answer::Resolved), Heard(1, Answer::FailedAgain), Ordered(Action::Reopen)] {
        assert!(!Journal::after(&[Ordered(replay(1)), then]).item.orders(at), "{then:?}");
    }
    let anew = Journal::after(&[Ordered(replay(1)), Ordered(Action::Reopen), Ordered(replay(2))]).item;
    assert!(!anew.orders(at) && anew.orders(Offset(2)));
}

#[test]
fn an_item_has_one_text_and_is_read_from_no_other() {
    for text in ["shop.payments/3/1234/charge", "shop.payments/3/1234/", "a/0/0/b"] {
        assert_eq!(text.parse::<ItemId>().unwrap().to_string(), text);
    }
    let texts = [
        "",
        "a",
        "a/1",
        "a/1/2",
        "/1/2/c",
        "a/-1/2/c",
        "a/1/-2/c",
        "a/+1/2/c",
        "a/01/2/c",
        "a/1/02/c",
        "a/1/x/c",
        "a/1/2/c/d",
        "a b/1/2/c",
        "a/1/2/c d",
        "a/1/2/c=d",
        "a/1/2/\n",
        "a/2147483648/2/c",
        "a/1/9223372036854775808/c",
    ];
    for text in texts {
        let error = text.parse::<ItemId>().expect_err(text);
        assert!(error.to_string().contains("topic/partition/offset/class"), "{error}");
    }
    let classless: ItemId = "a/1/2/".parse().unwrap();
    assert_eq!(classless, ItemId::of_event(Topic::new("a"), Partition(1), Offset(2)));
}

#[test]
fn the_item_of_a_job_is_named_as_the_job_is() {
    let job = JobHeader {
        class: "charge",
        tier: "critical",
        topic: "shop.payments",
        partition: Partition(3),
        offset: Offset(1234),
        key: IdempotencyKey([0; 16]),
        lane: Lane(0),
        round: Round(0),
        hop: Hop(0),
        attempt: Attempt(1),
        due: UnixMillis(0),
        first_seen: UnixMillis(0),
        origin: None,
        forced: false,
    };
    assert_eq!(ItemId::of_job(&job).to_string(), job.job_id());
    assert_eq!(job.job_id().parse(), Ok(ItemId::of_job(&job)));
}

#[test]
fn a_replay_header_is_read_in_any_order_and_refused_with_what_is_wrong() {
    let header = ReplayHeader { item: "shop.payments/3/1234/".parse().unwrap(), round: Round(2) };
    assert_eq!(header.to_string(), "v=1 item=shop.payments/3/1234/ round=2");
    assert_eq!(ReplayHeader::parse(header.to_string().as_bytes()), Ok(header.clone()));
    assert_eq!(ReplayHeader::parse(b"round=2 more=x item=shop.payments/3/1234/ v=1"), Ok(header));
    for (text, field) in [
        (&b"item=a/1/2/ round=2"[..], "v"),
        (b"v=1 round=2", "item"),
        (b"v=1 item=a/1 round=2", "item"),
        (b"v=1 item=a/1/2/", "round"),
        (b"v=1 item=a/1/2/ round=0", "round"),
        (b"v=1 item=a/1/2/ round=-1", "round"),
        (b"\xff", "v"),
    ] {
        assert_eq!(ReplayHeader::parse(text), Err(ReplayHeaderError::Field(field)), "{text:?}");
    }
    let later = ReplayHeader::parse(b"v=2 what=ever");
    assert_eq!(later, Err(ReplayHeaderError::Version("2".to_owned())));
}

#[test]
fn runs_states_and_refusals_are_found_by_their_names() {
    assert_eq!(RunId::parse(&RunId(0xab).to_string()), Some(RunId(0xab)));
    for text in ["", "ab", "00000000000000zz", "+000000000000001", "00000000000000000"] {
        assert_eq!(RunId::parse(text), None, "{text}");
    }
    for state in State::ALL {
        assert_eq!(State::from_name(state.as_str()), Some(state));
    }
    assert_eq!(State::from_name("Open"), None);
    for void in Void::ALL {
        assert_eq!(Void::from_name(void.as_str()), Some(void));
    }
    assert_eq!(Void::from_name("Stale"), None);
}
