//! One run, from nothing to its verdict.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_tests::guard::{Guarded, Launch};
use tidegate_tests::kafka_io::Client;
use tidegate_tests::servers::KEEP_VARIABLE;

use crate::account::Account;
use crate::config;
use crate::endpoint::{Endpoint, Observed};
use crate::faults::{Lane, harm_endpoint, harm_servers, harm_services};
use crate::fleet::{Departed, Disk, Fleet};
use crate::gather;
use crate::history::History;
use crate::journal::Journal;
use crate::load::{self, Load};
use crate::plan::{Plan, Role};
use crate::report::Report;
use crate::servers::Servers;
use crate::watcher::Watcher;

const SERVICES: [&str; 6] = ["ingest-1", "ingest-2", "worker-1", "worker-2", "retry-1", "retry-2"];
const READY_WITHIN: Duration = Duration::from_secs(90);
/// How long everything may take to be settled once nothing is harmed any more.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

/// What is harmed.
struct World {
    servers: Servers,
    fleet: Fleet,
    endpoint: Endpoint,
    load: Load,
    watcher: Watcher,
}

/// What processes did that nobody asked for.
struct Told {
    unasked: Vec<String>,
    panics: Vec<String>,
}

/// Runs it and prints the table; an error says why it failed.
pub(crate) fn run(seed: u64, injecting: Duration) -> Result<(), String> {
    let directory = tempfile::Builder::new().prefix("tidegate-chaos-").tempdir().map_err(told)?;
    let kept = std::env::var_os(KEEP_VARIABLE).is_some();
    let mut remover = remover((!kept).then(|| directory.path().to_owned()));
    let journal = Arc::new(Journal::new(directory.path().to_owned()));
    println!("seed {seed}, {:.1} minutes of faults", injecting.as_secs_f64() / 60.0);
    let result = run_in(seed, injecting, &journal);
    remover.kill();
    if kept || result.is_err() {
        println!("\ncalls, events and logs are kept in {}", directory.keep().display());
    }
    result
}

/// Removes the directory when this process is gone without having come to that, as by Ctrl-C.
fn remover(directory: Option<PathBuf>) -> Guarded {
    let nowhere = PathBuf::from("/dev/null");
    Guarded::start(&Launch {
        program: "sleep".into(),
        arguments: vec!["infinity".into()],
        stdout: nowhere.clone(),
        stderr: nowhere,
        remove: directory,
        ..Launch::default()
    })
}

fn run_in(seed: u64, injecting: Duration, journal: &Arc<Journal>) -> Result<(), String> {
    let mut plan = Plan::of(seed);
    let world = start(&mut plan, journal)?;
    let world = harm(plan, world, injecting, journal)?;
    let (history, Told { unasked, panics }) = settle(world, journal)?;
    let (history, account) = (&history, &Account::of(&history));
    let report = Report { seed, injecting, history, account, unasked: &unasked, panics: &panics };
    report.print();
    let failures = report.failures();
    if failures.is_empty() {
        println!("\nEvery event is accounted for.");
        Ok(())
    } else {
        Err(failures.join("\n    "))
    }
}

fn start(plan: &mut Plan, journal: &Arc<Journal>) -> Result<World, String> {
    journal.say("starting three brokers and a registry");
    let servers = Servers::start();
    let bootstrap = servers.kafka.bootstrap().to_owned();
    let endpoint = Endpoint::start(&journal.directory.join("calls.log"), plan.load.fork()).map_err(told)?;
    servers.kafka.client().create_topic(config::SOURCE, config::PARTITIONS);
    let schemas = load::schemas(&servers.registry);
    let config = config::text(&bootstrap, servers.registry.url());
    let mut fleet = Fleet::new(config, endpoint.url(), journal.clone());
    fleet.command(&["topics", "apply"])?;
    let watcher = Watcher::start(&bootstrap);
    SERVICES.iter().for_each(|name| fleet.start(name, Disk::Shared));
    for name in SERVICES {
        fleet.wait_ready(name, READY_WITHIN);
    }
    match fleet.not_ready() {
        waiting if waiting.is_empty() => {}
        waiting => return Err(format!("not ready after {READY_WITHIN:?}: {}", waiting.join("; "))),
    }
    let ledger = journal.directory.join("events.log");
    let load = Load::start(&bootstrap, schemas, plan.load.fork(), &ledger).map_err(told)?;
    Ok(World { servers, fleet, endpoint, load, watcher })
}

/// Three lanes of faults side by side, while events come in.
fn harm(plan: Plan, world: World, injecting: Duration, journal: &Arc<Journal>) -> Result<World, String> {
    let World { servers, fleet, endpoint, load, watcher } = world;
    let lane = Lane { journal: journal.clone(), until: Instant::now() + injecting };
    let lanes = [lane.clone(), lane.clone(), lane];
    let [of_services, of_servers, of_endpoint] = lanes;
    let services = std::thread::spawn(move || harm_services(&of_services, fleet, plan.services));
    let servers = std::thread::spawn(move || harm_servers(&of_servers, servers, plan.servers));
    let endpoint = std::thread::spawn(move || harm_endpoint(&of_endpoint, endpoint, plan.endpoint));
    let ended = |lane: &str| format!("the lane of {lane} panicked: see above");
    let fleet = services.join().map_err(|_| ended("services"));
    let servers = servers.join().map_err(|_| ended("servers"));
    let endpoint = endpoint.join().map_err(|_| ended("the endpoint"));
    Ok(World { servers: servers??, fleet: fleet?, endpoint: endpoint?, load, watcher })
}

/// Lets everything heal and settle, stops it in order, and gathers what happened.
fn settle(world: World, journal: &Arc<Journal>) -> Result<(History, Told), String> {
    let World { servers, mut fleet, endpoint, load, watcher } = world;
    journal.say(&format!("{} faults: no more from now on", journal.count()));
    let client = servers.kafka.client();
    servers.wait_whole()?;
    let sendings = load.finish();
    journal.say(&format!("{} events were sent, {} calls so far", sendings.len(), endpoint.count()));
    wait_settled(&mut fleet, &client, journal)?;
    for role in [Role::Ingest, Role::Retry, Role::Worker] {
        let names = fleet.names(role);
        fleet.stop_all(&names);
    }
    journal.say("all services have stopped; accounting");
    let bootstrap = servers.kafka.bootstrap();
    let lag: BTreeMap<String, i64> = gather::lag(&client);
    let marks = watcher.finish();
    if marks.unreadable > 0 {
        return Err(format!("{} records of the changelogs can't be read", marks.unreadable));
    }
    let jobs: Vec<String> = config::TIERS.iter().map(|tier| config::jobs(tier)).collect();
    let Departed { lives, unasked, panics } = fleet.finish();
    let (published, unsure, gone) = gather::published(bootstrap, &sendings)?;
    let Observed { calls, cuts, stalls } = endpoint.finish();
    let history = History {
        published,
        unsure,
        gone,
        lives,
        calls,
        cuts,
        stalls,
        done: marks.done,
        opened: marks.opened,
        jobs: gather::copies(bootstrap, &jobs)?,
        delayed: gather::copies(bootstrap, &config::delays())?,
        dead: gather::dead_letters(bootstrap)?,
        faults: journal.faults(),
        lag,
    };
    Ok((history, Told { unasked, panics }))
}

/// Waits until every group has committed all that its topics hold, twice in a row: a job could have gone into a delay topic
/// since that was looked at.
fn wait_settled(fleet: &mut Fleet, client: &Client, journal: &Journal) -> Result<(), String> {
    const LOOK_EVERY: Duration = Duration::from_secs(2);
    const TELL_EVERY: Duration = Duration::from_secs(10);
    let (began, mut told_at, mut settled) = (Instant::now(), Instant::now(), 0);
    while settled < 2 {
        std::thread::sleep(LOOK_EVERY);
        fleet.supervise();
        let lag = gather::lag(client);
        settled = if lag.is_empty() { settled + 1 } else { 0 };
        if began.elapsed() > SETTLED_WITHIN {
            let why = fleet.not_ready().join("\n    ");
            return Err(format!("not everything is settled after {SETTLED_WITHIN:?}: {lag:?}\n    {why}"));
        }
        if told_at.elapsed() > TELL_EVERY {
            told_at = Instant::now();
            journal.say(&format!("waiting for {lag:?}"));
        }
    }
    journal.say("everything is settled");
    Ok(())
}

fn told(error: std::io::Error) -> String {
    error.to_string()
}
