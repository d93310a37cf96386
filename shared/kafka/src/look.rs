//! Asking the cluster outside of a group, and telling in one sentence why it does not answer.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::metadata::Metadata;
use rdkafka::{ClientConfig, ClientContext};
use tracing::warn;

use crate::context::log_line;
use crate::native::add_brokers;
use crate::patience::WAITING;
use crate::refusal::{Refusal, essence};
use crate::settings::{ConnectError, LOOK_TIMEOUT, create};

/// Keeps what a client reports, to be told when a call has failed.
#[derive(Debug)]
pub(crate) struct Reports {
    /// The client's `security.protocol`.
    protocol: String,
    reported: Mutex<Reported>,
}

#[derive(Debug, Default)]
struct Reported {
    refusal: Option<Refusal>,
    trouble: Option<String>,
    all_down: bool,
}

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // That a broker closed a connection is logged, and is no error to librdkafka.
        if facility == "FAIL" {
            self.reported.lock().note(Code::BrokerTransportFailure, essence(message));
        }
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let Some(code) = error.rdkafka_error_code() else { return };
        self.reported.lock().note(code, essence(reason));
    }
}

impl Reported {
    fn note(&mut self, code: Code, reason: String) {
        match Refusal::of(code, &reason) {
            // What a broker said counts for more than what is concluded from its silence.
            Some(refusal) if refusal.is_certain() || self.refusal.is_none() => self.refusal = Some(refusal),
            Some(_) => {}
            None if code == Code::AllBrokersDown => self.all_down = true,
            None => self.trouble = Some(reason),
        }
    }
}

impl ConsumerContext for Reports {}

impl Reports {
    /// Whether to ask again is in vain: a broker said no, and no other is left.
    fn is_final(&self) -> bool {
        let reported = self.reported.lock();
        reported.all_down && reported.refusal.as_ref().is_some_and(Refusal::is_certain)
    }

    /// What was reported last, in parentheses, for whoever waits. A refusal is told in the end, with what to do.
    fn trouble(&self) -> String {
        let reported = self.reported.lock();
        let trouble = reported.trouble.as_ref().filter(|_| reported.refusal.is_none());
        trouble.map_or_else(String::new, |trouble| format!(" ({trouble})"))
    }

    fn explain(&self, bootstrap: &str, error: &KafkaError) -> ConnectError {
        let mut reported = self.reported.lock();
        let bootstrap = bootstrap.to_owned();
        if let Some(refusal) = reported.refusal.take() {
            return ConnectError::Refused { bootstrap, refusal };
        }
        let reason = reported.trouble.take().unwrap_or_else(|| match error.rdkafka_error_code() {
            Some(code) => code.to_string(),
            None => error.to_string(),
        });
        if let Some(refusal) = Refusal::of_closed_connection(&reason, &self.protocol) {
            return ConnectError::Refused { bootstrap, refusal };
        }
        ConnectError::Unreachable { bootstrap, reason }
    }
}

/// How long the first question waits for its answer; each further one waits twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// How many questions must have gone unanswered, however late it is: a process that was stopped meanwhile has asked none, and waited for none.
const LEAST_QUESTIONS: u32 = 4;

/// When to give up asking.
struct Questions {
    until: Instant,
    wait: Duration,
    asked: u32,
}

impl Questions {
    fn begin(now: Instant) -> Self {
        Self { until: now + LOOK_TIMEOUT, wait: FIRST_WAIT, asked: 0 }
    }

    /// How long the next one is to wait for its answer; none: there is no next one.
    fn next(&mut self, now: Instant) -> Option<Duration> {
        let left = self.until.saturating_duration_since(now);
        let wait = match (left.is_zero(), self.asked < LEAST_QUESTIONS) {
            (true, false) => return None,
            (true, true) => self.wait,
            (false, _) => self.wait.min(left),
        };
        (self.wait, self.asked) = (self.wait * 2, self.asked + 1);
        Some(wait)
    }
}

/// How long nothing is said of a broker that does not answer: a cluster that is well has answered by then.
const SILENT_FOR: Duration = Duration::from_secs(1);

/// What the cluster says about a topic, or about all. Asked until a broker answers, all of them refuse this client, or the time is up.
pub(crate) fn metadata(
    consumer: &BaseConsumer<Reports>,
    bootstrap: &str,
    topic: Option<&str>,
) -> Result<Metadata, ConnectError> {
    let begun = Instant::now();
    let (mut questions, mut told) = (Questions::begin(begun), false);
    let mut unanswered = KafkaError::MetadataFetch(Code::OperationTimedOut);
    while let Some(wait) = questions.next(Instant::now()) {
        unanswered = match consumer.fetch_metadata(topic, wait) {
            Ok(metadata) => return Ok(metadata),
            Err(error) => error,
        };
        add_brokers(consumer, bootstrap);
        take_reports(consumer);
        if consumer.context().is_final() {
            break;
        }
        if !told && begun.elapsed() >= SILENT_FOR {
            told = true;
            let (trouble, within) = (consumer.context().trouble(), LOOK_TIMEOUT.as_secs());
            warn!(target: WAITING, "no broker of `{bootstrap}` answers yet{trouble}; still trying, for {within} s in all");
        }
    }
    Err(consumer.context().explain(bootstrap, &unanswered))
}

/// The context hears of errors and log lines in `poll` only. A wait above zero makes it take log lines without end, and keeps calls
/// that fail at once from being repeated as fast as they fail.
fn take_reports(consumer: &BaseConsumer<Reports>) {
    while consumer.poll(Duration::from_millis(20)).is_some() {}
}

/// A client that asks. For it, a connection that is closed is worth a log line, and log lines are heard though nobody may see them.
pub(crate) fn client<T: FromClientConfigAndContext<Reports>>(
    mut config: ClientConfig,
) -> Result<T, ConnectError> {
    config.set("log.connection.close", "true").set_log_level(RDKafkaLogLevel::Info);
    let protocol = config.get("security.protocol").unwrap_or("PLAINTEXT").to_owned();
    create(&config, Reports { protocol, reported: Mutex::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_fill_their_time_and_a_process_that_stood_still_asks_again() {
        let begin = Instant::now();
        let (mut questions, mut now, mut asked) = (Questions::begin(begin), begin, 0);
        while let Some(wait) = questions.next(now) {
            (now, asked) = (now + wait, asked + 1);
        }
        assert_eq!((now - begin, asked), (LOOK_TIMEOUT, 5));
        let mut questions = Questions::begin(begin);
        assert_eq!(questions.next(begin), Some(FIRST_WAIT));
        // It is stopped, and goes on a minute later.
        let late = begin + Duration::from_secs(60);
        let waits: Vec<Duration> = std::iter::from_fn(|| questions.next(late)).collect();
        assert_eq!(waits, [2, 4, 8].map(|times| FIRST_WAIT * times));
    }
}
