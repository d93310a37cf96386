//! A user's own configuration on the embedded servers, until somebody ends it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_bootstrap::telemetry::Metrics;
use tidegate_bootstrap::{Config, Health, ObserveServer, counted};
use tidegate_service::{drift, wiring};

use crate::End;
use crate::error::DevError;
use crate::leave::{Leave, Until, Wish};
use crate::others::Others;
use crate::patience::patiently;
use crate::servers::{Addresses, Servers, Source, config, with_session};
use crate::services::used_tiers;
use crate::session::{Folder, Session, Way};
use crate::snapshot::{ClassFigures, Delayed, Observer, Snapshot};
use crate::view::{Show, columns, is_live, say, tell};

/// Short, so that a service which somebody starts or ends beside this one gets its share, or gives it back, within some seconds. It is the
/// shortest one that a cluster's own brokers take.
const SESSION: Duration = Duration::from_secs(6);

pub(crate) async fn run(file: &Path, show: Show) -> Result<End, DevError> {
    // First: whoever ends it in its first moment leaves no folder behind.
    let leave = Leave::on_signals()?;
    let (began, mut folder) = (Instant::now(), Folder::new()?);
    let result = play(file, (show, began), &mut folder, leave).await;
    folder.end(result.as_ref().is_err_and(|error| !matches!(error, DevError::Unread)));
    result
}

async fn play(
    file: &Path,
    (show, began): (Show, Instant),
    folder: &mut Folder,
    leave: Leave,
) -> Result<End, DevError> {
    let servers = Servers::start().await?;
    let addresses = servers.addresses();
    let config = with_session(config(Source::File(file), &addresses, &folder.state())?, SESSION);
    check(file, &config)?;
    folder.init_logs(&config, is_live(show), began)?;
    servers.create_topics(&config)?;
    tokio::select! {
        known = make_known(&config) => known?,
        () = leave.wait_for(Wish::Leave) => {}
    }
    if let Some(end) = leave.before_it_begins(Until::Asked) {
        tell("Ended before anything ran.")?;
        return Ok(end);
    }
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let observe = ObserveServer::bind(any_port, Health::default(), Metrics::install()?).await;
    let observe = observe.map_err(|error| DevError::Local(std::io::Error::other(error.to_string())))?;
    let metrics = format!("http://{}/metrics", observe.address());
    tokio::spawn(observe.serve(std::future::pending()));
    let mut session = Session::begin(&config, leave.clone(), show, began)?;
    let watched = watch(&mut session, &config, &addresses, &metrics, show).await;
    let ((), way, page) = session.end_after(watched).await?;
    // What ran when it was asked to end has ended since.
    let (now, others) = (Instant::now(), Others::of(&page, &config));
    let snapshot = Observer::new(&config, now).observe(page, now);
    table(&snapshot, &others, columns()).iter().try_for_each(|line| say(line))?;
    notes(&snapshot, &others).iter().try_for_each(|sentence| tell(sentence))?;
    // The process is about to end: a member that left without its group's answer would warn that its broker is gone.
    std::mem::forget(servers);
    Ok(match way {
        Way::InOrder => End::InOrder,
        Way::AtOnce => End::Interrupted { code: leave.code_at_once() },
    })
}

/// As `tidegate topics apply` does: then `topics check` finds nothing to say.
async fn make_known(config: &Arc<Config>) -> Result<(), DevError> {
    let of = |source| DevError::Service { service: "the embedded broker".to_owned(), source };
    let config = config.clone();
    patiently(move || drift::publish(&config, &wiring::kafka(&config))).await?.map_err(of)
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
            welcome(config, addresses, metrics)?;
        }
        while session.tick(Wish::Leave).await == Wish::Stay {
            let others = Others::of(&session.page(), config).now();
            let state = others.map_or(RUNNING.to_owned(), |others| format!("{RUNNING}; {others}"));
            session.look(&state, None)?;
        }
    }
    session.look("ending", None).map(drop)
}

const RUNNING: &str = "running until Ctrl-C";

/// What somebody needs to know who publishes.
fn welcome(config: &Config, addresses: &Addresses, metrics: &str) -> Result<(), DevError> {
    let Addresses { bootstrap, registry } = addresses;
    say(&format!("bootstrap  {bootstrap}"))?;
    say(&format!("registry   {registry}"))?;
    tell(&format!(
        "metrics    {metrics} (a free port; observe.listen, {}, is for services of their own)",
        config.observe.listen
    ))?;
    let tiers: Vec<String> = used_tiers(config).iter().map(ToString::to_string).collect();
    tell(&format!("ready: ingest, retry, and a worker of {}", tiers.join(", ")))?;
    if let [bootstrap, registry, produce] = &how_to_publish(config, addresses)[..] {
        say(&format!("to publish: {bootstrap} {registry} {produce}"))?;
    }
    Ok(())
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

/// What came of it, class by class; each on lines of its own where a terminal has no room for a table.
fn table(snapshot: &Snapshot, others: &Others, columns: Option<usize>) -> Vec<String> {
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
        let left = if others.spoil_the_sum() { "?".to_owned() } else { left.to_string() };
        if is_narrow {
            let duplicates = counted(*duplicates, "duplicate", "duplicates");
            lines.push(format!("  {name}:"));
            lines.push(format!("    {done} done, {dead} dead"));
            lines.push(format!("    {duplicates}, {left} not finished"));
        } else {
            lines.push(format!("  {name:<16}  {done:>6}  {dead:>6}  {duplicates:>10}  {left:>12}"));
        }
    }
    lines
}

/// What is to be said of it besides.
fn notes(snapshot: &Snapshot, others: &Others) -> Vec<String> {
    let mut sentences = Vec::new();
    if snapshot.unreadable > 0 {
        let letters = counted(snapshot.unreadable, "event is a dead letter", "events are dead letters");
        sentences.push(format!("  {letters} of ingest; no job was made."));
    }
    sentences.extend(others.told());
    sentences.push("All of it was in memory, and is gone now.".to_owned());
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::Page;

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
        let alone = Others::default();
        let [wide, narrow] = [None, Some(40)].map(|columns| table(&snapshot, &alone, columns));
        assert_eq!(wide[1].len(), WIDE);
        assert_eq!(wide[2].split_whitespace().collect::<Vec<_>>(), ["ship", "12", "3", "1", "7"]);
        assert_eq!(narrow[1..4], ["  ship:", "    12 done, 3 dead", "    1 duplicate, 7 not finished"]);
        assert!(narrow[1..4].iter().all(|line| line.len() <= 40));
        assert_eq!((wide.len(), narrow.len()), (3, 4));
        let notes = notes(&snapshot, &alone);
        assert!(notes[0].contains("1 event is a dead letter of ingest"), "{notes:?}");
    }

    #[test]
    fn what_is_not_finished_is_not_known_where_others_made_or_ended_jobs() {
        let class = ClassFigures { name: "ship".to_owned(), done: 12, waiting: 2, ..ClassFigures::default() };
        let snapshot = Snapshot { classes: vec![class], ..Snapshot::default() };
        let text = "[kafka]\nbootstrap = \"b:1\"\n[registry]\nurl = \"http://r\"\n";
        let config = Config::parse("a test", text, std::iter::empty()).unwrap();
        for (group, left) in [("ingest", "?"), ("default.worker", "?"), ("retry", "2")] {
            let page = format!("tidegate_partitions_taken_total{{group=\"tidegate.{group}\"}} 3\n");
            let others = Others::of(&Page::parse(&page), &config);
            let row = table(&snapshot, &others, None).pop().unwrap();
            assert_eq!(row.split_whitespace().last(), Some(left), "{row}");
            assert!(notes(&snapshot, &others)[0].contains(&format!("group tidegate.{group} took part")));
        }
    }
}
