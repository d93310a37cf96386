//! Prepared orders: frozen selections, kept in memory until they are carried out, or for an hour.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use parking_lot::Mutex;
use tidegate_domain::inbox::{RampLimits, RunId};
use tidegate_operator::{DryRun, Edited, Inbox, Ordering, Pace, Selection as Selected, Snapshot};
use tokio::runtime::Handle;

use super::convert::{self, item_ref};
use crate::inbox::{Answer, Begin, InboxError, Order, Plan, Selection};
use crate::now;

/// How long one is kept, in milliseconds.
const KEPT: i64 = 60 * 60 * 1000;
/// How many items all of them together hold at most; the oldest go first.
const MOST_ITEMS: usize = 2_000_000;

/// All prepared orders by their id.
#[derive(Debug, Default)]
pub(super) struct Plans(Mutex<BTreeMap<String, Arc<Prepared>>>);

/// One of them.
#[derive(Debug)]
pub(super) struct Prepared {
    plan: Plan,
    snapshot: Snapshot,
    ordering: Ordering,
    edited: Option<Edited>,
    /// Held while it is carried out, so that a second click waits and gets the same run.
    run: Mutex<Option<String>>,
}

impl Plans {
    pub(super) fn find(&self, plan: &str) -> Option<Arc<Prepared>> {
        self.0.lock().get(plan).cloned()
    }

    pub(super) fn prepare(
        &self,
        inbox: &Inbox,
        runtime: &Handle,
        by: &str,
        order: &Order,
        selection: &Selection,
    ) -> Answer<Plan> {
        let selected = select(selection)?;
        let edited = edited(inbox, runtime, order, &selected)?;
        let ordering = ordering(order, Pace::default());
        let snapshot = inbox.snapshot(&selected)?;
        let dry = inbox.dry_run(&snapshot, ordering, runtime, &mut |_| ControlFlow::Continue(()))?;
        let (snapshot, _) = snapshot.only(|state| ordering.fits(state));
        let plan = plan(by, order, &selected, dry)?;
        let prepared = Prepared { plan: plan.clone(), snapshot, ordering, edited, run: Mutex::default() };
        self.keep(prepared);
        Ok(plan)
    }

    fn keep(&self, prepared: Prepared) {
        let mut plans = self.0.lock();
        plans.insert(prepared.plan.plan.clone(), Arc::new(prepared));
        let young = now() - KEPT;
        plans.retain(|_, prepared| prepared.plan.at > young);
        while plans.len() > 1
            && plans.values().map(|prepared| prepared.snapshot.items.len()).sum::<usize>() > MOST_ITEMS
        {
            let oldest = plans
                .values()
                .min_by_key(|prepared| prepared.plan.at)
                .map(|prepared| prepared.plan.plan.clone());
            oldest.and_then(|oldest| plans.remove(&oldest));
        }
    }
}

impl Prepared {
    pub(super) fn plan(&self) -> Plan {
        Plan { run: self.run.lock().clone(), ..self.plan.clone() }
    }

    /// Gives the order, and has `carry` see to its run where it needs that. The second time it only tells the run.
    pub(super) fn carry_out(
        &self,
        inbox: &Inbox,
        by: &str,
        begin: &Begin,
        carry: impl FnOnce(RunId),
    ) -> Answer<String> {
        let mut run = self.run.lock();
        if let Some(run) = &*run {
            return Ok(run.clone());
        }
        if self.snapshot.items.is_empty() {
            return Err(InboxError::Refused("No item of the selection allows this order.".to_owned()));
        }
        let reason = self.plan.reason.as_deref();
        let outcome = match (&self.edited, self.ordering) {
            (Some(edited), ordering) => {
                let reason = reason.unwrap_or("edited in the console");
                inbox.order_edited(edited, &self.snapshot, at_pace(ordering, begin), by, reason)?
            }
            (None, ordering) => inbox.order(&self.snapshot, at_pace(ordering, begin), by, reason)?,
        };
        if outcome.accepted > 0 && matches!(self.ordering, Ordering::Replay { .. }) {
            carry(outcome.run);
        }
        let text = outcome.run.to_string();
        *run = Some(text.clone());
        Ok(text)
    }
}

fn select(selection: &Selection) -> Answer<Selected> {
    if selection.items.is_empty() {
        return Ok(Selected::Filter(convert::filter(&selection.filter)));
    }
    let items = selection.items.iter().map(|item| item_ref(item)).collect::<Answer<Vec<_>>>()?;
    Ok(Selected::Items(items))
}

fn edited(inbox: &Inbox, runtime: &Handle, order: &Order, selected: &Selected) -> Answer<Option<Edited>> {
    let Order::Replay { edited: Some(text), .. } = order else { return Ok(None) };
    let Selected::Items(items) = selected else {
        return Err(InboxError::Request("One item can be edited, not a filter.".to_owned()));
    };
    let [item] = items.as_slice() else {
        return Err(InboxError::Request("One item can be edited at a time.".to_owned()));
    };
    let json = serde_json::from_str(text).map_err(|error| {
        InboxError::Request(format!("The edited event is no JSON: {error}. Go back, and correct it."))
    })?;
    Ok(Some(runtime.block_on(inbox.edit(*item, &json))?))
}

fn ordering(order: &Order, pace: Pace) -> Ordering {
    match order {
        Order::Replay { forced, .. } => Ordering::Replay { forced: *forced, pace },
        Order::Discard { .. } => Ordering::Discard,
        Order::Reopen { .. } => Ordering::Reopen,
    }
}

/// The order as it was confirmed.
fn at_pace(ordering: Ordering, begin: &Begin) -> Ordering {
    match ordering {
        Ordering::Replay { forced, .. } => Ordering::Replay { forced, pace: pace(begin) },
        other => other,
    }
}

fn pace(begin: &Begin) -> Pace {
    let ramp = begin.ramp.map_or(RampLimits::ALL_AT_ONCE, |ramp| RampLimits {
        first: ramp.first,
        factor: ramp.factor,
        failures: ramp.failures,
        timeout: ramp.timeout,
        ..RampLimits::CANARY
    });
    Pace { rate: begin.rate, ramp }
}

fn plan(by: &str, order: &Order, selected: &Selected, dry: DryRun) -> Answer<Plan> {
    let id: u64 = rand::random();
    let (forced, edited, reason) = match order {
        Order::Replay { forced, edited, reason } => (*forced, edited.is_some(), reason.clone()),
        Order::Discard { reason } | Order::Reopen { reason } => (false, false, Some(reason.clone())),
    };
    let plan = Plan {
        plan: format!("{id:016x}"),
        order: order.as_str().to_owned(),
        by: by.to_owned(),
        at: now(),
        selection: selected.text(),
        forced,
        edited,
        reason,
        ..convert::dry_run(dry)
    };
    Ok(plan)
}
