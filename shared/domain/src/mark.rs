//! What tidegate remembers of a key, and what it decides by it: the mark, `join`, and the verdict.
//!
//! A mark only grows: [`Mark::join`] is the maximum of each part, so marks that are read twice, out of order, or mixed with
//! a deposed owner's entries give the same state. `tests/enumeration.rs` drives [`verdict`] and `join` through crashes,
//! deposed owners, lost acknowledgements and replays, and finds no lost job and no run after a visible `done`.

use std::time::Duration;

use crate::job::{Hop, JobHash, PayloadHash, Round};
use crate::position::UnixMillis;

/// How far a step of a job came. The order matters: a later phase wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// A copy with this round and hop was acknowledged by a delay topic.
    Scheduled,
    /// The handler ran in place; the step's `n` counts how often.
    Tried,
    /// The handler is about to run although it may have ended a process before.
    Started,
    /// A copy was acknowledged by the DLQ.
    Dead,
}

/// Where a job that is not done stands. Steps are ordered by round, hop, phase and `n`; the rest only breaks ties,
/// so that the maximum of two steps is one of them, whatever the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Step {
    /// The round of the copy that this step speaks of.
    pub round: Round,
    /// The hop of that copy.
    pub hop: Hop,
    /// How far it came.
    pub phase: Phase,
    /// How often it ran in place.
    pub n: u32,
    /// Whose step it is.
    pub job: JobHash,
    /// What that job carries.
    pub payload: PayloadHash,
    /// When it was written, by the writer's clock.
    pub written_at: UnixMillis,
}

/// What the `n` of a step in phase [`Phase::Started`] counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Starts {
    /// How often it ran in place before.
    pub tried: u32,
    /// How often what was said of a turn is taken back without a try: it was to run alone and did not, or it ran and snoozed.
    pub given_back: u32,
    /// Of how many deaths of a process it is a suspect should this one die now: 1, it ran among others; 2, it ran alone the second
    /// time. 0: the run that this step speaks of ended.
    pub crashes: u32,
}

/// The bits of [`Starts::crashes`], the lowest ones.
const CRASHES_BITS: u32 = 2;
/// The bits of [`Starts::given_back`], above those. The rest counts the tries, up to the largest number that is stored.
const GIVEN_BACK_BITS: u32 = 13;
const MOST_TRIED: u32 = i32::MAX.unsigned_abs() >> (CRASHES_BITS + GIVEN_BACK_BITS);
const MOST_GIVEN_BACK: u32 = (1 << GIVEN_BACK_BITS) - 1;
const MOST_CRASHES: u32 = (1 << CRASHES_BITS) - 1;

impl Starts {
    /// What `n` says.
    pub fn of(n: u32) -> Self {
        Self {
            tried: n >> (CRASHES_BITS + GIVEN_BACK_BITS),
            given_back: (n >> CRASHES_BITS) & MOST_GIVEN_BACK,
            crashes: n & MOST_CRASHES,
        }
    }

    /// The `n` that says so. It grows from run to run, and from turn to turn; what can't be counted any further stays the most.
    pub fn number(self) -> u32 {
        let turns = (self.tried.min(MOST_TRIED) << GIVEN_BACK_BITS) | self.given_back.min(MOST_GIVEN_BACK);
        (turns << CRASHES_BITS) | self.crashes.min(MOST_CRASHES)
    }
}

/// The `n` of a step in phase [`Phase::Dead`] whose job ended its process: equal ones would, too.
pub const KILLED: u32 = i32::MAX.unsigned_abs();

/// The copy whose handler's effect is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DoneAt {
    /// Its round.
    pub round: Round,
    /// Its hop.
    pub hop: Hop,
}

/// All that is remembered of one key. The default is: nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mark {
    /// Set once a handler succeeded.
    pub done: Option<DoneAt>,
    /// The furthest step of a job of this key.
    pub step: Option<Step>,
}

impl Mark {
    /// The mark of a handler that succeeded. It keeps the step too: job and payload tell a duplicate from a conflict.
    pub fn done(step: Step) -> Self {
        Self { done: Some(DoneAt { round: step.round, hop: step.hop }), step: Some(step) }
    }

    /// The mark of a step.
    pub fn step(step: Step) -> Self {
        Self { done: None, step: Some(step) }
    }

    /// The other job, with the payload of `arrival`, that was dead-lettered because it ends its process. What an operator sent round
    /// again since is not meant.
    pub fn killed_by_an_equal(&self, arrival: &Arrival) -> Option<JobHash> {
        let step = self.step.filter(|step| step.phase == Phase::Dead && step.n == KILLED)?;
        let equal = step.job != arrival.job && step.payload == arrival.payload;
        (equal && self.done.is_none() && arrival.round <= step.round).then_some(step.job)
    }

    /// The maximum of each part: associative, commutative, idempotent.
    #[must_use]
    pub fn join(self, other: Self) -> Self {
        Self { done: self.done.max(other.done), step: self.step.max(other.step) }
    }
}

/// The record whose verdict is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Its round.
    pub round: Round,
    /// Its hop.
    pub hop: Hop,
    /// Its job.
    pub job: JobHash,
    /// Its payload.
    pub payload: PayloadHash,
    /// An operator ordered this round although the key is done.
    pub forced: bool,
}

/// Why a record needs no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Skip {
    /// This round of this job is done.
    Resolved,
    /// The key was done in another round, or by another job.
    AlreadyDone,
    /// A later copy of the same job exists, acknowledged before the mark was written.
    Superseded,
    /// The job stands in the DLQ already.
    AlreadyDead,
    /// Another job with the same key and payload is alive, and ahead of this record.
    Coalesced,
}

impl Skip {
    /// The name in metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Resolved => "resolved",
            Self::AlreadyDone => "already_done",
            Self::Superseded => "superseded",
            Self::AlreadyDead => "already_dead",
            Self::Coalesced => "coalesced",
        }
    }
}

/// What becomes of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Run the handler.
    Run,
    /// Run the handler: what the mark promised did not come in time.
    RunOrphaned,
    /// Run the handler as the first hop of this round: an older job of the key ended without success, or this record
    /// was begun as this round before.
    RunAsRound(Round),
    /// Settle without a run.
    Skip(Skip),
    /// The key belongs to another payload: dead-letter, or skip where the class says so and the other is done.
    Conflict {
        /// The job that has the key.
        first: JobHash,
        /// Whether that job is done already.
        done: bool,
    },
}

/// The verdict over `arrival`, by what is remembered of its key. `belief` is how long a step that promises a later copy
/// is believed after it was written: the longest rung with its jitter, and an hour.
pub fn verdict(mark: &Mark, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    if let Some(done) = mark.done {
        if arrival.forced && arrival.round > done.round {
            // A step of a later round than done's is one of the forced life: it must not fork or run twice either.
            return by_step(mark.step.filter(|step| step.round > done.round), arrival, now, belief);
        }
        return after_done(done, mark.step, arrival);
    }
    by_step(mark.step, arrival, now, belief)
}

fn by_step(step: Option<Step>, arrival: &Arrival, now: UnixMillis, belief: Duration) -> Verdict {
    let Some(step) = step else { return Verdict::Run };
    let believed = now <= step.written_at.after(belief);
    if step.job == arrival.job {
        same_job(&step, arrival, believed)
    } else {
        other_job(&step, arrival, believed)
    }
}

fn after_done(done: DoneAt, step: Option<Step>, arrival: &Arrival) -> Verdict {
    match step {
        Some(step) if step.job != arrival.job && step.payload != arrival.payload => {
            Verdict::Conflict { first: step.job, done: true }
        }
        Some(step) if step.job != arrival.job => Verdict::Skip(Skip::AlreadyDone),
        _ if arrival.round == done.round => Verdict::Skip(Skip::Resolved),
        _ => Verdict::Skip(Skip::AlreadyDone),
    }
}

fn same_job(step: &Step, arrival: &Arrival, believed: bool) -> Verdict {
    if step.phase == Phase::Dead {
        return if arrival.round > step.round { Verdict::Run } else { Verdict::Skip(Skip::AlreadyDead) };
    }
    if (arrival.round, arrival.hop) >= (step.round, step.hop) {
        Verdict::Run
    } else if step.hop == Hop(0) && step.phase != Phase::Scheduled {
        // It began here as this round, by `RunAsRound`, and no copy carries that number yet: skipping it would lose it.
        Verdict::RunAsRound(step.round)
    } else if believed {
        Verdict::Skip(Skip::Superseded)
    } else {
        Verdict::RunOrphaned
    }
}

fn other_job(step: &Step, arrival: &Arrival, believed: bool) -> Verdict {
    if step.phase == Phase::Dead || !believed {
        // Only done suppresses. The new round makes this job's steps larger than the ended one's.
        if arrival.round > step.round {
            Verdict::Run
        } else {
            Verdict::RunAsRound(Round(step.round.0.saturating_add(1)))
        }
    } else if step.payload != arrival.payload {
        Verdict::Conflict { first: step.job, done: false }
    } else if (arrival.round, arrival.hop, arrival.job) < (step.round, step.hop, step.job) {
        Verdict::Skip(Skip::Coalesced)
    } else {
        // Only the lesser is left to the greater. Without an order two jobs could be left to each other: a deposed owner
        // starts b, while the owner still knows of a only and leaves b to it; it reads b's mark, and leaves a to b.
        Verdict::Run
    }
}

/// Why stored bytes are no mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MarkFormatError {
    /// The bytes end too early, or go on after the mark.
    #[error("the mark has a wrong length")]
    Length,
    /// Written by a version that this one can't read.
    #[error("the mark has unknown format {0:#04x}")]
    Format(u8),
}

const HAS_DONE: u8 = 0x01;
const HAS_STEP: u8 = 0x02;
const FLAGS: u8 = HAS_DONE | HAS_STEP;

impl Mark {
    /// Appends the mark's stored form: a flags byte (its high bits are the format's number, 0), then varints.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let flags = u8::from(self.done.is_some()) * HAS_DONE + u8::from(self.step.is_some()) * HAS_STEP;
        out.push(flags);
        if let Some(done) = self.done {
            put_varint(out, u64::from(done.round.0));
            put_varint(out, u64::from(done.hop.0));
        }
        if let Some(step) = self.step {
            put_varint(out, u64::from(step.round.0));
            put_varint(out, u64::from(step.hop.0));
            out.push(step.phase as u8);
            put_varint(out, u64::from(step.n));
            out.extend_from_slice(&step.job.0.to_be_bytes());
            out.extend_from_slice(&step.payload.0.to_be_bytes());
            put_varint(out, step.written_at.0 as u64);
        }
    }

    /// Reads a stored mark; all of `bytes` must be used.
    pub fn decode(bytes: &[u8]) -> Result<Self, MarkFormatError> {
        let mut reader = Reader(bytes);
        let flags = reader.byte()?;
        if flags & !FLAGS != 0 {
            return Err(MarkFormatError::Format(flags));
        }
        let mut mark = Self::default();
        if flags & HAS_DONE != 0 {
            mark.done = Some(DoneAt { round: Round(reader.varint32()?), hop: Hop(reader.varint32()?) });
        }
        if flags & HAS_STEP != 0 {
            mark.step = Some(reader.step()?);
        }
        if reader.0.is_empty() { Ok(mark) } else { Err(MarkFormatError::Length) }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn byte(&mut self) -> Result<u8, MarkFormatError> {
        let (&first, rest) = self.0.split_first().ok_or(MarkFormatError::Length)?;
        self.0 = rest;
        Ok(first)
    }

    fn varint(&mut self) -> Result<u64, MarkFormatError> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            if shift == 63 && byte > 1 {
                break;
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(MarkFormatError::Length)
    }

    fn varint32(&mut self) -> Result<u32, MarkFormatError> {
        u32::try_from(self.varint()?).map_err(|_| MarkFormatError::Length)
    }

    fn four(&mut self) -> Result<u32, MarkFormatError> {
        let (head, rest) = self.0.split_first_chunk::<4>().ok_or(MarkFormatError::Length)?;
        self.0 = rest;
        Ok(u32::from_be_bytes(*head))
    }

    fn step(&mut self) -> Result<Step, MarkFormatError> {
        Ok(Step {
            round: Round(self.varint32()?),
            hop: Hop(self.varint32()?),
            phase: match self.byte()? {
                0 => Phase::Scheduled,
                1 => Phase::Tried,
                2 => Phase::Started,
                3 => Phase::Dead,
                other => return Err(MarkFormatError::Format(other)),
            },
            n: self.varint32()?,
            job: JobHash(self.four()?),
            payload: PayloadHash(self.four()?),
            written_at: UnixMillis(self.varint()? as i64),
        })
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8 & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests;
