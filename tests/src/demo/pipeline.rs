//! The processes of the demo, and the endpoint that they call.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::time::Duration;

use super::events::CLASSES;
use crate::endpoint::{Answer, Call, Endpoint};
use crate::ports::free_port;
use crate::process::{Process, Setup};

/// A running pipeline.
#[derive(Debug)]
pub(super) struct Pipeline {
    endpoint: Endpoint,
    services: Vec<Service>,
    /// Where each worker shows its metrics, by tier.
    metrics: BTreeMap<&'static str, String>,
}

#[derive(Debug)]
struct Service {
    process: Process,
    url: String,
}

const READY_WITHIN: Duration = Duration::from_secs(60);
const STOPPED_WITHIN: Duration = Duration::from_secs(40);

impl Pipeline {
    /// Applies topics and starts every service.
    pub(super) fn start(bootstrap: &str, registry: &str) -> Result<Self, String> {
        let endpoint = Endpoint::start(script());
        let config = config(bootstrap, registry, &endpoint.url());
        let mut apply = Setup::new("topics", &["topics", "apply"]).config(&config).start();
        if !apply.wait(READY_WITHIN).is_success() {
            return Err(format!("topics apply failed:\n{}\n{}", apply.stdout(), apply.stderr()));
        }
        let mut pipeline = Self { endpoint, services: Vec::new(), metrics: BTreeMap::new() };
        pipeline.launch("ingest", &["ingest"], &config, None);
        pipeline.launch("retry", &["retry"], &config, None);
        for class in &CLASSES {
            pipeline.launch(class.tier, &["worker", "--tier", class.tier], &config, Some(class.tier));
        }
        for Service { process, url } in &mut pipeline.services {
            process.wait_for_url(&format!("{url}/readyz"), READY_WITHIN);
        }
        Ok(pipeline)
    }

    fn launch(&mut self, name: &str, arguments: &[&str], config: &str, tier: Option<&'static str>) {
        let address = format!("127.0.0.1:{}", free_port());
        let process =
            Setup::new(name, arguments).config(config).env("TIDEGATE_OBSERVE__LISTEN", &address).start();
        let url = format!("http://{address}");
        if let Some(tier) = tier {
            self.metrics.insert(tier, format!("{url}/metrics"));
        }
        self.services.push(Service { process, url });
    }

    /// The metrics page of a tier's worker.
    pub(super) fn metrics_of(&self, tier: &str) -> Result<String, String> {
        crate::http::get(&self.metrics[tier]).map(|(_, page)| page).map_err(|error| error.to_string())
    }

    /// Every call that the endpoint got.
    pub(super) fn endpoint_calls(&self) -> Vec<Call> {
        self.endpoint.calls()
    }

    /// Ends every service by SIGTERM, and expects each to end well.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        for Service { process, .. } in &mut self.services {
            process.sigterm();
        }
        for Service { process, .. } in &mut self.services {
            let exit = process.wait(STOPPED_WITHIN);
            if !exit.is_success() {
                return Err(format!("a service ended with {exit:?}:\n{}", process.stderr()));
            }
        }
        Ok(())
    }
}

/// Every 20th job fails at its first attempts and heals, every 50th is refused for good; the key decides, so that a repeated
/// event meets the same fate.
fn script() -> impl Fn(&Call) -> Answer + Send + Sync + 'static {
    let attempts: Mutex<BTreeMap<String, u32>> = Mutex::default();
    move |call| {
        let key = call.header("idempotency-key").unwrap_or_default().to_owned();
        let number =
            CLASSES.iter().find_map(|class| call.json()[class.key].as_str().and_then(number)).unwrap_or(0);
        let mut attempts = attempts.lock().expect("no call panics");
        let attempt = attempts.entry(key).and_modify(|count| *count += 1).or_insert(1);
        match number {
            n if n % 50 == 7 => Answer::status(422).body("no such account"),
            n if n % 20 == 3 && *attempt == 1 => Answer::status(503).body("try again"),
            n if n % 40 == 11 && *attempt <= 2 => Answer::status(500).body("out of luck"),
            _ => Answer::ok(),
        }
    }
}

/// `usr-17` is number 17.
fn number(id: &str) -> Option<u64> {
    id.rsplit_once('-')?.1.parse().ok()
}

fn config(bootstrap: &str, registry: &str, endpoint: &str) -> String {
    let mut text = format!(
        "[pipeline]\nname = \"demo\"\n\n[kafka]\nbootstrap = \"{bootstrap}\"\nreplication = 1\n\n[registry]\nurl = \"{registry}\"\n\n"
    );
    for class in &CLASSES {
        let written = write!(
            text,
            "[sources.\"{topic}\"]\nstart = \"earliest\"\n\n[classes.{name}]\ntier = \"{tier}\"\nsource = \"{topic}\"\nkey = [\"{key}\"]\n\
             handler = {{ type = \"http\", url = \"{endpoint}/{name}\" }}\n\n",
            topic = class.topic,
            name = class.name,
            tier = class.tier,
            key = class.key,
        );
        assert!(written.is_ok(), "writing to a String can't fail");
    }
    text
}
