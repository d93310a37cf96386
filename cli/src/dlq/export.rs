//! `tidegate dlq export`.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use tidegate_bootstrap::{Config, ExitCode, counted};
use tidegate_operator::{Exported, OperatorError, Selection};

use super::Common;
use super::act::Author;
use super::filter::FilterArgs;
use super::opened::{Look, Opened};
use crate::output::Output;
use crate::{Answer, print, print_note};

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tidegate dlq export --class charge > letters.jsonl\n  tidegate dlq export --group 38f905dd99d28bba --format avro --out ./letters"
)]
pub(crate) struct Export {
    #[command(flatten)]
    filter: FilterArgs,
    /// JSON lines with base64, or Avro container files, one for each schema
    #[arg(long, value_enum, default_value = "jsonl")]
    format: Format,
    /// The file, or with --format avro the folder [default: standard output]
    #[arg(long, value_name = "PATH", required_if_eq("format", "avro"))]
    out: Option<PathBuf>,
    #[command(flatten)]
    author: Author,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Jsonl,
    Avro,
}

pub(crate) fn run(config: Config, export: &Export) -> Answer {
    let filter = export.filter.filter()?;
    let opened = Opened::open(config, export.common.index.as_deref(), export.filter.needed())?;
    let snapshot = opened.inbox.snapshot(&Selection::Filter(filter))?;
    if !snapshot.items.is_empty() {
        let items = counted(snapshot.items.len() as u64, "item", "items");
        let what = format!("{items}: {}", snapshot.selection.text());
        opened.note_look(&export.author.name(), Look::Export(what));
    }
    let exported = match (export.format, &export.out) {
        (Format::Avro, Some(dir)) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            opened.inbox.export_containers(&snapshot, dir, runtime.handle())?
        }
        (_, Some(path)) => {
            // What an earlier export saved may be all that is left of it.
            let file = std::fs::File::create_new(path).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => OperatorError::Request(format!(
                    "{} exists, and an export replaces nothing: name another file, or remove it first",
                    path.display()
                )),
                _ => OperatorError::Request(format!("{} can't be written: {error}", path.display())),
            })?;
            opened.inbox.export_lines(&snapshot, &mut std::io::BufWriter::new(file))?
        }
        (_, None) => {
            let mut out = std::io::BufWriter::new(Output);
            let exported = opened.inbox.export_lines(&snapshot, &mut out)?;
            out.flush()?;
            exported
        }
    };
    tell(export, &exported)?;
    Ok(if exported.records == 0 { ExitCode::NotOk } else { ExitCode::Ok })
}

/// On standard error where the records themselves went to standard output.
fn tell(export: &Export, exported: &Exported) -> anyhow::Result<()> {
    let Exported { records, gone, .. } = exported;
    let told = match (export.common.json, *gone) {
        (true, _) => serde_json::to_string(exported)?,
        (false, gone) => {
            let exported = format!("{} exported", counted(*records, "record", "records"));
            match gone {
                0 => exported,
                gone => format!("{exported}; {} none any more", counted(gone, "item has", "items have")),
            }
        }
    };
    if export.out.is_some() {
        print(&told)
    } else {
        print_note(&told)
    }
    Ok(())
}
