//! `tidegate completions` and `tidegate man`: what the shell knows of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Command};
use clap_complete::Shell;
use tidegate_bootstrap::ExitCode;

use crate::{Answer, print};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  source <(tidegate completions bash)\n  tidegate completions zsh > ~/.zfunc/_tidegate\n  tidegate completions fish > ~/.config/fish/completions/tidegate.fish"
)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate man | man -l -\n  tidegate man --out /usr/local/share/man/man1"
)]
pub(crate) struct Man {
    /// Write a page for each subcommand into this folder; without it, the page of tidegate itself is printed
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

pub(crate) fn completions(mut command: Command, args: &Completions) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "tidegate", &mut script);
    print(String::from_utf8_lossy(&script).trim_end());
    Ok(ExitCode::Ok)
}

pub(crate) fn man(command: Command, args: &Man) -> Answer {
    let Some(folder) = &args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        print(String::from_utf8_lossy(&page).trim_end());
        return Ok(ExitCode::Ok);
    };
    let unwritable =
        || format!("the pages can't be written into {}; choose another folder with --out", folder.display());
    std::fs::create_dir_all(folder).with_context(unwritable)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder).with_context(unwritable)?;
    print(&format!("wrote the pages into {0}; `man {0}/tidegate.1` shows the first", folder.display()));
    Ok(ExitCode::Ok)
}
