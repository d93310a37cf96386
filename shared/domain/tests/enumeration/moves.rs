//! Everything that can happen next.

use tidegate_domain::mark::{Phase, Skip, Verdict};
use tidegate_domain::{Mark, Round};

use crate::model::{Answer, BELIEF, Ordering, Owner, Record, Scenario, Stage, State, Table, Takeover};

/// One thing that happened, for the trace of a violation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Label {
    pub(crate) who: &'static str,
    pub(crate) what: &'static str,
    pub(crate) record: Option<Record>,
}

/// A state that can follow, and the promise that was broken on the way.
pub(crate) struct Next {
    pub(crate) label: Label,
    pub(crate) state: State,
    pub(crate) broken: Option<&'static str>,
}

/// Who moves.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Owner,
    Deposed,
}

pub(crate) struct World<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) table: Table,
}

impl World<'_> {
    /// Collects all states that can follow `state`.
    pub(crate) fn moves(&self, state: &State, out: &mut Vec<Next>) {
        self.owner_moves(state, Who::Owner, out);
        self.catch_up(state, out);
        self.commit(state, out);
        if state.deposed.is_some() {
            self.owner_moves(state, Who::Deposed, out);
            let mut next = *state;
            next.deposed = None;
            push(out, "deposed", "ends", None, next);
        }
        self.take_over(state, out);
        self.hand_over(state, out);
        self.operate(state, out);
        if state.budget.jump > 0 {
            let mut next = *state;
            next.budget.jump -= 1;
            next.jumped = true;
            push(out, "clock", "jumps", None, next);
        }
    }

    pub(crate) fn verdict(&self, mark: &Mark, record: Record, state: &State) -> Verdict {
        (self.table.verdict)(mark, &record.arrival(self.scenario), state.now(), BELIEF)
    }

    fn owner_moves(&self, state: &State, who: Who, out: &mut Vec<Next>) {
        let Some(owner) = owner_of(state, who) else { return };
        match owner.stage {
            Stage::Idle => self.hand_out(state, who, owner, out),
            Stage::Ran(record, answer) => self.after_run(state, who, record, answer, out),
            Stage::Scheduled(copy) => self.mark(state, who, copy, Phase::Scheduled, out),
            Stage::Buried(copy) => self.mark(state, who, copy, Phase::Dead, out),
            Stage::Conflicted(record) => self.bury(state, who, record, None, out),
        }
        self.append_marks(state, who, owner, out);
    }

    fn hand_out(&self, state: &State, who: Who, owner: &Owner, out: &mut Vec<Next>) {
        let Some(&record) = state.jobs.as_slice().get(usize::from(owner.next)) else { return };
        if owner.held.len() == self.scenario.window || (who == Who::Deposed && owner.takes == 0) {
            return;
        }
        let mut taken = *state;
        if let Some(deposed) = taken.deposed.as_mut().filter(|_| who == Who::Deposed) {
            deposed.takes -= 1;
        }
        match self.verdict(&owner.view, record, state) {
            Verdict::Run | Verdict::RunOrphaned => self.run(&taken, who, record, out),
            Verdict::RunAsRound(Round(round)) => {
                let renumbered = Record { round: round as u8, hop: 0, attempt: 1, ..record };
                self.run(&taken, who, renumbered, out);
            }
            Verdict::Skip(skip) => {
                if who == Who::Owner && skip == Skip::Coalesced && self.peer_lives(state, owner, record) {
                    taken.coalesced |= 1 << record.job;
                }
                finish(self, &mut taken, who, None);
                push(out, name(who), skip.as_str(), Some(record), taken);
            }
            Verdict::Conflict { .. } => {
                set_stage(&mut taken, who, Stage::Conflicted(record));
                push(out, name(who), "finds a conflict", Some(record), taken);
            }
        }
    }

    /// Whether the job that `record` is left to is on its way, or was when this owner last looked.
    fn peer_lives(&self, state: &State, owner: &Owner, record: Record) -> bool {
        let payloads = self.scenario.payloads;
        let peer =
            |job: u8| job != record.job && payloads[usize::from(job)] == payloads[usize::from(record.job)];
        let seen_dead = owner.view.step.is_some_and(|step| step.phase == Phase::Dead);
        state.waiting().any(|copy| peer(copy.job))
            || (!seen_dead && (0..payloads.len()).any(|job| peer(job as u8) && state.buried[job] > 0))
    }

    fn run(&self, state: &State, who: Who, record: Record, out: &mut Vec<Next>) {
        let Some(owner) = owner_of(state, who) else { return };
        let ordered_again = record.forced && record.round >= owner.sees_done;
        let mut broken = (owner.sees_done > 0 && !ordered_again).then_some("a run after a visible done");
        let mut ran = *state;
        if let Some(max) = self.scenario.max_runs {
            ran.runs += 1;
            broken = broken.or((ran.runs > max).then_some("more runs than faults account for: a fork"));
        }
        let record = self.counted_in_place(owner, record);
        for answer in [Answer::Ok, Answer::Transient, Answer::Permanent, Answer::Snooze] {
            let mut next = ran;
            if answer == Answer::Snooze {
                if next.budget.snooze == 0 {
                    continue;
                }
                next.budget.snooze -= 1;
            }
            set_stage(&mut next, who, Stage::Ran(record, answer));
            let what = match answer {
                Answer::Ok => "runs, ok",
                Answer::Transient => "runs, transient",
                Answer::Permanent => "runs, permanent",
                Answer::Snooze => "runs, snooze",
            };
            out.push(Next {
                label: Label { who: name(who), what, record: Some(record) },
                state: next,
                broken,
            });
        }
    }

    /// A record that is retried in place counts its attempts in the mark.
    fn counted_in_place(&self, owner: &Owner, record: Record) -> Record {
        let tried = owner.view.step.filter(|step| {
            let copy = record.step(self.scenario, step.phase, 0, step.written_at);
            (step.round, step.hop, step.job) == (copy.round, copy.hop, copy.job)
        });
        match tried {
            Some(step) if step.n > 0 && self.scenario.ordering == Ordering::Key => {
                Record { attempt: (step.n as u8 + 1).min(self.scenario.attempts), ..record }
            }
            _ => record,
        }
    }

    fn after_run(&self, state: &State, who: Who, record: Record, answer: Answer, out: &mut Vec<Next>) {
        let again = Record { attempt: record.attempt + 1, ..record };
        match answer {
            Answer::Ok => self.mark(state, who, record, Phase::Started, out),
            Answer::Snooze => self.delay(state, who, record, out),
            Answer::Transient if record.attempt < self.scenario.attempts => match self.scenario.ordering {
                Ordering::None => self.delay(state, who, again, out),
                Ordering::Key => self.retry_in_place(state, who, record, out),
            },
            Answer::Transient | Answer::Permanent => {
                self.bury(state, who, record, Some(Stage::Buried(record)), out);
            }
        }
    }

    /// The record stays; its next verdict reads the attempts from the mark.
    fn retry_in_place(&self, state: &State, who: Who, record: Record, out: &mut Vec<Next>) {
        let mut next = *state;
        let tried = Mark::step(record.step(self.scenario, Phase::Tried, record.attempt, state.now()));
        self.append(&mut next, tried);
        if let Some(owner) = owner_of_mut(&mut next, who) {
            owner.view = (self.table.join)(owner.view, tried);
            owner.stage = Stage::Idle;
            // It is still the same record that a deposed owner took.
            owner.takes += u8::from(who == Who::Deposed);
        }
        push(out, name(who), "marks tried", Some(record), next);
    }

    /// A copy reaches a delay topic.
    fn delay(&self, state: &State, who: Who, record: Record, out: &mut Vec<Next>) {
        let copy = Record { hop: record.hop + 1, ..record };
        let mut next = *state;
        next.delayed.push(copy);
        lost_ack(next, name(who), "publishes a retry, unacknowledged", copy, out);
        set_stage(&mut next, who, Stage::Scheduled(copy));
        push(out, name(who), "publishes a retry", Some(copy), next);
    }

    /// A copy reaches the DLQ. Without a stage to follow the record is settled: a conflict leaves no mark.
    fn bury(&self, state: &State, who: Who, record: Record, then: Option<Stage>, out: &mut Vec<Next>) {
        let mut next = *state;
        let buried = &mut next.buried[usize::from(record.job)];
        *buried = (*buried).max(record.round + 1);
        lost_ack(next, name(who), "dead-letters, unacknowledged", record, out);
        match then {
            Some(stage) => set_stage(&mut next, who, stage),
            None => finish(self, &mut next, who, None),
        }
        push(out, name(who), "dead-letters", Some(record), next);
    }

    /// The mark goes into the overlay and on its way. `Started` stands for the step of a `done`.
    fn mark(&self, state: &State, who: Who, record: Record, phase: Phase, out: &mut Vec<Next>) {
        let mut next = *state;
        let step = record.step(self.scenario, phase, 0, state.now());
        let mark = if phase == Phase::Started { Mark::done(step) } else { Mark::step(step) };
        finish(self, &mut next, who, Some(mark));
        let what = match phase {
            Phase::Scheduled => "marks scheduled",
            Phase::Dead => "marks dead",
            Phase::Tried | Phase::Started => "marks done",
        };
        push(out, name(who), what, Some(record), next);
    }

    /// The marks on their way are acknowledged, in their order.
    fn append_marks(&self, state: &State, who: Who, owner: &Owner, out: &mut Vec<Next>) {
        if owner.held.as_slice().iter().all(Option::is_none) {
            return;
        }
        let mut next = *state;
        for mark in owner.held.as_slice().iter().flatten() {
            self.append(&mut next, *mark);
        }
        if next.budget.lost_ack > 0 {
            let mut unsure = next;
            unsure.budget.lost_ack -= 1;
            push(out, name(who), "appends marks, unacknowledged", None, unsure);
        }
        if let Some(owner) = owner_of_mut(&mut next, who) {
            for index in 0..owner.held.len() {
                owner.held.set(index, None);
            }
        }
        push(out, name(who), "appends marks", None, next);
    }

    fn append(&self, state: &mut State, mark: Mark) {
        state.log = (self.table.join)(state.log, mark);
        if let (Some(done), Some(step)) = (mark.done, mark.step) {
            state.done = state.done.max(done.round.0 as u8 + 1);
            state.done_payloads |= 1 << step.payload.0;
        }
    }

    /// An owner that has nothing to do compares the end of the changelog, and reads what others appended.
    fn catch_up(&self, state: &State, out: &mut Vec<Next>) {
        if state.owner.stage == Stage::Idle && state.owner.held.len() == 0 {
            let mut next = *state;
            self.read_log(&mut next);
            if next.owner.view != state.owner.view || next.owner.sees_done != state.owner.sees_done {
                push(out, "owner", "reads the changelog", None, next);
            }
        }
    }

    fn read_log(&self, state: &mut State) {
        state.owner.view = (self.table.join)(state.owner.view, state.log);
        state.owner.sees_done = state.owner.sees_done.max(state.done);
    }

    /// What others appended is joined before anything is settled; then the acknowledged front is committed.
    fn commit(&self, state: &State, out: &mut Vec<Next>) {
        let settled = state.owner.held.as_slice().iter().take_while(|mark| mark.is_none()).count();
        if settled > 0 {
            let mut next = *state;
            self.read_log(&mut next);
            for _ in 0..settled {
                next.owner.held.remove(0);
            }
            push(out, "owner", "commits", None, next);
        }
    }

    fn take_over(&self, state: &State, out: &mut Vec<Next>) {
        let mut fresh = *state;
        fresh.owner = Owner::taking_over(state.log, state.done, state.owner.committed());
        if state.budget.crash > 0 {
            let mut next = fresh;
            next.budget.crash -= 1;
            if self.scenario.takeover == Takeover::Suspicious {
                self.suspect(&mut next);
            }
            push(out, "owner", "crashes, another takes over", None, next);
        }
        if state.budget.depose > 0 && state.deposed.is_none() {
            let mut next = fresh;
            next.budget.depose -= 1;
            next.deposed = Some(Owner { takes: self.scenario.deposed_takes, ..state.owner });
            push(out, "owner", "is deposed, another takes over", None, next);
        }
    }

    /// One packed record marks everything of the old window that will run as started.
    fn suspect(&self, state: &mut State) {
        let seen = *state;
        for &record in &seen.jobs.as_slice()[usize::from(seen.owner.committed())..] {
            let record = match self.verdict(&seen.log, record, &seen) {
                Verdict::Run | Verdict::RunOrphaned => record,
                Verdict::RunAsRound(Round(round)) => {
                    Record { round: round as u8, hop: 0, attempt: 1, ..record }
                }
                Verdict::Skip(_) | Verdict::Conflict { .. } => continue,
            };
            let n = self.counted_in_place(&seen.owner, record).attempt - 1;
            self.append(state, Mark::step(record.step(self.scenario, Phase::Started, n, seen.now())));
        }
        state.owner.view = state.log;
    }

    /// The retry service, in any order.
    fn hand_over(&self, state: &State, out: &mut Vec<Next>) {
        let delayed = state.delayed.as_slice();
        for (index, &copy) in delayed.iter().enumerate() {
            if index > 0 && delayed[index - 1] == copy {
                continue;
            }
            let mut next = *state;
            next.jobs.push(copy);
            if state.budget.double > 0 {
                let mut twice = next;
                twice.budget.double -= 1;
                push(out, "retry", "hands over, and will again", Some(copy), twice);
            }
            next.delayed.remove(index);
            push(out, "retry", "hands over", Some(copy), next);
        }
    }

    /// A replay takes the job from the inbox, so that only what follows from the replay can keep it.
    fn operate(&self, state: &State, out: &mut Vec<Next>) {
        for job in 0..self.scenario.payloads.len() as u8 {
            let buried = state.buried[usize::from(job)];
            let mut next = *state;
            next.buried[usize::from(job)] = 0;
            if buried > 0 && state.budget.replay > 0 {
                let copy = Record { job, round: buried, hop: 0, attempt: 1, forced: false };
                next.budget.replay -= 1;
                next.jobs.push(copy);
                push(out, "operator", "replays", Some(copy), next);
            } else if buried > 0 && state.budget.force > 0 && state.done > 0 {
                let copy = Record { job, round: buried.max(state.done), hop: 0, attempt: 1, forced: true };
                next.budget.force -= 1;
                next.ordered[usize::from(job)] = copy.round + 1;
                next.jobs.push(copy);
                push(out, "operator", "replays by force", Some(copy), next);
            }
        }
    }
}

/// The record at `next` needs nothing more, once `mark` is acknowledged.
fn finish(world: &World<'_>, state: &mut State, who: Who, mark: Option<Mark>) {
    let Some(owner) = owner_of_mut(state, who) else { return };
    owner.stage = Stage::Idle;
    owner.next += 1;
    owner.held.push(mark);
    if let Some(mark) = mark {
        owner.view = (world.table.join)(owner.view, mark);
        if let Some(done) = mark.done {
            owner.sees_done = owner.sees_done.max(done.round.0 as u8 + 1);
        }
    }
}

fn lost_ack(mut state: State, who: &'static str, what: &'static str, record: Record, out: &mut Vec<Next>) {
    if state.budget.lost_ack > 0 {
        state.budget.lost_ack -= 1;
        push(out, who, what, Some(record), state);
    }
}

fn push(out: &mut Vec<Next>, who: &'static str, what: &'static str, record: Option<Record>, state: State) {
    out.push(Next { label: Label { who, what, record }, state, broken: None });
}

fn owner_of(state: &State, who: Who) -> Option<&Owner> {
    match who {
        Who::Owner => Some(&state.owner),
        Who::Deposed => state.deposed.as_ref(),
    }
}

fn owner_of_mut(state: &mut State, who: Who) -> Option<&mut Owner> {
    match who {
        Who::Owner => Some(&mut state.owner),
        Who::Deposed => state.deposed.as_mut(),
    }
}

fn set_stage(state: &mut State, who: Who, stage: Stage) {
    if let Some(owner) = owner_of_mut(state, who) {
        owner.stage = stage;
    }
}

fn name(who: Who) -> &'static str {
    match who {
        Who::Owner => "owner",
        Who::Deposed => "deposed",
    }
}
