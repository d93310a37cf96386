//! What is searched. The first nine are those of the model that the design was checked with.

use crate::model::{Budget, Ordering, Scenario, Takeover};

const NO_FAULT: Budget =
    Budget { crash: 0, depose: 0, double: 0, replay: 0, force: 0, lost_ack: 0, jump: 0, snooze: 0 };
const CRASH: Budget = Budget { crash: 1, ..NO_FAULT };
const DEPOSE: Budget = Budget { depose: 1, ..NO_FAULT };
const BOTH: Budget = Budget { crash: 1, depose: 1, ..NO_FAULT };

/// One job, run with at most two attempts, one record at a time.
pub(crate) const ONE: Scenario = Scenario {
    name: "one job",
    payloads: &[0],
    budget: NO_FAULT,
    attempts: 2,
    window: 1,
    deposed_takes: 0,
    ordering: Ordering::None,
    takeover: Takeover::Trusting,
    max_runs: None,
    min_states: 20,
};
/// Two jobs of one key and payload.
pub(crate) const SAME: Scenario = Scenario { name: "same payload", payloads: &[0, 0], ..ONE };
/// Two jobs of one key, and each its payload.
pub(crate) const OTHER: Scenario = Scenario { name: "other payload", payloads: &[0, 1], ..ONE };
/// Three jobs of one key.
pub(crate) const THREE: Scenario = Scenario { name: "three jobs", payloads: &[0, 0, 1], ..ONE };
const SUSPICIOUS: Scenario = Scenario { window: 2, takeover: Takeover::Suspicious, ..ONE };
const IN_PLACE: Scenario = Scenario { ordering: Ordering::Key, takeover: Takeover::Suspicious, ..ONE };

const fn with(scenario: Scenario, budget: Budget, min_states: usize) -> Scenario {
    Scenario { budget, min_states, ..scenario }
}

pub(crate) const PROMISES: [Scenario; 33] = [
    with(ONE, CRASH, 130),
    with(ONE, DEPOSE, 350),
    with(ONE, Budget { double: 1, replay: 1, ..BOTH }, 99_000),
    with(SAME, CRASH, 300),
    with(SAME, DEPOSE, 1_000),
    with(SAME, Budget { replay: 1, ..BOTH }, 200_000),
    with(OTHER, CRASH, 300),
    with(OTHER, DEPOSE, 1_000),
    with(OTHER, Budget { replay: 1, ..BOTH }, 220_000),
    // A deposed owner goes on with a record that it has not begun.
    Scenario { deposed_takes: 1, ..with(ONE, Budget { double: 1, replay: 1, ..BOTH }, 360_000) },
    Scenario { deposed_takes: 1, ..with(SAME, BOTH, 42_000) },
    Scenario { deposed_takes: 1, ..with(OTHER, Budget { double: 1, lost_ack: 1, ..DEPOSE }, 98_000) },
    Scenario { deposed_takes: 1, ..with(SAME, Budget { jump: 1, ..DEPOSE }, 66_000) },
    Scenario { deposed_takes: 1, ..with(OTHER, Budget { jump: 1, ..DEPOSE }, 60_000) },
    Scenario { deposed_takes: 1, ..with(SAME, Budget { replay: 1, double: 1, ..DEPOSE }, 300_000) },
    Scenario { deposed_takes: 1, ..with(THREE, Budget { replay: 1, ..DEPOSE }, 150_000) },
    Scenario { deposed_takes: 2, window: 2, ..with(THREE, DEPOSE, 210_000) },
    // Lost acknowledgements.
    with(ONE, Budget { lost_ack: 1, ..BOTH }, 9_000),
    with(SAME, Budget { lost_ack: 1, double: 1, ..DEPOSE }, 30_000),
    with(OTHER, Budget { lost_ack: 1, ..CRASH }, 1_700),
    with(THREE, Budget { lost_ack: 1, double: 1, ..NO_FAULT }, 700),
    with(THREE, BOTH, 43_000),
    // More records under way than one, and a window that is suspected after a crash.
    Scenario { payloads: &[0, 0], ..with(SUSPICIOUS, Budget { double: 1, replay: 1, ..CRASH }, 71_000) },
    Scenario { payloads: &[0, 1], ..with(SUSPICIOUS, Budget { double: 1, replay: 1, ..CRASH }, 86_000) },
    Scenario { payloads: &[0, 0, 1], ..with(SUSPICIOUS, Budget { replay: 1, ..CRASH }, 41_000) },
    Scenario { payloads: &[0, 0, 1], ..with(SUSPICIOUS, Budget { crash: 2, ..NO_FAULT }, 4_000) },
    // Retried in place.
    Scenario { payloads: &[0, 0], deposed_takes: 2, ..with(IN_PLACE, Budget { replay: 1, ..BOTH }, 120_000) },
    Scenario { payloads: &[0, 1], ..with(IN_PLACE, Budget { replay: 1, double: 1, ..CRASH }, 600) },
    Scenario { payloads: &[0, 0, 1], ..with(IN_PLACE, Budget { replay: 1, ..CRASH }, 1_400) },
    // Ordered again although done.
    Scenario { payloads: &[0, 1], ..with(SUSPICIOUS, Budget { force: 1, double: 1, ..CRASH }, 38_000) },
    with(SAME, Budget { force: 1, double: 1, replay: 1, ..CRASH }, 31_000),
    // What was promised is not believed any more.
    Scenario { payloads: &[0, 1], ..with(SUSPICIOUS, Budget { jump: 1, double: 1, ..CRASH }, 72_000) },
    with(THREE, Budget { jump: 1, double: 1, snooze: 1, ..NO_FAULT }, 3_000),
];

const fn bounded(name: &'static str, budget: Budget, max_runs: u8) -> Scenario {
    Scenario { name, budget, attempts: 3, max_runs: Some(max_runs), ..ONE }
}

/// Three attempts are three runs of a round. A fault adds what was under way, and no chain of its own.
pub(crate) const FORKS: [Scenario; 8] = [
    bounded("no fault", NO_FAULT, 3),
    bounded("a doubled copy", Budget { double: 1, ..NO_FAULT }, 3),
    bounded("two doubled copies", Budget { double: 2, ..NO_FAULT }, 3),
    bounded("a lost acknowledgement", Budget { lost_ack: 1, ..NO_FAULT }, 3),
    bounded("a crash", CRASH, 4),
    bounded("two crashes and a doubled copy", Budget { crash: 2, double: 1, ..NO_FAULT }, 5),
    bounded("a snooze", Budget { snooze: 1, ..NO_FAULT }, 4),
    bounded("a replay and a doubled copy", Budget { replay: 1, double: 1, ..NO_FAULT }, 6),
];
