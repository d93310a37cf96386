//! The inbox, opened and brought up to date for one command.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_bootstrap::{Config, counted};
use tidegate_domain::inbox::ItemId;
use tidegate_operator::{Inbox, ItemRef, Needed, OperatorError, Progress};

use crate::print_note;

/// How often long work tells how far it is.
const TELL: Duration = Duration::from_secs(2);
/// The same where nobody watches, but somebody may read it later.
const TELL_A_LOG: Duration = Duration::from_secs(30);

/// An inbox that is up to date.
pub(crate) struct Opened {
    pub(crate) inbox: Inbox,
    /// The console masks fields of events.
    masks: bool,
}

impl Opened {
    pub(crate) fn open(config: Config, index: Option<&Path>, needed: Needed) -> Result<Self, OperatorError> {
        let masks = !config.console.masked.is_empty();
        let inbox = Inbox::open(Arc::new(config), index)?;
        let mut teller = Teller::new();
        inbox.catch_up(needed, &mut |Progress { done, left }| {
            teller.tell(|| {
                let records = counted(done, "record", "records");
                format!("reading the dead-letter topic: {records}, {left} to go")
            });
            ControlFlow::Continue(())
        })?;
        Ok(Self { inbox, masks })
    }

    /// Writes down who is about to see what a console masks, as it does itself before it reveals anything. Who may read the topic needs
    /// no right on the journal for that: where it can't be written, they are told so, and go on.
    pub(crate) fn note_look(&self, by: &str, look: Look<'_>) {
        if !self.masks {
            return;
        }
        let (what, id, detail) = match look {
            Look::At(id) => ("reveal", id.parse().ok(), None),
            Look::Export(what) => ("export", None, Some(what)),
        };
        if let Err(error) = self.inbox.audit(by, what, id, detail.as_deref()) {
            print_note(&format!("that you see masked fields is not written down: {error}"));
        }
    }

    /// The item that is meant: 16 hex digits, `PARTITION/OFFSET` of one of its records, or its whole id.
    pub(crate) fn item(&self, named: &str) -> Result<Named, OperatorError> {
        if let Ok(item) = named.parse::<ItemRef>() {
            return Ok(Named { item: Some(item), record: None });
        }
        if let Some(record) = place(named) {
            let item = self.inbox.item_at(record.0, record.1)?;
            return Ok(Named { item, record: Some(record) });
        }
        match named.parse::<ItemId>() {
            Ok(id) => Ok(Named { item: Some(ItemRef::of_id(&id)), record: None }),
            Err(_) => Err(OperatorError::Request(format!(
                "`{named}` is not an item's 16 hex digits, its id, or PARTITION/OFFSET, as `tidegate dlq list` prints them"
            ))),
        }
    }
}

/// What somebody sees of events.
pub(crate) enum Look<'a> {
    /// An item, by its id.
    At(&'a str),
    /// Many, in words.
    Export(String),
}

/// What a person named.
pub(crate) struct Named {
    pub(crate) item: Option<ItemRef>,
    /// The record, where one was named.
    pub(crate) record: Option<(i32, i64)>,
}

fn place(named: &str) -> Option<(i32, i64)> {
    let (partition, offset) = named.split_once('/')?;
    Some((partition.parse().ok()?, offset.parse().ok()?))
}

/// Tells a person at a terminal now and then how far long work is.
pub(crate) struct Teller {
    last: Instant,
    every: Duration,
    said: String,
}

impl Teller {
    pub(crate) fn new() -> Self {
        let every = if std::io::stderr().is_terminal() { TELL } else { TELL_A_LOG };
        Self { last: Instant::now(), every, said: String::new() }
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.last.elapsed() < self.every {
            return;
        }
        self.last = Instant::now();
        let what = what();
        // What holds for an hour is said once.
        if what != self.said {
            print_note(&what);
            self.said = what;
        }
    }
}
