//! The stage of ingest: each event becomes jobs, is ignored by a rule, or is dead-lettered with its bytes.
//!
//! A partition is forwarded in order. A publish that fails stops it: when nothing of it is on its way any more, everything that is
//! not settled is forwarded anew from the lowest offset. Copies that had arrived then arrive twice, which marks absorb; that
//! one overtakes another they could not.

mod copies;
mod routing;
mod sending;
mod source;
mod told;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::inbox::{Inbox, Wake};
use crate::keyed::Keyed;
use crate::names::Names;
use crate::ports::{Delivery, RETRY_PAUSE, RecordPublisher};
use crate::record::{Record, TopicPartition};
use crate::reports::Reports;
use crate::stage::{Desk, Slot, Stage};

use copies::{Forwarded, OnItsWay, copies};
use source::{HeldUp, Source};

pub use routing::{EventRouter, PlannedJob, Routed};

/// The stage of ingest.
pub struct ForwardStage<R> {
    router: R,
    publisher: Arc<dyn RecordPublisher>,
    names: Names,
    sources: BTreeMap<Slot, Source>,
    in_hand: Keyed<Forwarded>,
    on_their_way: Keyed<OnItsWay>,
    reports: Reports,
    deliveries: Arc<Inbox<Delivery>>,
    acknowledged: Vec<Delivery>,
    /// The jobs of the event that is being routed; empty between two.
    planned: Vec<PlannedJob>,
}

impl<R> std::fmt::Debug for ForwardStage<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ForwardStage").field("in_hand", &self.in_hand.len()).finish_non_exhaustive()
    }
}

/// How many fetched records wait for their turn, before no more are fetched.
const WAITING: usize = 2000;

impl<R: EventRouter> ForwardStage<R> {
    /// A stage of the shard that `wake` wakes.
    pub fn new(router: R, publisher: Arc<dyn RecordPublisher>, names: Names, wake: &Wake) -> Self {
        Self {
            router,
            reports: Reports::new(publisher.clone(), names.dlq_journal(), wake),
            publisher,
            names,
            sources: BTreeMap::new(),
            in_hand: Keyed::default(),
            on_their_way: Keyed::default(),
            deliveries: Inbox::new(wake.clone()),
            acknowledged: Vec::new(),
            planned: Vec::new(),
        }
    }

    fn forward(&mut self, slot: Slot, desk: &mut Desk) {
        loop {
            let Some(source) = self.sources.get_mut(&slot) else { return };
            if let Some(at) = source.held_until {
                if at > desk.now {
                    return desk.wake_at(at);
                }
                source.held_until = None;
            }
            if source.rewind {
                return;
            }
            if let Some(key) = source.unfinished.pop_front() {
                if !self.send(key, desk) {
                    return;
                }
                continue;
            }
            if source.draining {
                return;
            }
            let Some(record) = source.waiting.pop_front() else { return };
            if !self.route(slot, record, desk) {
                return;
            }
        }
    }

    /// Decides what the record is; false when its partition must wait.
    fn route(&mut self, slot: Slot, record: Record, desk: &mut Desk) -> bool {
        let Some(source) = self.sources.get_mut(&slot) else { return false };
        self.planned.clear();
        let routed = self.router.route(&source.at, &record, desk.wall, &mut self.planned);
        if routed == Routed::Soon {
            source.waiting.push_front(record);
            desk.wake_after(RETRY_PAUSE);
            return false;
        }
        if let Routed::Later(reason) = routed {
            source.waiting.push_front(record);
            source.held_until = Some(desk.now + RETRY_PAUSE);
            source.held_up = Some(HeldUp::Undecided);
            desk.trouble(slot, reason);
            desk.wake_after(RETRY_PAUSE);
            return false;
        }
        source.goes_on_from(HeldUp::Undecided, slot, desk);
        let returned = source.returned(&record);
        let Some(copies) = copies(routed, &mut self.planned) else {
            let ignored = Some("it is ignored by a rule".to_owned());
            self.settle(slot, &record, returned.as_deref(), (ignored, None), desk);
            return true;
        };
        let key = self.in_hand.insert(Forwarded { slot, record, copies, returned });
        source.forwarded.push_back(key);
        self.send(key, desk)
    }

    /// Forwards anew everything that is not settled, when nothing of the partition is on its way.
    fn rewind(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(source) = self.sources.get_mut(&slot) else { return };
        if !source.rewind || source.on_their_way > 0 {
            return;
        }
        if let Some(at) = source.held_until.filter(|&at| at > desk.now) {
            return desk.wake_at(at);
        }
        source.rewind = false;
        source.unfinished.clear();
        for key in source.forwarded.drain(..).rev() {
            if let Some(forwarded) = self.in_hand.remove(key) {
                source.waiting.push_front(forwarded.record);
            }
        }
    }
}

impl<R: EventRouter> Stage for ForwardStage<R> {
    fn assigned(&mut self, slot: Slot, partition: &TopicPartition, desk: &mut Desk) {
        let is_reingest = partition.topic == self.names.reingest();
        let source = Source::new(partition.clone(), is_reingest, desk.now);
        self.sources.insert(slot, source);
    }

    fn wants(&self, slot: Slot) -> bool {
        self.sources
            .get(&slot)
            .is_some_and(|s| s.waiting.len() < WAITING && !s.rewind && s.held_until.is_none())
    }

    fn accept(&mut self, slot: Slot, records: &mut Vec<Record>, desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.waiting.extend(records.drain(..));
        }
        self.forward(slot, desk);
    }

    fn turn(&mut self, desk: &mut Desk) {
        self.hear_publisher(desk);
        self.hear_journal(desk);
        let slots: Vec<Slot> = self.sources.keys().copied().collect();
        for slot in slots {
            self.rewind(slot, desk);
            self.forward(slot, desk);
            self.tell_silence(slot, desk);
        }
    }

    fn drain(&mut self, slot: Slot, _desk: &mut Desk) {
        if let Some(source) = self.sources.get_mut(&slot) {
            source.draining = true;
            source.waiting.clear();
        }
    }

    fn is_idle(&self, slot: Slot) -> bool {
        let is_idle = |source: &Source| source.on_their_way == 0;
        self.sources.get(&slot).is_none_or(is_idle) && self.reports.is_idle(slot)
    }

    fn release(&mut self, slot: Slot, _desk: &mut Desk) {
        self.reports.release(slot);
        self.sources.remove(&slot);
        self.in_hand.retain(|forwarded| forwarded.slot != slot);
        self.on_their_way.retain(|copy| copy.slot != slot);
    }
}
