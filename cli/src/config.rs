//! `tidegate config`.

use clap::Subcommand;
use tidegate_bootstrap::{Config, ExitCode};

use crate::{Answer, print};

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Check the configuration, and print it with every default filled in and secrets masked
    Check,
}

pub(crate) fn run(config: &Config, command: &ConfigCommand) -> Answer {
    let ConfigCommand::Check = command;
    print(config.effective().trim_end());
    print(&format!("\n# The ladder: {}", config.ladder_summary()));
    print(&format!(
        "# Duplicates are refused for {} after a job was done; a replay of an older record runs it again.",
        humantime::format_duration(config.state.retention)
    ));
    for note in config.notes() {
        print(&format!("# Note: {note}"));
    }
    Ok(ExitCode::Ok)
}
