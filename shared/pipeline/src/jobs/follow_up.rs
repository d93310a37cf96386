//! What follows a failed job: its copy in a delay topic or in the DLQ, published until it is acknowledged, and then the mark.

use std::cmp::Reverse;
use std::time::Duration;

use tidegate_domain::inbox::Answer;
use tidegate_domain::job::JOB_HEADER;
use tidegate_domain::ladder::Wait;
use tidegate_domain::mark::{KILLED, Mark, Phase};
use tidegate_domain::{
    Attempt, Failure, FailureKind, Hop, IdempotencyKey, JobHash, JobHeader, Lane, PayloadHash, Round,
    UnixMillis,
};

use super::in_hand::State;
use super::job::{ClassId, Job, NoJob};
use super::outcome::Told;
use super::parked::Taken;
use super::stage::{JobStage, share};
use crate::dead_letter::{DeadLetter, Dying, FIRST_ERROR, FIRST_ERROR_BUDGET, cut, source_headers};
use crate::events;
use crate::keyed::Key;
use crate::ports::{MarkEntry, PublishError, RETRY_PAUSE};
use crate::record::{OutboundRecord, Record};
use crate::stage::{Desk, Slot};

/// A copy that must be acknowledged before its record is settled.
#[derive(Clone, Debug)]
pub(super) struct FollowUp {
    copy: Copy,
    failed_before: bool,
}

#[derive(Clone, Debug)]
enum Copy {
    /// To a delay topic; the failure that led there, if one did.
    Delay(Wait, Option<Failure>),
    /// To the DLQ.
    Dead(DeadLetter),
}

impl Copy {
    /// What operators are told of a replayed record when this copy is acknowledged.
    fn told(&self) -> Told<'_> {
        match self {
            Self::Delay(wait, failure) => {
                Told { error: failure.as_ref(), ..Told::just(Answer::WaitingUntil(wait.due)) }
            }
            Self::Dead(dead) => Told { error: Some(&dead.failure), ..Told::just(Answer::FailedAgain) },
        }
    }
}

impl JobStage {
    /// Publishes a copy that runs again at `wait`.
    pub(super) fn schedule(&mut self, key: Key, wait: Wait, failure: Option<Failure>, desk: &mut Desk) {
        self.follow_up(key, Copy::Delay(wait, failure), desk);
    }

    /// Publishes a copy to the DLQ.
    pub(super) fn dead_letter(&mut self, key: Key, failure: Failure, desk: &mut Desk) {
        self.follow_up(key, Copy::Dead(DeadLetter::new(failure)), desk);
    }

    /// A record of the job topic that is no job: to the DLQ with its bytes.
    pub(super) fn refuse(&mut self, slot: Slot, record: Record, error: &NoJob, desk: &mut Desk) {
        let Some(partition) = self.partitions.get(&slot) else { return };
        let failure = match error {
            NoJob::UnknownClass(_) => {
                Failure::new(FailureKind::Unroutable, "unknown-class", error.to_string())
            }
            _ => Failure::malformed("job-header", error.to_string()),
        };
        let at = partition.at.clone();
        // What has no class here may have a round all the same.
        let known = JobHeader::parse(record.header(JOB_HEADER).unwrap_or_default()).ok();
        let (round, hop, attempt) =
            known.map_or((Round(0), Hop(0), Attempt(1)), |h| (h.round, h.hop, h.attempt));
        // A lane of its own: nothing follows a record that has no key.
        let job = Job {
            lane: Lane(0),
            key: IdempotencyKey([0; 16]),
            class: NO_CLASS,
            partition: at,
            round,
            hop,
            attempt,
            due: UnixMillis(0),
            first_seen: UnixMillis(0),
            hash: JobHash(0),
            payload: PayloadHash(0),
            forced: false,
            record,
        };
        let key = self.put_in_hand(slot, Taken::default(), job, State::Queued);
        self.follow_up(key, Copy::Dead(DeadLetter::new(failure)), desk);
    }

    fn follow_up(&mut self, key: Key, copy: Copy, desk: &mut Desk) {
        let in_hand = &mut self.jobs[key];
        in_hand.state = State::FollowingUp(FollowUp { copy, failed_before: false });
        if let Some(partition) = self.partitions.get_mut(&in_hand.slot) {
            partition.publishing += 1;
        }
        self.publish_follow_up(key, desk);
    }

    /// Publishes, also again after a failure.
    pub(super) fn publish_follow_up(&mut self, key: Key, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        let State::FollowingUp(FollowUp { copy, .. }) = &in_hand.state else { return };
        let published = match copy {
            Copy::Delay(wait, failure) => self.publish_delay(key, wait, failure.as_ref()),
            Copy::Dead(dead) => self.publish_dead(key, dead, desk.wall),
        };
        if let Err(error) = published {
            self.delivered(key, Err(error), desk);
        }
    }

    fn publish_delay(&self, key: Key, wait: &Wait, failure: Option<&Failure>) -> Result<(), PublishError> {
        let in_hand = &self.jobs[key];
        let job = &in_hand.job;
        let Ok(header) = job.header() else {
            return Err(PublishError::Fatal("the job header can't be read again".to_owned()));
        };
        let text = JobHeader {
            round: in_hand.round,
            hop: Hop(in_hand.hop.0 + 1),
            attempt: wait.attempt,
            due: wait.due,
            ..header.clone()
        }
        .to_text();
        let first_error = failure.map(|f| cut(&f.to_string(), FIRST_ERROR_BUDGET));
        let mut headers = source_headers(&job.record, false);
        if let Some(first) = &first_error
            && job.record.header(FIRST_ERROR).is_none()
        {
            headers.push((FIRST_ERROR.as_bytes(), Some(first.as_bytes())));
        }
        headers.push((JOB_HEADER.as_bytes(), Some(text.as_bytes())));
        let topic = self.settings.names.delay(header.tier, wait.rung);
        let record = OutboundRecord {
            topic: &topic,
            partition: Some(job.partition.partition),
            key: job.record.key(),
            value: job.record.value(),
            headers: &headers,
        };
        self.ports.publisher.publish(&record, key.ticket(), &self.deliveries)
    }

    fn publish_dead(&self, key: Key, dead: &DeadLetter, now: UnixMillis) -> Result<(), PublishError> {
        let in_hand = &self.jobs[key];
        let job = &in_hand.job;
        let (round, hop, attempt) = (in_hand.round, in_hand.hop, in_hand.attempt);
        let header = job.header().ok().map(|h| JobHeader { round, hop, attempt, ..h });
        let dying =
            Dying { record: &job.record, partition: &job.partition, job: header.as_ref(), returned: None };
        let dlq = self.settings.names.dlq();
        dead.publish((&*self.ports.publisher, &dlq), &dying, now, key.ticket(), &self.deliveries)
    }

    /// A copy was acknowledged, or not.
    pub(super) fn delivered(&mut self, key: Key, result: Result<(), PublishError>, desk: &mut Desk) {
        match result {
            Ok(()) => self.copied(key, desk),
            Err(PublishError::TooLarge(reason)) => self.shrink(key, &reason, desk),
            Err(PublishError::Full) => self.publish_again(key, FULL_PAUSE, desk),
            Err(error) => {
                events::publish_error();
                desk.trouble(self.jobs[key].slot, error.to_string());
                self.publish_again(key, RETRY_PAUSE, desk);
            }
        }
    }

    /// Until the copy is acknowledged, nothing more is handed out: it would only wait here too.
    fn publish_again(&mut self, key: Key, pause: Duration, desk: &mut Desk) {
        let in_hand = &mut self.jobs[key];
        let State::FollowingUp(follow_up) = &mut in_hand.state else { return };
        if !std::mem::replace(&mut follow_up.failed_before, true)
            && let Some(partition) = self.partitions.get_mut(&in_hand.slot)
        {
            partition.publish_failures += 1;
        }
        self.timers.push(Reverse((desk.now + pause, key)));
    }

    /// The topic refuses the copy for its size: the next smaller form that still names the record.
    fn shrink(&mut self, key: Key, reason: &str, desk: &mut Desk) {
        let State::FollowingUp(follow_up) = &mut self.jobs[key].state else { return };
        let smaller = match &mut follow_up.copy {
            Copy::Dead(dead) => dead.shrink(),
            Copy::Delay(_, failure) => {
                let message = format!("the copy is too large for its delay topic: {reason}");
                let too_large = Failure::permanent("too-large", message);
                follow_up.copy = Copy::Dead(DeadLetter::new(too_large).after(failure.take()));
                Ok(())
            }
        };
        match smaller {
            Ok(()) => self.publish_follow_up(key, desk),
            Err(smallest) => self.delivered(key, Err(smallest.into()), desk),
        }
    }

    /// The copy is acknowledged: the mark says so, and the mark's acknowledgement settles the record.
    fn copied(&mut self, key: Key, desk: &mut Desk) {
        let in_hand = &self.jobs[key];
        let (slot, job) = (in_hand.slot, in_hand.job.clone());
        let State::FollowingUp(follow_up) = &in_hand.state else { return };
        let (round, hop, known) = (in_hand.round, in_hand.hop, in_hand.known);
        let n = if in_hand.kills { KILLED } else { in_hand.attempt.0 };
        let step = match &follow_up.copy {
            Copy::Delay(..) => Some(job.step(round, Hop(hop.0 + 1), Phase::Scheduled, 0, desk.wall)),
            // A conflict is no step of the key's own job, and what has no class has no key.
            Copy::Dead(dead) if dead.failure.kind == FailureKind::Conflict || job.class == NO_CLASS => None,
            Copy::Dead(_) => Some(job.step(round, hop, Phase::Dead, n, desk.wall)),
        };
        let failed_before = follow_up.failed_before;
        let owed = self.owed(key, &follow_up.copy.told(), desk.wall);
        self.count_copy(&follow_up.copy.clone(), &job);
        if let Some(partition) = self.partitions.get_mut(&slot) {
            partition.publishing -= 1;
            if failed_before {
                partition.publish_failures -= 1;
                partition.trouble_over(slot, desk);
            }
            if let Some(step) = step {
                partition.mark(MarkEntry { key: job.key, mark: Mark::step(step) }, known);
            }
            partition.settle_with_batch(share(&job), owed);
        }
        if job.class == NO_CLASS { drop(self.jobs.remove(key)) } else { self.leave(key) }
    }

    fn count_copy(&self, copy: &Copy, job: &Job) {
        let class = self.settings.classes.get(job.class.0);
        match copy {
            Copy::Delay(_, failure) => {
                if let (Some(class), Some(_)) = (class, failure) {
                    class.metrics.scheduled.increment(1);
                }
            }
            Copy::Dead(dead) => {
                if let Some(class) = class {
                    class.metrics.dead.increment(1);
                }
                let header = job.header().ok();
                dead.note(&Dying {
                    record: &job.record,
                    partition: &job.partition,
                    job: header.as_ref(),
                    returned: None,
                });
            }
        }
    }
}

/// The class of records that are no job.
const NO_CLASS: ClassId = ClassId(usize::MAX);

/// How long a copy waits when the producer's queue is full.
const FULL_PAUSE: Duration = Duration::from_millis(5);
