//! An item of the inbox: which job it is, and what the journal says of it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::fold::Outcome;
use crate::job::{JobHeader, Round};
use crate::position::{Offset, Partition, Topic, UnixMillis};

/// Which job: the event's place in its source topic, and the class. All dead letters of one item are its occurrences.
///
/// As text `topic/partition/offset/class`, as in a job's id; without a class it ends with the slash: what ingest
/// dead-lettered belongs to none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ItemId {
    /// The source topic of the event.
    pub topic: Topic,
    /// The event's partition there.
    pub partition: Partition,
    /// The event's offset there.
    pub offset: Offset,
    /// The class; none where the event never became a job.
    pub class: Option<Arc<str>>,
}

/// Why a text names no item.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` names no item: it must be topic/partition/offset/class, with nothing after the last slash where there is no class"
)]
pub struct ItemIdError(pub String);

impl ItemId {
    /// The item of a job.
    pub fn of_job(job: &JobHeader<'_>) -> Self {
        Self {
            topic: Topic::new(job.topic),
            partition: job.partition,
            offset: job.offset,
            class: Some(job.class.into()),
        }
    }

    /// The item of an event that never became a job.
    pub fn of_event(topic: Topic, partition: Partition, offset: Offset) -> Self {
        Self { topic, partition, offset, class: None }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let class = self.class.as_deref().unwrap_or_default();
        write!(f, "{}/{}/{}/{class}", self.topic, self.partition, self.offset)
    }
}

impl FromStr for ItemId {
    type Err = ItemIdError;

    fn from_str(text: &str) -> Result<Self, ItemIdError> {
        let refused = || ItemIdError(text.to_owned());
        let mut parts = text.splitn(4, '/');
        let mut part = || parts.next().ok_or_else(refused);
        let (topic, partition, offset, class) = (part()?, part()?, part()?, part()?);
        let is_word = |word: &str| !word.contains([' ', '/', '=', '"']) && !word.contains(char::is_control);
        if topic.is_empty() || !is_word(topic) || !is_word(class) {
            return Err(refused());
        }
        Ok(Self {
            topic: Topic::new(topic),
            partition: Partition(number(partition).ok_or_else(refused)?),
            offset: Offset(number(offset).ok_or_else(refused)?),
            class: (!class.is_empty()).then(|| class.into()),
        })
    }
}

/// A number in its one form: no sign, no leading zero, so that equal items have equal texts.
fn number<T: FromStr>(text: &str) -> Option<T> {
    let plain = text == "0" || !text.starts_with('0');
    (plain && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// One act of an operator, of however many items: all that is ordered together has one run. Drawn at random by its author.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(pub u64);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl RunId {
    /// The run whose text form this is: 16 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        digits.then(|| u64::from_str_radix(text, 16).ok()).flatten().map(Self)
    }
}

/// Where an item stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// It failed, and nothing is ordered.
    #[default]
    Open,
    /// A replay is ordered, and its end is not known.
    Replaying,
    /// A replay of it is done.
    Resolved,
    /// A worker found that its key is done without it.
    AlreadyDone,
    /// Its replay was dead-lettered.
    FailedAgain,
    /// An operator decided that nothing is to be done. It may be opened again.
    Discarded,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 6] =
        [Self::Open, Self::Replaying, Self::Resolved, Self::AlreadyDone, Self::FailedAgain, Self::Discarded];

    /// The name in output and options.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Replaying => "replaying",
            Self::Resolved => "resolved",
            Self::AlreadyDone => "already-done",
            Self::FailedAgain => "failed-again",
            Self::Discarded => "discarded",
        }
    }

    /// The state called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }

    /// Whether it waits for an operator's decision.
    pub fn needs_attention(self) -> bool {
        matches!(self, Self::Open | Self::FailedAgain)
    }

    /// Whether nothing more is to be done: it is done or discarded.
    pub fn is_end(self) -> bool {
        self.is_done() || self == Self::Discarded
    }

    /// Whether its effect is there.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Resolved | Self::AlreadyDone)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An accepted replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Replay {
    /// Where its order stands in the journal.
    pub at: Offset,
    /// The run that it belongs to.
    pub run: RunId,
    /// The round that its record carries.
    pub round: Round,
    /// It runs although its key is done.
    pub forced: bool,
    /// Its record carries an edited value.
    pub edited: bool,
    /// What the item was when it was ordered.
    pub before: State,
}

/// What the journal says of one item; the default is what it says of an item that it does not name.
///
/// A journal names more items than the inbox has: a job that took over a key from another one may have a round, and outcomes,
/// without having been in the dead-letter topic. The inbox has those that were dead-lettered, or ordered about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Item {
    /// Where it stands.
    pub state: State,
    /// The highest round that the journal names; a replay's must be higher.
    pub round: Round,
    /// The last accepted entry: an action must name it as the last one that its author knew. None: there is none.
    pub seen: Option<Offset>,
    /// The last accepted replay.
    pub replay: Option<Replay>,
    /// The highest round whose outcome says that the item is done.
    pub done: Option<Round>,
    /// While it is replaying: when the copy that a worker sent to a delay topic is due.
    pub waiting_until: Option<UnixMillis>,
    /// The last outcome that counted.
    pub answer: Option<Outcome>,
    /// Its last replay was released before it was published, and nothing became of the item since: a resumed run may take it back.
    pub released: bool,
}

impl Item {
    /// Whether the replay that was ordered at this place of the journal is to be published, by whoever sees to its run: it was
    /// accepted, and neither did it end nor was it given up. Publishing it twice does no harm.
    pub fn orders(&self, at: Offset) -> bool {
        self.state == State::Replaying && self.replay.is_some_and(|replay| replay.at == at)
    }

    /// The round that the next replay must have. `occurrences` is the highest round of its dead letters.
    pub fn next_round(&self, occurrences: Round) -> Round {
        Round(self.round.max(occurrences).0.saturating_add(1))
    }
}

/// What the header [`super::REPLAY_HEADER`] says: the record is this round of this item. Logfmt text:
/// `v=1 item=shop.payments/3/1234/ round=2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayHeader {
    /// The item.
    pub item: ItemId,
    /// The round, above 0.
    pub round: Round,
}

/// Why a replay header was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplayHeaderError {
    /// Written by a version that this one can't read.
    #[error("the replay header has version `{0}`, this version of tidegate reads version 1")]
    Version(String),
    /// A field is missing, or not of its form.
    #[error("the replay header's `{0}` is missing, or not of its form")]
    Field(&'static str),
}

impl ReplayHeader {
    /// Reads the header's text. Fields may stand in any order; unknown ones are passed over.
    pub fn parse(bytes: &[u8]) -> Result<Self, ReplayHeaderError> {
        let text = std::str::from_utf8(bytes).map_err(|_| ReplayHeaderError::Field("v"))?;
        let value = |name: &'static str| {
            let mut pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
            pairs
                .find(|(found, _)| *found == name)
                .map(|(_, value)| value)
                .ok_or(ReplayHeaderError::Field(name))
        };
        match value("v")? {
            "1" => {}
            other => return Err(ReplayHeaderError::Version(other.to_owned())),
        }
        let round = value("round")?.parse().ok().filter(|&round| round > 0);
        Ok(Self {
            item: value("item")?.parse().map_err(|_| ReplayHeaderError::Field("item"))?,
            round: Round(round.ok_or(ReplayHeaderError::Field("round"))?),
        })
    }
}

impl fmt::Display for ReplayHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v=1 item={} round={}", self.item, self.round.0)
    }
}
