//! Handing copies over, in order, and hearing what became of them.

use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::{Failure, UnixMillis};

use super::ForwardStage;
use super::copies::{Forwarded, OnItsWay, Outgoing, Stand};
use super::source::HeldUp;
use crate::dead_letter::{DeadLetter, Dying, SmallestForm, source_headers};
use crate::events;
use crate::keyed::Key;
use crate::ports::{PublishError, RETRY_PAUSE, SILENCE};
use crate::record::OutboundRecord;
use crate::stage::{Desk, Slot};

impl<R> ForwardStage<R> {
    /// Hands over what the record becomes, in order; false when the partition must wait.
    pub(super) fn send(&mut self, key: Key, desk: &mut Desk) -> bool {
        while let Some(forwarded) = self.in_hand.get(key) {
            let slot = forwarded.slot;
            let Some(copy) = forwarded.copies.iter().position(|(_, stand)| *stand == Stand::Unsent) else {
                return true;
            };
            let ticket = self.on_their_way.insert(OnItsWay { slot, event: key, copy });
            let result = self.publish(ticket, forwarded, &forwarded.copies[copy].0, desk.wall);
            if result.is_err() {
                self.on_their_way.remove(ticket);
            }
            let Some(source) = self.sources.get_mut(&slot) else { return false };
            match result {
                Ok(()) => {
                    if source.on_their_way == 0 {
                        source.heard = desk.now;
                    }
                    source.on_their_way += 1;
                    self.in_hand[key].copies[copy].1 = Stand::OnItsWay;
                }
                Err(PublishError::Full) => {
                    source.unfinished.push_front(key);
                    desk.wake_after(FULL_PAUSE);
                    return false;
                }
                Err(PublishError::TooLarge(reason)) => {
                    if let Err(smallest) = self.shrink(key, copy, &reason) {
                        self.failed(slot, &smallest.into(), desk);
                        return false;
                    }
                }
                Err(error) => {
                    self.failed(slot, &error, desk);
                    return false;
                }
            }
        }
        true
    }

    fn publish(
        &self,
        ticket: Key,
        forwarded: &Forwarded,
        outgoing: &Outgoing,
        now: UnixMillis,
    ) -> Result<(), PublishError> {
        let record = &forwarded.record;
        match outgoing {
            Outgoing::Job(job) => {
                let mut headers = source_headers(record, true);
                headers.push((JOB_HEADER.as_bytes(), Some(job.header.as_bytes())));
                let outbound = OutboundRecord {
                    topic: &job.topic,
                    partition: Some(job.partition),
                    key: record.key(),
                    value: record.value(),
                    headers: &headers,
                };
                self.publisher.publish(&outbound, ticket.ticket(), &self.deliveries)
            }
            Outgoing::Dead(dead) => {
                let Some(source) = self.sources.get(&forwarded.slot) else { return Ok(()) };
                let returned = forwarded.returned.as_deref();
                let dying = Dying { record, partition: &source.at, job: None, returned };
                let dlq = self.names.dlq();
                dead.publish((&*self.publisher, &dlq), &dying, now, ticket.ticket(), &self.deliveries)
            }
        }
    }

    /// The copy in the next smaller form.
    fn shrink(&mut self, key: Key, copy: usize, reason: &str) -> Result<(), SmallestForm> {
        let (outgoing, stand) = &mut self.in_hand[key].copies[copy];
        *stand = Stand::Unsent;
        match outgoing {
            Outgoing::Job(_) => {
                let message = format!("the event is too large for its job topic: {reason}");
                *outgoing = Outgoing::Dead(DeadLetter::new(Failure::permanent("too-large", message)));
                Ok(())
            }
            Outgoing::Dead(dead) => dead.shrink(),
        }
    }

    fn failed(&mut self, slot: Slot, error: &PublishError, desk: &mut Desk) {
        events::publish_error();
        let Some(source) = self.sources.get_mut(&slot) else { return };
        source.rewind = true;
        source.held_up = Some(HeldUp::Unpublished);
        source.held_until = Some(desk.now + RETRY_PAUSE);
        desk.trouble(slot, error.to_string());
        desk.wake_after(RETRY_PAUSE);
    }

    pub(super) fn hear_publisher(&mut self, desk: &mut Desk) {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        for (ticket, result) in acknowledged.drain(..) {
            let Some(OnItsWay { slot, event, copy }) = self.on_their_way.remove(Key::of(ticket)) else {
                events::fenced();
                continue;
            };
            let Some(source) = self.sources.get_mut(&slot) else { continue };
            source.on_their_way -= 1;
            source.heard = desk.now;
            match result {
                Ok(_) => self.acknowledge(event, copy, desk),
                Err(PublishError::TooLarge(reason)) => self.send_smaller(slot, event, copy, &reason, desk),
                Err(error) => self.failed(slot, &error, desk),
            }
        }
        self.acknowledged = acknowledged;
    }

    fn send_smaller(&mut self, slot: Slot, event: Key, copy: usize, reason: &str, desk: &mut Desk) {
        match self.shrink(event, copy, reason) {
            Err(smallest) => self.failed(slot, &smallest.into(), desk),
            Ok(()) => {
                if let Some(source) = self.sources.get_mut(&slot) {
                    source.unfinished.push_back(event);
                }
            }
        }
    }

    fn acknowledge(&mut self, event: Key, copy: usize, desk: &mut Desk) {
        let forwarded = &mut self.in_hand[event];
        forwarded.copies[copy].1 = Stand::Acknowledged;
        if forwarded.copies.iter().any(|(_, stand)| *stand != Stand::Acknowledged) {
            return;
        }
        let Some(forwarded) = self.in_hand.remove(event) else { return };
        let (slot, record, returned) = (forwarded.slot, &forwarded.record, forwarded.returned.as_deref());
        let dead = forwarded.copies.iter().find_map(|(outgoing, _)| match outgoing {
            Outgoing::Dead(dead) => Some(&dead.failure),
            Outgoing::Job(_) => None,
        });
        self.settle(slot, record, returned, (None, dead), desk);
        let Some(source) = self.sources.get_mut(&slot) else { return };
        for (outgoing, _) in &forwarded.copies {
            if let Outgoing::Dead(dead) = outgoing {
                dead.note(&Dying { record, partition: &source.at, job: None, returned });
            }
        }
        while source.forwarded.front().is_some_and(|&first| self.in_hand.get(first).is_none()) {
            source.forwarded.pop_front();
        }
        if !source.rewind {
            source.goes_on_from(HeldUp::Unpublished, slot, desk);
        }
    }

    /// A publisher in order lets nothing expire, so it is here that silence is told.
    pub(super) fn tell_silence(&mut self, slot: Slot, desk: &mut Desk) {
        let Some(source) = self.sources.get_mut(&slot) else { return };
        if source.on_their_way == 0 || source.held_up.is_some() {
            return;
        }
        let at = source.heard + SILENCE;
        if at > desk.now {
            return desk.wake_at(at);
        }
        source.held_up = Some(HeldUp::Unpublished);
        desk.trouble(
            slot,
            format!("nothing is acknowledged since {SILENCE:?}: a topic can't be written now"),
        );
    }
}

/// How long a partition waits when the producer's queue is full.
const FULL_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
