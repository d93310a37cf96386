//! The binary `tidegate`: one thin file a subcommand, each calling a crate below.

mod config;
mod dlq;
mod job;
mod produce;
mod services;
mod topics;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tidegate_bootstrap::config::process_environment;
use tidegate_bootstrap::{Config, ConfigError, ExitCode as Code};
use tidegate_kafka::ConnectError;
use tidegate_kafka::topics::TopicError;

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
  tidegate topics apply                          create the pipeline's topics
  tidegate ingest                                turn events into jobs
  tidegate worker --tier critical                run the jobs of a tier
  tidegate retry                                 hand waiting jobs on when they are due
  tidegate dlq groups                            what could not be done, and why
  tidegate dlq replay --group FINGERPRINT        what running it again would do

Exit codes: 0 it worked; 1 it failed at run time; 2 the command line or the configuration is wrong;
3 the answer is no (a topic is missing, nothing was found).
Every setting of tidegate.toml can be overridden: TIDEGATE_KAFKA__BOOTSTRAP, TIDEGATE_CLASSES__CHARGE__TIME_LIMIT, ...";

#[expect(clippy::large_enum_variant, reason = "there is one for each process")]
#[derive(Debug, Subcommand)]
enum Command {
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
    /// Check and show the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
}

/// How a command ends when it does not fail.
type Answer = anyhow::Result<Code>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code.into(),
        Err(error) => {
            print_error(&message(&error));
            code_of(&error).into()
        }
    }
}

fn run(cli: Cli) -> Answer {
    let config = Config::load(cli.config.as_deref(), process_environment())?;
    match cli.command {
        Command::Ingest => services::ingest(config),
        Command::Worker(args) => services::worker(config, &args),
        Command::Retry => services::retry(config),
        Command::Topics(command) => topics::run(&config, &command),
        Command::Produce(args) => produce::run(&config, &args),
        Command::Dlq(command) => dlq::run(config, &command),
        Command::Job(command) => job::run(config, &command),
        Command::Config(command) => config::run(&config, &command),
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
    if let Some(error) = error.downcast_ref::<tidegate_operator::OperatorError>() {
        return error.exit_code();
    }
    let connect = match error.downcast_ref::<TopicError>() {
        Some(TopicError::Connect(error)) => Some(error),
        _ => error.downcast_ref::<ConnectError>(),
    };
    let misconfigured = connect.is_some_and(ConnectError::is_misconfiguration);
    if misconfigured || error.is::<ConfigError>() { Code::Usage } else { Code::Failed }
}

/// Runs a future on a runtime of its own.
fn block_on<T>(future: impl Future<Output = T>) -> anyhow::Result<T> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future))
}

/// Tells why the command is about to end with another code than 0.
#[expect(clippy::print_stderr, reason = "the last words of a process")]
fn print_error(text: &str) {
    eprintln!("error: {text}");
}

/// Tells on standard error what no program should have to tell from the output.
#[expect(clippy::print_stderr, reason = "standard output is for what was asked for")]
fn print_note(text: &str) {
    eprintln!("note: {text}");
}

/// Prints to standard output; a closed pipe (`| head`) ends the output, not the command.
fn print(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    if writeln!(out, "{text}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}
