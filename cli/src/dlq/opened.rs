//! The inbox, opened and brought up to date for one command.

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_bootstrap::Config;
use tidegate_domain::inbox::ItemId;
use tidegate_operator::{Inbox, ItemRef, Needed, OperatorError, Progress};

use crate::print_note;

/// How often long work tells how far it is.
const TELL: Duration = Duration::from_secs(2);

/// An inbox that is up to date.
pub(crate) struct Opened {
    pub(crate) inbox: Inbox,
}

impl Opened {
    pub(crate) fn open(config: Config, index: Option<&Path>, needed: Needed) -> Result<Self, OperatorError> {
        let inbox = Inbox::open(Arc::new(config), index)?;
        let mut teller = Teller::new();
        inbox.catch_up(needed, &mut |Progress { done, left }| {
            teller.tell(|| format!("reading the dead-letter topic: {done} records, {left} to go"));
            ControlFlow::Continue(())
        })?;
        Ok(Self { inbox })
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
    to_person: bool,
}

impl Teller {
    pub(crate) fn new() -> Self {
        Self { last: Instant::now(), to_person: std::io::stderr().is_terminal() }
    }

    pub(crate) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.to_person && self.last.elapsed() >= TELL {
            self.last = Instant::now();
            print_note(&what());
        }
    }
}
