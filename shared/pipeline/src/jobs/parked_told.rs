//! What operators are told of replayed jobs that stay here because a class is parked. Nothing of theirs is sent anywhere, so without
//! a word they would seem to be lost.
//!
//! A word holds until the time that it names, and is renewed when half of that has passed, as long as the job stays: each holds twice
//! as long as the one before, up to a bound. So a long outage fills the journal with little, and when the worker is gone, that is
//! known when its last word is over.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use tidegate_domain::inbox::Answer;
use tidegate_domain::{Lane, Round};
use tokio::time::Instant;

use super::in_hand::{InHand, State};
use super::job::ClassId;
use super::outcome::Told;
use super::stage::JobStage;
use crate::journal::ParkedEntry;
use crate::keyed::Key;
use crate::stage::{Desk, Slot};

/// For how long the first word of a job holds.
const FIRST_HOLDS: Duration = Duration::from_secs(2 * 60);
/// For how long any holds at most.
const HOLDS_AT_MOST: Duration = Duration::from_secs(10 * 60);
/// How often it is looked for jobs of which there is something to say.
const LOOK: Duration = Duration::from_secs(1);

/// What was said of jobs that are parked, or follow one that is.
#[derive(Debug, Default)]
pub(super) struct Words {
    said: FxHashMap<Key, Word>,
    look_at: Option<Instant>,
    /// Replayed jobs may be in hand. Where none is, nothing is looked for.
    are_expected: bool,
}

impl Words {
    /// A job of this round came in hand.
    pub(super) fn expect(&mut self, round: Round) {
        self.are_expected |= round > Round(0);
    }
}

#[derive(Clone, Copy, Debug)]
struct Word {
    holds: Duration,
    /// When it is to be renewed.
    renew_at: Instant,
}

impl Word {
    /// What is to be said now, if anything is.
    fn next(before: Option<&Self>, now: Instant) -> Option<Self> {
        let holds = match before {
            None => FIRST_HOLDS,
            Some(word) if word.renew_at <= now => (word.holds * 2).min(HOLDS_AT_MOST),
            Some(_) => return None,
        };
        Some(Self { holds, renew_at: now + holds / 2 })
    }
}

impl JobStage {
    /// Tells of each replayed job that came to wait for its class, and again while it does. From time to time: what is parked for a
    /// moment needs no word.
    pub(super) fn tell_of_parked(&mut self, desk: &mut Desk) {
        if !self.words.are_expected || !self.has_parked() {
            return;
        }
        let look_at = self.words.look_at.filter(|at| *at > desk.now);
        desk.wake_at(look_at.unwrap_or(desk.now + LOOK));
        if look_at.is_some() {
            return;
        }
        self.words.look_at = Some(desk.now + LOOK);
        let before = std::mem::take(&mut self.words.said);
        let replayed = self.replayed();
        self.words.are_expected = !replayed.is_empty();
        for (key, class) in self.waiting_for_their_class(&replayed) {
            let known = before.get(&key);
            let word = Word::next(known, desk.now).filter(|word| self.say(key, class, *word, desk));
            // What the journal does not take now is said when it does.
            self.words.said.extend(word.or(known.copied()).map(|word| (key, word)));
        }
    }

    /// All replayed jobs in hand.
    fn replayed(&self) -> Vec<Key> {
        let is_replayed = |(key, in_hand): (Key, &InHand)| (in_hand.job.round > Round(0)).then_some(key);
        self.jobs.iter().filter_map(is_replayed).collect()
    }

    /// Those of them that are parked, or follow in the lane of a job that is; each with the class that is.
    fn waiting_for_their_class(&self, replayed: &[Key]) -> Vec<(Key, ClassId)> {
        let lane_of = |key: Key| (self.jobs[key].slot, self.jobs[key].job.lane);
        let lanes: FxHashSet<(Slot, Lane)> = replayed.iter().map(|&key| lane_of(key)).collect();
        let heads = self.partitions.values().flat_map(|partition| partition.parked.keys());
        let parked = heads.map(|key| (lane_of(key), self.jobs[key].job.class));
        let parked: FxHashMap<(Slot, Lane), ClassId> =
            parked.filter(|(lane, _)| lanes.contains(lane)).collect();
        let stays = |key: &&Key| matches!(self.jobs[**key].state, State::Parked | State::Queued);
        let waits = |key: &Key| Some((*key, *parked.get(&lane_of(*key))?));
        replayed.iter().filter(stays).filter_map(waits).collect()
    }

    /// Whether it was said.
    fn say(&mut self, key: Key, class: ClassId, word: Word, desk: &mut Desk) -> bool {
        let class = self.class(class);
        let Some((parked_for, probe_at)) = class.guard.parked_for(desk.now) else { return false };
        let refuses = self.partitions.get(&self.jobs[key].slot).is_none_or(|known| known.journal_refuses);
        if refuses {
            return false;
        }
        let probe = probe_at.map(|at| desk.wall.after(at.saturating_duration_since(desk.now)));
        let parked = ParkedEntry { class: class.name.clone(), since: desk.wall.before(parked_for), probe };
        let told = Told {
            // For those who know nothing of parked classes.
            detail: Some("its class is parked: it runs when a probe of the class passes"),
            parked: Some(parked),
            ..Told::just(Answer::WaitingUntil(desk.wall.after(word.holds)))
        };
        self.tell_meanwhile(key, &told, desk);
        true
    }
}
