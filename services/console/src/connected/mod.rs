//! The ports over the operators' library: the real inbox, in Kafka and the local index.

mod backlog;
mod carriers;
mod convert;
mod plans;
mod process;

use std::path::Path;
use std::sync::Arc;

use tidegate_bootstrap::Config;
use tidegate_domain::inbox::ItemId;
use tidegate_operator::{self as operator, OperatorError};
use tokio::runtime::Handle;
use tracing::debug;

use crate::inbox::{
    Answer, Audit, Begin, Content, Event, GroupPage, GroupQuery, HistoryPage, HistoryQuery, InboxError, Item,
    ItemPage, ItemQuery, Letters, Order, Orders, Overview, Plan, Run, Runs, Selection, Steer,
};

pub use backlog::KafkaBacklog;
pub use process::run;

use carriers::Carriers;
use convert::{item_ref, run_id};
use plans::Plans;

/// So many entries of the history are looked through for one page of a filter that few fit.
const MOST_LOOKED: usize = 20_000;

/// The inbox of a pipeline, followed and carried on for as long as this lives.
#[derive(Debug)]
pub struct Connected {
    inbox: operator::Inbox,
    runtime: Handle,
    plans: Plans,
    carriers: Carriers,
    _following: operator::Following,
}

impl Connected {
    /// Opens the index, follows Kafka, and goes on with runs that nobody carries out. The index is in `dir`; none: in the state
    /// folder. `runtime` fetches schemas.
    pub fn start(config: Arc<Config>, dir: Option<&Path>, runtime: Handle) -> Result<Self, OperatorError> {
        let inbox = operator::Inbox::open(config, dir)?;
        let following = inbox.follow()?;
        let carriers = Carriers::new(inbox.clone());
        carriers.go_on_with_all();
        connect_readers(inbox.clone())?;
        Ok(Self { inbox, runtime, plans: Plans::default(), carriers, _following: following })
    }
}

/// Connects what reads records, so that the first who looks at an item does not wait for it.
fn connect_readers(inbox: operator::Inbox) -> Result<(), OperatorError> {
    let connect = move || {
        if let Err(error) = inbox.connect_readers() {
            debug!(%error, "records can't be read yet: the first look at one connects");
        }
    };
    let started = std::thread::Builder::new().name("inbox-readers".to_owned()).spawn(connect);
    let failed =
        |error| OperatorError::Failed(format!("the thread that connects readers can't start: {error}"));
    started.map(drop).map_err(failed)
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.carriers.stop();
    }
}

impl Letters for Connected {
    fn overview(&self, _: i64) -> Answer<Overview> {
        let (overview, status) = (self.inbox.overview()?, self.inbox.status()?);
        Ok(convert::overview(overview, &status))
    }

    fn groups(&self, query: &GroupQuery) -> Answer<GroupPage> {
        Ok(convert::groups(self.inbox.groups(&convert::group_query(query))?))
    }

    fn items(&self, query: &ItemQuery) -> Answer<ItemPage> {
        Ok(convert::items(self.inbox.list(&convert::item_query(query)?)?))
    }

    fn item(&self, item: &str) -> Answer<Option<(Item, Content)>> {
        let name = item_ref(item)?;
        let Some(found) = self.inbox.item(name)? else { return Ok(None) };
        // What the index knows is worth a page, also while the record can't be read.
        let content = match self.inbox.original_of(name) {
            Ok(Some(original)) => {
                let event = self.runtime.block_on(self.inbox.event(&original.record));
                convert::content(&original.record, event)
            }
            Ok(None) => absent("No record of it is left in the dead-letter topic.".to_owned()),
            Err(error) => absent(format!("Its record can't be read now: {error}.")),
        };
        Ok(Some((convert::item(found), content)))
    }
}

fn absent(reason: String) -> Content {
    Content { event: Event::Absent { reason }, ..Content::default() }
}

impl Runs for Connected {
    fn runs(&self, limit: usize) -> Answer<Vec<Run>> {
        let known = |run| convert::run(run, &self.carriers);
        Ok(self.inbox.runs(limit)?.into_iter().map(known).collect())
    }

    fn run(&self, run: &str) -> Answer<Option<Run>> {
        let found = self.inbox.run(run_id(run)?)?;
        Ok(found.map(|run| convert::run(run, &self.carriers)))
    }

    fn steer(&self, by: &str, run: &str, steer: &Steer) -> Answer<()> {
        let id = run_id(run)?;
        let Some(found) = self.inbox.run(id)? else {
            return Err(InboxError::Missing(
                "No run has this id. The list of runs has all of them.".to_owned(),
            ));
        };
        if found.status == operator::RunStatus::Finished {
            return Err(InboxError::Refused(
                "The run is finished: there is nothing left to steer.".to_owned(),
            ));
        }
        if found.what != "replay" {
            return Err(InboxError::Refused(
                "Only a run of replays can be steered: the orders of others count as they are.".to_owned(),
            ));
        }
        match steer {
            Steer::Pause => self.inbox.pause(id, by)?,
            Steer::Resume => {
                self.inbox.resume(id, by)?;
                self.carriers.begin(id);
            }
            Steer::Stop { why } => self.inbox.stop(id, by, why)?,
        }
        Ok(())
    }

    fn history(&self, query: &HistoryQuery) -> Answer<HistoryPage> {
        let before = query.after.as_deref().map(str::parse::<i64>).transpose();
        let mut before =
            before.map_err(|_| InboxError::Request("`after` is no place in the history.".to_owned()))?;
        let mut page = HistoryPage::default();
        let mut looked = 0;
        loop {
            let entries = self.inbox.history(before, query.limit)?;
            let is_last = entries.len() < query.limit;
            for entry in entries {
                looked += 1;
                before = Some(entry.at);
                let fits = |wanted: &Option<String>, found: &str| {
                    wanted.as_deref().is_none_or(|wanted| wanted == found)
                };
                if fits(&query.by, &entry.by) && fits(&query.what, &entry.what) {
                    page.entries.push(convert::history(entry));
                }
                if page.entries.len() == query.limit {
                    page.next = before.map(|at| at.to_string());
                    return Ok(page);
                }
            }
            if is_last {
                return Ok(page);
            }
            if looked >= MOST_LOOKED {
                page.next = before.map(|at| at.to_string());
                return Ok(page);
            }
        }
    }
}

impl Orders for Connected {
    fn prepare(&self, by: &str, order: &Order, selection: &Selection) -> Answer<Plan> {
        self.plans.prepare(&self.inbox, &self.runtime, by, order, selection)
    }

    fn prepared(&self, plan: &str) -> Answer<Option<Plan>> {
        Ok(self.plans.find(plan).map(|prepared| prepared.plan()))
    }

    fn carry_out(&self, by: &str, plan: &str, begin: &Begin) -> Answer<String> {
        let missing =
            || InboxError::Missing("This dry run is not kept any more. Select the items again.".to_owned());
        let prepared = self.plans.find(plan).ok_or_else(missing)?;
        prepared.carry_out(&self.inbox, by, begin, |run| self.carriers.begin(run))
    }

    fn note(&self, by: &str, audit: &Audit) -> Answer<()> {
        let id: Option<ItemId> = audit.item.as_deref().and_then(|id| id.parse().ok());
        // An item of a record that another tool wrote may have no id of its form. The history names it all the same.
        let named = audit.item.as_ref().filter(|_| id.is_none()).map(|item| format!("item {item}"));
        let detail = named.as_deref().or(audit.detail.as_deref());
        Ok(self.inbox.audit(by, audit.what, id, detail)?)
    }
}

impl From<OperatorError> for InboxError {
    fn from(error: OperatorError) -> Self {
        let text = error.to_string();
        match error {
            OperatorError::Request(_) => Self::Request(text),
            _ => Self::Unavailable(text),
        }
    }
}
