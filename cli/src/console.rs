//! `tidegate console`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use tidegate_bootstrap::config::UserName;
use tidegate_bootstrap::{Config, ExitCode};
use tidegate_console::NewToken;
use tidegate_service::ServiceError;

use crate::{Answer, block_on, print, print_note};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate console                        for whoever works on this machine: http://127.0.0.1:9680\n  tidegate console token ana --role operator\n  TIDEGATE_CONSOLE__LISTEN=0.0.0.0:9680 tidegate console"
)]
pub(crate) struct Console {
    /// The folder of the local index [default: operator/PIPELINE in state.dir]
    #[arg(long, value_name = "FOLDER")]
    index: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<ConsoleCommand>,
}

#[derive(Debug, Subcommand)]
enum ConsoleCommand {
    /// Make a token for a user: it is printed once, with the lines for the configuration that know it
    Token {
        /// Whose: the name beside everything that is done with it
        name: String,
        /// What they may do
        #[arg(long, value_enum, default_value_t = RoleName::Reader)]
        role: RoleName,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum RoleName {
    /// Look at everything but masked fields
    Reader,
    /// Look and act
    Operator,
}

pub(crate) fn run(config: Config, args: &Console) -> Answer {
    match &args.command {
        Some(ConsoleCommand::Token { name, role }) => token(name, *role),
        None => {
            let serving = tidegate_console::run(config, args.index.as_deref(), local_user());
            block_on(serving)??;
            Ok(ExitCode::Ok)
        }
    }
}

fn token(name: &str, role: RoleName) -> Answer {
    let name = name
        .parse::<UserName>()
        .map_err(|error| ServiceError::Configuration(format!("`{name}` is no user's name: {error}")))?;
    let new = NewToken::random()?;
    let role = match role {
        RoleName::Reader => "reader",
        RoleName::Operator => "operator",
    };
    print(new.token());
    print_note(
        "the token above is shown this once; give it to its user. The configuration gets these lines:",
    );
    print(&format!("\n[console.users.\"{name}\"]\nrole = \"{role}\"\ntoken_hash = \"{}\"", new.hash()));
    Ok(ExitCode::Ok)
}

/// Who acts while nobody has to say it: whoever started the console.
fn local_user() -> String {
    let named = |variable: &str| std::env::var(variable).ok().filter(|name| !name.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "local".to_owned())
}
