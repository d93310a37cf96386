//! What is committed, what is shown, and whether anything stands still that should not.

use std::time::Duration;

use tracing::warn;

use super::Shard;
use crate::stage::Stage;

/// How long after an assignment the end that the client knows may be an old one.
const END_IS_OLD: Duration = Duration::from_secs(10);

impl<S: Stage> Shard<S> {
    pub(super) fn commit_if_due(&mut self) {
        if !std::mem::take(&mut self.desk.commit) && self.desk.now < self.next_commit {
            return;
        }
        self.next_commit = self.desk.now + self.settings.commit_interval;
        let refused = self.committer.refused();
        if self.desk.now >= self.next_recommit || refused != self.refused_commits {
            self.refused_commits = refused;
            self.next_recommit = self.desk.now + self.settings.recommit_interval;
            self.assignments.values_mut().for_each(|assignment| assignment.committed = None);
        }
        let mut positions = Vec::new();
        for assignment in self.assignments.values_mut() {
            let position = assignment.watermark.commit_position();
            if position.is_some() && position != assignment.committed {
                positions.extend(position.map(|p| (assignment.partition.clone(), p)));
            }
        }
        if !positions.is_empty() {
            match self.committer.commit(&positions) {
                Ok(()) => self.note_committed(),
                Err(error) => warn!(%error, "the next tick commits again"),
            }
        }
        self.publish_gauges();
        self.watch_for_stalls();
    }

    pub(super) fn note_committed(&mut self) {
        for assignment in self.assignments.values_mut() {
            assignment.committed = assignment.watermark.commit_position();
        }
    }

    pub(super) fn publish_gauges(&mut self) {
        let now = self.desk.now;
        for assignment in self.assignments.values_mut() {
            let position = assignment.watermark.commit_position();
            if assignment.head.0 != position {
                assignment.head = (position, now);
            }
            let waits = assignment.watermark.unsettled() > 0 && !self.stage.holds_on_purpose();
            assignment.gauges.set_head_age(if waits { now - assignment.head.1 } else { Duration::ZERO });
            assignment.gauges.set(
                position,
                assignment.source.end_offset(),
                &assignment.watermark,
                assignment.window_bytes,
            );
        }
    }

    /// Records were appended, and nothing was delivered or settled since: a fault that nothing else would show. That the end lies
    /// beyond the last delivered record shows nothing by itself: the rest may be markers, or committed by an earlier owner.
    pub(super) fn watch_for_stalls(&mut self) {
        let now = self.desk.now;
        for (&slot, assignment) in &mut self.assignments {
            let end = assignment.source.end_offset();
            // The first end that a client knows may be one that it remembers from an earlier assignment.
            let is_new = assignment.watermark.last_delivered().is_none()
                && now.duration_since(assignment.assigned_at) < END_IS_OLD;
            let full = assignment.watermark.held() >= self.settings.window_records
                || assignment.window_bytes >= self.settings.window_bytes;
            let on_purpose = (self.stage.holds_on_purpose() && !self.stage.wants(slot))
                || (full && self.stage.explains_standstill(slot));
            let moved = std::mem::take(&mut assignment.moved);
            if moved || is_new || on_purpose || assignment.stands_since.1.is_none() {
                assignment.stands_since = (now, end);
            }
            let (since, end_then) = assignment.stands_since;
            let stalled = end > end_then && now.duration_since(since) > self.settings.stall_after;
            let seconds = self.settings.stall_after.as_secs();
            assignment.stalled =
                stalled.then(|| format!("no progress for more than {seconds} s although records wait"));
        }
    }
}
