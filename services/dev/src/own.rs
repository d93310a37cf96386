//! A user's own configuration on the embedded servers, until somebody ends it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidegate_bootstrap::telemetry::Metrics;
use tidegate_bootstrap::{Config, Health, ObserveServer, counted};
use tidegate_service::{drift, wiring};

use crate::End;
use crate::error::DevError;
use crate::leave::{Leave, Wish};
use crate::servers::{Addresses, Servers, Source, config};
use crate::services::used_tiers;
use crate::session::{Folder, Session};
use crate::snapshot::{ClassFigures, Delayed, Observer, Snapshot};
use crate::view::{Show, columns, is_live, say};

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
    if let Some(end) = leave.before_it_begins() {
        say("Ended before anything ran.");
        return Ok(end);
    }
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
    told(&Observer::new(&config, now).observe(page, now), columns()).iter().for_each(|line| say(line));
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
        if is_live(show) {
            session.how_to_begin = how_to_publish(config, addresses);
        } else {
            welcome(config, addresses, metrics);
        }
        while session.tick(Wish::Leave).await == Wish::Stay {
            session.look("running until Ctrl-C", None)?;
        }
    }
    session.look("ending", None).map(drop)
}

/// What somebody needs to know who publishes.
fn welcome(config: &Config, addresses: &Addresses, metrics: &str) {
    let Addresses { bootstrap, registry } = addresses;
    say(&format!("bootstrap  {bootstrap}"));
    say(&format!("registry   {registry}"));
    say(&format!(
        "metrics    {metrics} (a free port; observe.listen, {}, is for services of their own)",
        config.observe.listen
    ));
    let tiers: Vec<String> = used_tiers(config).iter().map(ToString::to_string).collect();
    say(&format!("ready: ingest, retry, and a worker of {}", tiers.join(", ")));
    if let [bootstrap, registry, produce] = &how_to_publish(config, addresses)[..] {
        say(&format!("to publish: {bootstrap} {registry} {produce}"));
    }
}

/// Two variables and a command. None: there is no topic to publish to.
fn how_to_publish(config: &Config, Addresses { bootstrap, registry }: &Addresses) -> Vec<String> {
    let commands = |topic| {
        vec![
            format!("TIDEGATE_KAFKA__BOOTSTRAP={bootstrap}"),
            format!("TIDEGATE_REGISTRY__URL={registry}"),
            format!("tidegate produce --topic {topic} --schema FILE.avsc FILE.jsonl"),
        ]
    };
    config.sources.keys().next().map(commands).unwrap_or_default()
}

/// The columns that the table at the end takes.
const WIDE: usize = 60;

/// What came of it, line by line; each class on lines of its own where a terminal has no room for a table.
fn told(snapshot: &Snapshot, columns: Option<usize>) -> Vec<String> {
    let is_narrow = columns.is_some_and(|columns| columns < WIDE);
    let mut lines = vec![String::new()];
    if !is_narrow {
        lines.push("  class               done    dead  duplicates  not finished".to_owned());
    }
    for ClassFigures { name, done, dead, duplicates, waiting, delayed, .. } in &snapshot.classes {
        let left = match delayed {
            Delayed::Exactly(delayed) => waiting + delayed,
            Delayed::Shared => *waiting,
        };
        if is_narrow {
            let duplicates = counted(*duplicates, "duplicate", "duplicates");
            lines.push(format!("  {name}:"));
            lines.push(format!("    {done} done, {dead} dead"));
            lines.push(format!("    {duplicates}, {left} not finished"));
        } else {
            lines.push(format!("  {name:<16}  {done:>6}  {dead:>6}  {duplicates:>10}  {left:>12}"));
        }
    }
    if snapshot.unreadable > 0 {
        let letters = counted(snapshot.unreadable, "event is a dead letter", "events are dead letters");
        lines.push(format!("  {letters} of ingest; no job was made."));
    }
    lines.push("All of it was in memory, and is gone now.".to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_of_it_is_a_table_and_on_forty_columns_a_list() {
        let class = ClassFigures {
            name: "ship".to_owned(),
            done: 12,
            dead: 3,
            duplicates: 1,
            waiting: 2,
            delayed: Delayed::Exactly(5),
            ..ClassFigures::default()
        };
        let snapshot = Snapshot { classes: vec![class], unreadable: 1, ..Snapshot::default() };
        let [wide, narrow] = [None, Some(40)].map(|columns| told(&snapshot, columns));
        assert_eq!(wide[1].len(), WIDE);
        assert_eq!(wide[2].split_whitespace().collect::<Vec<_>>(), ["ship", "12", "3", "1", "7"]);
        assert_eq!(narrow[1..4], ["  ship:", "    12 done, 3 dead", "    1 duplicate, 7 not finished"]);
        assert!(narrow[1..4].iter().all(|line| line.len() <= 40));
        assert_eq!(wide[3..], narrow[4..]);
        assert!(wide[3].contains("1 event is a dead letter of ingest"), "{}", wide[3]);
    }
}
