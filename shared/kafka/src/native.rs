//! Calls to librdkafka that its Rust crate has no safe way for: batches from a split partition queue, being told when a queue has
//! something, header names that are no UTF-8 (the crate panics on them), and cached watermarks.
#![allow(unsafe_code, reason = "the calls are documented with why each is sound")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::Arc;
use std::thread::Thread;
use std::time::Duration;

use rdkafka::ClientContext;
use rdkafka::admin::AdminClient;
use rdkafka::bindings as sys;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::producer::{BaseProducer, Producer, ProducerContext};
use rdkafka::types::RDKafkaRespErr;
use tidegate_domain::{CommitPosition, Offset, UnixMillis};
use tidegate_pipeline::record::OutboundRecord;
use tidegate_pipeline::{Record, RecordBuilder, Wake};

/// The queue of one partition, split from its consumer's. Keeps the consumer alive.
pub(crate) struct PartitionQueue<C: ConsumerContext> {
    consumer: Arc<BaseConsumer<C>>,
    queue: *mut sys::rd_kafka_queue_t,
    topic: CString,
    partition: i32,
    /// From [`Box::into_raw`]: librdkafka has the same pointer. `drop` makes it a box again.
    wake: *mut Wake,
    messages: Vec<*mut sys::rd_kafka_message_t>,
    end: Option<CommitPosition>,
}

// SAFETY: librdkafka's queues may be used from any thread; the raw messages live within one call of `take` only; `Wake` is shared
// by threads anyway.
unsafe impl<C: ConsumerContext> Send for PartitionQueue<C> {}

/// An error that stands in the queue in place of a record.
#[derive(Debug)]
pub(crate) struct QueueError {
    pub(crate) code: RDKafkaErrorCode,
    pub(crate) message: String,
}

unsafe extern "C" fn became_nonempty(_: *mut sys::rd_kafka_t, wake: *mut c_void) {
    // SAFETY: the pointer is the `wake` of a `PartitionQueue`, from `Box::into_raw`. Nobody has a `&mut` to it, and `drop` disables this
    // callback, under the lock that it is called under, before it frees the box.
    let wake = unsafe { &*wake.cast::<Wake>() };
    wake.wake();
}

impl<C: ConsumerContext> PartitionQueue<C> {
    /// Splits the partition's queue. Must be called before the partition is assigned: what was fetched before goes elsewhere.
    pub(crate) fn split(
        consumer: Arc<BaseConsumer<C>>,
        topic: &str,
        partition: i32,
        wake: Wake,
    ) -> Option<Self> {
        let topic = CString::new(topic).ok()?;
        // SAFETY: the client lives as long as `consumer`; the queue is ours to destroy; forwarding to null keeps its records here. The
        // callback's pointer owns its `Wake` from `into_raw` on, so that moving this value moves no box under librdkafka's copy of
        // the pointer; it is valid until `drop` disables the callback.
        let (queue, wake) = unsafe {
            let queue =
                sys::rd_kafka_queue_get_partition(consumer.client().native_ptr(), topic.as_ptr(), partition);
            if queue.is_null() {
                return None;
            }
            sys::rd_kafka_queue_forward(queue, ptr::null_mut());
            let wake = Box::into_raw(Box::new(wake));
            sys::rd_kafka_queue_cb_event_enable(queue, Some(became_nonempty), wake.cast::<c_void>());
            (queue, wake)
        };
        Some(Self { consumer, queue, topic, partition, wake, messages: Vec::new(), end: None })
    }

    /// Takes at most `max` entries that are at hand; returns how many there were. An error ends the batch: what came before it is
    /// in `into`.
    pub(crate) fn take(&mut self, max: usize, into: &mut Vec<Record>) -> (usize, Option<QueueError>) {
        self.take_within(Duration::ZERO, max, into)
    }

    /// Like [`PartitionQueue::take`]; when nothing is at hand, waits at most this long for the first entry.
    pub(crate) fn take_or_wait(
        &mut self,
        at_most: Duration,
        max: usize,
        into: &mut Vec<Record>,
    ) -> (usize, Option<QueueError>) {
        // The call waits until it has all that it is asked for.
        match self.take_within(at_most, 1, into) {
            (1, None) => {
                let (taken, failed) = self.take(max.saturating_sub(1), into);
                (taken + 1, failed)
            }
            nothing_or_failed => nothing_or_failed,
        }
    }

    /// Where the partition ended when its end was reached last. Known only to a client with `enable.partition.eof`.
    pub(crate) fn end(&self) -> Option<CommitPosition> {
        self.end
    }

    fn take_within(
        &mut self,
        wait: Duration,
        max: usize,
        into: &mut Vec<Record>,
    ) -> (usize, Option<QueueError>) {
        // Whatever stands there is of a call before, and is written over.
        if self.messages.len() < max {
            self.messages.resize(max, ptr::null_mut());
        }
        let millis = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the array has room for `max` pointers.
        let taken =
            unsafe { sys::rd_kafka_consume_batch_queue(self.queue, millis, self.messages.as_mut_ptr(), max) };
        let taken = usize::try_from(taken).unwrap_or(0);
        let mut failed = None;
        for &message in &self.messages[..taken] {
            // SAFETY: librdkafka filled the first `taken` places with messages that are ours until destroyed; each is read and
            // destroyed once, here.
            unsafe {
                match (*message).err {
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => into.push(record(message)),
                    RDKafkaRespErr::RD_KAFKA_RESP_ERR__PARTITION_EOF => {
                        self.end = Some(CommitPosition((*message).offset));
                    }
                    error => failed = Some(queue_error(error, message)),
                }
                sys::rd_kafka_message_destroy(message);
            }
        }
        (taken, failed)
    }

    /// The high watermark as of the last fetch; asks nobody.
    pub(crate) fn high_watermark(&self) -> Option<CommitPosition> {
        let (mut low, mut high) = (0, 0);
        // SAFETY: client and topic outlive the call, which only reads what the client has cached.
        let result = unsafe {
            let client = self.consumer.client().native_ptr();
            sys::rd_kafka_get_watermark_offsets(
                client,
                self.topic.as_ptr(),
                self.partition,
                &raw mut low,
                &raw mut high,
            )
        };
        (result == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0).then_some(CommitPosition(high))
    }
}

impl<C: ConsumerContext> Drop for PartitionQueue<C> {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and was not destroyed; without the callback librdkafka does not use `wake` any more, and nobody
        // has freed it.
        let wake = unsafe {
            sys::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut());
            sys::rd_kafka_queue_destroy(self.queue);
            Box::from_raw(self.wake)
        };
        wake.wake();
    }
}

/// What a producer has to tell: delivery reports, errors, lines of its log. Keeps the producer alive.
pub(crate) struct ReportQueue<C: ProducerContext> {
    producer: Arc<BaseProducer<C>>,
    queue: *mut sys::rd_kafka_queue_t,
    /// From [`Box::into_raw`]: librdkafka has the same pointer. `drop` makes it a box again.
    server: *mut Thread,
}

unsafe extern "C" fn has_reports(_: *mut sys::rd_kafka_t, server: *mut c_void) {
    // SAFETY: the pointer is the `server` of a `ReportQueue`, from `Box::into_raw`. Nobody has a `&mut` to it, and `drop` disables this
    // callback, under the lock that it is called under, before it frees the box.
    let server = unsafe { &*server.cast::<Thread>() };
    server.unpark();
}

impl<C: ProducerContext> ReportQueue<C> {
    /// The queue of a producer that nobody else serves. From now on this thread is unparked when something comes while it is empty.
    pub(crate) fn served_here(producer: Arc<BaseProducer<C>>) -> Self {
        let server = Box::into_raw(Box::new(std::thread::current()));
        // SAFETY: the client lives as long as `producer`; the reference to its queue is ours to destroy. The callback's pointer owns its
        // `Thread`, and is valid until `drop` disables the callback.
        let queue = unsafe {
            let queue = sys::rd_kafka_queue_get_main(producer.client().native_ptr());
            sys::rd_kafka_queue_cb_event_enable(queue, Some(has_reports), server.cast::<c_void>());
            queue
        };
        Self { producer, queue, server }
    }

    /// Tells the producer's context all that is there. What comes later than this looked unparks the thread.
    pub(crate) fn serve(&self) {
        // SAFETY: the queue is not destroyed before `drop`.
        while unsafe { sys::rd_kafka_queue_length(self.queue) } > 0 {
            self.producer.poll(Duration::ZERO);
        }
    }
}

impl<C: ProducerContext> Drop for ReportQueue<C> {
    fn drop(&mut self) {
        // SAFETY: the queue is ours and was not destroyed; without the callback librdkafka does not use `server` any more, and nobody
        // has freed it.
        unsafe {
            sys::rd_kafka_queue_cb_event_enable(self.queue, None, ptr::null_mut());
            sys::rd_kafka_queue_destroy(self.queue);
            drop(Box::from_raw(self.server));
        }
    }
}

/// Names the brokers to a client again. After a stall of all brokers the first answer may name none, and librdkafka then forgets
/// those that it was configured with (confluentinc/librdkafka#5301): it would never look again.
pub(crate) fn add_brokers(client: &impl NativeClient, bootstrap: &str) {
    let Ok(brokers) = CString::new(bootstrap) else { return };
    // SAFETY: the client lives as long as the reference, and the addresses through the call, which copies them.
    let added = unsafe { sys::rd_kafka_brokers_add(client.native_client(), brokers.as_ptr()) };
    tracing::debug!(added, "named the brokers again");
}

/// A live client of librdkafka.
pub(crate) trait NativeClient {
    fn native_client(&self) -> *mut sys::rd_kafka_t;
}

impl<C: ConsumerContext> NativeClient for BaseConsumer<C> {
    fn native_client(&self) -> *mut sys::rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ProducerContext> NativeClient for BaseProducer<C> {
    fn native_client(&self) -> *mut sys::rd_kafka_t {
        self.client().native_ptr()
    }
}

impl<C: ClientContext> NativeClient for AdminClient<C> {
    fn native_client(&self) -> *mut sys::rd_kafka_t {
        self.inner().native_ptr()
    }
}

/// Copies a message.
///
/// # Safety
/// `message` must be a message without error that librdkafka handed out and that is not destroyed.
unsafe fn record(message: *mut sys::rd_kafka_message_t) -> Record {
    // SAFETY: by this function's contract; lengths and pointers of a message belong together.
    unsafe {
        let m = &*message;
        let (key, value) = (bytes(m.key, m.key_len), bytes(m.payload, m.len));
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        let timestamp = sys::rd_kafka_message_timestamp(message, &raw mut kind);
        let timestamp = (timestamp >= 0).then_some(UnixMillis(timestamp));
        let mut headers = ptr::null_mut();
        let has_headers = sys::rd_kafka_message_headers(message, &raw mut headers)
            == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
        // Measured first, so that the record's one allocation needs no second.
        let mut size = 0;
        if has_headers {
            each_header(headers, |name, value| size += RecordBuilder::header_size(name, value));
        }
        let mut builder = RecordBuilder::new(Offset(m.offset), timestamp, key, value, size);
        if kind == sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME {
            builder.appended_by_broker();
        }
        if has_headers {
            each_header(headers, |name, value| {
                builder.header(name, value);
            });
        }
        builder.build()
    }
}

/// # Safety
/// `headers` must belong to a message that is not destroyed.
unsafe fn each_header(headers: *const sys::rd_kafka_headers_t, mut tell: impl FnMut(&[u8], Option<&[u8]>)) {
    for place in 0.. {
        let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
        // SAFETY: by this function's contract; a place past the end gives an error.
        let found = unsafe {
            sys::rd_kafka_header_get_all(headers, place, &raw mut name, &raw mut value, &raw mut size)
        };
        if found != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return;
        }
        // SAFETY: names are zero-terminated, and a value has `size` bytes.
        unsafe { tell(CStr::from_ptr(name).to_bytes(), bytes(value.cast_mut(), size)) };
    }
}

/// # Safety
/// `start` must be null, or point to `len` bytes that live for `'a`.
unsafe fn bytes<'a>(start: *mut c_void, len: usize) -> Option<&'a [u8]> {
    if start.is_null() {
        return None;
    }
    // SAFETY: by this function's contract.
    Some(unsafe { std::slice::from_raw_parts(start.cast::<u8>(), len) })
}

/// # Safety
/// `message` must be a message with an error that is not destroyed.
unsafe fn queue_error(error: RDKafkaRespErr, message: *mut sys::rd_kafka_message_t) -> QueueError {
    let code = RDKafkaErrorCode::from(error);
    // SAFETY: by this function's contract; an error's payload is its text, when it has one.
    let text = unsafe { bytes((*message).payload, (*message).len) };
    let message = match text {
        Some(text) => String::from_utf8_lossy(text).into_owned(),
        None => code.to_string(),
    };
    QueueError { code, message }
}

/// Hands a record to the producer, which copies it. `opaque` comes back with the delivery report, or from here with the error.
///
/// # Safety
/// `client` must be a producer that lives through the call.
pub(crate) unsafe fn produce(
    client: *mut sys::rd_kafka_t,
    record: &OutboundRecord<'_>,
    opaque: *mut c_void,
) -> Result<(), RDKafkaErrorCode> {
    let mut room = [0; LONGEST_TOPIC + 1];
    let topic = zero_terminated(record.topic.as_str(), &mut room).ok_or(RDKafkaErrorCode::InvalidTopic)?;
    let (value, value_len) = parts(record.value);
    let (key, key_len) = parts(record.key);
    // SAFETY: all pointers live through the call, and `RD_KAFKA_MSG_F_COPY` makes the producer copy key and value; the headers are
    // the producer's when it takes the record, and ours to destroy when it does not.
    unsafe {
        let headers = native_headers(record);
        let error = sys::rd_kafka_producev(
            client,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC,
            topic.as_ptr(),
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
            record.partition.map_or(-1, |partition| partition.0),
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
            sys::RD_KAFKA_MSG_F_COPY,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
            value,
            value_len,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
            key,
            key_len,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE,
            opaque,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
            headers,
            sys::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
        );
        if error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Ok(());
        }
        sys::rd_kafka_headers_destroy(headers);
        Err(error.into())
    }
}

/// Kafka refuses longer names of topics.
const LONGEST_TOPIC: usize = 249;

/// The name as C wants it, without allocating for each record.
fn zero_terminated<'a>(name: &str, room: &'a mut [u8; LONGEST_TOPIC + 1]) -> Option<&'a CStr> {
    room.get_mut(..name.len())?.copy_from_slice(name.as_bytes());
    CStr::from_bytes_with_nul(room.get(..=name.len())?).ok()
}

fn parts(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    match bytes {
        None => (ptr::null_mut(), 0),
        Some(bytes) => (bytes.as_ptr().cast_mut().cast(), bytes.len()),
    }
}

/// # Safety
/// The caller owns the headers and must destroy them or hand them to a producer.
unsafe fn native_headers(record: &OutboundRecord<'_>) -> *mut sys::rd_kafka_headers_t {
    // SAFETY: names and values are copied, with the lengths given.
    unsafe {
        let headers = sys::rd_kafka_headers_new(record.headers.len());
        for (name, value) in record.headers {
            let (value, value_len) = parts(*value);
            sys::rd_kafka_header_add(
                headers,
                name.as_ptr().cast::<c_char>(),
                name.len().cast_signed(),
                value,
                value_len.cast_signed(),
            );
        }
        headers
    }
}
