//! `tidegate-book DOCS INTO`: builds the book in the folder DOCS into the folder INTO. What mdBook only warns of is an error here.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use mdbook_driver::MDBook;
use mdbook_driver::config::Config;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(docs), Some(into)) = (arguments.next(), arguments.next()) else {
        eprintln!("error: name the folder of the pages and the folder to build into");
        return ExitCode::from(2);
    };
    let warnings = Warnings::default();
    let built = tracing::subscriber::with_default(warnings.clone(), || {
        let mut config = Config::from_disk(docs.join("book.toml"))?;
        config.build.build_dir = into;
        MDBook::load_with_config(&docs, config)?.build()
    });
    let mut wrong = std::mem::take(&mut *warnings.0.lock().unwrap_or_else(PoisonError::into_inner));
    wrong.extend(built.err().map(|error| format!("{error:#}")));
    for text in &wrong {
        eprintln!("error: {text}");
    }
    if wrong.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Keeps warnings and errors: mdBook goes on after most of its errors.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<Vec<String>>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let name = field.name();
        let written =
            if name == "message" { write!(self.0, "{value:?}") } else { write!(self.0, " {name}={value:?}") };
        written.expect("a text can be written to");
    }
}
