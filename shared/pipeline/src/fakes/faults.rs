//! What becomes of each port call: scripted for a test, or drawn from a seed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::dice::Dice;

/// A port call that can fail.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Port {
    /// A publish to this topic.
    Publish(String),
    /// A fetch from this topic.
    Fetch(String),
    /// A commit.
    Commit,
    /// Opening marks.
    Open,
    /// Appending marks.
    Append,
    /// Looking marks up.
    LookUp,
}

/// What becomes of one call. A port reads what it has no use for as its nearest: a fetch that is late is a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It succeeds after this.
    Succeeds(Duration),
    /// It is refused at once, because too much is on its way.
    Full,
    /// It is refused at once.
    Refused,
    /// It is refused at once for its size.
    TooLarge,
    /// It fails after this, without effect.
    Fails(Duration),
    /// It is refused for its size after this.
    FailsTooLarge(Duration),
    /// It has its effect after this, and the answer says that it failed.
    LosesAnswer(Duration),
}

impl Fate {
    /// Whether a call that has no effect of its own is answered with success, and after what wait.
    pub(super) fn answer(self) -> (bool, Duration) {
        match self {
            Self::Succeeds(wait) => (true, wait),
            Self::Full | Self::Refused | Self::TooLarge => (false, Duration::ZERO),
            Self::Fails(wait) | Self::FailsTooLarge(wait) | Self::LosesAnswer(wait) => (false, wait),
        }
    }
}

/// How often calls go wrong, in percent, and how late answers are at most.
#[derive(Clone, Copy, Debug)]
pub struct Odds {
    /// How many of a hundred calls don't simply succeed.
    pub wrong: u64,
    /// How late an answer may be.
    pub late: Duration,
}

#[derive(Debug)]
struct State {
    scripts: BTreeMap<Port, VecDeque<Fate>>,
    standing: BTreeMap<Port, Fate>,
    size_limits: BTreeMap<String, usize>,
    odds: Option<Odds>,
    dice: Dice,
    wrong: u64,
}

/// Decides the fate of port calls: a script first, then a standing fate, then the odds, else success after a millisecond.
#[derive(Clone, Debug)]
pub struct Faults(Arc<Mutex<State>>);

const PROMPT: Fate = Fate::Succeeds(Duration::from_millis(1));

impl Faults {
    /// Nothing goes wrong, until told.
    pub fn new(dice: Dice) -> Self {
        Self(Arc::new(Mutex::new(State {
            scripts: BTreeMap::new(),
            standing: BTreeMap::new(),
            size_limits: BTreeMap::new(),
            odds: None,
            dice,
            wrong: 0,
        })))
    }

    /// The next calls have these fates, in order.
    pub fn script(&self, port: Port, fates: impl IntoIterator<Item = Fate>) {
        self.0.lock().scripts.entry(port).or_default().extend(fates);
    }

    /// All calls have this fate, until [`Self::heal`].
    pub fn always(&self, port: Port, fate: Fate) {
        self.0.lock().standing.insert(port, fate);
    }

    /// No standing fate for this port any more.
    pub fn heal(&self, port: &Port) {
        self.0.lock().standing.remove(port);
    }

    /// Records of more than `bytes` (key, value, and headers) are too large for the topic.
    pub fn limit_size(&self, topic: &str, bytes: usize) {
        self.0.lock().size_limits.insert(topic.to_owned(), bytes);
    }

    /// Calls go wrong by these odds; `None`: no more.
    pub fn set_odds(&self, odds: Option<Odds>) {
        self.0.lock().odds = odds;
    }

    /// How many calls went wrong by the odds.
    pub fn wrong(&self) -> u64 {
        self.0.lock().wrong
    }

    pub(super) fn is_too_large(&self, topic: &str, bytes: usize) -> bool {
        self.0.lock().size_limits.get(topic).is_some_and(|&limit| bytes > limit)
    }

    pub(super) fn fate(&self, port: &Port) -> Fate {
        let mut state = self.0.lock();
        if let Some(fate) = state.scripts.get_mut(port).and_then(VecDeque::pop_front) {
            return fate;
        }
        if let Some(fate) = state.standing.get(port) {
            return *fate;
        }
        match state.odds {
            None => PROMPT,
            Some(odds) => state.draw(odds),
        }
    }
}

impl State {
    fn draw(&mut self, odds: Odds) -> Fate {
        let late = Duration::from_millis(self.dice.below(1 + odds.late.as_millis() as u64));
        if !self.dice.chance(odds.wrong) {
            // Most answers are prompt; the late ones let events overtake each other.
            return if self.dice.chance(75) { PROMPT } else { Fate::Succeeds(late) };
        }
        self.wrong += 1;
        match self.dice.below(12) {
            0..3 => Fate::Refused,
            3..6 => Fate::Fails(late),
            6..9 => Fate::LosesAnswer(late),
            9 | 10 => Fate::Full,
            _ => *self.dice.pick(&[Fate::TooLarge, Fate::FailsTooLarge(late)]).unwrap_or(&Fate::TooLarge),
        }
    }
}
