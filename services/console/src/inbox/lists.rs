//! Groups, items in a list, and the overview.

use std::collections::BTreeMap;

use serde::Serialize;

/// Which items are asked for: those that fit every part that is not empty, and of a part any of its values. `-` stands for none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Filter {
    /// Names of states: `open`, `replaying`, `resolved`, `already-done`, `failed-again`, `discarded`.
    pub states: Vec<String>,
    /// Classes.
    pub classes: Vec<String>,
    /// Tiers.
    pub tiers: Vec<String>,
    /// Kinds of failure.
    pub kinds: Vec<String>,
    /// Fingerprints, 16 hex digits each.
    pub fingerprints: Vec<String>,
    /// Ids of schemas.
    pub schemas: Vec<String>,
    /// Handlers, as the configuration has them.
    pub handlers: Vec<String>,
    /// Source topics.
    pub sources: Vec<String>,
    /// Dead-lettered at this time or later, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Dead-lettered before this time.
    pub until: Option<i64>,
    /// Words of message, key or payload; the last one may be a beginning (`refus*`).
    pub text: Option<String>,
}

/// What items are grouped by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// The cause of the latest failure.
    #[default]
    Fingerprint,
    /// The class.
    Class,
    /// The tier.
    Tier,
    /// The kind of failure.
    Kind,
    /// The schema of the value.
    Schema,
    /// The handler of the class.
    Handler,
    /// The source topic.
    Source,
}

impl By {
    /// Every one.
    pub const ALL: [Self; 7] =
        [Self::Fingerprint, Self::Class, Self::Tier, Self::Kind, Self::Schema, Self::Handler, Self::Source];

    /// The name in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fingerprint => "fingerprint",
            Self::Class => "class",
            Self::Tier => "tier",
            Self::Kind => "kind",
            Self::Schema => "schema",
            Self::Handler => "handler",
            Self::Source => "source",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == name)
    }
}

/// The order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sort {
    /// Those with the most items that wait for a decision first.
    #[default]
    Waiting,
    /// Those that failed last first.
    Latest,
    /// Those with the most items first.
    Items,
}

impl Sort {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Latest, Self::Items];

    /// The name in addresses.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Latest => "latest",
            Self::Items => "items",
        }
    }

    /// The one of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|sort| sort.as_str() == name)
    }
}

/// Groups that are asked for.
#[derive(Clone, Debug, Default)]
pub struct GroupQuery {
    /// Of these items.
    pub filter: Filter,
    /// By what.
    pub by: By,
    /// In which order.
    pub sort: Sort,
    /// How many of the first groups to leave out.
    pub skip: usize,
    /// So many at most.
    pub limit: usize,
    /// The time that a sparkline ends at, in milliseconds since the epoch.
    pub now: i64,
}

/// Groups, and how many there are.
#[derive(Clone, Debug, Default, Serialize)]
pub struct GroupPage {
    /// The groups of this page.
    pub groups: Vec<Group>,
    /// How many groups there are in all.
    pub total: usize,
    /// How many items are in all groups.
    pub items: u64,
    /// A search found so many that only the newest ones were counted.
    pub partly: bool,
}

/// A group. Of kinds, classes and the like it names each once, and a few at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// What its items have in common: a fingerprint, or the name of a class, tier and so on; `-` where there is none.
    pub key: String,
    /// An example of what its failures say.
    pub message: String,
    /// Its kinds.
    pub kinds: Vec<String>,
    /// Its codes.
    pub codes: Vec<String>,
    /// Its classes.
    pub classes: Vec<String>,
    /// Its tiers.
    pub tiers: Vec<String>,
    /// Its schemas.
    pub schemas: Vec<u32>,
    /// Its handlers.
    pub handlers: Vec<String>,
    /// Its source topics.
    pub sources: Vec<String>,
    /// How many different causes are in it.
    pub causes: usize,
    /// How many items it has.
    pub items: u64,
    /// How many of them are in each state; those without any are left out.
    pub states: BTreeMap<String, u64>,
    /// How many of them wait for a decision.
    pub waiting: u64,
    /// When its first letter came, in milliseconds since the epoch.
    pub first_dead_at: i64,
    /// When the first of its items failed that are not done; none where all are.
    pub waiting_since: Option<i64>,
    /// When its last one came.
    pub last_dead_at: i64,
    /// How many of its items were dead-lettered again after they were done or discarded, as which they stay.
    pub late: u64,
    /// `open`, `closed`, or `regressed`: it was closed once, and something of it failed again and waits. Of groups by fingerprint only.
    pub state: Option<String>,
    /// How many letters came in each of the last 24 hours, the latest last.
    pub sparkline: Vec<u64>,
}

impl Group {
    /// Since when it needs attention; of one that needs none, since when it is known.
    pub fn since(&self) -> i64 {
        self.waiting_since.unwrap_or(self.first_dead_at)
    }
}

/// A list of items that is asked for.
#[derive(Clone, Debug, Default)]
pub struct ItemQuery {
    /// Of these items.
    pub filter: Filter,
    /// The earliest first, instead of the latest.
    pub oldest_first: bool,
    /// Behind this place: [`ItemPage::next`] of the page before.
    pub after: Option<String>,
    /// So many at most.
    pub limit: usize,
}

/// A page of items.
#[derive(Clone, Debug, Default, Serialize)]
pub struct ItemPage {
    /// Its items.
    pub items: Vec<Row>,
    /// The place behind its last item, where there is more.
    pub next: Option<String>,
    /// How many items the whole list has, where that can be told at once.
    pub total: Option<u64>,
}

/// An item in a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Its short name, 16 hex digits.
    pub item: String,
    /// Its id: `topic/partition/offset/class`.
    pub id: String,
    /// Where it stands.
    pub state: String,
    /// Its class; none where it never became a job.
    pub class: Option<String>,
    /// Its tier.
    pub tier: Option<String>,
    /// The kind of its latest failure; none where another tool wrote it.
    pub kind: Option<String>,
    /// The code of its latest failure.
    pub code: String,
    /// The group of its latest failure.
    pub fingerprint: String,
    /// What the latest failure says.
    pub message: String,
    /// The id of the schema that its value names.
    pub schema_id: Option<u32>,
    /// How many letters there are of it.
    pub letters: u32,
    /// The round of the latest.
    pub round: u32,
    /// The attempt that the latest failed in.
    pub attempt: Option<u32>,
    /// When it was dead-lettered first, in milliseconds since the epoch.
    pub first_dead_at: i64,
    /// When it was dead-lettered last.
    pub dead_at: i64,
    /// Its latest letter: partition and offset in the dead-letter topic.
    pub record: String,
    /// The idempotency key, 32 hex digits.
    pub key: Option<String>,
}

/// The inbox at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Overview {
    /// How many items there are in each state.
    pub states: BTreeMap<String, u64>,
    /// How many wait for a decision.
    pub waiting: u64,
    /// Each class that has an item or is configured; `-` is of events that became no job.
    pub classes: Vec<ClassRow>,
    /// How many letters came in each quarter of an hour of the last day, the latest last.
    pub trend: Vec<TrendStep>,
    /// How many groups have items that wait for a decision.
    pub open_groups: usize,
    /// Records of the dead-letter topic and the journal that are not in the index yet.
    pub behind: u64,
    /// Letters in the index that a search does not find yet.
    pub wordless: u64,
    /// Why the index is not brought up to date; none: it is.
    pub problem: Option<String>,
}

/// A class at a glance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClassRow {
    /// Its name; `-` where there is none.
    pub class: String,
    /// How many of its items are in each state.
    pub states: BTreeMap<String, u64>,
    /// How many of them wait for a decision.
    pub waiting: u64,
    /// When it was dead-lettered last, in milliseconds since the epoch.
    pub last_dead_at: Option<i64>,
}

/// A step of the trend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TrendStep {
    /// When it begins, in milliseconds since the epoch.
    pub from: i64,
    /// How many letters came in it.
    pub letters: u64,
}
