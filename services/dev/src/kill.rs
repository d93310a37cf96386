//! "Kill it and watch": the worker is a process of its own, is killed in the middle of its jobs, and another one takes over. What is told is
//! what was seen: by the endpoint, by the second worker's metrics, and in the topics themselves, since a killed process takes its
//! counters with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_bootstrap::Config;
use tidegate_bootstrap::telemetry::{Metrics, init_logs_to};
use tidegate_domain::mark::Skip;
use tidegate_pipeline::events;
use tidegate_service::wiring;

use crate::demo::endpoint::{Endpoint, KeySeen, Pace};
use crate::demo::events::CLASSES;
use crate::demo::producer::{self, Producer, Published, Repeats};
use crate::error::DevError;
use crate::figures::Page;
use crate::held::Held;
use crate::leave::{Leave, Until, Wish};
use crate::patience::patiently;
use crate::servers::{Servers, Source, config, with_session};
use crate::services::{Services, Which};
use crate::session::{Folder, refuse_overrun, register_schemas};
use crate::sum::{Row, Sum};
use crate::view::{columns, say, tell, write_error};
use crate::worker_process::{WorkerPlace, WorkerProcess};
use crate::{End, Load, demo};

/// How long the group waits for a dead member: short enough to watch a takeover. A cluster's own brokers would not go below 6 s.
pub(crate) const SESSION: Duration = Duration::from_secs(4);
/// How long a supervisor takes to start a process again.
const RESTART_AFTER: Duration = Duration::from_secs(1);
const READY_WITHIN: Duration = Duration::from_secs(60);
/// For how long nothing may come to an end.
const PATIENCE: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(100);
/// How many jobs are in hand at the kill, where the load is enough for so many at once.
const IN_HAND: usize = 5;
/// A third of the records below which a load is over about as soon as it has begun.
const AT_ONCE: u64 = 10;

pub(crate) async fn run(load: Load) -> Result<End, DevError> {
    let leave = Leave::on_signals()?;
    let folder = Folder::new()?;
    let log = folder.path().join("worker.log");
    let result = tokio::select! {
        told = story(load, &folder, &log) => told.map(|()| End::InOrder),
        () = leave.wait_for(Wish::Leave) => {
            tell("Ended in the middle of the story; the worker process is ended too.")
                .map(|()| leave.end(Until::ItsEnd))
        }
    };
    // That nobody reads on is no fault of the worker's.
    if result.as_ref().is_err_and(|error| !matches!(error, DevError::Unread | DevError::Output(_))) {
        tail(&log);
    }
    folder.end(false);
    result
}

/// The last lines of the worker's log: its folder is about to go.
fn tail(log: &std::path::Path) {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    for line in &lines[lines.len().saturating_sub(20)..] {
        write_error(line);
    }
}

struct Stage {
    place: WorkerPlace,
    config: Arc<Config>,
    services: Services,
    metrics: Metrics,
    endpoint: Endpoint,
    producer: Producer,
    _servers: Servers,
}

async fn story(load: Load, folder: &Folder, log: &std::path::Path) -> Result<(), DevError> {
    let (mut stage, mut worker) = begin(load, folder, log).await?;
    stage.until_in_hand(&mut worker, load).await?;
    let killed = stage.kill(worker).await?;
    tokio::time::sleep(RESTART_AFTER).await;
    let mut worker = WorkerProcess::start(&stage.place, log).await?;
    tell(&format!(
        "Started process {} in its place. The group waits {} s for the dead one before it gives its partitions away \
         (consume.session_timeout; 45 s by default).",
        worker.pid(),
        SESSION.as_secs()
    ))?;
    let page = stage.until_ended(&mut worker).await?;
    let config = stage.config.clone();
    let held = patiently(move || Held::read(&config)).await??;
    let told = stage.conclude(&killed, &page, &held);
    // All of it is told. It must not write to a folder that is about to go.
    let killed = worker.kill().await;
    let stopped = stage.services.stop().await;
    told.and(killed).and(stopped)
}

async fn begin(
    load: Load,
    folder: &Folder,
    log: &std::path::Path,
) -> Result<(Stage, WorkerProcess), DevError> {
    let servers = Servers::start().await?;
    let endpoint = Endpoint::start(Pace::Slow).await?;
    let (addresses, state) = (servers.addresses(), folder.state());
    let text = demo::config(&endpoint.url());
    let config = with_session(config(Source::Text(&text), &addresses, &state)?, SESSION);
    init_logs_to(std::fs::File::create(folder.path().join("tidegate.log"))?, &config.observe)?;
    let metrics = Metrics::install()?;
    events::describe();
    servers.create_topics(&config)?;
    let ids = register_schemas(&config).await?;
    let mut services = Services::start(&config, Which::AllButTheWorker)?;
    let place = WorkerPlace { addresses, endpoint: endpoint.url(), state };
    let mut worker = WorkerProcess::start(&place, log).await?;
    let deadline = Instant::now() + READY_WITHIN;
    while !worker.is_ready().await || !services.not_ready().is_empty() {
        services.check()?;
        worker.check()?;
        if Instant::now() > deadline {
            let reasons = services.not_ready().join("; ");
            return Err(DevError::NotReady {
                within: READY_WITHIN,
                reasons: format!("the worker process; {reasons}"),
            });
        }
        tokio::time::sleep(TICK).await;
    }
    tell(&format!(
        "Ingest and retry run in this process ({}), the worker is process {}. {} a second are published.",
        std::process::id(),
        worker.pid(),
        load.rate
    ))?;
    // Without repeats, whatever a worker skips was delivered twice.
    let records = producer::Load { rate: load.rate, records: load.records, repeats: Repeats::None };
    // Of a few records all may be done between two looks.
    endpoint.hold(worth_a_kill(load).0 == 0);
    let producer = Producer::start(&wiring::kafka(&config), ids, records)?;
    let stage = Stage { place, config, services, metrics, endpoint, producer, _servers: servers };
    Ok((stage, worker))
}

/// How many jobs are to be done, and how many in hand, when the worker is killed: as many as this load has by its second second, and never
/// so many of a few records that none are left.
fn worth_a_kill(load: Load) -> (u64, usize) {
    let third = load.records.map_or(u64::MAX, |records| records / 3);
    let in_hand = (load.rate as usize / 10).min(usize::try_from(third).unwrap_or(usize::MAX));
    // What is published at once ends at once: who waits for the first to be done finds the last one done.
    let done = if third < AT_ONCE { 0 } else { third };
    ((u64::from(load.rate) * 3 / 2).min(done), in_hand.clamp(1, IN_HAND))
}

/// What was so when the worker was killed.
struct Killed {
    /// The keys of the jobs that it had in hand.
    in_hand: Vec<String>,
    /// What the endpoint had seen of each key by then.
    before: HashMap<String, KeySeen>,
}

impl Stage {
    fn garbage(&self) -> u64 {
        self.producer.published().iter().map(|published| published.garbage).sum()
    }

    fn check(&mut self, worker: &mut WorkerProcess) -> Result<(), DevError> {
        let running = self.services.check();
        refuse_overrun(&Page::parse(&self.metrics.render()))?;
        running?;
        worker.check()?;
        self.producer.settled(self.endpoint.ended() + self.garbage());
        Ok(())
    }

    /// Waits until some jobs are done and some are in hand.
    async fn until_in_hand(&mut self, worker: &mut WorkerProcess, load: Load) -> Result<(), DevError> {
        let (enough, in_hand) = worth_a_kill(load);
        let deadline = Instant::now() + PATIENCE;
        loop {
            self.check(worker)?;
            let (ended, open) = (self.endpoint.ended(), self.endpoint.open().len());
            if ended >= enough && open >= in_hand {
                return Ok(());
            }
            if self.producer.has_ended()? && open == 0 && ended + self.garbage() >= self.producer.total() {
                return Err(DevError::Worker(
                    "had done everything before it could be killed; publish more".to_owned(),
                ));
            }
            if Instant::now() > deadline {
                return Err(DevError::Worker(format!("has done {ended} jobs only")));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn kill(&self, worker: WorkerProcess) -> Result<Killed, DevError> {
        let pid = worker.pid();
        let (in_hand, before) = (self.endpoint.open(), self.endpoint.keys());
        worker.kill().await?;
        self.until_hung_up().await?;
        self.endpoint.hold(false);
        let done = before.values().filter(|seen| seen.done > 0).count();
        tell(&format!(
            "Killed process {pid} (SIGKILL) with {} jobs in hand: the endpoint had their calls, and they had no answer yet. {done} jobs \
             were done.",
            in_hand.len()
        ))?;
        Ok(Killed { in_hand, before })
    }

    /// Waits until the endpoint knows that nobody waits for its answers: what it did after that would be done twice.
    async fn until_hung_up(&self) -> Result<(), DevError> {
        let deadline = Instant::now() + PATIENCE;
        while !self.endpoint.open().is_empty() {
            if Instant::now() > deadline {
                return Err(DevError::Worker("is dead, and its calls are still open".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Waits until everything that was published has come to its end; returns the services' metrics.
    async fn until_ended(&mut self, worker: &mut WorkerProcess) -> Result<Page, DevError> {
        let (mut last, mut last_change, mut told, mut quiet) = (0, Instant::now(), Instant::now(), 0);
        loop {
            self.check(worker)?;
            let page = Page::parse(&self.metrics.render()).and(worker.page().await?);
            refuse_overrun(&page)?;
            let ended = self.endpoint.ended() + page.sum(events::EVENTS, &[("fate", "dead")]);
            if ended != last {
                (last, last_change) = (ended, Instant::now());
            }
            let published = self.producer.total();
            let all = self.producer.has_ended()? && ended >= published && self.open_records(&page) == 0;
            // Lag is as of the last commit: once may be a moment too early.
            quiet = if all { quiet + 1 } else { 0 };
            if quiet == 5 {
                return Ok(page);
            }
            if last_change.elapsed() > PATIENCE {
                let left = format!("{ended} of {published} records did");
                return Err(DevError::Unfinished { within: PATIENCE, left });
            }
            if told.elapsed() >= Duration::from_secs(1) {
                told = Instant::now();
                let skipped = page.sum(events::DUPLICATES, &[]);
                tell(&format!(
                    "  {published} published, {ended} at an end, {skipped} delivered again and skipped"
                ))?;
            }
            tokio::time::sleep(TICK).await;
        }
    }

    /// Records of jobs and delay topics that are not settled.
    fn open_records(&self, page: &Page) -> u64 {
        let names = wiring::names(&self.config);
        let tiers = self.config.tiers.keys();
        let of_tier = |tier: &tidegate_bootstrap::config::TierName| -> u64 {
            let rungs = self.config.retry.rungs();
            let delays = rungs.iter().map(|rung| names.delay(tier.as_str(), rung.delay()));
            let topics = delays.chain([names.jobs(tier.as_str())]);
            topics.map(|topic| page.sum(events::PARTITION_LAG, &[("topic", topic.as_str())])).sum()
        };
        tiers.map(of_tier).sum()
    }

    fn conclude(&self, killed: &Killed, page: &Page, held: &Held) -> Result<(), DevError> {
        let seen = self.endpoint.keys();
        let again = killed.in_hand.iter().filter(|key| {
            let calls = |keys: &HashMap<String, KeySeen>| keys.get(*key).map_or(0, |seen| seen.calls);
            calls(&seen) > calls(&killed.before)
        });
        let again = again.count();
        let [done, waited, dead] = skipped(page);
        let done_twice = seen.values().filter(|seen| seen.done > 1).count();
        tell(&format!(
            "Delivered again: {again} of the {} jobs in hand ran again, each with the Idempotency-Key of its first call.",
            killed.in_hand.len()
        ))?;
        tell(&format!(
            "Delivered again and skipped: {done} that were done, {waited} whose later copy waited for its retry, {dead} that were \
             dead-lettered."
        ))?;
        tell(&format!(
            "Done twice: {done_twice}. Their answer had been given, and not yet been marked: the window that the Idempotency-Key closes \
             at the endpoint."
        ))?;
        let sum = self.sum(&seen, page, held);
        say(&format!("\n{}", sum.told(columns())))?;
        match self.problem(&sum, killed, &seen) {
            Some(problem) => Err(DevError::WrongSum(problem)),
            None => tell(
                "Every record is accounted for: in the marks of what is done, in the dead-letter topic, and at the endpoint.",
            ),
        }
    }

    fn problem(&self, sum: &Sum, killed: &Killed, seen: &HashMap<String, KeySeen>) -> Option<String> {
        let without_end = |key: &&String| seen.get(*key).is_none_or(|seen| seen.done + seen.refused == 0);
        let lost = killed.in_hand.iter().filter(without_end).count();
        let lost = (lost > 0).then(|| format!("{lost} of the jobs in hand have no end"));
        sum.problem().or(lost)
    }

    /// From the topics: what is marked as done, and what is dead-lettered.
    fn sum(&self, seen: &HashMap<String, KeySeen>, page: &Page, held: &Held) -> Sum {
        let Held { done, refused, unreadable } = held;
        let published: [Published; 3] = self.producer.published();
        let mut sum = Sum { is_final: true, ..Sum::default() };
        for ((row, class), published) in sum.rows.iter_mut().zip(&CLASSES).zip(published) {
            let of_class = |key: &&String| seen.get(*key).is_some_and(|seen| seen.class == class.name);
            let labels = [("class", class.name), ("outcome", "scheduled")];
            *row = Row {
                published: published.records,
                done: done.iter().filter(of_class).count() as u64,
                refused: refused.iter().filter(of_class).count() as u64,
                unreadable: unreadable.get(class.topic).copied().unwrap_or_default(),
                duplicates: published.repeats,
                retries: page.sum(events::JOBS, &labels),
                seen: self.endpoint.totals(class.name),
            };
        }
        sum
    }
}

/// What was delivered again and skipped: since it was done, since a later copy was on its way, since it was dead-lettered.
fn skipped(page: &Page) -> [u64; 3] {
    let of = |skip: Skip| page.sum(events::DUPLICATES, &[("verdict", skip.as_str())]);
    [
        of(Skip::Resolved) + of(Skip::AlreadyDone),
        of(Skip::Superseded) + of(Skip::Coalesced),
        of(Skip::AlreadyDead),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_is_killed_in_the_middle_of_any_load() {
        let of = |rate, records| worth_a_kill(Load { rate, records: Some(records) });
        assert_eq!(of(200, 1500), (300, 5));
        assert_eq!(of(200, 60), (20, 5));
        assert_eq!(of(200, 3), (0, 1));
        assert_eq!(of(200, 1), (0, 1));
        assert_eq!(of(1, 1500), (1, 1));
        assert_eq!(worth_a_kill(Load { rate: 50, records: None }), (75, 5));
    }

    #[test]
    fn what_was_skipped_is_told_once_by_its_verdict_and_nothing_is_left_out() {
        let verdicts = ["resolved", "already_done", "superseded", "coalesced", "already_dead"];
        let line = |(place, verdict): (usize, &str)| {
            format!("tidegate_duplicates_total{{class=\"charge\",verdict=\"{verdict}\"}} {}\n", 1 << place)
        };
        let page = Page::parse(&verdicts.into_iter().enumerate().map(line).collect::<String>());
        assert_eq!(skipped(&page), [1 + 2, 4 + 8, 16]);
        assert_eq!(skipped(&page).iter().sum::<u64>(), page.sum(events::DUPLICATES, &[]));
    }
}
