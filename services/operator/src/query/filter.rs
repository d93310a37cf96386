//! Which items are asked for.

use serde::{Deserialize, Serialize};
use tidegate_domain::FailureKind;
use tidegate_domain::inbox::State;

/// What stands for no class, tier, kind or schema in a filter.
pub const NONE: &str = "-";

/// Which items are asked for: those that fit every part that is not empty, and of a part any of its values. A failure's facts are
/// those of an item's latest letter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Filter {
    /// Names of states: `open`, `replaying`, `resolved`, `already-done`, `failed-again`, `discarded`.
    pub states: Vec<String>,
    /// Classes; `-` is none.
    pub classes: Vec<String>,
    /// Tiers; `-` is none.
    pub tiers: Vec<String>,
    /// Kinds of failure; `-` is none.
    pub kinds: Vec<String>,
    /// Codes of failure.
    pub codes: Vec<String>,
    /// Fingerprints, 16 hex digits each.
    pub fingerprints: Vec<String>,
    /// Ids of schemas; `-` is none.
    pub schemas: Vec<String>,
    /// Handlers, as the configuration has them: `http POST https://…`, `log`, `rust`.
    pub handlers: Vec<String>,
    /// Source topics.
    pub sources: Vec<String>,
    /// Dead-lettered at this time or later, in milliseconds since the epoch.
    pub since: Option<i64>,
    /// Dead-lettered before this time.
    pub until: Option<i64>,
    /// Idempotency key, 32 hex digits.
    pub key: Option<String>,
    /// Words that the message, the key or the payload has, all of them; the last one may be a beginning (`refus*`).
    pub text: Option<String>,
}

/// A part of a filter that can't be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// There is no such state.
    #[error("`{0}` is no state: it is open, replaying, resolved, already-done, failed-again or discarded")]
    State(String),
    /// There is no such kind.
    #[error(
        "`{0}` is no kind of failure: it is transient, timeout, overload, permanent, malformed, unroutable, conflict, crash, or - for none"
    )]
    Kind(String),
    /// Not of a fingerprint's form.
    #[error("`{0}` is no fingerprint: it has 16 hex digits, as `tidegate dlq groups` prints them")]
    Fingerprint(String),
    /// Not of a schema id's form.
    #[error("`{0}` is no schema id: it is a number, or - for none")]
    Schema(String),
    /// Not of a key's form.
    #[error("`{0}` is no idempotency key: it has 32 hex digits")]
    Key(String),
    /// Nothing to look for.
    #[error("there is no word to look for in `{0}`")]
    Text(String),
}

/// A filter that was read: its parts are what they must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) states: Vec<State>,
    pub(crate) key: Option<[u8; 16]>,
    pub(crate) text: Option<Vec<Term>>,
    pub(crate) fingerprints: Vec<i64>,
    pub(crate) schemas: Vec<Option<u32>>,
}

/// A word that is looked for, or the beginning of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Term {
    pub(crate) word: String,
    pub(crate) is_beginning: bool,
}

impl Filter {
    /// Of this group alone.
    pub fn of_group(fingerprint: &str) -> Self {
        Self { fingerprints: vec![fingerprint.to_owned()], ..Self::default() }
    }

    /// Whether it is of its form; see [`FilterError`].
    pub fn check(&self) -> Result<(), FilterError> {
        self.read().map(drop)
    }

    pub(crate) fn read(&self) -> Result<Wanted, FilterError> {
        let state = |name: &String| State::from_name(name).ok_or_else(|| FilterError::State(name.clone()));
        for kind in self.kinds.iter().filter(|kind| *kind != NONE) {
            FailureKind::from_name(kind).ok_or_else(|| FilterError::Kind(kind.clone()))?;
        }
        let schema = |text: &String| match text.as_str() {
            NONE => Ok(None),
            text => text.parse().map(Some).map_err(|_| FilterError::Schema(text.to_owned())),
        };
        let key = |text: &String| {
            tidegate_domain::IdempotencyKey::parse(text)
                .map(|key| key.0)
                .ok_or_else(|| FilterError::Key(text.clone()))
        };
        Ok(Wanted {
            states: self.states.iter().map(state).collect::<Result<_, _>>()?,
            key: self.key.as_ref().map(key).transpose()?,
            text: self.text.as_deref().map(terms).transpose()?,
            fingerprints: self.fingerprints.iter().map(|hex| fingerprint(hex)).collect::<Result<_, _>>()?,
            schemas: self.schemas.iter().map(schema).collect::<Result<_, _>>()?,
        })
    }
}

pub(crate) fn fingerprint(hex: &str) -> Result<i64, FilterError> {
    let fits = hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let parsed = if fits { u64::from_str_radix(hex, 16).ok() } else { None };
    parsed.map(u64::cast_signed).ok_or_else(|| FilterError::Fingerprint(hex.to_owned()))
}

/// The words of a text. What parts words in the full-text table parts them here: it holds no order of words, so a phrase can't be
/// looked for. Nothing of what a person writes is syntax but a star at the end of a word.
fn terms(text: &str) -> Result<Vec<Term>, FilterError> {
    let mut terms = Vec::new();
    for written in text.split_whitespace() {
        let words = written.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        terms.extend(words.map(|word| Term { word: word.to_owned(), is_beginning: false }));
        if written.ends_with('*')
            && written.trim_end_matches('*').ends_with(char::is_alphanumeric)
            && let Some(last) = terms.last_mut()
        {
            last.is_beginning = true;
        }
    }
    if terms.is_empty() { Err(FilterError::Text(text.to_owned())) } else { Ok(terms) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_person_writes_is_syntax_of_the_search_but_a_star() {
        let read = |text: &str| {
            let star = |is_beginning| if is_beginning { "*" } else { "" };
            terms(text).map(|terms| {
                let terms = terms.iter().map(|term| format!("{}{}", term.word, star(term.is_beginning)));
                terms.collect::<Vec<_>>().join(" ")
            })
        };
        for (written, looked_for) in [
            ("connection refused", "connection refused"),
            ("refus*", "refus*"),
            ("\"a b\" OR (c NEAR d)", "a b OR c NEAR d"),
            ("order-4711: gone", "order 4711 gone"),
            ("order-47* -- *", "order 47*"),
            ("words:x ^y", "words x y"),
        ] {
            assert_eq!(read(written).as_deref(), Ok(looked_for), "{written}");
        }
        assert_eq!(read(" -- * "), Err(FilterError::Text(" -- * ".to_owned())));
    }

    #[test]
    fn a_part_that_can_not_be_is_refused_by_its_name() {
        let refused = |filter: Filter| filter.check().err().map(|error| error.to_string());
        let text = |word: &str| vec![word.to_owned()];
        assert!(
            refused(Filter { states: text("done"), ..Filter::default() })
                .is_some_and(|e| e.contains("`done`"))
        );
        assert!(
            refused(Filter { kinds: text("bad"), ..Filter::default() }).is_some_and(|e| e.contains("`bad`"))
        );
        assert!(
            refused(Filter { schemas: text("x"), ..Filter::default() }).is_some_and(|e| e.contains("`x`"))
        );
        assert!(refused(Filter::of_group("12")).is_some_and(|e| e.contains("`12`")));
        assert!(refused(Filter { key: Some("k".to_owned()), ..Filter::default() }).is_some());
        assert_eq!(refused(Filter { kinds: text("-"), schemas: text("-"), ..Filter::default() }), None);
    }
}
