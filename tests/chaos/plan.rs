//! Which faults happen, in which order and for how long: a pure function of the seed.
//!
//! Three lanes go on side by side, each with one fault at a time: services, servers (so never two brokers), and the endpoint. A
//! lane draws from a shuffled deck, so that in a few minutes every kind has had its turn.

use std::time::Duration;

use crate::dice::Dice;

/// A fault of a lane, and how long it stays.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Drawn<F> {
    pub(crate) fault: F,
    pub(crate) hold: Duration,
    /// Between its end and the next one.
    pub(crate) gap: Duration,
    /// For what else is to be chosen while it is done.
    pub(crate) luck: u64,
}

/// What happens to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServiceFault {
    /// SIGKILL, and started again.
    Kill(Role),
    /// SIGTERM, and started again.
    Stop(Role),
    /// SIGSTOP, and SIGCONT.
    Freeze(Role),
    /// Workers that come and go.
    RebalanceStorm,
    /// A worker is killed and its state folder deleted.
    StateDeleted,
    /// A worker is killed and a bit of its state flipped.
    StateFlipped,
    /// A worker whose disk fills up.
    DiskFull,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    Ingest,
    Worker,
    Retry,
}

/// What happens to Kafka and the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ServerFault {
    KillBroker,
    StopBroker,
    FreezeBroker,
    RegistryOutage,
    /// Topics demand more replicas than are alive.
    Unwritable(Topics),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Topics {
    DeadLetters,
    Delays,
    Marks,
    Jobs,
}

/// How the endpoint misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum EndpointFault {
    /// Every answer takes long.
    Slow,
    /// Most calls are answered by 500.
    Failing,
    /// 429 with `Retry-After`.
    Overloaded,
    /// Some calls are never answered.
    Hanging,
    /// Connections are cut and refused.
    Down,
}

/// A lane's faults.
#[derive(Debug, Clone)]
pub(crate) struct Deck<F: Copy> {
    dice: Dice,
    /// A fault, how often it is in the deck, and how many tenths of a second it stays.
    cards: Vec<(F, usize, (u64, u64))>,
    /// Between two faults, in tenths of a second.
    gap: (u64, u64),
    left: Vec<(F, (u64, u64))>,
}

impl<F: Copy> Deck<F> {
    fn new(dice: Dice, gap: (u64, u64), cards: Vec<(F, usize, (u64, u64))>) -> Self {
        Self { dice, cards, gap, left: Vec::new() }
    }

    pub(crate) fn draw(&mut self) -> Drawn<F> {
        if self.left.is_empty() {
            let copies =
                |&(fault, count, hold): &(F, usize, (u64, u64))| std::iter::repeat_n((fault, hold), count);
            self.left = self.cards.iter().flat_map(copies).collect();
            self.dice.shuffle(&mut self.left);
        }
        let (fault, (from, to)) = self.left.pop().unwrap_or_else(|| unreachable!("a deck has cards"));
        let hold = tenths(self.dice.within(from, to));
        let gap = tenths(self.dice.within(self.gap.0, self.gap.1));
        Drawn { fault, hold, gap, luck: self.dice.roll() }
    }
}

fn tenths(count: u64) -> Duration {
    Duration::from_millis(count * 100)
}

/// The decks of a seed.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) services: Deck<ServiceFault>,
    pub(crate) servers: Deck<ServerFault>,
    pub(crate) endpoint: Deck<EndpointFault>,
    /// For the events.
    pub(crate) load: Dice,
}

impl Plan {
    /// A frozen worker is deposed after 6 s, a frozen broker is fenced after 6 s: holds lie on both sides of that.
    pub(crate) fn of(seed: u64) -> Self {
        use ServiceFault::{DiskFull, Freeze, Kill, RebalanceStorm, StateDeleted, StateFlipped, Stop};
        let mut dice = Dice::new(seed);
        let services = vec![
            (Kill(Role::Worker), 4, (0, 20)),
            (Kill(Role::Ingest), 2, (0, 20)),
            (Kill(Role::Retry), 2, (0, 20)),
            (Stop(Role::Worker), 2, (0, 10)),
            (Stop(Role::Ingest), 1, (0, 10)),
            (Stop(Role::Retry), 1, (0, 10)),
            (Freeze(Role::Worker), 2, (5, 110)),
            (Freeze(Role::Ingest), 1, (5, 100)),
            (Freeze(Role::Retry), 1, (5, 100)),
            (RebalanceStorm, 1, (20, 60)),
            (StateDeleted, 1, (0, 20)),
            (StateFlipped, 1, (0, 20)),
            (DiskFull, 1, (30, 60)),
        ];
        use ServerFault::{FreezeBroker, KillBroker, RegistryOutage, StopBroker, Unwritable};
        let servers = vec![
            (KillBroker, 2, (10, 100)),
            (StopBroker, 1, (10, 50)),
            (FreezeBroker, 1, (20, 100)),
            (RegistryOutage, 1, (50, 100)),
            (Unwritable(Topics::DeadLetters), 1, (30, 80)),
            (Unwritable(Topics::Delays), 1, (30, 80)),
            (Unwritable(Topics::Marks), 1, (30, 80)),
            (Unwritable(Topics::Jobs), 1, (30, 80)),
        ];
        use EndpointFault::{Down, Failing, Hanging, Overloaded, Slow};
        let endpoint = vec![
            (Slow, 2, (20, 60)),
            (Failing, 2, (20, 50)),
            (Overloaded, 1, (20, 50)),
            (Hanging, 1, (20, 50)),
            (Down, 2, (10, 40)),
        ];
        Self {
            services: Deck::new(dice.fork(), (0, 30), services),
            servers: Deck::new(dice.fork(), (10, 50), servers),
            endpoint: Deck::new(dice.fork(), (20, 60), endpoint),
            load: dice.fork(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_plan_is_a_pure_function_of_its_seed() {
        let faults = |seed| {
            let mut plan = Plan::of(seed);
            let services: Vec<_> = (0..50).map(|_| plan.services.draw()).collect();
            let servers: Vec<_> = (0..50).map(|_| plan.servers.draw()).collect();
            let endpoint: Vec<_> = (0..50).map(|_| plan.endpoint.draw()).collect();
            (services, servers, endpoint, plan.load.roll())
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn one_round_of_a_deck_has_every_fault_as_often_as_it_is_in_it() {
        for seed in 0..50 {
            let mut deck = Plan::of(seed).services;
            let cards: usize = deck.cards.iter().map(|(_, count, _)| count).sum();
            let mut drawn = BTreeMap::new();
            for _ in 0..cards {
                *drawn.entry(deck.draw().fault).or_insert(0) += 1;
            }
            let expected: BTreeMap<_, _> =
                deck.cards.iter().map(|&(fault, count, _)| (fault, count)).collect();
            assert_eq!(drawn, expected);
        }
    }

    #[test]
    fn a_fault_stays_within_its_bounds() {
        let mut deck = Plan::of(3).servers;
        for _ in 0..200 {
            let drawn = deck.draw();
            let (_, _, (from, to)) = deck.cards.iter().find(|card| card.0 == drawn.fault).unwrap();
            assert!((tenths(*from)..=tenths(*to)).contains(&drawn.hold), "{drawn:?}");
            assert!((tenths(10)..=tenths(50)).contains(&drawn.gap), "{drawn:?}");
        }
    }
}
