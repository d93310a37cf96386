//! The binary `tidegate`: one thin file a subcommand, each calling a crate below.

mod completions;
mod config;
mod console;
mod demo;
mod dev;
mod dlq;
mod health;
mod init;
mod job;
mod number;
mod output;
mod produce;
mod services;
mod topics;

use std::io::Write;
use std::path::PathBuf;

use clap::{CommandFactory, Parser, Subcommand};
use tidegate_bootstrap::config::process_environment;
use tidegate_bootstrap::init::InitError;
use tidegate_bootstrap::telemetry::init_notes;
use tidegate_bootstrap::{Config, ConfigError, ExitCode as Code};
use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;

use output::{print, print_error, print_note};

/// librdkafka and RocksDB allocate for each record too, and much of it is freed by another thread than allocated it: it replaces
/// the C library's `malloc` for them as well.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Turns Kafka topics of Avro events into jobs that are safe to retry.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, propagate_version = true, arg_required_else_help = true, after_help = EXAMPLES)]
struct Cli {
    /// The configuration file [default: tidegate.toml]
    #[arg(long, global = true, value_name = "FILE", env = "TIDEGATE_CONFIG")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  tidegate dev                                   see it work, with nothing installed
  tidegate init                                  write a first tidegate.toml
  tidegate topics apply                          create the pipeline's topics
  tidegate ingest                                turn events into jobs
  tidegate worker --tier critical                run the jobs of a tier
  tidegate retry                                 hand waiting jobs on when they are due
  tidegate dlq groups                            what could not be done, and why
  tidegate dlq replay --group FINGERPRINT        what running it again would do
  tidegate console                               the same as a web page, at http://127.0.0.1:9680

Exit codes: 0 it worked; 1 it failed at run time; 2 the command line, the configuration or the topics are wrong;
3 the answer is no (a topic is missing, nothing was found); 130 it was interrupted, and did not end what it had begun.
Every setting of tidegate.toml can be overridden: TIDEGATE_KAFKA__BOOTSTRAP, TIDEGATE_CLASSES__CHARGE__TIME_LIMIT, ...";

#[expect(clippy::large_enum_variant, reason = "there is one for each process")]
#[derive(Debug, Subcommand)]
enum Command {
    /// Try it: the whole pipeline in one process, with an embedded broker and registry
    Dev(dev::Dev),
    #[command(hide = true)]
    DevWorker(dev::DevWorker),
    /// Write a first configuration, from flags or by asking
    Init(init::Init),
    /// Read source topics, and turn each event into jobs
    Ingest,
    /// Run the jobs of one or more tiers
    Worker(services::WorkerArgs),
    /// Hold failed jobs until they are due, then hand them on
    Retry,
    /// Create and check the pipeline's topics
    #[command(subcommand)]
    Topics(topics::Topics),
    /// Publish JSON lines as Avro events
    Produce(produce::Produce),
    /// The inbox: see what could not be done and why, replay it, discard it
    #[command(subcommand)]
    Dlq(dlq::Dlq),
    /// Find one job
    #[command(subcommand)]
    Job(job::Job),
    /// The inbox as a web page, with an API
    Console(console::Console),
    /// Check and show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Ask a running service whether it is well
    Health(health::Health),
    /// Play the parts of a demo that are not tidegate's: publishers and an endpoint
    #[command(subcommand)]
    Demo(demo::Demo),
    /// Print a script that completes command lines
    Completions(completions::Completions),
    /// Print or write manual pages
    Man(completions::Man),
}

impl Command {
    /// Whether it has no log, and Kafka may keep it waiting.
    fn asks_kafka_once(&self) -> bool {
        matches!(self, Self::Topics(_) | Self::Produce(_) | Self::Dlq(_) | Self::Job(_) | Self::Demo(_))
    }
}

/// The exit code of a command that Ctrl-C has ended before it was done: that of a process which the signal ends.
const INTERRUPTED: u8 = 130;

/// How a command ends when it does not fail.
type Answer = anyhow::Result<Code>;

fn main() -> ! {
    let code = run(Cli::try_parse().unwrap_or_else(|told| answer(&told))).unwrap_or_else(|error| {
        print_error(&message(&error));
        code_of(&error)
    });
    tidegate_kafka::end_process(code as u8)
}

/// Prints what was asked for about the command line, or what is wrong with it. clap itself would not notice a full disk.
fn answer(told: &clap::Error) -> ! {
    if told.use_stderr() {
        told.exit();
    }
    if let Err(error) = told.print().and_then(|()| std::io::stdout().flush()) {
        output::end_without(&error);
    }
    tidegate_kafka::end_process(Code::Ok as u8)
}

fn run(cli: Cli) -> Answer {
    let file = cli.config;
    let load = || Config::load(file.as_deref(), process_environment());
    if cli.command.asks_kafka_once() {
        init_notes(tidegate_kafka::WAITING)?;
    }
    match cli.command {
        // They make a configuration of their own, or read the file in their own way.
        Command::Dev(args) => dev::run(&args),
        Command::DevWorker(args) => dev::work(args),
        Command::Init(args) => init::run(file.as_deref(), args),
        Command::Ingest => services::ingest(load()?),
        Command::Worker(args) => services::worker(load()?, &args),
        Command::Retry => services::retry(load()?),
        Command::Topics(command) => topics::run(&load()?, &command),
        Command::Produce(args) => produce::run(&load()?, &args),
        Command::Dlq(command) => dlq::run(load()?, &command),
        Command::Job(command) => job::run(load()?, &command),
        Command::Console(args) => console::run(load()?, &args),
        Command::Config(command) => config::run(&load()?, &command),
        Command::Health(args) => health::run(load, &args),
        Command::Demo(command) => demo::run(load, &command),
        Command::Completions(args) => completions::completions(Cli::command(), &args),
        Command::Man(args) => completions::man(Cli::command(), &args),
    }
}

/// The whole chain in one line, each cause once.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn code_of(error: &anyhow::Error) -> Code {
    if let Some(error) = error.downcast_ref::<tidegate_service::ServiceError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<InitError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<tidegate_demo::DemoError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<tidegate_operator::OperatorError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<tidegate_console::ConsoleError>() {
        return error.exit_code();
    }
    if let Some(error) = error.downcast_ref::<tidegate_dev::DevError>() {
        return error.exit_code();
    }
    let misconfigured = error.downcast_ref().is_some_and(TopicError::is_misconfiguration)
        || error.downcast_ref().is_some_and(ConnectError::is_misconfiguration);
    if misconfigured || error.is::<ConfigError>() { Code::Usage } else { Code::Failed }
}

/// Runs a future on a runtime of its own.
fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future))
}
