//! From what the operators' library says to what pages show, and back.

use std::collections::BTreeMap;

use tidegate_domain::inbox::RunId;
use tidegate_operator as operator;
use tidegate_operator::ItemRef;
use tidegate_pipeline::Record;

use super::carriers::Carriers;
use crate::inbox::{
    Answer, Attempted, By, ClassRow, Content, Event, Filter, Group, GroupPage, GroupQuery, Header, History,
    InboxError, Item, ItemPage, ItemQuery, JournalEntry, Letter, Overview, Plan, PlanPart, Ramp, Row, Run,
    RunStatus, Sort, Source, TrendStep, Trouble,
};

pub(super) fn item_ref(text: &str) -> Answer<ItemRef> {
    text.parse().map_err(|error: operator::NoItemRef| InboxError::Request(error.to_string()))
}

pub(super) fn run_id(text: &str) -> Answer<RunId> {
    RunId::parse(text)
        .ok_or_else(|| InboxError::Request(format!("`{text}` is no run: its id has 16 hex digits.")))
}

fn states(states: BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    states.into_iter().map(|(name, many)| (name.to_owned(), many)).collect()
}

pub(super) fn filter(filter: &Filter) -> operator::Filter {
    let Filter {
        states,
        classes,
        tiers,
        kinds,
        fingerprints,
        schemas,
        handlers,
        sources,
        since,
        until,
        text,
    } = filter.clone();
    operator::Filter {
        states,
        classes,
        tiers,
        kinds,
        fingerprints,
        schemas,
        handlers,
        sources,
        since,
        until,
        text,
        ..operator::Filter::default()
    }
}

pub(super) fn group_query(query: &GroupQuery) -> operator::GroupQuery {
    operator::GroupQuery {
        filter: filter(&query.filter),
        by: match query.by {
            By::Fingerprint => operator::By::Fingerprint,
            By::Class => operator::By::Class,
            By::Tier => operator::By::Tier,
            By::Kind => operator::By::Kind,
            By::Schema => operator::By::Schema,
            By::Handler => operator::By::Handler,
            By::Source => operator::By::Source,
        },
        sort: match query.sort {
            Sort::Waiting => operator::Sort::Waiting,
            Sort::Latest => operator::Sort::Latest,
            Sort::Items => operator::Sort::Items,
        },
        skip: query.skip,
        limit: Some(query.limit),
        now: query.now,
    }
}

pub(super) fn groups(page: operator::GroupPage) -> GroupPage {
    let operator::GroupPage { groups, total, items, partly } = page;
    GroupPage { groups: groups.into_iter().map(group).collect(), total, items, partly }
}

fn group(group: operator::Group) -> Group {
    Group {
        key: group.key,
        message: group.message,
        kinds: group.kinds,
        codes: group.codes,
        classes: group.classes,
        tiers: group.tiers,
        schemas: group.schemas,
        handlers: group.handlers,
        sources: group.sources,
        causes: group.causes,
        items: group.items,
        states: states(group.states),
        waiting: group.waiting,
        first_dead_at: group.first_dead_at,
        waiting_since: group.waiting_since,
        last_dead_at: group.last_dead_at,
        late: group.late,
        state: group.state.map(str::to_owned),
        sparkline: group.sparkline,
    }
}

pub(super) fn item_query(query: &ItemQuery) -> Answer<operator::ListQuery> {
    Ok(operator::ListQuery {
        filter: filter(&query.filter),
        order: if query.oldest_first { operator::Order::OldestFirst } else { operator::Order::NewestFirst },
        after: query.after.as_deref().map(str::parse).transpose()?,
        limit: Some(query.limit),
    })
}

pub(super) fn items(page: operator::Page) -> ItemPage {
    ItemPage {
        items: page.items.into_iter().map(row).collect(),
        next: page.next.map(|place| place.to_string()),
        total: page.total,
    }
}

fn row(row: operator::Row) -> Row {
    Row {
        item: row.item.to_string(),
        id: row.id,
        state: row.state.to_owned(),
        class: row.job.class,
        tier: row.job.tier,
        kind: row.error.kind,
        code: row.error.code,
        fingerprint: row.error.fingerprint,
        message: row.error.message,
        schema_id: row.schema_id,
        letters: row.letters,
        round: row.job.round,
        attempt: row.job.attempt,
        first_dead_at: row.first_at,
        dead_at: row.at,
        record: row.record,
        key: row.job.key,
    }
}

pub(super) fn item(item: operator::Item) -> Item {
    let operator::Source { topic, partition, offset } = item.row.source.clone();
    Item {
        handler: item.row.handler.clone(),
        source: Source { topic, partition, offset },
        occurrences: item.occurrences.into_iter().map(letter).collect(),
        journal: item.journal.into_iter().map(journal_entry).collect(),
        waiting_until: item.waiting_until,
        late: item.late,
        row: row(item.row),
    }
}

fn letter(letter: operator::Letter) -> Letter {
    Letter {
        record: letter.record,
        failure: Attempted {
            kind: letter.kind,
            code: letter.code,
            fingerprint: letter.fingerprint,
            message: letter.message,
        },
        first_error: letter.first_error,
        round: letter.round,
        attempt: letter.attempt,
        forced: letter.forced,
        dead_at: letter.dead_at,
        first_seen: letter.first_seen,
        value_bytes: letter.value_bytes,
        stub: letter.stub,
        trace: letter.trace,
    }
}

fn journal_entry(entry: operator::ItemEntry) -> JournalEntry {
    JournalEntry {
        at: entry.at,
        time: entry.time,
        what: entry.what,
        void: entry.void,
        round: entry.round,
        run: entry.run,
        by: entry.by,
        detail: entry.detail,
    }
}

pub(super) fn content(record: &Record, event: operator::Event) -> Content {
    let header = |(name, value): (&[u8], Option<&[u8]>)| Header {
        name: name.to_vec(),
        value: value.map(<[u8]>::to_vec),
    };
    Content {
        event: match event {
            operator::Event::Decoded { name, json, .. } => Event::Decoded { schema: name, json },
            operator::Event::Undecodable { reason } => Event::Undecodable { reason },
            operator::Event::Null => Event::default(),
        },
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers: record.headers().map(header).collect(),
    }
}

pub(super) fn overview(overview: operator::Overview, status: &operator::Status) -> Overview {
    let class = |row: operator::ClassRow| ClassRow {
        class: row.class,
        states: states(row.states),
        waiting: row.waiting,
        last_dead_at: row.last_dead_at,
    };
    let step = |step: operator::TrendStep| TrendStep { from: step.from, letters: step.letters };
    Overview {
        states: states(overview.states),
        waiting: overview.waiting,
        classes: overview.classes.into_iter().map(class).collect(),
        trend: overview.trend.into_iter().map(step).collect(),
        open_groups: overview.open_groups,
        behind: status.behind,
        wordless: status.wordless,
        problem: status.problem.clone(),
    }
}

pub(super) fn run(run: operator::Run, carriers: &Carriers) -> Run {
    let known = RunId::parse(&run.run).and_then(|id| carriers.known(id));
    let ramp = run.ramp.filter(|ramp| ramp.first < u32::MAX);
    Run {
        order: run.what,
        by: run.by,
        begun_at: run.time,
        selection: run.selection,
        reason: None,
        forced: run.forced,
        total: run.total,
        accepted: run.accepted,
        refused: run.refused,
        rate: run.rate,
        ramp: ramp.map(|ramp| Ramp {
            first: ramp.first,
            factor: ramp.factor,
            failures: ramp.failures,
            timeout: ramp.timeout,
        }),
        status: match run.status {
            operator::RunStatus::Running => RunStatus::Running,
            operator::RunStatus::Paused => RunStatus::Paused,
            operator::RunStatus::Stopped => RunStatus::Stopped,
            operator::RunStatus::Finished => RunStatus::Finished,
        },
        why: run.why,
        changed_by: run.changed_by,
        changed_at: run.changed_at,
        passed: run.passed,
        failed: run.failed,
        pending: run.pending,
        released: run.released,
        under_way: known.as_ref().filter(|known| known.is_active).map(|known| known.under_way),
        waiting: known.as_ref().map_or(0, |known| known.waiting.0),
        waits_for: known.as_ref().and_then(|known| known.waiting.1.clone()),
        steps: known.filter(|_| ramp.is_some()).map(|known| known.steps).unwrap_or_default(),
        run: run.run,
    }
}

pub(super) fn history(entry: operator::HistoryEntry) -> History {
    History {
        at: entry.at,
        time: entry.time,
        by: entry.by,
        what: entry.what,
        run: entry.run,
        reason: entry.reason,
        items: entry.items,
        accepted: entry.accepted,
        item: entry.id,
    }
}

/// What a dry run found out. What was ordered stands in the plan by other means.
pub(super) fn dry_run(dry: operator::DryRun) -> Plan {
    let part = |class: operator::ClassForecast| PlanPart {
        unfit: class.unfit(),
        class: class.class,
        target: class.topic,
        items: class.items,
        undecodable: class.undecodable,
        unchecked: class.unchecked.into_iter().collect(),
        unread: class.unread,
        gone: class.gone,
        unknown: class.unknown,
    };
    let trouble = |example: operator::Example| Trouble {
        item: example.item.to_string(),
        trouble: example.trouble.to_owned(),
        reason: example.reason,
    };
    let why = |(state, many): (&str, u64)| (format!("their state is {state}"), many);
    Plan {
        total: dry.fit,
        left_out: dry.left_out.into_iter().map(why).collect(),
        parts: dry.classes.into_iter().map(part).collect(),
        keys_done: dry.keys_done,
        keys_unchecked: dry.keys_unchecked.into_iter().collect(),
        keys_done_by_inbox: dry.keys_done_by_inbox,
        expiring: dry.near_end_of_retention,
        older_than_marks: dry.beyond_dedup_retention,
        marks_kept: dry.dedup_retention,
        troubles: dry.examples.into_iter().map(trouble).collect(),
        ..Plan::default()
    }
}
