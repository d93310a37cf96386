//! What there is to show at one moment, out of the last pages of metrics.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::TierName;
use tidegate_domain::FailureKind;
use tidegate_domain::ladder::rung_name;
use tidegate_pipeline::{Names, events};
use tidegate_service::wiring;

use crate::figures::Page;

/// How the jobs of one class are doing.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ClassFigures {
    pub(crate) name: String,
    pub(crate) tier: String,
    /// Done in the last seconds, for each second.
    pub(crate) done_per_second: f64,
    pub(crate) done: u64,
    /// Made from events, and neither at an end nor waiting for a retry.
    pub(crate) waiting: u64,
    pub(crate) delayed: Delayed,
    /// Dead-lettered by the worker.
    pub(crate) dead: u64,
    pub(crate) duplicates: u64,
    /// Copies that went to a delay topic.
    pub(crate) retries: u64,
    pub(crate) wait_p95: Option<Duration>,
    pub(crate) run_p95: Option<Duration>,
}

/// How many jobs of a class wait in delay topics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Delayed {
    /// This many.
    Exactly(u64),
    /// Not known: other classes share the tier, and delay topics are the tier's. They count as waiting here.
    #[default]
    Shared,
}

/// What waits in the delay topics of one tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TierDelays {
    pub(crate) tier: String,
    /// By rung: its name, and how many records.
    pub(crate) rungs: Vec<(String, u64)>,
}

/// Attempts that failed, or records that were dead-lettered, for one cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// The class; of an event that could not be read, its topic.
    pub(crate) of: String,
    pub(crate) what: String,
    pub(crate) count: u64,
    /// How long ago the last one was.
    pub(crate) ago: Duration,
}

/// All of it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Snapshot {
    pub(crate) elapsed: Duration,
    /// What is going on, in a few words.
    pub(crate) state: String,
    /// Where other clients find the broker and the registry.
    pub(crate) addresses: Vec<(&'static str, String)>,
    /// What to type to have something happen; empty once it does.
    pub(crate) how_to_begin: Vec<String>,
    /// By the demo's producer; none: there is none.
    pub(crate) published: Option<u64>,
    pub(crate) classes: Vec<ClassFigures>,
    pub(crate) delays: Vec<TierDelays>,
    /// The rungs that no retry of the ladder begins with.
    pub(crate) wait_only: Vec<String>,
    /// Events that ingest dead-lettered.
    pub(crate) unreadable: u64,
    /// The one that happened last first.
    pub(crate) causes: Vec<Cause>,
}

impl Snapshot {
    /// Whether no event has come to anything yet.
    pub(crate) fn nothing_has_come(&self) -> bool {
        let idle = |class: &ClassFigures| {
            class.done + class.waiting + class.dead + class.duplicates + class.retries == 0
        };
        self.unreadable == 0 && self.classes.iter().all(idle)
    }

    /// Adds causes, and puts the one that happened last first. Those of the same second keep their places by name.
    pub(crate) fn add_causes(&mut self, causes: Vec<Cause>) {
        self.causes.extend(causes);
        let place = |cause: &Cause| (cause.ago.as_secs(), cause.of.clone(), cause.what.clone());
        self.causes.sort_by_cached_key(place);
    }
}

/// How far back rates look.
const RATE_OVER: Duration = Duration::from_secs(3);
/// How far back percentiles look.
const P95_OVER: Duration = Duration::from_secs(15);

/// Turns page after page into snapshots.
#[derive(Debug)]
pub(crate) struct Observer {
    began: Instant,
    names: Names,
    /// Class, tier, and whether the tier has it alone.
    classes: Vec<(String, String, bool)>,
    tiers: Vec<String>,
    rungs: Vec<Duration>,
    wait_only: Vec<String>,
    pages: VecDeque<(Instant, Page)>,
    causes: BTreeMap<(String, String), (u64, Instant)>,
}

impl Observer {
    /// An observer of this pipeline.
    pub(crate) fn new(config: &Config, now: Instant) -> Self {
        let alone = |tier: &TierName| config.classes_of(tier).count() == 1;
        let class = |class: &tidegate_bootstrap::config::Class| {
            (class.name.to_string(), class.tier.to_string(), alone(&class.tier))
        };
        let classes: Vec<_> = config.classes.values().map(class).collect();
        let used = |tier: &&str| classes.iter().any(|(_, of, _)| of == *tier);
        Self {
            began: now,
            names: wiring::names(config),
            tiers: config.tiers.keys().map(|t| t.as_str()).filter(used).map(str::to_owned).collect(),
            wait_only: config.retry.wait_only.iter().map(|rung| rung_name(rung.delay())).collect(),
            rungs: config.retry.rungs().iter().map(|rung| rung.delay()).collect(),
            classes,
            pages: VecDeque::new(),
            causes: BTreeMap::new(),
        }
    }

    /// Takes the newest page, and says what it and the earlier ones show.
    pub(crate) fn observe(&mut self, page: Page, now: Instant) -> Snapshot {
        self.note_causes(&page, now);
        self.pages.push_back((now, page));
        // One page from before the longest look back stays.
        while self.pages.get(1).is_some_and(|(at, _)| now.duration_since(*at) >= P95_OVER) {
            self.pages.pop_front();
        }
        let causes = self.causes(now);
        let delays: Vec<TierDelays> = self.tiers.iter().map(|tier| self.delays(tier)).collect();
        let mut snapshot = Snapshot {
            elapsed: now.duration_since(self.began),
            classes: self.classes.iter().map(|class| self.class(class, &delays, now)).collect(),
            unreadable: self.newest().sum(events::EVENTS, &[("fate", "dead")]),
            delays,
            wait_only: self.wait_only.clone(),
            ..Snapshot::default()
        };
        snapshot.add_causes(causes);
        snapshot
    }

    fn newest(&self) -> &Page {
        static EMPTY: Page = Page::empty();
        self.pages.back().map_or(&EMPTY, |(_, page)| page)
    }

    /// The page that is this old, or the oldest one.
    fn page_before(&self, now: Instant, age: Duration) -> Option<&(Instant, Page)> {
        let old = |(at, _): &&(Instant, Page)| now.duration_since(*at) >= age;
        self.pages.iter().rev().find(old).or_else(|| self.pages.front())
    }

    fn delays(&self, tier: &str) -> TierDelays {
        let waiting = |rung: &Duration| {
            let topic = self.names.delay(tier, *rung);
            (rung_name(*rung), self.newest().sum(events::PARTITION_LAG, &[("topic", topic.as_str())]))
        };
        TierDelays { tier: tier.to_owned(), rungs: self.rungs.iter().map(waiting).collect() }
    }

    fn class(
        &self,
        (name, tier, alone): &(String, String, bool),
        delays: &[TierDelays],
        now: Instant,
    ) -> ClassFigures {
        let page = self.newest();
        let class = [("class", name.as_str())];
        let jobs = |page: &Page, outcome| page.sum(events::JOBS, &[class[0], ("outcome", outcome)]);
        let (done, dead) = (jobs(page, "done"), jobs(page, "dead"));
        let duplicates = page.sum(events::DUPLICATES, &class);
        let open = page.sum(events::EVENT_JOBS, &class).saturating_sub(done + dead + duplicates);
        let in_delays = delays.iter().filter(|delay| delay.tier == *tier).flat_map(|delay| &delay.rungs);
        let in_delays = in_delays.map(|(_, count)| count).sum::<u64>().min(open);
        let (delayed, waiting) =
            if *alone { (Delayed::Exactly(in_delays), open - in_delays) } else { (Delayed::Shared, open) };
        let done_per_second = self.page_before(now, RATE_OVER).map_or(0.0, |(at, before)| {
            let seconds = now.duration_since(*at).as_secs_f64();
            if seconds > 0.0 { done.saturating_sub(jobs(before, "done")) as f64 / seconds } else { 0.0 }
        });
        let p95 = |histogram| {
            let before = self.page_before(now, P95_OVER)?;
            let empty = Page::default();
            // In the first seconds, all of it counts.
            let since = if now.duration_since(before.0) >= P95_OVER { &before.1 } else { &empty };
            page.p95_since(since, histogram, &class)
        };
        ClassFigures {
            name: name.clone(),
            tier: tier.clone(),
            done_per_second,
            done,
            waiting,
            delayed,
            dead,
            duplicates,
            retries: jobs(page, "scheduled"),
            wait_p95: p95(events::JOB_WAIT),
            run_p95: p95(events::JOB_PROCESSING),
        }
    }

    /// Attempts that are made again. What is final is dead-lettered, and told by that.
    fn note_causes(&mut self, page: &Page, now: Instant) {
        for (class, _, _) in &self.classes {
            for kind in FailureKind::ALL.into_iter().filter(|kind| kind.may_heal()) {
                let labels = [("class", class.as_str()), ("kind", kind.as_str())];
                let count = page.sum(events::JOB_FAILURES, &labels);
                if count == 0 {
                    continue;
                }
                let cause = (class.clone(), format!("tried again: {kind}"));
                let known = self.causes.entry(cause).or_insert((0, now));
                if count > known.0 {
                    *known = (count, now);
                }
            }
        }
    }

    fn causes(&self, now: Instant) -> Vec<Cause> {
        let cause = |((of, what), (count, at)): (&(String, String), &(u64, Instant))| Cause {
            of: of.clone(),
            what: what.clone(),
            count: *count,
            ago: now.duration_since(*at),
        };
        self.causes.iter().map(cause).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = r#"
[kafka]
bootstrap = "b:9092"
[registry]
url = "http://r"
[sources.events]
start = "earliest"
[classes.charge]
source = "events"
key = ["id"]
tier = "critical"
handler = { type = "log" }
[classes.report]
source = "events"
key = ["id"]
tier = "bulk"
handler = { type = "log" }
[classes.export]
source = "events"
key = ["id"]
tier = "bulk"
handler = { type = "log" }
"#;
        Config::parse("a test", text, std::iter::empty()).unwrap()
    }

    fn page(done: u64) -> Page {
        Page::parse(&format!(
            r#"
tidegate_event_jobs_total{{class="charge",tier="critical"}} {}
tidegate_event_jobs_total{{class="export",tier="bulk"}} 5
tidegate_jobs_total{{class="charge",tier="critical",outcome="done"}} {done}
tidegate_jobs_total{{class="charge",tier="critical",outcome="dead"}} 3
tidegate_jobs_total{{class="charge",tier="critical",outcome="scheduled"}} 9
tidegate_duplicates_total{{class="charge",tier="critical",verdict="already_done"}} 2
tidegate_job_failures_total{{class="charge",tier="critical",kind="transient"}} 9
tidegate_job_failures_total{{class="charge",tier="critical",kind="timeout"}} 0
tidegate_job_failures_total{{class="charge",tier="critical",kind="permanent"}} 3
tidegate_partition_lag{{topic="tidegate.critical.retry-1s",partition="0"}} 3
tidegate_partition_lag{{topic="tidegate.critical.retry-1s",partition="1"}} 1
tidegate_partition_lag{{topic="tidegate.bulk.retry-4s",partition="1"}} 2
tidegate_events_total{{topic="events",fate="dead"}} 4
"#,
            done + 20
        ))
    }

    #[test]
    fn what_is_neither_at_an_end_nor_delayed_waits() {
        let (config, now) = (config(), Instant::now());
        let snapshot = Observer::new(&config, now).observe(page(100), now);
        let class = |name: &str| snapshot.classes.iter().find(|class| class.name == name).unwrap();
        let charge = class("charge");
        assert_eq!((charge.done, charge.dead, charge.duplicates, charge.retries), (100, 3, 2, 9));
        // 120 jobs, less 105 at an end, less 4 delayed.
        assert_eq!((charge.waiting, charge.delayed), (11, Delayed::Exactly(4)));
        assert_eq!((class("export").waiting, class("export").delayed), (5, Delayed::Shared));
        assert_eq!((snapshot.unreadable, snapshot.wait_only.join(" ")), (4, "1m 10m".to_owned()));
        let bulk = snapshot.delays.iter().find(|delay| delay.tier == "bulk").unwrap();
        assert!(bulk.rungs.contains(&("4s".to_owned(), 2)), "{bulk:?}");
    }

    #[test]
    fn a_rate_is_of_the_last_seconds() {
        let (config, begin) = (config(), Instant::now());
        let mut observer = Observer::new(&config, begin);
        observer.observe(page(0), begin);
        observer.observe(page(1000), begin + Duration::from_secs(10));
        let snapshot = observer.observe(page(1040), begin + Duration::from_secs(14));
        let charge = snapshot.classes.iter().find(|class| class.name == "charge").unwrap();
        assert!((charge.done_per_second - 10.0).abs() < 0.01, "{charge:?}");
    }

    #[test]
    fn the_cause_that_happened_last_stands_first() {
        let (config, begin) = (config(), Instant::now());
        let mut observer = Observer::new(&config, begin);
        observer.observe(page(0), begin);
        let late = Page::parse(r#"tidegate_job_failures_total{class="export",kind="overload"} 1"#);
        let snapshot = observer.observe(page(0).and(late), begin + Duration::from_secs(5));
        let causes: Vec<_> = snapshot
            .causes
            .iter()
            .map(|c| (c.of.as_str(), c.what.as_str(), c.count, c.ago.as_secs()))
            .collect();
        assert_eq!(causes[0], ("export", "tried again: overload", 1, 0));
        assert!(causes[1..].contains(&("charge", "tried again: transient", 9, 5)), "{causes:?}");
        assert!(!causes.iter().any(|cause| cause.1.contains("timeout")));
    }
}
