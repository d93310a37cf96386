//! All orders of everything that can happen to one key, with the production `verdict` and `Mark::join`: handlers that
//! succeed, fail and snooze, owners that crash or are deposed and go on, acknowledgements that are lost, copies that are
//! doubled, operators that replay, a clock that jumps.
//!
//! In every state: no job is lost, no handler runs after a `done` that its owner can know of, nothing is committed past
//! an unsettled record, no job forks into two chains. At every end all is committed and no retry is left. That the
//! search can see all this is shown by broken tables, each of which it must refuse.

#[path = "enumeration/broken.rs"]
mod broken;
#[path = "enumeration/model.rs"]
mod model;
#[path = "enumeration/moves.rs"]
mod moves;
#[path = "enumeration/scenarios.rs"]
mod scenarios;
#[path = "enumeration/search.rs"]
mod search;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tidegate_domain::{Mark, mark};

use crate::broken::BROKEN;
use crate::model::{Scenario, Table};
use crate::scenarios::{FORKS, PROMISES};
use crate::search::{Found, search};

const TABLE: Table = Table { verdict: mark::verdict, join: Mark::join };

#[test]
fn in_every_order_of_faults_the_promises_hold() {
    let found = search_all(&PROMISES);
    let states: usize = found.iter().map(|found| found.states).sum();
    assert!(states > 2_400_000, "only {states} states");
}

#[test]
fn a_fault_costs_at_most_the_runs_that_were_under_way() {
    let found = search_all(&FORKS);
    assert!(found.iter().all(|found| found.ends > 0));
    // One run less than the bound allows is not enough: the bound is sharp, so a fork would be seen.
    for scenario in &FORKS {
        let sharper = Scenario { max_runs: scenario.max_runs.map(|runs| runs - 1), ..*scenario };
        assert!(search(&sharper, TABLE).broken.is_some(), "{} never needs its bound", scenario.name);
    }
}

#[test]
fn every_broken_table_is_found_out() {
    let mut unexpected = Vec::new();
    for (name, table, scenario, promise) in BROKEN {
        let found = search(&scenario, table).broken.map(|(broken, _)| broken);
        if found != Some(promise) {
            unexpected.push((name, found));
        }
        let sound = search(&scenario, TABLE).broken;
        assert!(sound.is_none(), "{name}: fails with the production table too: {sound:#?}");
    }
    assert!(unexpected.is_empty(), "{unexpected:#?}");
}

/// Searches on two threads, and fails with the whole story of the first broken promise.
fn search_all(scenarios: &[Scenario]) -> Vec<Found> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut all = Vec::new();
        while let Some(scenario) = scenarios.get(next.fetch_add(1, Relaxed)) {
            all.push(checked(scenario));
        }
        all
    };
    std::thread::scope(|threads| {
        let other = threads.spawn(work);
        let mut all = work();
        all.extend(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        assert_eq!(all.len(), scenarios.len());
        all
    })
}

fn checked(scenario: &Scenario) -> Found {
    let found = search(scenario, TABLE);
    if let Some((promise, story)) = &found.broken {
        panic!("{}: {promise}\n  {}", scenario.name, story.join("\n  "));
    }
    let Scenario { name, min_states, .. } = scenario;
    assert!(found.states >= *min_states, "{name}: {} states, fewer than {min_states}", found.states);
    assert!(found.moves >= found.states - 1 && found.ends > 0, "{name} has no end");
    found
}
