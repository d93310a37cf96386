//! Publishing: an idempotent producer whose delivery reports come back as acknowledgements, with a bound on what is in flight.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::Message;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::util::IntoOpaque;
use rdkafka::{ClientConfig, ClientContext};
use tidegate_domain::{Offset, UnixMillis};
use tidegate_pipeline::Inbox;
use tidegate_pipeline::ports::{Acknowledged, Delivery, PublishError, RecordPublisher, Ticket};
use tidegate_pipeline::record::OutboundRecord;
use tracing::error;

use crate::classify::{publish_error, publish_failure};
use crate::context::{log_client_error, log_line};
use crate::fatal::Fatal;
use crate::native::ReportQueue;
use crate::settings::{ConnectError, KafkaSettings, create};

/// How many records may be on their way; below librdkafka's own bound, so that it never has to refuse one.
const IN_FLIGHT: usize = 100_000;

/// Where a delivery report goes.
struct Report {
    ticket: Ticket,
    inbox: Arc<Inbox<Delivery>>,
}

struct Context {
    in_flight: AtomicUsize,
    fatal: Fatal,
    /// A record was not delivered in time: the client may have lost its brokers.
    timed_out: AtomicBool,
    bootstrap: String,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log_line(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        log_client_error("producer", &error, reason);
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Report>;

    fn delivery(&self, result: &DeliveryResult<'_>, report: Box<Report>) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        let result = match result {
            Ok(record) if record.offset() < 0 => Err(PublishError::Unavailable(PLACELESS.to_owned())),
            Ok(record) => Ok(Acknowledged {
                offset: Offset(record.offset()),
                append_time: UnixMillis(record.timestamp().to_millis().unwrap_or(0)),
            }),
            Err((error, _)) => Err(publish_failure(error)),
        };
        match &result {
            Err(PublishError::Fatal(reason)) => self.fatal.report(reason),
            Err(PublishError::Unavailable(_)) => self.timed_out.store(true, Ordering::Relaxed),
            _ => {}
        }
        report.inbox.push((report.ticket, result));
    }
}

/// Told of a record that librdkafka calls delivered and that no broker has named a place for.
///
/// When a request fails and the one behind it, in flight at the same time, succeeds, librdkafka concludes that the first was written
/// too, for a broker takes the records of a producer in sequence (`rd_kafka_dr_implicit_ack`). But a broker that knows nothing of the
/// producer takes whatever comes first from it. So the first records of a producer in a partition can be called delivered and be
/// nowhere: the chaos runs met it while a topic had too few replicas. Such a record has no offset. Published again it is there twice
/// at most, which marks absorb.
const PLACELESS: &str = "the broker named no place for the record: it may not be there";

/// Publishes records; see [`RecordPublisher`].
pub struct Publisher {
    /// Ends before the producer does, which then serves what is left itself.
    _reports: Reports,
    producer: Arc<BaseProducer<Context>>,
}

/// The thread that takes delivery reports from a producer. It sleeps until there are any: the crate's own `ThreadedProducer` looks ten
/// times a second, and spins for the last millisecond each time, which costs an idle process one percent of a processor for each
/// producer.
struct Reports {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reports {
    fn of(producer: Arc<BaseProducer<Context>>) -> std::io::Result<Self> {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let serve = move || {
            let queue = ReportQueue::served_here(producer);
            while !ends.load(Ordering::Acquire) {
                queue.serve();
                thread::park();
            }
        };
        let thread = thread::Builder::new().name("kafka-reports".to_owned()).spawn(serve)?;
        Ok(Self { is_over, thread: Some(thread) })
    }
}

impl Drop for Reports {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        let Some(thread) = self.thread.take() else { return };
        thread.thread().unpark();
        if thread.join().is_err() {
            error!("the thread of a producer's delivery reports panicked");
        }
    }
}

impl std::fmt::Debug for Publisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let in_flight = self.producer.context().in_flight.load(Ordering::Relaxed);
        f.debug_struct("Publisher").field("in_flight", &in_flight).finish_non_exhaustive()
    }
}

impl Publisher {
    /// A producer; it connects by itself, now or later.
    pub fn new(settings: &KafkaSettings, fatal: Fatal) -> Result<Self, ConnectError> {
        Self::with_config(&settings.producer(), settings, fatal)
    }

    /// A producer that never lets a record overtake an earlier one of its partition, nor lets one expire while a later one may still
    /// land: a record is on its way until the broker takes it or refuses it for good. Slower where brokers are far.
    pub fn in_order(settings: &KafkaSettings, fatal: Fatal) -> Result<Self, ConnectError> {
        Self::with_config(&settings.ordered_producer(), settings, fatal)
    }

    /// A producer whose records are packed already and do not wait for more of them: for changelogs. An append that fails is known
    /// after 15 s; it may be in the log all the same.
    pub fn for_changelog(settings: &KafkaSettings, fatal: Fatal) -> Result<Self, ConnectError> {
        Self::with_config(&settings.changelog_producer(), settings, fatal)
    }

    fn with_config(
        config: &ClientConfig,
        settings: &KafkaSettings,
        fatal: Fatal,
    ) -> Result<Self, ConnectError> {
        let context = Context {
            in_flight: AtomicUsize::new(0),
            fatal,
            timed_out: AtomicBool::new(false),
            bootstrap: settings.bootstrap.clone(),
        };
        let producer = Arc::new(create::<_, BaseProducer<_>>(config, context)?);
        let reports = Reports::of(producer.clone()).map_err(ConnectError::Thread)?;
        Ok(Self { _reports: reports, producer })
    }

    /// Waits until everything that was handed over is reported, at most this long; true when it is.
    pub fn flush(&self, at_most: Duration) -> bool {
        self.producer.flush(at_most).is_ok()
    }
}

impl RecordPublisher for Publisher {
    fn publish(
        &self,
        record: &OutboundRecord<'_>,
        ticket: Ticket,
        inbox: &Arc<Inbox<Delivery>>,
    ) -> Result<(), PublishError> {
        let context = self.producer.context();
        if context.in_flight.fetch_add(1, Ordering::Relaxed) >= IN_FLIGHT {
            context.in_flight.fetch_sub(1, Ordering::Relaxed);
            return Err(PublishError::Full);
        }
        if context.timed_out.swap(false, Ordering::Relaxed) {
            crate::native::add_brokers(&*self.producer, &context.bootstrap);
        }
        let report = Box::new(Report { ticket, inbox: inbox.clone() });
        match send(&self.producer, record, report) {
            Ok(()) => Ok(()),
            Err(error) => {
                context.in_flight.fetch_sub(1, Ordering::Relaxed);
                if let PublishError::Fatal(reason) = &error {
                    context.fatal.report(reason);
                }
                Err(error)
            }
        }
    }
}

#[allow(unsafe_code, reason = "the crate's own `send` takes no header names but UTF-8, and copies more")]
fn send(
    producer: &BaseProducer<Context>,
    record: &OutboundRecord<'_>,
    report: Box<Report>,
) -> Result<(), PublishError> {
    let opaque = report.into_ptr();
    // SAFETY: the producer lives through the call; `opaque` is what its context turns back into a `Box<Report>`, once: with the
    // delivery report when the record was taken, here when it was not.
    unsafe {
        crate::native::produce(producer.client().native_ptr(), record, opaque).map_err(|code| {
            drop(Box::<Report>::from_ptr(opaque));
            publish_error(code)
        })
    }
}
