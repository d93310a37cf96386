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
    print(&format!("# Duplicates: {}.", config.duplicates_summary()));
    for note in config.notes() {
        print(&format!("# Note: {note}"));
    }
    Ok(ExitCode::Ok)
}
