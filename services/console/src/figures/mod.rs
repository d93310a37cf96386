//! What is known of the running services: what waits comes from Kafka, what runs and how fast from the services' own metrics.

mod exposition;
mod rates;
mod scrape;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tidegate_bootstrap::Shutdown;
use tidegate_bootstrap::config::MetricsAddress;
use tokio::sync::watch;
use tracing::warn;

use rates::Rates;
use scrape::Scraper;

/// How often services and Kafka are asked.
const EVERY: Duration = Duration::from_secs(5);

/// What is known, as of some seconds ago.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Snapshot {
    /// When, in milliseconds since the epoch; none: nobody was asked yet.
    pub at: Option<i64>,
    /// By class.
    pub classes: BTreeMap<String, ClassFigures>,
    /// By tier.
    pub tiers: BTreeMap<String, TierFigures>,
    /// The addresses that were asked for metrics, and why one did not answer.
    pub scraped: Vec<(String, Option<String>)>,
    /// Why Kafka does not tell what waits.
    pub kafka_trouble: Option<String>,
}

/// What is known of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ClassFigures {
    /// Handlers that run now.
    pub running: u64,
    /// Jobs done a second, over the last minute.
    pub done_per_second: Option<f64>,
    /// Which share of attempts failed in the last minute; none: there was no attempt.
    pub failing: Option<f64>,
    /// Whether a worker parked it, because it fails altogether.
    pub parked: bool,
}

/// What is known of a tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TierFigures {
    /// Records in its job topic that no worker has settled.
    pub waiting: Option<u64>,
    /// Records in its delay topics that are not handed on yet.
    pub delayed: Option<u64>,
}

/// Tells what waits in Kafka. Blocks.
pub trait Backlog: Send + Sync {
    /// What waits, by tier; or why that can't be told.
    fn backlog(&self) -> Result<BTreeMap<String, TierFigures>, String>;
}

/// The latest snapshot. Clones show the same.
#[derive(Clone, Debug)]
pub struct Figures(watch::Receiver<Arc<Snapshot>>);

impl Figures {
    /// Figures that stay as they are.
    pub fn fixed(snapshot: Snapshot) -> Self {
        Self(watch::Sender::new(Arc::new(snapshot)).subscribe())
    }

    /// Figures that are brought up to date until the process stops: by the metrics at these addresses, and by `backlog`.
    pub fn follow(
        addresses: &[MetricsAddress],
        backlog: Option<Arc<dyn Backlog>>,
        shutdown: &Shutdown,
    ) -> Result<Self, reqwest::Error> {
        let (sender, receiver) = watch::channel(Arc::default());
        let scraper = Scraper::new(addresses)?;
        let shutdown = shutdown.clone();
        tokio::spawn(async move {
            let work = keep_up(scraper, backlog, sender);
            tokio::select! {
                () = work => {}
                () = shutdown.requested() => {}
            }
        });
        Ok(Self(receiver))
    }

    /// What is known.
    pub fn latest(&self) -> Arc<Snapshot> {
        self.0.borrow().clone()
    }
}

async fn keep_up(scraper: Scraper, backlog: Option<Arc<dyn Backlog>>, sender: watch::Sender<Arc<Snapshot>>) {
    let mut rates = Rates::default();
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut snapshot = Snapshot { at: Some(crate::now()), ..Snapshot::default() };
        for (address, answer) in scraper.scrape().await {
            let trouble = match answer {
                Ok(series) => {
                    rates.add(&address, &series);
                    None
                }
                Err(error) => {
                    rates.forget(&address);
                    Some(error)
                }
            };
            snapshot.scraped.push((address, trouble));
        }
        snapshot.classes = rates.classes();
        if let Some(backlog) = backlog.clone() {
            match tokio::task::spawn_blocking(move || backlog.backlog()).await {
                Ok(Ok(tiers)) => snapshot.tiers = tiers,
                Ok(Err(trouble)) => snapshot.kafka_trouble = Some(trouble),
                Err(error) => warn!(%error, "what waits in Kafka could not be asked for"),
            }
        }
        sender.send_replace(Arc::new(snapshot));
    }
}
