//! What an event is: its jobs, nothing on purpose, or a dead letter.

use std::sync::Arc;

use jiff::Timestamp;
use metrics::{Counter, counter};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use tidegate_codec::{
    CompiledSchema, FieldValue as Found, Limits, Selection, TimeUnit, classify, recycle, wire,
};
use tidegate_domain::key::{KeyError, WindowIndex};
use tidegate_domain::routing::{self, Event, Routing};
use tidegate_domain::{
    Attempt, Failure, FieldValue, Hop, IdempotencyKey, JobHeader, Lane, Offset, Partition, Round, UnixMillis,
};
use tidegate_pipeline::dead_letter::Returned;
use tidegate_pipeline::forward::{EventRouter, PlannedJob, Routed};
use tidegate_pipeline::{Record, TopicPartition, events};

use crate::compile::{JobPlan, KeyPlan, Routes, SourceRoutes, WindowPlan};
use crate::schemas::{Known, Schemas};

/// Decides events by the configured routes.
pub(crate) struct Router {
    routes: Arc<Routes>,
    schemas: Schemas,
    limits: Limits,
    /// Selections by topic and schema id.
    selections: FxHashMap<String, FxHashMap<u32, Selection>>,
    found: Vec<Found<'static>>,
    matching: Vec<usize>,
    counters: FxHashMap<String, TopicCounters>,
}

/// The few fields of an event that its routes ask for.
type Fields<'a> = SmallVec<[FieldValue<'a>; 8]>;

/// What is kept for a topic. Its name is copied the first time only.
fn of_topic<'a, T>(kept: &'a mut FxHashMap<String, T>, topic: &str, new: impl FnOnce() -> T) -> &'a mut T {
    if !kept.contains_key(topic) {
        kept.insert(topic.to_owned(), new());
    }
    kept.get_mut(topic).expect("it was inserted above")
}

struct TopicCounters {
    forwarded: Counter,
    ignored: Counter,
    dead: Counter,
    jobs: Vec<Counter>,
}

/// Where the event stood in its source topic.
#[derive(Clone, Copy)]
struct Origin<'a> {
    topic: &'a str,
    partition: Partition,
    offset: Offset,
}

impl Router {
    pub(crate) fn new(routes: Arc<Routes>, schemas: Schemas, limits: Limits) -> Self {
        Self {
            routes,
            schemas,
            limits,
            selections: FxHashMap::default(),
            found: Vec::new(),
            matching: Vec::new(),
            counters: FxHashMap::default(),
        }
    }

    fn decide(
        &mut self,
        origin: Origin<'_>,
        record: &Record,
        now: UnixMillis,
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed {
        let routes = self.routes.clone();
        let Some(source) = routes.of(origin.topic) else {
            return dead(
                "unknown-source",
                format!("`{}` is no source of this pipeline's configuration", origin.topic),
            );
        };
        let framed = match frame(record) {
            Ok(framed) => framed,
            Err(failure) if ignores_all(source, origin.topic) => {
                tracing::debug!(%failure, "ignored by a rule for its whole topic");
                return Routed::Ignored;
            }
            Err(failure) => return Routed::Dead(failure),
        };
        let schema = match self.schemas.get(framed.schema_id) {
            Known::Schema(schema) => schema,
            Known::Never(failure) => return Routed::Dead(failure),
            Known::Soon => return Routed::Soon,
            Known::NotNow(reason) => return Routed::Later(reason),
        };
        self.decide_decoded(origin, record, now, (source, &schema, framed.body), jobs)
    }

    fn decide_decoded(
        &mut self,
        origin: Origin<'_>,
        record: &Record,
        now: UnixMillis,
        (source, schema, body): (&SourceRoutes, &CompiledSchema, &[u8]),
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed {
        let selections = of_topic(&mut self.selections, origin.topic, FxHashMap::default);
        let selection = selections.entry(schema.id()).or_insert_with(|| schema.select(&source.wanted));
        let mut found = recycle(std::mem::take(&mut self.found));
        if let Err(error) = schema.check(body, selection, &self.limits, &mut found) {
            let mut failure = classify::decode(&error);
            let place = match schema.locate(body, &self.limits) {
                place if place.is_empty() => place,
                place => format!(" at `{place}`"),
            };
            failure.message =
                format!("{}{place} (schema {} `{}`)", failure.message, schema.id(), schema.full_name());
            self.found = recycle(found);
            return Routed::Dead(failure);
        }
        let fields: Fields<'_> = found.iter().map(field).collect();
        let event = Event { topic: origin.topic, record: schema.full_name(), fields: &fields };
        let routed = match routing::route(&source.patterns, &source.ignore, &event, &mut self.matching) {
            Routing::Ignored(_) => Routed::Ignored,
            Routing::Unroutable => Routed::Dead(Failure::new(
                tidegate_domain::FailureKind::Unroutable,
                "no-route",
                format!(
                    "no class and no ignore rule matches record `{}` of `{}`: add a class or an [[ignore]] rule for it",
                    schema.full_name(),
                    origin.topic
                ),
            )),
            Routing::Jobs => plan_all(source, &self.matching, origin, record, &fields, now, jobs),
        };
        drop(fields);
        self.found = recycle(found);
        routed
    }

    fn count(&mut self, topic: &str, routed: &Routed) {
        let routes = self.routes.clone();
        let counters = of_topic(&mut self.counters, topic, || TopicCounters::of(topic, routes.of(topic)));
        match routed {
            Routed::Jobs => {
                counters.forwarded.increment(1);
                for &place in &self.matching {
                    counters.jobs[place].increment(1);
                }
            }
            Routed::JobsAndDead(_) => counters.dead.increment(1),
            Routed::Ignored => counters.ignored.increment(1),
            Routed::Dead(_) => counters.dead.increment(1),
            Routed::Soon | Routed::Later(_) => {}
        }
    }
}

impl TopicCounters {
    fn of(topic: &str, source: Option<&SourceRoutes>) -> Self {
        let fate = |fate: &'static str| counter!(events::EVENTS, "topic" => topic.to_owned(), "fate" => fate);
        let classes = source.map(|source| source.classes.as_slice()).unwrap_or_default();
        let jobs = classes.iter().map(
            |plan| counter!(events::EVENT_JOBS, "class" => plan.class.clone(), "tier" => plan.tier.clone()),
        );
        Self {
            forwarded: fate("forwarded"),
            ignored: fate("ignored"),
            dead: fate("dead"),
            jobs: jobs.collect(),
        }
    }
}

impl EventRouter for Router {
    fn route(
        &mut self,
        partition: &TopicPartition,
        record: &Record,
        now: UnixMillis,
        jobs: &mut Vec<PlannedJob>,
    ) -> Routed {
        let read = Origin {
            topic: partition.topic.as_str(),
            partition: partition.partition,
            offset: record.offset(),
        };
        let is_reingest = partition.topic == self.routes.reingest;
        let returned = is_reingest.then(|| Returned::read(record)).flatten();
        let origin = if is_reingest { returned.as_ref().map(Origin::of) } else { Some(read) };
        let routed = match origin {
            Some(origin) => self.decide(origin, record, now, jobs),
            None => dead("no-origin", "the record does not name the source that it came from".to_owned()),
        };
        self.count(origin.map_or(read.topic, |origin| origin.topic), &routed);
        routed
    }
}

impl<'a> Origin<'a> {
    /// What ingest dead-lettered names its source when it comes back.
    fn of(returned: &'a Returned) -> Self {
        let item = &returned.item;
        Self { topic: item.topic.as_str(), partition: item.partition, offset: item.offset }
    }
}

fn frame(record: &Record) -> Result<wire::Framed<'_>, Failure> {
    let has_header = |name: &str| record.headers().any(|(header, _)| header == name.as_bytes());
    wire::refuse_guid_header(has_header).map_err(|error| classify::wire(&error))?;
    let Some(value) = record.value() else {
        return Err(Failure::malformed("null-value", "the value is null: a tombstone is no event"));
    };
    wire::parse(value).map_err(|error| classify::wire(&error))
}

/// Whether a rule ignores every event of the topic, whatever it holds.
fn ignores_all(source: &SourceRoutes, topic: &str) -> bool {
    let nothing = Event { topic, record: "", fields: &[] };
    source.patterns.is_empty()
        && source
            .ignore
            .iter()
            .any(|rule| rule.when.is_empty() && rule.record.is_none() && rule.matches(&nothing))
}

fn dead(code: &'static str, message: String) -> Routed {
    Routed::Dead(Failure::malformed(code, message))
}

fn plan_all(
    source: &SourceRoutes,
    matching: &[usize],
    origin: Origin<'_>,
    record: &Record,
    fields: &[FieldValue<'_>],
    now: UnixMillis,
    jobs: &mut Vec<PlannedJob>,
) -> Routed {
    let mut failures = Vec::new();
    for &place in matching {
        match plan(&source.classes[place], origin, record, fields, now) {
            Ok(job) => jobs.push(job),
            Err(failure) => failures.push(failure),
        }
    }
    if failures.is_empty() {
        return Routed::Jobs;
    }
    // A class whose key is missing must not keep the event from the others.
    Routed::JobsAndDead(failures)
}

fn plan(
    plan: &JobPlan,
    origin: Origin<'_>,
    record: &Record,
    fields: &[FieldValue<'_>],
    now: UnixMillis,
) -> Result<PlannedJob, Failure> {
    let (key, lane) = derive(plan, origin, record, fields)?;
    let header = JobHeader {
        class: &plan.class,
        tier: &plan.tier,
        topic: origin.topic,
        partition: origin.partition,
        offset: origin.offset,
        key,
        lane,
        round: Round(0),
        hop: Hop(0),
        attempt: Attempt(1),
        due: now,
        first_seen: now,
        origin: record.timestamp(),
        forced: false,
    };
    Ok(PlannedJob {
        topic: plan.topic.clone(),
        partition: lane.partition(plan.partitions),
        header: header.to_text(),
    })
}

fn derive(
    plan: &JobPlan,
    origin: Origin<'_>,
    record: &Record,
    fields: &[FieldValue<'_>],
) -> Result<(IdempotencyKey, Lane), Failure> {
    let window = plan.window.as_ref().map(|window| window_index(plan, window, fields)).transpose()?;
    match &plan.key {
        KeyPlan::Fields { key, lane } => {
            let values: Fields<'_> = key.iter().map(|(place, _)| fields[*place]).collect();
            let derived = IdempotencyKey::derive(&plan.scope, &values, window)
                .map_err(|error| no_key(plan, key, error))?;
            if window.is_none() && key.iter().map(|(place, _)| place).eq(lane) {
                return Ok((derived, Lane::of_key(derived)));
            }
            let values: Fields<'_> = lane.iter().map(|place| fields[*place]).collect();
            let lane = Lane::derive(&plan.scope, &values).map_err(|error| no_key(plan, key, error))?;
            Ok((derived, lane))
        }
        KeyPlan::Header(name) => {
            let value = FieldValue::Bytes(record.header(name).unwrap_or_default());
            let missing = |_| {
                let message = format!(
                    "class `{}` takes its key from the header `{name}`, which is missing or empty",
                    plan.class
                );
                Failure::malformed("missing-key", message)
            };
            let key = IdempotencyKey::derive(&plan.scope, &[value], window).map_err(missing)?;
            Ok((key, Lane::derive(&plan.scope, &[value]).map_err(missing)?))
        }
        KeyPlan::Position => {
            let place = [
                FieldValue::Str(origin.topic),
                FieldValue::Int(i64::from(origin.partition.0)),
                FieldValue::Int(origin.offset.0),
            ];
            let never = |error: KeyError| Failure::malformed("missing-key", error.to_string());
            let key = IdempotencyKey::derive(&plan.scope, &place, window).map_err(never)?;
            Ok((key, Lane::derive(&plan.scope, &place).map_err(never)?))
        }
    }
}

fn no_key(plan: &JobPlan, key: &[(usize, String)], error: KeyError) -> Failure {
    let (KeyError::NoValue(place) | KeyError::NotScalar(place)) = error;
    let name = key.get(place).map_or("?", |(_, name)| name);
    let what = match error {
        KeyError::NoValue(_) => "null, missing or empty",
        KeyError::NotScalar(_) => "a record, an array or a map",
    };
    Failure::malformed("missing-key", format!("key field `{name}` of class `{}` is {what}", plan.class))
}

fn window_index(
    plan: &JobPlan,
    window: &WindowPlan,
    fields: &[FieldValue<'_>],
) -> Result<WindowIndex, Failure> {
    let no_time = || {
        let message = format!("window field `{}` of class `{}` holds no time", window.name, plan.class);
        Failure::malformed("missing-key", message)
    };
    let at = match fields[window.field] {
        FieldValue::Timestamp(nanos) => i64::try_from(nanos / 1_000_000).map_err(|_| no_time())?,
        // A plain long: milliseconds, as Kafka's own timestamps.
        FieldValue::Int(millis) => millis,
        _ => return Err(no_time()),
    };
    let instant = Timestamp::from_millisecond(at).map_err(|_| no_time())?;
    let offset = window.tz.to_offset(instant).seconds();
    Ok(WindowIndex::of(UnixMillis(at), offset, window.every))
}

fn field<'a>(found: &'a Found<'a>) -> FieldValue<'a> {
    match found {
        Found::Null => FieldValue::Null,
        Found::Bool(value) => FieldValue::Bool(*value),
        Found::Int(value) => FieldValue::Int(*value),
        Found::Float(value) => FieldValue::Float(*value),
        Found::Str(text) | Found::Enum(text) => FieldValue::Str(text),
        Found::Bytes(bytes) => FieldValue::Bytes(bytes),
        Found::Uuid(bytes) => FieldValue::Bytes(bytes),
        Found::Date(days) => FieldValue::Int(i64::from(*days)),
        Found::TimeOfDay { value, unit }
        | Found::Timestamp { value, unit }
        | Found::LocalTimestamp { value, unit } => FieldValue::Timestamp(i128::from(*value) * nanos(*unit)),
        // The scale belongs to the schema and can't change under Avro's rules.
        Found::Decimal { unscaled, .. } => FieldValue::Bytes(unscaled),
        Found::Missing => FieldValue::Missing,
        Found::NotScalar => FieldValue::NotScalar,
    }
}

fn nanos(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Millis => 1_000_000,
        TimeUnit::Micros => 1000,
        TimeUnit::Nanos => 1,
    }
}
