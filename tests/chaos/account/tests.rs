//! Each rule is held against a history that keeps it and against one that breaks it.

use super::*;
use crate::history::{
    At, CallEnd, DoneMark, Ending, Injected, Kind, Life, LifeNumber, OpenedMark, OpenerName, Published, Said,
    Script,
};

const LOG: (usize, i32) = (0, 0);

/// Builds histories. Time is in milliseconds here.
#[derive(Default)]
struct Story {
    history: History,
    log_end: i64,
}

fn at(ms: i64) -> At {
    At::of_millis(ms)
}

fn opener(life: LifeNumber) -> OpenerName {
    [life as u8; 16]
}

fn key_of(origin: Origin) -> Key {
    Key(origin.offset as u128)
}

impl Story {
    /// With two workers, of which the first owns the partition.
    fn new() -> Self {
        let mut story = Self::default();
        for service in ["worker-1", "worker-2"] {
            let service = service.to_owned();
            story.history.lives.push(Life { service, ended: None, frozen: Vec::new(), said: Vec::new() });
        }
        story.opened(0, 0);
        story
    }

    /// An event that became a job; each has a lane of its own unless it is told otherwise.
    fn event(&mut self, kind: Kind, script: Script) -> Origin {
        let origin = self.published(kind, script);
        self.forwarded(origin, key_of(origin));
        origin
    }

    fn published(&mut self, kind: Kind, script: Script) -> Origin {
        let number = self.history.published.len();
        let origin = Origin { partition: 0, offset: number as i64 };
        let (id, lane) = (number as u64, number as u32);
        self.history.published.push(Published { origin, kind, id, lane, script });
        origin
    }

    fn forwarded(&mut self, origin: Origin, key: Key) {
        self.history.jobs.push(Copy { origin, key, log: LOG, attempt: 1, due: at(0) });
    }

    fn delayed(&mut self, origin: Origin, attempt: u32, due: i64) {
        let (key, due) = (key_of(origin), at(due));
        self.history.delayed.push(Copy { origin, key, log: LOG, attempt, due });
    }

    fn call(
        &mut self,
        life: LifeNumber,
        origin: Origin,
        attempt: u32,
        (from, until): (i64, i64),
        status: u16,
    ) {
        let kind = self.history.published[origin.offset as usize].kind;
        let (key, end) = (self.key(origin), CallEnd::Answered(status));
        let (began, ended) = (at(from), at(until));
        self.history.calls.push(Call { life, kind, origin, key, attempt, began, ended, end });
        self.history.calls.sort_by_key(|call| call.began);
    }

    fn key(&self, origin: Origin) -> Key {
        self.history.jobs.iter().find(|job| job.origin == origin).map_or(key_of(origin), |job| job.key)
    }

    fn done(&mut self, life: LifeNumber, origin: Origin, visible: i64) {
        let offset = self.append();
        let (key, opener, visible) = (self.key(origin), opener(life), at(visible));
        self.history.done.push(DoneMark { key, at: LOG, offset, opener, visible });
    }

    fn opened(&mut self, life: LifeNumber, appended: i64) {
        let offset = self.append();
        self.history.opened.push(OpenedMark {
            at: LOG,
            offset,
            opener: opener(life),
            appended: at(appended),
        });
    }

    fn append(&mut self) -> i64 {
        self.log_end += 1;
        self.log_end - 1
    }

    fn dead(&mut self, origin: Origin, kind: Option<Kind>, error: &str, ms: i64) {
        self.history.dead.push(DeadLetter { origin, kind, error: error.to_owned(), at: at(ms) });
    }

    /// A job that the first worker does at that time, so that the marks tell which name it writes them under.
    fn ordinary(&mut self, life: LifeNumber, ms: i64) -> Origin {
        let origin = self.event(Kind::Plain, Script::Fine);
        self.call(life, origin, 1, (ms, ms + 5), 200);
        self.done(life, origin, ms + 10);
        origin
    }

    fn account(&self) -> Account {
        Account::of(&self.history)
    }

    #[track_caller]
    fn keeps_all(&self) -> Account {
        let account = self.account();
        assert_eq!(account.broken(), Vec::new());
        account
    }

    #[track_caller]
    fn breaks(&self, rule: &str) -> Account {
        let account = self.account();
        let broken: Vec<&str> = account.broken().into_iter().map(|(rule, _)| rule).collect();
        assert_eq!(broken, [rule]);
        account
    }
}

const LOST: &str = "lost";
const SKIPPED: &str = "skipped although not done";
const WRONG: &str = "dead-lettered or forwarded for no reason";
const AFTER_DONE: &str = "run again after its `Done` was visible";
const UNEXPLAINED: &str = "repeated outside of every fault's window";

#[test]
fn a_run_without_faults_keeps_every_rule() {
    let mut story = Story::new();
    let ordinary = story.ordinary(0, 100);
    // The same event once more.
    let again = story.published(Kind::Plain, Script::Fine);
    story.history.published[again.offset as usize].id = 0;
    story.forwarded(again, key_of(ordinary));
    let flaky = story.event(Kind::Flaky, Script::Fail(1));
    story.call(0, flaky, 1, (200, 205), 500);
    story.delayed(flaky, 2, 700);
    story.call(0, flaky, 2, (701, 705), 200);
    story.done(0, flaky, 710);
    let rejected = story.event(Kind::Flaky, Script::Reject);
    story.call(0, rejected, 1, (300, 305), 422);
    story.dead(rejected, Some(Kind::Flaky), "permanent", 310);
    let garbage = story.published(Kind::Garbage, Script::Fine);
    story.dead(garbage, None, "malformed", 50);
    story.published(Kind::Noise, Script::Fine);
    let account = story.keeps_all();
    let fates = &account.fates;
    assert_eq!((fates.done, fates.duplicates, fates.dead_events, fates.ignored), (2, 1, 1, 1));
    assert_eq!(fates.dead["permanent"], 1);
    assert_eq!((account.early.checked, account.repeats.asked), (1, 3));
}

#[test]
fn an_event_that_never_became_a_job_is_lost() {
    let mut story = Story::new();
    let origin = story.published(Kind::Plain, Script::Fine);
    story.breaks(LOST);
    story.forwarded(origin, key_of(origin));
    story.breaks(SKIPPED);
}

#[test]
fn garbage_that_is_not_dead_lettered_is_lost() {
    let mut story = Story::new();
    let origin = story.published(Kind::Garbage, Script::Fine);
    story.breaks(LOST);
    story.dead(origin, None, "malformed", 10);
    story.keeps_all();
}

#[test]
fn a_job_that_is_settled_and_neither_done_nor_dead_was_skipped() {
    let mut story = Story::new();
    let origin = story.event(Kind::Plain, Script::Fine);
    // Even if it had its effect: nobody will know.
    story.call(0, origin, 1, (100, 105), 200);
    story.breaks(SKIPPED);
    story.done(0, origin, 110);
    story.keeps_all();
}

#[test]
fn a_done_without_an_effect_was_skipped() {
    let mut story = Story::new();
    let origin = story.event(Kind::Plain, Script::Fine);
    story.call(0, origin, 1, (100, 105), 500);
    story.done(0, origin, 110);
    story.breaks(SKIPPED);
}

#[test]
fn an_equal_event_may_be_skipped_when_the_first_is_dead_and_not_otherwise() {
    let mut story = Story::new();
    let first = story.event(Kind::Plain, Script::Fine);
    let second = story.published(Kind::Plain, Script::Fine);
    story.history.published[1].id = 0;
    story.forwarded(second, key_of(first));
    assert_eq!(story.breaks(SKIPPED).fates.skipped.len(), 2);
    story.dead(first, Some(Kind::Plain), "transient", 100);
    story.keeps_all();
}

#[test]
fn nothing_is_dead_lettered_or_forwarded_without_a_reason() {
    for (kind, script, class, error) in [
        (Kind::Plain, Script::Fine, Some(Kind::Plain), "permanent"),
        (Kind::Plain, Script::Fine, Some(Kind::Plain), "conflict"),
        (Kind::Plain, Script::Fine, None, "malformed"),
        (Kind::Garbage, Script::Fine, None, "unroutable"),
        (Kind::Noise, Script::Fine, None, "unroutable"),
    ] {
        let mut story = Story::new();
        let origin = story.published(kind, script);
        story.dead(origin, class, error, 100);
        story.breaks(WRONG);
    }
    let mut story = Story::new();
    story.event(Kind::Noise, Script::Fine);
    story.breaks(WRONG);
}

#[test]
fn what_is_not_committed_in_the_end_is_told() {
    let mut story = Story::new();
    story.history.lag.insert("jobs".to_owned(), 3);
    story.breaks("not committed in the end");
}

#[test]
fn what_kafka_acknowledged_and_does_not_have_is_told() {
    let mut story = Story::new();
    story.history.gone = 1;
    story.breaks("acknowledged by Kafka and not in the source topic");
}

#[test]
fn an_owner_may_not_run_what_it_marked_itself() {
    let mut story = Story::new();
    story.ordinary(0, 50);
    let origin = story.ordinary(0, 100);
    story.call(0, origin, 1, (111, 115), 200);
    // Nothing explains the repeat either.
    let broken: Vec<&str> = story.account().broken().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(broken, [AFTER_DONE, UNEXPLAINED]);
}

/// The first worker does a job and dies; the second takes over.
fn taken_over() -> (Story, Origin) {
    let mut story = Story::new();
    let origin = story.ordinary(0, 100);
    story.history.lives[0].ended = Some((at(150), Ending::Killed));
    story.opened(1, 200);
    story.ordinary(1, 210);
    (story, origin)
}

#[test]
fn a_new_owner_may_not_run_what_was_done_before_it_opened_the_partition() {
    let (mut story, origin) = taken_over();
    story.keeps_all();
    story.call(1, origin, 1, (220, 225), 200);
    story.breaks(AFTER_DONE);
}

/// The first worker is frozen and deposed while it runs a job, and marks it when it goes on.
fn deposed() -> (Story, Origin) {
    let mut story = Story::new();
    story.ordinary(0, 100);
    let origin = story.event(Kind::Plain, Script::Fine);
    story.call(0, origin, 1, (200, 205), 200);
    story.history.lives[0].frozen.push((at(202), at(10_000)));
    story.opened(1, 7000);
    story.ordinary(1, 7100);
    story.done(0, origin, 10_010);
    (story, origin)
}

#[test]
fn an_owner_may_run_what_a_deposed_one_did_until_it_looks() {
    let (mut story, origin) = deposed();
    story.call(1, origin, 1, (12_000, 12_005), 200);
    let account = story.keeps_all();
    assert_eq!((account.repeats.before_the_look, account.repeats.of_effects[&Cause::Frozen]), (1, 1));
    let (mut story, origin) = deposed();
    story.call(1, origin, 1, (17_000, 17_005), 200);
    story.breaks(AFTER_DONE);
}

#[test]
fn an_owner_that_was_frozen_itself_could_not_look() {
    let (mut story, origin) = deposed();
    story.history.lives[1].frozen.push((at(10_000), at(17_000)));
    story.call(1, origin, 1, (17_001, 17_005), 200);
    assert_eq!(story.keeps_all().repeats.before_the_look, 1);
}

#[test]
fn a_deposed_owner_may_run_what_is_done_until_it_learns_that_it_is_deposed() {
    let frozen = || {
        let mut story = Story::new();
        story.ordinary(0, 100);
        let origin = story.event(Kind::Plain, Script::Fine);
        story.history.lives[0].frozen.push((at(200), at(10_000)));
        story.opened(1, 7000);
        story.ordinary(1, 7100);
        story.call(1, origin, 1, (7200, 7205), 200);
        story.done(1, origin, 7210);
        (story, origin)
    };
    let (mut story, origin) = frozen();
    story.call(0, origin, 1, (10_100, 10_105), 200);
    let repeats = story.keeps_all().repeats;
    assert_eq!((repeats.by_deposed, repeats.of_effects[&Cause::ByDeposed]), (1, 1));
    let (mut story, origin) = frozen();
    story.call(0, origin, 1, (26_000, 26_005), 200);
    let broken: Vec<&str> = story.account().broken().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(broken, [AFTER_DONE, UNEXPLAINED]);
}

#[test]
fn a_repeat_is_explained_by_what_befell_the_process_before_it() {
    type Trouble = (Cause, fn(&mut Story));
    let troubles: [Trouble; 8] = [
        (Cause::Killed, |story| story.history.lives[0].ended = Some((at(110), Ending::Killed))),
        // What it had sent arrived when it was dead.
        (Cause::Killed, |story| story.history.lives[0].ended = Some((at(60), Ending::Killed))),
        (Cause::EndedItself, |story| story.history.lives[0].ended = Some((at(110), Ending::Itself(1)))),
        (Cause::Frozen, |story| story.history.lives[0].frozen.push((at(104), at(8000)))),
        (Cause::Lost, |story| story.history.lives[0].said.push((at(12_000), Said::Lost))),
        // What had begun arrived when the loss was known.
        (Cause::Lost, |story| story.history.lives[0].said.push((at(60), Said::Lost))),
        (Cause::Drained, |story| story.history.lives[0].said.push((at(400), Said::Left))),
        (Cause::Cut, |story| story.history.cuts.push(at(106))),
    ];
    for (cause, befall) in troubles {
        for status in [200, 500] {
            let mut story = Story::new();
            let origin = story.event(Kind::Plain, Script::Fine);
            story.call(0, origin, 1, (100, 105), status);
            story.opened(1, 8000);
            story.call(1, origin, 1, (9000, 9005), 200);
            story.done(1, origin, 9010);
            story.breaks(UNEXPLAINED);
            befall(&mut story);
            let account = story.keeps_all();
            let counted =
                if status == 200 { &account.repeats.of_effects } else { &account.repeats.of_attempts };
            assert_eq!(counted.get(&cause), Some(&1), "{cause:?}");
        }
    }
}

#[test]
fn an_owner_is_to_know_what_it_ran_since_it_opened_the_partition_and_soon_what_it_ran_before() {
    let told_late = |again: i64| {
        let mut story = Story::new();
        story.ordinary(0, 50);
        let origin = story.event(Kind::Plain, Script::Fine);
        story.history.lives[0].said.push((at(95), Said::Lost));
        story.call(0, origin, 1, (100, 900), 200);
        story.opened(0, 5000);
        story.done(0, origin, 5010);
        story.call(0, origin, 1, (again, again + 5), 200);
        story
    };
    assert_eq!(told_late(5040).keeps_all().repeats.before_the_look, 1);
    let broken: Vec<&str> = told_late(11_000).account().broken().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(broken, [AFTER_DONE]);
    let mut story = Story::new();
    story.ordinary(0, 20);
    let origin = story.ordinary(0, 50);
    story.history.lives[0].said.push((at(60), Said::Lost));
    story.call(0, origin, 1, (70, 75), 200);
    let broken: Vec<&str> = story.account().broken().into_iter().map(|(rule, _)| rule).collect();
    assert_eq!(broken, [AFTER_DONE], "what it ran as the owner");
}

#[test]
fn an_answer_that_came_too_late_since_the_machine_stood_still_explains_the_next_attempt() {
    let answered = |stalled: Option<(i64, i64)>, attempt| {
        let mut story = Story::new();
        let origin = story.event(Kind::Ordered, Script::Fine);
        story.call(0, origin, 1, (4000, 4005), 200);
        story.history.stalls.extend(stalled.map(|(from, until)| (at(from), at(until))));
        story.call(0, origin, attempt, (5000, 5005), 200);
        story.done(0, origin, 5010);
        story
    };
    assert_eq!(answered(Some((1200, 3900)), 2).keeps_all().repeats.of_effects[&Cause::Stalled], 1);
    answered(None, 2).breaks(UNEXPLAINED);
    answered(Some((1200, 3900)), 1).breaks(UNEXPLAINED);
    answered(Some((100, 900)), 2).breaks(UNEXPLAINED);
}

#[test]
fn what_a_machine_that_stood_still_made_late_is_held_against_nobody() {
    let at_a_kill = |stalled: Option<(i64, i64)>| {
        let mut story = Story::new();
        let origin = story.event(Kind::Ordered, Script::Fine);
        story.history.lives[0].ended = Some((at(1000), Ending::Killed));
        story.call(0, origin, 1, (2500, 2505), 200);
        story.history.stalls.extend(stalled.map(|(from, until)| (at(from), at(until))));
        story.call(1, origin, 1, (9000, 9005), 200);
        story.done(1, origin, 9010);
        story
    };
    assert_eq!(at_a_kill(Some((900, 2400))).keeps_all().repeats.of_effects[&Cause::Killed], 1);
    at_a_kill(None).breaks(UNEXPLAINED);
    at_a_kill(Some((900, 1900))).breaks(UNEXPLAINED);
    at_a_kill(Some((2600, 5000))).breaks(UNEXPLAINED);
}

#[test]
fn an_attempt_is_repeated_by_each_of_two_records_only_where_a_worker_died_in_between() {
    let parked = |died: Option<i64>, status: u16| {
        let mut story = Story::new();
        let origin = story.event(Kind::Plain, Script::Fine);
        story.delayed(origin, 1, 1000);
        if let Some(died) = died {
            story.history.lives[1].ended = Some((at(died), Ending::Killed));
        }
        story.call(0, origin, 1, (2000, 2005), status);
        story.call(0, origin, 1, (3000, 3005), 200);
        story.done(0, origin, 3010);
        story
    };
    assert_eq!(parked(Some(900), 500).keeps_all().repeats.of_attempts[&Cause::Copied], 1);
    parked(None, 500).breaks(UNEXPLAINED);
    parked(Some(3100), 500).breaks(UNEXPLAINED);
    parked(Some(900), 200).breaks(UNEXPLAINED);
}

#[test]
fn what_befell_a_process_at_another_time_explains_nothing() {
    type Trouble = fn(&mut Story);
    let troubles: [Trouble; 6] = [
        |story| story.history.lives[0].ended = Some((at(9500), Ending::Killed)),
        // In good order, it let its jobs end.
        |story| story.history.lives[0].ended = Some((at(110), Ending::Stopped)),
        |story| story.history.lives[1].ended = Some((at(110), Ending::Killed)),
        |story| story.history.lives[0].said.push((at(-600), Said::Lost)),
        |story| story.history.lives[0].said.push((at(9500), Said::Left)),
        |story| story.history.cuts.push(at(1000)),
    ];
    for befall in troubles {
        let mut story = Story::new();
        let origin = story.event(Kind::Plain, Script::Fine);
        story.call(0, origin, 1, (100, 105), 200);
        story.call(1, origin, 1, (9000, 9005), 200);
        story.done(1, origin, 9010);
        befall(&mut story);
        story.breaks(UNEXPLAINED);
    }
}

#[test]
fn a_kill_long_after_a_run_explains_its_repeat_only_if_no_mark_could_be_written_meanwhile() {
    let mut story = Story::new();
    let origin = story.event(Kind::Plain, Script::Fine);
    story.call(0, origin, 1, (100, 105), 200);
    story.call(1, origin, 1, (30_000, 30_005), 200);
    story.done(1, origin, 30_010);
    story.history.lives[0].ended = Some((at(20_000), Ending::Killed));
    story.breaks(UNEXPLAINED);
    let mut fault = Injected { name: String::new(), of_servers: false, from: at(90), until: at(19_000) };
    story.history.faults.push(fault.clone());
    story.breaks(UNEXPLAINED);
    fault.of_servers = true;
    story.history.faults.push(fault);
    story.keeps_all();
}

#[test]
fn each_of_several_runs_needs_its_own_explanation() {
    let mut story = Story::new();
    let origin = story.event(Kind::Plain, Script::Fine);
    story.call(0, origin, 1, (100, 105), 200);
    story.call(1, origin, 1, (200, 205), 200);
    story.call(1, origin, 1, (300, 305), 200);
    story.done(1, origin, 310);
    story.history.lives[0].ended = Some((at(110), Ending::Killed));
    assert_eq!(story.breaks(UNEXPLAINED).repeats.unexplained.len(), 1);
}

#[test]
fn a_retry_before_it_is_due_is_early() {
    let retry = |began| {
        let mut story = Story::new();
        let origin = story.event(Kind::Flaky, Script::Fail(1));
        story.call(0, origin, 1, (100, 105), 500);
        story.delayed(origin, 2, 600);
        story.call(0, origin, 2, (began, began + 5), 200);
        story.done(0, origin, began + 10);
        story
    };
    retry(600).keeps_all();
    retry(599).breaks("early retries");
    // A second copy of the same hop: the first that is due may run.
    let mut story = retry(500);
    let origin = story.history.published[0].origin;
    story.delayed(origin, 2, 450);
    story.keeps_all();
}

#[test]
fn a_retry_needs_a_copy_that_announced_it() {
    let mut story = Story::new();
    let origin = story.event(Kind::Flaky, Script::Fail(1));
    story.call(0, origin, 1, (100, 105), 500);
    story.call(0, origin, 2, (1000, 1005), 200);
    story.done(0, origin, 1010);
    story.breaks("retries that no copy announced");
}

#[test]
fn in_place_a_retry_waits_as_long_as_the_shortest_wait_of_its_rung() {
    let retry = |second, third| {
        let mut story = Story::new();
        let origin = story.event(Kind::Ordered, Script::Fail(2));
        story.call(0, origin, 1, (100, 105), 500);
        story.call(0, origin, 2, (second, second + 5), 500);
        story.call(0, origin, 3, (third, third + 5), 200);
        story.done(0, origin, third + 10);
        story
    };
    assert_eq!(retry(500, 1300).keeps_all().early.checked, 2);
    retry(499, 1300).breaks("early retries");
    retry(500, 1299).breaks("early retries");
}

/// Three events of one lane, the second of which is called when it is told.
fn in_one_lane(second: (i64, i64)) -> (Story, [Origin; 3]) {
    let mut story = Story::new();
    let origins = [(); 3].map(|()| story.event(Kind::Ordered, Script::Fine));
    story.history.published.iter_mut().for_each(|event| event.lane = 7);
    for (origin, time) in origins.into_iter().zip([(100, 105), second, (200, 205)]) {
        story.call(0, origin, 1, time, 200);
        story.done(0, origin, time.1 + 1);
    }
    (story, origins)
}

const ORDER: &str = "out of order";

#[test]
fn a_follower_may_not_begin_before_the_end_of_what_is_before_it() {
    assert_eq!(in_one_lane((105, 110)).0.keeps_all().order.checked, 2);
    in_one_lane((104, 110)).0.breaks(ORDER);
    // The third would have overtaken the second.
    in_one_lane((199, 201)).0.breaks(ORDER);
    in_one_lane((300, 301)).0.breaks(ORDER);
    let (mut story, _) = in_one_lane((300, 301));
    story.history.published[2].lane = 8;
    story.keeps_all();
}

#[test]
fn a_follower_waits_for_a_dead_letter_too() {
    let dead = |ms| {
        let (mut story, [_, second, _]) = in_one_lane((150, 155));
        story.history.calls.retain(|call| call.origin != second);
        story.history.done.retain(|done| done.key != key_of(second));
        story.call(0, second, 1, (150, 155), 500);
        story.dead(second, Some(Kind::Ordered), "transient", ms);
        story
    };
    dead(199).keeps_all();
    dead(201).breaks(ORDER);
}

#[test]
fn an_overlap_of_two_processes_is_excused_in_the_window_of_a_fault() {
    let overlap = || {
        let (mut story, [_, _, third]) = in_one_lane((199, 201));
        story.history.calls.iter_mut().filter(|call| call.origin == third).for_each(|call| call.life = 1);
        story
            .history
            .done
            .iter_mut()
            .filter(|done| done.key == key_of(third))
            .for_each(|done| done.opener = opener(1));
        story
    };
    overlap().breaks(ORDER);
    let mut story = overlap();
    story.history.lives[0].frozen.push((at(199), at(200)));
    assert_eq!(story.keeps_all().order.excused, 1);
}
