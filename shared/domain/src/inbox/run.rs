//! How a run stands, which the journal alone decides: the last legal step counts, for all readers alike.
//!
//! Its orders come in as many chunks as its author announced. Only when all are there, or it was *closed* because its author fell
//! silent, may any of it be published, and may it finish: else a console that carries it out would take the beginning of its orders
//! for all of them. Before replays are published, whoever carries the run out says how far it *climbs*. So when the run stops, every
//! reader knows which replays can't have been published, and *releases* those: their items are what they were before.

/// How far a run is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It goes on, as long as somebody carries it out.
    #[default]
    Running,
    /// An operator paused it.
    Paused,
    /// It stopped, by itself or by an operator.
    Stopped,
    /// All of its items have an end.
    Finished,
}

impl Stage {
    /// Every stage.
    pub const ALL: [Self; 4] = [Self::Running, Self::Paused, Self::Stopped, Self::Finished];

    /// The name in output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        }
    }

    /// The stage called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.as_str() == name)
    }
}

/// What happens to a run after its begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing more is published until it is resumed.
    Pause,
    /// It goes on, after a stop from the first step of its ramp.
    Resume,
    /// It does not go on, unless it is resumed.
    Stop,
    /// No more orders of it count.
    Close,
    /// The first so many of its accepted replays may be published.
    Climb(u64),
    /// All of its items have an end.
    Finish,
}

/// What a step that counts means for the run's items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Nothing.
    None,
    /// All of its accepted replays but the first so many are released: [`super::Entry::Release`] is to be folded for each.
    Release {
        /// How many are not.
        but_first: u64,
    },
    /// What was released comes back to it: [`super::Entry::Retake`] is to be folded for each of its accepted replays.
    Retake,
}

/// How a run stands. The default is a run that announced no orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunState {
    /// How many chunks of orders its author announced.
    pub chunks: u32,
    /// How many of them were read.
    pub read: u32,
    /// No more of them count.
    pub is_closed: bool,
    /// How many of its accepted replays, in their order, may be published.
    pub climbed: u64,
    /// How far it is.
    pub stage: Stage,
}

impl RunState {
    /// A run that announces so many chunks of orders.
    pub fn begun(chunks: u32) -> Self {
        Self { chunks, ..Self::default() }
    }

    /// Whether all of its orders are known.
    pub fn is_complete(&self) -> bool {
        self.is_closed || self.read >= self.chunks
    }

    /// The next chunk of its orders. Whether they count; each is judged alone then.
    pub fn chunk(&mut self) -> bool {
        let counts = !self.is_complete() && self.stage != Stage::Finished;
        self.read += u32::from(counts);
        counts
    }

    /// The next step. None: it is not legal, and changes nothing.
    pub fn step(&mut self, step: Step) -> Option<Effect> {
        match (step, self.stage) {
            (_, Stage::Finished)
            | (Step::Pause | Step::Stop | Step::Climb(_) | Step::Finish, Stage::Stopped) => {
                return None;
            }
            (Step::Close, _) if self.is_complete() => return None,
            (Step::Climb(until), _) if self.stage != Stage::Running || until <= self.climbed => return None,
            (Step::Climb(_) | Step::Finish, _) if !self.is_complete() => return None,
            (Step::Close, _) => self.is_closed = true,
            (Step::Climb(until), _) => self.climbed = until,
            (Step::Pause, _) => self.stage = Stage::Paused,
            (Step::Finish, _) => self.stage = Stage::Finished,
            (Step::Resume, before) => {
                self.stage = Stage::Running;
                return Some(if before == Stage::Stopped { Effect::Retake } else { Effect::None });
            }
            (Step::Stop, _) => {
                (self.stage, self.is_closed) = (Stage::Stopped, true);
                return Some(Effect::Release { but_first: self.climbed });
            }
        }
        Some(Effect::None)
    }
}
