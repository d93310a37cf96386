//! What a handler may answer, what kinds of failure there are, and how failures are recognised as one cause.
//!
//! Every adapter classifies its own errors into a [`FailureKind`] in one place; what follows from a kind is decided in
//! [`crate::ladder`] alone.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use xxhash_rust::xxh3::Xxh3;

/// What kind of thing went wrong. Only the first three are retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureKind {
    /// The dependency or the connection failed; the same job may succeed later.
    Transient,
    /// The job ran past its class's time limit, or its dependency did not answer in time.
    Timeout,
    /// The dependency asked for less load.
    Overload,
    /// The job was understood and refused; running it again gives the same answer.
    Permanent,
    /// The record can't be decoded, or lacks its key.
    Malformed,
    /// No class and no ignore rule matches the event.
    Unroutable,
    /// Another job with the same key and another payload is alive or done.
    Conflict,
    /// Running the job ended the process.
    Crash,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Transient,
        Self::Timeout,
        Self::Overload,
        Self::Permanent,
        Self::Malformed,
        Self::Unroutable,
        Self::Conflict,
        Self::Crash,
    ];

    /// Whether the same job may succeed later.
    pub fn may_heal(self) -> bool {
        matches!(self, Self::Transient | Self::Timeout | Self::Overload)
    }

    /// The name in headers, metrics and output.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Timeout => "timeout",
            Self::Overload => "overload",
            Self::Permanent => "permanent",
            Self::Malformed => "malformed",
            Self::Unroutable => "unroutable",
            Self::Conflict => "conflict",
            Self::Crash => "crash",
        }
    }

    /// The kind called `name`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a job, or a record that could not become one, failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What follows from it.
    pub kind: FailureKind,
    /// A stable short name of the cause, such as `http-503` or `missing-key`.
    pub code: Cow<'static, str>,
    /// For a person.
    pub message: String,
    /// Not before this much time has passed (HTTP `Retry-After`).
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of `kind`.
    pub fn new(kind: FailureKind, code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into(), retry_after: None }
    }

    /// The same job may succeed later.
    pub fn transient(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Transient, code, message)
    }

    /// Running the job again gives the same answer.
    pub fn permanent(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Permanent, code, message)
    }

    /// The record can't be decoded, or lacks its key.
    pub fn malformed(code: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self::new(FailureKind::Malformed, code, message)
    }

    /// The same failure, not to be tried again before `wait` has passed.
    #[must_use]
    pub fn with_retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// The same for all failures of one cause; see [`fingerprint`].
    pub fn fingerprint(&self) -> Fingerprint {
        fingerprint(self.kind, &self.code, &self.message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}: {}", self.kind, self.code, self.message)
    }
}

impl std::error::Error for Failure {}

/// What a handler answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The effect is durable.
    Done,
    /// It failed; the kind says whether it is tried again.
    Failed(Failure),
    /// Not now: run it again after this wait, without using an attempt.
    Snooze(Duration),
}

/// One cause of failure: equal for messages that differ in numbers, ids and hex only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// How much of a message tells causes apart; the tail is more often payload than cause.
const FINGERPRINTED_CHARS: usize = 200;

/// The fingerprint of a failure. Part of the format of DLQ records: changing it splits the groups that operators see.
pub fn fingerprint(kind: FailureKind, code: &str, message: &str) -> Fingerprint {
    let mut hash = Xxh3::new();
    for part in [kind.as_str(), code, &mask(message)] {
        hash.update(part.as_bytes());
        hash.update(&[0]);
    }
    Fingerprint(hash.digest())
}

/// The message with every number, id and run of hex replaced by `#`, at most `FINGERPRINTED_CHARS` characters of it.
///
/// A word is masked whole when it holds a digit: `order-4711`, `0x1f`, `3fa85f64-5717-4562`, `12.5ms`. Words are cut at
/// white space and at the punctuation that surrounds values, not at `-`, `.`, `_` and `:` within them.
pub fn mask(message: &str) -> String {
    let mut masked = String::with_capacity(message.len().min(FINGERPRINTED_CHARS));
    for piece in message.split_inclusive(|c: char| !is_word(c)) {
        let word = piece.trim_end_matches(|c: char| !is_word(c));
        let rest = &piece[word.len()..];
        if word.chars().any(|c| c.is_ascii_digit()) || is_long_hex(word) {
            masked.push('#');
        } else {
            masked.push_str(word);
        }
        masked.push_str(rest);
        if masked.chars().count() >= FINGERPRINTED_CHARS {
            break;
        }
    }
    masked.chars().take(FINGERPRINTED_CHARS).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '-' | '.' | '_' | ':')
}

fn is_long_hex(word: &str) -> bool {
    word.len() >= 8 && word.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn print(message: &str) -> Fingerprint {
        fingerprint(FailureKind::Transient, "code", message)
    }

    fn check(masked: &str, messages: &[&str]) {
        for message in messages {
            assert_eq!(mask(message), masked, "{message}");
            assert_eq!(print(message), print(messages[0]), "{message}");
        }
    }

    #[test]
    fn numbers_ids_uuids_hex_and_addresses_are_masked() {
        check(
            "order # not found",
            &["order 4711 not found", "order 0 not found", "order order-12 not found"],
        );
        check("took # of #", &["took 12.5ms of 30s", "took 1ms of 2m"]);
        check(
            "user # is gone",
            &[
                "user 3fa85f64-5717-4562-b3fc-2c963f66afa6 is gone",
                "user deadbeef-dead-beef-dead-beefdeadbeef is gone",
                "user DEADBEEF is gone",
                "user usr_01HZX is gone",
            ],
        );
        check("at #", &["at 0x7ffe12ab", "at cafebabe", "at 10.0.0.1:9092"]);
        check(
            "connect to (#): refused",
            &["connect to (10.0.0.1:9092): refused", "connect to (kafka-2.local:9092): refused"],
        );
        check(
            r#"{"id": #, "state": "bad"}"#,
            &[r#"{"id": 1, "state": "bad"}"#, r#"{"id": 22, "state": "bad"}"#],
        );
        check("id=#&at=#", &["id=7&at=12:30:01", "id=88&at=2025-11-29T12:30:01Z"]);
    }

    #[test]
    fn words_stay_and_so_do_short_words_of_hex_letters() {
        for message in
            ["bad face", "connection refused", "io::Error: feed", "no such table: cafe_menu", "", "  -- "]
        {
            assert_eq!(mask(message), message);
        }
    }

    #[test]
    fn different_causes_have_different_fingerprints() {
        let base = print("connection refused");
        assert_ne!(base, print("connection reset"));
        assert_ne!(base, fingerprint(FailureKind::Timeout, "code", "connection refused"));
        assert_ne!(base, fingerprint(FailureKind::Transient, "code-2", "connection refused"));
        // The parts don't run into each other.
        let kind = FailureKind::Transient;
        assert_ne!(fingerprint(kind, "ab", "c"), fingerprint(kind, "a", "bc"));
        assert_ne!(fingerprint(kind, "", "abc"), fingerprint(kind, "abc", ""));
        assert_eq!(Failure::transient("code", "connection refused").fingerprint(), base);
    }

    #[test]
    fn fingerprints_stay_what_they_are() {
        let print = fingerprint(FailureKind::Overload, "http-503", "shop 12 unavailable");
        assert_eq!(print.to_string(), "38f905dd99d28bba");
    }

    #[test]
    fn only_the_head_of_a_message_tells_causes_apart() {
        let head = "é".repeat(FINGERPRINTED_CHARS);
        assert_eq!(print(&format!("{head} a")), print(&format!("{head} b")));
        assert_ne!(print(&format!("{} a", &head[4..])), print(&format!("{} b", &head[4..])));
        assert_eq!(mask(&head), head);
    }

    #[test]
    fn a_message_of_a_megabyte_is_masked_without_being_read_to_its_end() {
        for (message, masked) in [
            ("x".repeat(1 << 20), "x".repeat(FINGERPRINTED_CHARS)),
            ("😀".repeat(1 << 18), "😀".repeat(FINGERPRINTED_CHARS)),
            ("7".repeat(1 << 20), "#".to_owned()),
            ("a ".repeat(1 << 19), "a ".repeat(FINGERPRINTED_CHARS / 2)),
            ("1 ".repeat(1 << 19), "# ".repeat(FINGERPRINTED_CHARS / 2)),
        ] {
            assert_eq!(mask(&message), masked);
        }
    }

    #[test]
    fn every_kind_is_found_by_its_name_and_three_of_them_may_heal() {
        for kind in FailureKind::ALL {
            assert_eq!(FailureKind::from_name(kind.as_str()), Some(kind));
            assert_eq!(kind.to_string(), kind.as_str());
        }
        assert_eq!(FailureKind::from_name("Transient"), None);
        let heal: Vec<_> = FailureKind::ALL.into_iter().filter(|kind| kind.may_heal()).collect();
        assert_eq!(heal, [FailureKind::Transient, FailureKind::Timeout, FailureKind::Overload]);
    }

    #[test]
    fn a_failure_says_kind_code_and_message() {
        let failure = Failure::malformed("missing-key", "field 2 is null");
        assert_eq!(failure.to_string(), "malformed/missing-key: field 2 is null");
        assert_eq!(Failure::permanent("http-422", "no").kind, FailureKind::Permanent);
        let wait = Duration::from_secs(7);
        assert_eq!(Failure::transient("http-503", "later").with_retry_after(wait).retry_after, Some(wait));
    }

    proptest! {
        #[test]
        fn any_text_is_masked_to_at_most_its_head_and_again_to_itself(message in "(\\PC|[0-9a-f\\- ]){0,400}") {
            let masked = mask(&message);
            prop_assert!(masked.chars().count() <= FINGERPRINTED_CHARS);
            prop_assert!(!masked.bytes().any(|b| b.is_ascii_digit()));
            prop_assert!(masked.chars().count() <= message.chars().count());
        }

        #[test]
        fn messages_that_differ_in_one_number_are_one_cause(before in "[a-z ,]{0,60}", a in any::<u64>(), b in any::<u64>(), after in "[a-z ,]{0,60}") {
            prop_assert_eq!(print(&format!("{before} {a} {after}")), print(&format!("{before} {b} {after}")));
        }
    }
}
