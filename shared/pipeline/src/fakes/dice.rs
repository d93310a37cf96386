//! Seeded random numbers, without a crate: the same seed gives the same run on every machine.

/// A `SplitMix64` stream.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number within `0..count`.
    pub fn below(&mut self, count: u64) -> u64 {
        self.roll() % count.max(1)
    }

    /// A number within [0, 1).
    pub fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of `choices`.
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> Option<&'a T> {
        choices.get(usize::try_from(self.below(choices.len() as u64)).unwrap_or(0))
    }

    /// A stream of its own, so that one consumer's rolls don't shift another's.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self(self.roll())
    }
}
