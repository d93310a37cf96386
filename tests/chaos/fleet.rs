//! The processes of the pipeline: each start is a life of its own, which its calls of the endpoint name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tidegate_tests::guard::Exit;
use tidegate_tests::http;
use tidegate_tests::ports::free_port;
use tidegate_tests::process::{Process, Setup};
use tidegate_tests::wait::look_until;

use crate::config::TIERS;
use crate::history::{At, Ending, Kind, Life, LifeNumber, Said};
use crate::journal::Journal;
use crate::plan::Role;

/// A stop may take this long: its own deadline, and what a busy machine adds.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// How a worker keeps its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    Shared,
    /// A small file system of its own, which is gone with the process.
    Small,
}

#[derive(Debug)]
struct Member {
    process: Process,
    url: String,
    life: LifeNumber,
}

/// The services that should run.
#[derive(Debug)]
pub(crate) struct Fleet {
    config: String,
    endpoint: String,
    state: PathBuf,
    journal: Arc<Journal>,
    members: BTreeMap<String, Member>,
    lives: Vec<Life>,
    /// Ends of processes that nobody asked for.
    unasked: Vec<String>,
    /// Processes in which something panicked.
    panics: Vec<String>,
}

/// What became of the processes.
#[derive(Debug)]
pub(crate) struct Departed {
    pub(crate) lives: Vec<Life>,
    pub(crate) unasked: Vec<String>,
    pub(crate) panics: Vec<String>,
}

impl Fleet {
    pub(crate) fn new(config: String, endpoint: String, journal: Arc<Journal>) -> Self {
        let state = journal.directory.join("state");
        Self {
            config,
            endpoint,
            state,
            journal,
            members: BTreeMap::new(),
            lives: Vec::new(),
            unasked: Vec::new(),
            panics: Vec::new(),
        }
    }

    /// Starts a service without waiting. `ingest-1` is of the role ingest.
    pub(crate) fn start(&mut self, name: &str, disk: Disk) {
        let life = self.lives.len();
        let mut arguments: Vec<&str> = vec![name.split('-').next().unwrap_or(name)];
        if role_of(name) == Some(Role::Worker) {
            TIERS.iter().for_each(|tier| arguments.extend(["--tier", tier]));
        }
        let address = format!("127.0.0.1:{}", free_port());
        let state = self.state_dir(name);
        std::fs::create_dir_all(&state).expect("the state folder can be made");
        let mut setup = match disk {
            Disk::Shared => Setup::new(name, &arguments),
            Disk::Small => on_small_disk(name, &arguments, &state),
        };
        setup = setup
            .config(&self.config)
            .env("TIDEGATE_OBSERVE__LISTEN", &address)
            .env("TIDEGATE_STATE__DIR", &state.display().to_string());
        for kind in Kind::CLASSES {
            let variable = format!("TIDEGATE_CLASSES__{}__HANDLER__URL", kind.name().to_uppercase());
            setup = setup.env(&variable, &format!("{}/{life}/{}", self.endpoint, kind.name()));
        }
        let process = setup.start();
        let service = name.to_owned();
        self.lives.push(Life { service, ended: None, frozen: Vec::new(), said: Vec::new() });
        let url = format!("http://{address}");
        self.members.insert(name.to_owned(), Member { process, url, life });
    }

    /// Runs a command of the binary to its end.
    pub(crate) fn command(&self, arguments: &[&str]) -> Result<(), String> {
        let mut process = Setup::new("command", arguments).config(&self.config).start();
        match process.wait(Duration::from_secs(120)) {
            Exit(0) => Ok(()),
            Exit(code) => Err(format!("{arguments:?} ended with {code}:\n{}", process.stderr())),
        }
    }

    pub(crate) fn names(&self, role: Role) -> Vec<String> {
        self.members.keys().filter(|name| role_of(name) == Some(role)).cloned().collect()
    }

    pub(crate) fn state_dir(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// Where a process of a small disk sees its state folder, seen from here.
    pub(crate) fn small_disk(&self, name: &str) -> Option<PathBuf> {
        let pid = self.members.get(name)?.process.pid();
        Some(PathBuf::from(format!("/proc/{pid}/root{}", self.state_dir(name).display())))
    }

    pub(crate) fn kill(&mut self, name: &str) {
        let Some(mut member) = self.members.remove(name) else { return };
        member.process.sigkill();
        // Until now it may have run something.
        self.bury(&member, (At::now(), Ending::Killed));
    }

    /// Asks for a clean end, and waits for it.
    pub(crate) fn stop(&mut self, name: &str) {
        self.stop_all(&[name.to_owned()]);
    }

    pub(crate) fn stop_all(&mut self, names: &[String]) {
        let mut leaving = Vec::new();
        for name in names {
            if let Some(mut member) = self.members.remove(name) {
                member.process.sigterm();
                leaving.push((name, member));
            }
        }
        for (name, mut member) in leaving {
            let ended = look_until(STOPPED_WITHIN, || (!member.process.is_running()).then_some(()));
            if ended.is_none() {
                self.unasked.push(format!("{name} still ran {STOPPED_WITHIN:?} after SIGTERM"));
                member.process.sigkill();
            }
            match member.process.wait(Duration::from_secs(5)) {
                Exit(0) => self.bury(&member, (At::now(), Ending::Stopped)),
                Exit(code) => {
                    self.tell_unasked(name, &member, code);
                    self.bury(&member, (At::now(), Ending::Itself(code)));
                }
            }
        }
    }

    pub(crate) fn freeze(&mut self, name: &str, hold: impl FnOnce()) {
        let Some(member) = self.members.get_mut(name) else { return };
        let from = At::now();
        member.process.pause();
        hold();
        member.process.resume();
        self.lives[member.life].frozen.push((from, At::now()));
    }

    /// Starts again what ended by itself; a supervisor would do no less.
    pub(crate) fn supervise(&mut self) {
        let running =
            |(name, member): (&String, &mut Member)| (!member.process.is_running()).then(|| name.clone());
        let ended: Vec<String> = self.members.iter_mut().filter_map(running).collect();
        for name in ended {
            let Some(mut member) = self.members.remove(&name) else { continue };
            let Exit(code) = member.process.wait(Duration::from_secs(5));
            self.tell_unasked(&name, &member, code);
            self.bury(&member, (At::now(), Ending::Itself(code)));
            self.start(&name, Disk::Shared);
        }
    }

    /// Whether the service answers that it is ready, within a time.
    pub(crate) fn wait_ready(&mut self, name: &str, within: Duration) -> bool {
        let Some(member) = self.members.get_mut(name) else { return false };
        let url = format!("{}/readyz", member.url);
        let answer = || match http::get(&url) {
            Ok((200, _)) => Some(true),
            _ => (!member.process.is_running()).then_some(false),
        };
        look_until(within, answer).unwrap_or(false)
    }

    /// Why a service is not ready now; `None`: it is.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        let answer = |(name, member): (&String, &Member)| match http::get(&format!("{}/readyz", member.url)) {
            Ok((200, _)) => None,
            Ok((_, body)) => Some(format!("{name}: {body}")),
            Err(_) => Some(format!("{name} does not answer")),
        };
        self.members.iter().filter_map(answer).collect()
    }

    /// All lives, when all have ended.
    pub(crate) fn finish(self) -> Departed {
        Departed { lives: self.lives, unasked: self.unasked, panics: self.panics }
    }

    fn tell_unasked(&mut self, name: &str, member: &Member, code: i32) {
        let log = member.process.stderr();
        let why = log.lines().rev().find_map(|line| line.strip_prefix("error: ")).unwrap_or("no word of why");
        let text = format!("{name} (life {}) ended by itself with {code}: {why}", member.life);
        self.journal.say(&text);
        self.unasked.push(text);
    }

    /// Keeps its log, and what the log says of lost partitions.
    fn bury(&mut self, member: &Member, ending: (At, Ending)) {
        let log = member.process.stderr();
        if log.contains("panicked at") {
            self.panics.push(format!("{} (life {})", self.lives[member.life].service, member.life));
        }
        let life = &mut self.lives[member.life];
        life.ended = Some(ending);
        life.said = said(&log);
        let file = self.journal.directory.join(format!("{}.life-{}.log", life.service, member.life));
        if let Err(error) = std::fs::write(&file, log) {
            self.journal.say(&format!("{} can't be written: {error}", file.display()));
        }
    }
}

fn role_of(name: &str) -> Option<Role> {
    match name.split('-').next()? {
        "ingest" => Some(Role::Ingest),
        "worker" => Some(Role::Worker),
        "retry" => Some(Role::Retry),
        _ => None,
    }
}

/// How a program gets a view of the file systems of its own; `None`: not on this machine.
pub(crate) fn own_mounts() -> Option<Vec<String>> {
    let works = |flags: &str| {
        std::process::Command::new("unshare")
            .args([flags, "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /tmp"])
            .stderr(std::process::Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    ["-m", "-rm"].into_iter().find(|flags| works(flags)).map(|flags| vec![flags.to_owned()])
}

/// The program behind a small file system that only it sees, and that is gone with it.
fn on_small_disk(name: &str, arguments: &[&str], state: &Path) -> Setup {
    let mounts = own_mounts().unwrap_or_default();
    let script = "mount -t tmpfs -o size=24m tmpfs \"$0\" && exec \"$@\"";
    let binary = tidegate_tests::process::tidegate_binary().display().to_string();
    let state = state.display().to_string();
    let mut all: Vec<&str> = mounts.iter().map(String::as_str).collect();
    all.extend(["sh", "-c", script, &state, &binary]);
    all.extend(arguments);
    Setup::new(name, &all).program("unshare")
}

/// What a log in JSON tells of partitions that were taken, or given back with work under way.
fn said(log: &str) -> Vec<(At, Said)> {
    let line = |line: &str| {
        let what = if line.contains("lost: another process may own them") {
            Said::Lost
        } else if line.contains("the drain deadline passed") {
            Said::Left
        } else {
            return None;
        };
        let json: serde_json::Value = serde_json::from_str(line).ok()?;
        let at = json["timestamp"].as_str()?.parse::<jiff::Timestamp>().ok()?;
        Some((At(at.as_microsecond()), what))
    };
    log.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_tells_what_was_lost_and_when() {
        let log = r#"no json: lost: another process may own them
{"timestamp":"2026-01-31T12:00:00.000250Z","level":"WARN","fields":{"message":"lost: another process may own them already; nothing is committed","partitions":2}}
{"timestamp":"2026-01-31T12:00:01Z","level":"INFO","fields":{"message":"gave partitions back; all that was under way has ended"}}
{"timestamp":"2026-01-31T12:00:02Z","level":"WARN","fields":{"message":"the drain deadline passed; jobs that still ran are cancelled and will run again elsewhere"}}
{"timestamp":"2026-01-31T12:00:03Z","level":"INFO","fields":{"message":"gave partitions back; what is left is delivered again to their next owner","left":1},"took":"900.1ms"}"#;
        let noon = 1_769_860_800_000_000;
        assert_eq!(said(log), [(At(noon + 250), Said::Lost), (At(noon + 2_000_000), Said::Left)]);
    }
}
