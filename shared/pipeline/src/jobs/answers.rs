//! What the stage hears: answers of the store of marks, of handlers and of the publisher, and its own timers.

use std::cmp::Reverse;

use super::in_hand::{Finished, InHand, State};
use super::marking::settle_all;
use super::partition::{Append, Closing, Marks, Partition, Refused};
use super::stage::JobStage;
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkStoreError, RETRY_PAUSE, Readiness};
use crate::reports::Reports;
use crate::stage::{Desk, Slot};

impl JobStage {
    pub(super) fn hear_store(&mut self, desk: &mut Desk) -> bool {
        let mut answers = std::mem::take(&mut self.answers);
        self.marks_ready.take(&mut answers);
        let heard = !answers.is_empty();
        for (ticket, answer) in answers.drain(..) {
            let asker = self.partitions.iter_mut().find(|(_, p)| {
                p.marks == Marks::Opening(ticket)
                    || p.closing == Closing::OnItsWay(ticket)
                    || p.append.as_ref().is_some_and(|a| a.ticket == ticket)
            });
            let Some((&slot, partition)) = asker else {
                if !self.told_owner(ticket, answer.is_ok(), desk) {
                    events::fenced();
                }
                continue;
            };
            match answer {
                _ if partition.closing == Closing::OnItsWay(ticket) => partition.closing = Closing::Known,
                // It was let go of before it was open.
                Err(_) if partition.closing != Closing::NotYet => {}
                Ok(Readiness { suspects }) if partition.marks == Marks::Opening(ticket) => {
                    partition.marks = Marks::Open;
                    self.settings.first.needs_nothing(&partition.at);
                    partition.suspect(suspects, &self.settings.cut_off, desk.now);
                    partition.trouble_over(slot, desk);
                }
                Ok(_) => {
                    let starts = Self::appended(slot, partition, &mut self.reports, desk);
                    self.may_start(&starts, desk);
                }
                Err(error) => {
                    events::mark_error();
                    if matches!(error, MarkStoreError::NotOpen(_)) {
                        partition.open_again(desk);
                    }
                    // What is let go of before it was ready is no trouble.
                    if partition.closing == Closing::NotYet {
                        desk.trouble(slot, error.to_string());
                    }
                    let again_at = desk.now + RETRY_PAUSE;
                    match &mut partition.append {
                        Some(append) if append.ticket == ticket => {
                            (append.again_at, append.refused) = (Some(again_at), Refused::Before);
                        }
                        _ => partition.marks = Marks::OpenAgainAt(again_at),
                    }
                }
            }
        }
        self.answers = answers;
        heard
    }

    /// A batch is durable: what it settles is settled. Gives the jobs that waited for it.
    fn appended(slot: Slot, partition: &mut Partition, reports: &mut Reports, desk: &mut Desk) -> Vec<Key> {
        let Some(Append { mut batch, .. }) = partition.append.take() else { return Vec::new() };
        for entry in &batch.entries {
            partition.overlay.acknowledged(entry);
        }
        partition.trouble_over(slot, desk);
        let starts = std::mem::take(&mut batch.starts);
        settle_all(slot, batch, reports, desk);
        starts
    }

    pub(super) fn hear_handlers(&mut self, desk: &mut Desk) -> bool {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.finished.take(&mut outcomes);
        let heard = !outcomes.is_empty();
        for Finished { key, outcome, took } in outcomes.drain(..) {
            let Some(InHand { state: State::Running(_), slot, .. }) = self.jobs.get_mut(key) else {
                events::fenced();
                continue;
            };
            let slot = *slot;
            self.running -= 1;
            match self.partitions.get_mut(&slot) {
                Some(partition) => {
                    partition.running -= 1;
                    self.conclude(key, outcome, took, desk);
                }
                None => self.ended_deposed(key, &outcome, desk),
            }
        }
        self.outcomes = outcomes;
        heard
    }

    pub(super) fn hear_publisher(&mut self, desk: &mut Desk) -> bool {
        let mut acknowledged = std::mem::take(&mut self.acknowledged);
        self.deliveries.take(&mut acknowledged);
        let heard = !acknowledged.is_empty();
        for (ticket, result) in acknowledged.drain(..) {
            let key = Key::of(ticket);
            match self.jobs.get_mut(key) {
                Some(InHand { state: State::FollowingUp(_), .. }) => {
                    self.delivered(key, result.map(drop), desk)
                }
                _ => events::fenced(),
            }
        }
        self.acknowledged = acknowledged;
        heard
    }

    pub(super) fn ring_timers(&mut self, desk: &mut Desk) -> bool {
        let mut rang = false;
        while let Some(&Reverse((at, key))) = self.timers.peek() {
            if at > desk.now {
                desk.wake_at(at);
                break;
            }
            self.timers.pop();
            rang = true;
            match self.jobs.get_mut(key).map(|in_hand| &in_hand.state) {
                Some(State::WaitingInPlace) => self.ready_again(key),
                Some(State::FollowingUp(_)) => self.publish_follow_up(key, desk),
                _ => {}
            }
        }
        rang
    }
}
