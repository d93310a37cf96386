//! `tidegate init`: a first configuration from a few answers.

use std::io::{IsTerminal, Write, stderr, stdin};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tidegate_bootstrap::config::{DEFAULT_FILE, HttpUrl, TopicName, process_environment};
use tidegate_bootstrap::init::{
    Defaults, Dialogue, Field, FieldCheck, FieldKind, FromEnvironment, Given, InitError, Replace,
    SchemaTrouble, Schemas, check_place, interview, write_new,
};
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_codec::{CompiledSchema, OutlinedField, RegistryError, SchemaRegistry, Weight, value_subject};
use tidegate_service::wiring;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Answer, INTERRUPTED, block_on, print, print_note};

#[derive(Debug, Args)]
#[command(after_help = "\
On a terminal it asks for what no flag gives; elsewhere, and with --yes, it takes defaults, and needs --topic, --key, --start and --url.

Example:
  tidegate init --topic shop.payments --key payment_id --start latest --url http://127.0.0.1:8000/charge")]
pub(crate) struct Init {
    /// Some Kafka brokers, as host:port, separated by commas [default: what TIDEGATE_KAFKA__BOOTSTRAP says, else 127.0.0.1:9092]
    #[arg(long, value_name = "BROKERS")]
    bootstrap: Option<String>,
    /// The address of the schema registry [default: what TIDEGATE_REGISTRY__URL says, else http://127.0.0.1:8081/apis/ccompat/v7]
    #[arg(long, value_name = "URL")]
    registry: Option<String>,
    /// The topic with the events
    #[arg(long)]
    topic: Option<String>,
    /// A name for the jobs [default: the last part of the topic's name]
    #[arg(long)]
    class: Option<String>,
    /// The fields that make two events the same job, separated by commas
    #[arg(long, value_name = "FIELDS")]
    key: Option<String>,
    /// The tier: critical, default or bulk
    #[arg(long)]
    tier: Option<String>,
    /// The endpoint that does the work
    #[arg(long)]
    url: Option<String>,
    /// Where the first start begins: latest, earliest or a time
    #[arg(long)]
    start: Option<String>,
    /// The file to write [default: what --config names, else tidegate.toml]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it is there
    #[arg(long)]
    force: bool,
    /// Ask nothing: take the default of all that no flag gives
    #[arg(long)]
    yes: bool,
    /// Do not ask the registry for the names of fields
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(config: Option<&Path>, args: Init) -> Answer {
    let file = args.out.as_deref().or(config).unwrap_or(Path::new(DEFAULT_FILE)).to_owned();
    let replace = args.force.then_some(Replace);
    check_place(&file, replace)?;
    let check = if args.offline { FieldCheck::Offline } else { FieldCheck::Required };
    let asks = !args.yes && stdin().is_terminal() && stderr().is_terminal();
    let given = Given {
        bootstrap: args.bootstrap,
        registry: args.registry,
        topic: args.topic,
        class: args.class,
        key: args.key,
        tier: args.tier,
        url: args.url,
        start: args.start,
        environment: FromEnvironment::of(process_environment()),
    };
    let answers = if asks {
        let asking = Arc::new(AtomicBool::new(true));
        end_on_interrupt(asking.clone())?;
        let answers = interview(&given, &mut Dialogue::new(stdin().lock(), stderr()), &Registry, check)?;
        asking.store(false, Ordering::Release);
        answers
    } else {
        let missing = given.missing();
        if !missing.is_empty() {
            return Err(InitError::Missing { flags: missing }.into());
        }
        interview(&given, &mut Defaults::new(stderr()), &Registry, check)?
    };
    write_new(&file, &answers.text(&file)?, replace)?;
    if args.offline {
        print_note("the names of fields were not checked: --offline");
    }
    print(&next_steps(&file, answers.tier.as_str()));
    Ok(ExitCode::Ok)
}

/// Whoever is asked may leave: the line that stands half on the terminal is ended, and nothing is written. The code is that of any command
/// that Ctrl-C ends. Afterwards nothing takes so long that it could not be waited for.
fn end_on_interrupt(asking: Arc<AtomicBool>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let mut interrupts = {
        let _within = runtime.enter();
        signal(SignalKind::interrupt())?
    };
    let wait = move || {
        while runtime.block_on(interrupts.recv()).is_some() {
            if asking.load(Ordering::Acquire) {
                // The terminal may be gone with its reader.
                drop(writeln!(stderr()));
                print_note("ended; nothing was written");
                tidegate_kafka::end_process(INTERRUPTED);
            }
        }
    };
    std::thread::Builder::new().name("interrupt".to_owned()).spawn(wait).map(drop)
}

fn next_steps(file: &Path, tier: &str) -> String {
    let option = match file == Path::new(DEFAULT_FILE) {
        true => String::new(),
        false => format!(" --config {}", file.display()),
    };
    format!(
        "wrote {file}. Next, each service in a terminal of its own:\n  \
         tidegate config check{option}\n  \
         tidegate topics apply{option}\n  \
         tidegate ingest{option}\n  \
         TIDEGATE_OBSERVE__LISTEN=127.0.0.1:9601 tidegate worker --tier {tier}{option}\n  \
         TIDEGATE_OBSERVE__LISTEN=127.0.0.1:9602 tidegate retry{option}",
        file = file.display(),
    )
}

/// The registry that the answers name, with the credentials of the environment.
struct Registry;

impl Schemas for Registry {
    fn fields(&self, registry: &HttpUrl, topic: &TopicName) -> Result<Vec<Field>, SchemaTrouble> {
        let client =
            client(registry).map_err(|error| SchemaTrouble::WrongRegistry { reason: error.to_string() })?;
        let subject = value_subject(topic.as_str());
        let unreachable = |reason: String| SchemaTrouble::Unreachable { reason };
        let asked = block_on(latest(&client, &subject)).map_err(|error| unreachable(error.to_string()))?;
        asked.map(|schema| schema.outline().into_iter().map(field).collect())
    }
}

async fn latest(client: &SchemaRegistry, subject: &str) -> Result<Arc<CompiledSchema>, SchemaTrouble> {
    client.check(&[subject.to_owned()]).await.map_err(|fault| match fault.weight() {
        Weight::Passes => SchemaTrouble::Unreachable { reason: fault.wrong() },
        Weight::MayPass | Weight::Certain => {
            SchemaTrouble::WrongRegistry { reason: fault.told_of("--registry") }
        }
    })?;
    match client.latest(subject).await {
        Ok(schema) => Ok(schema),
        Err(RegistryError::UnknownSubject { subject }) => {
            // Which subjects there are only helps a person to see a slip: without them the answer is the same.
            let known = client.subjects().await.unwrap_or_default();
            Err(SchemaTrouble::UnknownSubject { subject, known })
        }
        Err(error @ (RegistryError::Invalid { .. } | RegistryError::Refused { .. })) => {
            Err(SchemaTrouble::Unusable { reason: error.to_string() })
        }
        Err(error) => Err(SchemaTrouble::Unreachable { reason: error.to_string() }),
    }
}

/// Only what says who asks is taken from the environment: the rest of it may belong to settings that are not written yet.
fn client(registry: &HttpUrl) -> anyhow::Result<SchemaRegistry> {
    const TAKEN: [&str; 4] = ["USERNAME", "PASSWORD", "BEARER_TOKEN", "TIMEOUT"];
    let environment = process_environment().filter(|(name, _)| {
        name.strip_prefix("TIDEGATE_REGISTRY__").is_some_and(|setting| TAKEN.contains(&setting))
    });
    let text = format!("kafka.bootstrap = \"unused:1\"\nregistry.url = \"{registry}\"\n");
    Ok(wiring::registry(&Config::parse("the environment", &text, environment)?)?)
}

fn field(field: OutlinedField) -> Field {
    let kind = match (field.is_value, field.may_be_null) {
        (false, _) => FieldKind::Container,
        (true, true) => FieldKind::MaybeNull,
        (true, false) => FieldKind::Value,
    };
    Field { path: field.path, type_name: field.type_name, kind }
}
