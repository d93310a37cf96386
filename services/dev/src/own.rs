//! A user's own configuration on the embedded servers, until somebody ends it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidegate_bootstrap::telemetry::Metrics;
use tidegate_bootstrap::{Config, Health, ObserveServer};
use tidegate_service::{drift, wiring};

use crate::End;
use crate::error::DevError;
use crate::leave::{Leave, Wish};
use crate::servers::{Addresses, Servers, Source, config};
use crate::services::used_tiers;
use crate::session::{Folder, Session};
use crate::snapshot::{Delayed, Observer, Snapshot};
use crate::view::{Show, counted, is_live, say};

pub(crate) async fn run(file: &Path, show: Show) -> Result<End, DevError> {
    // First: whoever ends it in its first moment leaves no folder behind.
    let leave = Leave::on_signals()?;
    let mut folder = Folder::new()?;
    let result = play(file, show, &mut folder, leave).await;
    folder.end(result.is_err());
    result
}

async fn play(file: &Path, show: Show, folder: &mut Folder, leave: Leave) -> Result<End, DevError> {
    let servers = Servers::start().await?;
    let addresses = servers.addresses();
    let config = config(Source::File(file), &addresses, &folder.state())?;
    check(file, &config)?;
    folder.init_logs(&config, is_live(show))?;
    servers.create_topics(&config)?;
    make_known(&config).await?;
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let observe = ObserveServer::bind(any_port, Health::default(), Metrics::install()?).await;
    let observe = observe.map_err(|error| DevError::Local(std::io::Error::other(error.to_string())))?;
    let metrics = format!("http://{}/metrics", observe.address());
    tokio::spawn(observe.serve(std::future::pending()));
    let mut session = Session::begin(&config, leave, show)?;
    let watched = watch(&mut session, &config, &addresses, &metrics, show).await;
    let ((), end, page) = session.end_after(watched).await?;
    // What ran when it was asked to end has ended since.
    let now = Instant::now();
    tell(&Observer::new(&config, now).observe(page, now));
    Ok(end)
}

/// As `tidegate topics apply` does: then `topics check` finds nothing to say.
async fn make_known(config: &Arc<Config>) -> Result<(), DevError> {
    let of = |source| DevError::Service { service: "the embedded broker".to_owned(), source };
    let config = config.clone();
    let told = tokio::task::spawn_blocking(move || drift::publish(&config, &wiring::kafka(&config))).await;
    told.map_err(|error| DevError::Local(std::io::Error::other(error)))?.map_err(of)
}

/// Without them every service would do nothing, or end, one by one.
fn check(file: &Path, config: &Config) -> Result<(), DevError> {
    let nothing = |what| DevError::Nothing { file: file.display().to_string(), what };
    match (config.sources.is_empty(), config.classes.is_empty()) {
        (true, _) => Err(nothing("[sources.\"TOPIC\"]")),
        (_, true) => Err(nothing("[classes.NAME]")),
        _ => Ok(()),
    }
}

/// Shows what happens until somebody wants to leave.
async fn watch(
    session: &mut Session,
    config: &Config,
    addresses: &Addresses,
    metrics: &str,
    show: Show,
) -> Result<(), DevError> {
    if session.until_ready().await? {
        // Not earlier: what was published before ingest has joined might be dropped unread, and nobody would know.
        session.addresses = vec![
            ("bootstrap", addresses.bootstrap.clone()),
            ("registry", addresses.registry.clone()),
            ("metrics", metrics.to_owned()),
        ];
        if !is_live(show) {
            welcome(config, addresses, metrics);
        }
        while session.tick(Wish::Leave).await == Wish::Stay {
            session.look("running until Ctrl-C", None)?;
        }
    }
    session.look("ending", None).map(drop)
}

/// What somebody needs to know who publishes.
fn welcome(config: &Config, Addresses { bootstrap, registry }: &Addresses, metrics: &str) {
    say(&format!("bootstrap  {bootstrap}"));
    say(&format!("registry   {registry}"));
    say(&format!(
        "metrics    {metrics} (a free port; observe.listen, {}, is for services of their own)",
        config.observe.listen
    ));
    let tiers: Vec<String> = used_tiers(config).iter().map(ToString::to_string).collect();
    say(&format!("ready: ingest, retry, and a worker of {}", tiers.join(", ")));
    if let Some(topic) = config.sources.keys().next() {
        say(&format!(
            "to publish: TIDEGATE_KAFKA__BOOTSTRAP={bootstrap} TIDEGATE_REGISTRY__URL={registry} tidegate produce --topic {topic} \
             --schema FILE.avsc FILE.jsonl"
        ));
    }
}

fn tell(snapshot: &Snapshot) {
    say("\n  class               done    dead  duplicates  not finished");
    for class in &snapshot.classes {
        let delayed = match class.delayed {
            Delayed::Exactly(delayed) => delayed,
            Delayed::Shared => 0,
        };
        let (done, dead, duplicates, left) =
            (class.done, class.dead, class.duplicates, class.waiting + delayed);
        say(&format!("  {:<16}  {done:>6}  {dead:>6}  {duplicates:>10}  {left:>12}", class.name));
    }
    if snapshot.unreadable > 0 {
        say(&format!(
            "  {} dead-lettered by ingest, and no jobs.",
            counted(snapshot.unreadable, "event was", "events were")
        ));
    }
    say("All of it was in memory, and is gone now.");
}
