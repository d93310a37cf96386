//! The table, and whether enough happened for it to mean something.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::account::{Account, Cause};
use crate::fleet::own_mounts;
use crate::history::{Call, CallEnd, Ending, History};
use crate::load::RATE;

/// How many of those that broke a rule are told.
const SHOWN: usize = 12;

/// What of a run is shown.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) seed: u64,
    pub(crate) injecting: Duration,
    pub(crate) history: &'a History,
    pub(crate) account: &'a Account,
    /// What services did that nobody asked for.
    pub(crate) unasked: &'a [String],
    /// Processes in which something panicked.
    pub(crate) panics: &'a [String],
}

impl Report<'_> {
    /// Prints the table.
    pub(crate) fn print(&self) {
        self.print_injected();
        self.print_events();
        self.print_repeats();
        let broken = self.account.broken();
        for (rule, found) in &broken {
            println!("\nBROKEN: {rule}: {}", found.len());
            found.iter().take(SHOWN).for_each(|text| println!("    {text}"));
        }
    }

    fn print_injected(&self) {
        let History { faults, .. } = self.history;
        println!(
            "\nseed {}: {} faults in {:.1} minutes\n",
            self.seed,
            faults.len(),
            self.injecting.as_secs_f64() / 60.0
        );
        let mut counts: BTreeMap<&str, (usize, f64)> = BTreeMap::new();
        for fault in faults {
            let (count, seconds) = counts.entry(&fault.name).or_default();
            *count += 1;
            *seconds += fault.until.millis_after(fault.from) as f64 / 1000.0;
        }
        row("injected", "times", "seconds");
        for (name, (count, seconds)) in counts {
            row(name, &count.to_string(), &format!("{seconds:.0}"));
        }
    }

    fn print_events(&self) {
        let (fates, history) = (&self.account.fates, self.history);
        let disk = if own_mounts().is_some() {
            "a small tmpfs of its own"
        } else {
            "none: nothing can be mounted here"
        };
        println!("  (the full disk: {disk})\n");
        row("events in the source topic", &history.published.len().to_string(), "");
        row("  that were not acknowledged", &history.unsure.to_string(), "");
        row("  done", &fates.done.to_string(), "");
        row("  skipped as duplicates of these", &fates.duplicates.to_string(), "");
        for (error, count) in &fates.dead {
            row(&format!("  dead-lettered as {error}"), &count.to_string(), "");
        }
        row("  dead-lettered by ingest", &fates.dead_events.to_string(), "");
        row("  ignored by rule", &fates.ignored.to_string(), "");
        zero("  lost", fates.lost.len());
        zero("  skipped although not done", fates.skipped.len());
        zero("  dead-lettered or forwarded for no reason", fates.wrong.len());
    }

    fn print_repeats(&self) {
        let Account { repeats, early, order, lag, .. } = self.account;
        println!();
        row("calls of the endpoint", &self.history.calls.len().to_string(), "");
        row("  with effect", &self.effects().to_string(), "");
        let of = |title: &str, causes: &BTreeMap<Cause, usize>| {
            row(title, &causes.values().sum::<usize>().to_string(), "");
            causes
                .iter()
                .for_each(|(cause, count)| row(&format!("    {}", cause.name()), &count.to_string(), ""));
        };
        of("  runs repeated after their effect, in a window", &repeats.of_effects);
        of("  attempts repeated, in a window", &repeats.of_attempts);
        zero("  repeated outside of every window", repeats.unexplained.len());
        row("  held against a `Done`", &repeats.asked.to_string(), "");
        row("    after it, by a deposed owner", &repeats.by_deposed.to_string(), "");
        row(
            "    after a deposed owner's, before it was looked for",
            &repeats.before_the_look.to_string(),
            "",
        );
        zero("    after it was visible", repeats.after_done.len());
        row("  retries held against their due time", &early.checked.to_string(), "");
        zero("    early", early.early.len());
        zero("    announced by no copy", early.unannounced.len());
        row("  calls held against the order of their key", &order.checked.to_string(), "");
        row("    overlapping in a window", &order.excused.to_string(), "");
        zero("    out of order", order.broken.len());
        zero("offsets not committed in the end", usize::try_from(*lag).unwrap_or(usize::MAX));
        println!();
        row("lives of services", &self.history.lives.len().to_string(), "");
        row("  that ended by themselves", &self.ended_themselves().to_string(), "");
        self.unasked.iter().for_each(|text| println!("      {text}"));
    }

    /// What went wrong; empty: the run passes.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self
            .account
            .broken()
            .into_iter()
            .map(|(rule, found)| format!("{rule}: {}", found.len()))
            .collect();
        failures.extend(self.too_little());
        failures.extend(self.crashes());
        failures.extend(self.panics.iter().map(|process| format!("something panicked in {process}")));
        failures
    }

    /// A process may end with an error that it tells; a panic or an abort is a bug.
    fn crashes(&self) -> Vec<String> {
        let crash = |ending| matches!(ending, Ending::Itself(code) if code == 101 || code > 128);
        let crashed = self.history.lives.iter().filter(|life| life.ended.is_some_and(|(_, end)| crash(end)));
        crashed.map(|life| format!("{} crashed: {:?}", life.service, life.ended)).collect()
    }

    /// A run in which little happened shows little.
    fn too_little(&self) -> Vec<String> {
        let Account { fates, repeats, early, order, .. } = self.account;
        let minutes = self.injecting.as_secs_f64() / 60.0;
        let injected = |name: &str| self.history.faults.iter().filter(|fault| fault.name == name).count();
        let named =
            |suffix: &str| self.history.faults.iter().filter(|fault| fault.name.ends_with(suffix)).count();
        let events = self.history.published.len();
        let repeated: usize = repeats.of_effects.values().chain(repeats.of_attempts.values()).sum();
        // What happens, how often it did, and how often it must in a minute.
        let mut wanted = vec![
            ("faults", self.history.faults.len(), 10.0),
            ("events", events, 0.5 * RATE as f64 * 60.0),
            ("services killed", named(" killed") - injected("broker killed"), 1.0),
            ("brokers killed", injected("broker killed"), 0.2),
            ("workers frozen", injected("worker frozen"), 0.2),
            ("rebalance storms", injected("rebalance storm"), 0.2),
            ("registry outages", injected("registry down"), 0.2),
            ("states deleted", injected("state deleted"), 0.2),
            ("states bit-flipped", injected("state bit-flipped"), 0.2),
            ("unwritable topics", named(" unwritable"), 0.4),
            ("jobs done", fates.done, 0.3 * RATE as f64 * 60.0),
            ("duplicates skipped", fates.duplicates, 100.0),
            ("dead letters", fates.dead.values().sum(), 20.0),
            ("events that are none", fates.dead_events, 20.0),
            ("events ignored", fates.ignored, 20.0),
            ("retries held against their due time", early.checked, 200.0),
            ("calls held against their order", order.checked, 500.0),
            ("calls held against a `Done`", repeats.asked, 0.3 * RATE as f64 * 60.0),
            ("runs repeated in a window", repeated, 1.0),
        ];
        if own_mounts().is_some() {
            wanted.push(("full disks", injected("disk full"), 0.2));
        }
        let short = |&(what, count, a_minute): &(&str, usize, f64)| {
            let least = (a_minute * minutes).floor() as usize;
            (count < least)
                .then(|| format!("too little happened: {count} {what}, at least {least} are wanted"))
        };
        wanted.iter().filter_map(short).collect()
    }

    fn effects(&self) -> usize {
        let with_effect = |call: &&Call| matches!(call.end, CallEnd::Answered(200..=299));
        self.history.calls.iter().filter(with_effect).count()
    }

    fn ended_themselves(&self) -> usize {
        let themselves =
            self.history.lives.iter().filter(|life| matches!(life.ended, Some((_, Ending::Itself(_)))));
        themselves.count()
    }
}

fn row(name: &str, count: &str, more: &str) {
    println!("  {name:<56}{count:>9}{more:>9}");
}

/// A row that must be zero.
fn zero(name: &str, count: usize) {
    row(name, &count.to_string(), if count == 0 { "= 0" } else { "BROKEN" });
}
