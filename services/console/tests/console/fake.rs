//! An inbox in memory. Every text of it can be made hostile.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tidegate_console::inbox::*;

/// The name of the one item whose details are told.
pub(crate) const ITEM: &str = "00000000000000a1";
/// The one group.
pub(crate) const GROUP: &str = "00000000000000f1";
/// A run that goes on.
pub(crate) const RUN: &str = "00000000000000c1";
/// A prepared order.
pub(crate) const PLAN: &str = "00000000000000d1";

/// Text that would do harm where it is not escaped.
pub(crate) const HOSTILE: &str = r#"</pre></title></textarea>"><script>alert(1)</script><img src=x onerror="alert(1)">' onfocus='alert(1)' {{7*7}} &lt;b&gt;"#;

#[derive(Debug, Default)]
pub(crate) struct Fake {
    /// What stands in every text.
    text: String,
    items: usize,
    delay: Duration,
    /// Every change that reached the inbox: who, and what.
    changes: Mutex<Vec<(String, String)>>,
    /// How often the run was asked for.
    asked: Mutex<u64>,
    fails: bool,
    /// The run stands still.
    stands: bool,
}

impl Fake {
    pub(crate) fn with_items(items: usize) -> Self {
        Self { text: "connection to payments refused".to_owned(), items, ..Self::default() }
    }

    pub(crate) fn hostile() -> Self {
        Self { text: HOSTILE.to_owned(), items: 3, ..Self::default() }
    }

    /// Every text is this one.
    pub(crate) fn saying(text: &str) -> Self {
        Self { text: text.to_owned(), items: 3, ..Self::default() }
    }

    pub(crate) fn slow(items: usize, delay: Duration) -> Self {
        Self { delay, ..Self::with_items(items) }
    }

    /// Its run goes on for ever, and nothing of it changes.
    pub(crate) fn with_a_run_that_stands() -> Self {
        Self { stands: true, ..Self::with_items(3) }
    }

    pub(crate) fn broken() -> Self {
        Self { fails: true, ..Self::hostile() }
    }

    pub(crate) fn changes(&self) -> Vec<(String, String)> {
        self.changes.lock().clone()
    }

    fn change(&self, by: &str, what: impl Into<String>) {
        self.changes.lock().push((by.to_owned(), what.into()));
    }

    fn answer<T>(&self, value: T) -> Answer<T> {
        std::thread::sleep(self.delay);
        if self.fails {
            Err(InboxError::Unavailable(format!("Kafka is away: {}", self.text)))
        } else {
            Ok(value)
        }
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn texts(&self) -> Vec<String> {
        vec![self.text(), format!("{} again", self.text)]
    }

    fn states() -> BTreeMap<String, u64> {
        [("open", 4000), ("failed-again", 12), ("resolved", 800)]
            .map(|(name, many)| (name.to_owned(), many))
            .into()
    }

    fn group(&self) -> Group {
        Group {
            key: GROUP.to_owned(),
            message: self.text(),
            kinds: vec!["permanent".to_owned(), self.text()],
            codes: self.texts(),
            classes: self.texts(),
            tiers: self.texts(),
            schemas: vec![7],
            handlers: self.texts(),
            sources: self.texts(),
            causes: 1,
            items: 4812,
            states: Self::states(),
            waiting: 4012,
            first_dead_at: 1_764_300_000_000,
            waiting_since: Some(1_764_382_445_000),
            last_dead_at: 1_764_389_445_000,
            late: 3,
            state: Some("regressed".to_owned()),
            sparkline: (0..24).map(|hour| hour * 7 % 13).collect(),
        }
    }

    fn row(&self, number: usize) -> Row {
        Row {
            item: format!("{:016x}", 0xa1 + number),
            id: format!("{}/0/{number}/charge", self.text),
            state: "open".to_owned(),
            class: Some(self.text()),
            tier: Some(self.text()),
            kind: Some(self.text()),
            code: self.text(),
            fingerprint: GROUP.to_owned(),
            message: self.text(),
            schema_id: Some(7),
            letters: 2,
            round: 1,
            attempt: Some(4),
            first_dead_at: 1_764_382_445_000,
            dead_at: 1_764_389_445_000,
            record: "3/128".to_owned(),
            key: Some(self.text()),
        }
    }

    fn whole(&self) -> Item {
        let failure = Attempted {
            kind: Some(self.text()),
            code: self.text(),
            fingerprint: GROUP.to_owned(),
            message: self.text(),
        };
        let letter = Letter {
            record: "3/128".to_owned(),
            failure,
            first_error: Some(self.text()),
            round: 1,
            attempt: Some(4),
            dead_at: 1_764_389_445_000,
            first_seen: Some(1_764_382_445_000),
            value_bytes: Some(212),
            stub: Some(self.text()),
            trace: Some(self.text()),
            ..Letter::default()
        };
        let entry = JournalEntry {
            at: 9,
            time: 1_764_389_445_000,
            what: self.text(),
            void: Some(self.text()),
            round: Some(1),
            run: Some(RUN.to_owned()),
            by: Some(self.text()),
            detail: Some(self.text()),
        };
        Item {
            row: self.row(0),
            handler: Some(self.text()),
            source: Source { topic: self.text(), partition: 0, offset: 12 },
            occurrences: vec![letter],
            journal: vec![entry],
            waiting_until: Some(1_764_389_455_000),
            late: Some(1_764_389_450_000),
        }
    }

    fn content(&self) -> Content {
        let header = |name: &[u8], value: Option<&[u8]>| Header {
            name: name.to_vec(),
            value: value.map(<[u8]>::to_vec),
        };
        Content {
            event: Event::Decoded {
                schema: self.text(),
                json: json!({ "id": self.text, "customer": { "iban": "DE89370400440532013000" }, self.text.clone(): [1, null] }),
            },
            key: Some(self.text.as_bytes().to_vec()),
            value: Some([b"\0\0\0\0\x07", self.text.as_bytes(), b"DE89370400440532013000"].concat()),
            headers: vec![
                header(self.text.as_bytes(), Some(self.text.as_bytes())),
                header(b"\xff\xfe<script>", Some(b"\xff<script>alert(1)</script>")),
                header(b"null", None),
            ],
        }
    }

    fn run_of(&self, passed: u64) -> Run {
        Run {
            run: RUN.to_owned(),
            order: "replay".to_owned(),
            by: self.text(),
            begun_at: 1_764_389_445_000,
            selection: self.text(),
            reason: Some(self.text()),
            total: 31,
            accepted: 31,
            ramp: Some(Ramp { first: 1, factor: 5, failures: 0.1, timeout: Duration::from_secs(120) }),
            status: if passed >= 31 { RunStatus::Finished } else { RunStatus::Running },
            why: Some(self.text()),
            changed_by: self.text(),
            changed_at: 1_764_389_445_000,
            passed: passed.min(31),
            pending: 31 - passed.min(31),
            under_way: Some(2),
            waiting: 1,
            waits_for: Some(self.text()),
            steps: vec![Step { items: 1, passed: 1, failed: 0 }, Step { items: 5, passed: 4, failed: 1 }],
            ..Run::default()
        }
    }

    fn plan(&self, order: &str) -> Plan {
        Plan {
            plan: PLAN.to_owned(),
            order: order.to_owned(),
            by: self.text(),
            at: 1_764_389_445_000,
            selection: self.text(),
            total: 31,
            forced: true,
            edited: true,
            reason: Some(self.text()),
            parts: vec![PlanPart {
                class: self.text(),
                target: self.text(),
                items: 31,
                undecodable: 1,
                unchecked: vec![(self.text(), 4)],
                unknown: true,
                ..PlanPart::default()
            }],
            left_out: vec![(self.text(), 3)],
            keys_done: 2,
            keys_unchecked: vec![(self.text(), 5)],
            keys_done_by_inbox: 1,
            marks_kept: self.text(),
            troubles: vec![Trouble { item: ITEM.to_owned(), trouble: self.text(), reason: self.text() }],
            ..Plan::default()
        }
    }
}

impl Letters for Fake {
    fn overview(&self, now: i64) -> Answer<Overview> {
        let class = |class: String| ClassRow {
            class,
            states: Self::states(),
            waiting: 4012,
            last_dead_at: Some(now - 60_000),
        };
        let quarter = 900_000;
        self.answer(Overview {
            states: if self.items == 0 { BTreeMap::new() } else { Self::states() },
            waiting: if self.items == 0 { 0 } else { 4012 },
            classes: if self.items == 0 {
                Vec::new()
            } else {
                vec![class("charge".to_owned()), class(self.text()), class("-".to_owned())]
            },
            trend: (0..96)
                .map(|n| TrendStep {
                    from: now - (96 - n) * quarter,
                    letters: if self.items == 0 { 0 } else { n.unsigned_abs() % 9 },
                })
                .collect(),
            open_groups: 1,
            behind: if self.items == 0 { 0 } else { 3 },
            wordless: 0,
            problem: (self.items == 3).then(|| self.text()),
        })
    }

    fn groups(&self, query: &GroupQuery) -> Answer<GroupPage> {
        let wanted = query.filter.fingerprints.first();
        if self.items == 0 || wanted.is_some_and(|wanted| wanted != GROUP) {
            return self.answer(GroupPage::default());
        }
        let key = if query.by == By::Fingerprint { GROUP.to_owned() } else { self.text() };
        self.answer(GroupPage {
            groups: vec![Group { key, ..self.group() }],
            total: 90,
            items: 4812,
            partly: false,
        })
    }

    fn items(&self, query: &ItemQuery) -> Answer<ItemPage> {
        let begin: usize =
            query.after.as_deref().map_or(Ok(0), str::parse).map_err(|_| InboxError::Request(self.text()))?;
        let end = (begin + query.limit).min(self.items);
        self.answer(ItemPage {
            items: (begin..end).map(|number| self.row(number)).collect(),
            next: (end < self.items).then(|| end.to_string()),
            total: Some(self.items as u64),
        })
    }

    fn item(&self, item: &str) -> Answer<Option<(Item, Content)>> {
        self.answer((item == ITEM).then(|| (self.whole(), self.content())))
    }
}

impl Runs for Fake {
    fn runs(&self, _: usize) -> Answer<Vec<Run>> {
        self.answer(if self.items == 0 { Vec::new() } else { vec![self.run_of(5)] })
    }

    fn run(&self, run: &str) -> Answer<Option<Run>> {
        let mut asked = self.asked.lock();
        *asked += 1;
        let passed = if self.stands { 10 } else { *asked * 10 };
        self.answer((run == RUN).then(|| self.run_of(passed)))
    }

    fn steer(&self, by: &str, run: &str, steer: &Steer) -> Answer<()> {
        self.change(by, format!("{steer:?} {run}"));
        self.answer(())
    }

    fn history(&self, query: &HistoryQuery) -> Answer<HistoryPage> {
        if self.items == 0 {
            return self.answer(HistoryPage::default());
        }
        let entry = History {
            at: 9,
            time: 1_764_389_445_000,
            by: query.by.clone().unwrap_or_else(|| self.text()),
            what: self.text(),
            run: Some(RUN.to_owned()),
            reason: Some(self.text()),
            items: 31,
            accepted: 30,
            item: Some(self.text()),
        };
        self.answer(HistoryPage { entries: vec![entry], next: Some("8".to_owned()) })
    }
}

impl Orders for Fake {
    fn prepare(&self, by: &str, order: &Order, selection: &Selection) -> Answer<Plan> {
        self.change(by, format!("prepare {order:?} {selection:?}"));
        self.answer(self.plan(order.as_str()))
    }

    fn prepared(&self, plan: &str) -> Answer<Option<Plan>> {
        self.answer((plan == PLAN).then(|| self.plan("replay")))
    }

    fn carry_out(&self, by: &str, plan: &str, begin: &Begin) -> Answer<String> {
        self.change(by, format!("carry out {plan} {begin:?}"));
        self.answer(RUN.to_owned())
    }

    fn note(&self, by: &str, audit: &Audit) -> Answer<()> {
        self.change(by, audit.what);
        self.answer(())
    }
}
