//! Topic ids (KIP-516): a topic that was deleted and made anew has the same name and another id. The Rust crate does not wrap
//! DescribeTopics, so it is called here.
#![allow(unsafe_code, reason = "the calls are documented with why each is sound")]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::ptr;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::types::RDKafkaRespErr;

/// The id of each topic that exists, as Kafka's tools print it, as `broker` knows it; none: as the controller does. Blocks.
///
/// # Safety
/// `client` must be a client that lives through the call.
pub(crate) unsafe fn topic_ids(
    client: *mut sys::rd_kafka_t,
    topics: &[&str],
    broker: Option<i32>,
    timeout: Duration,
) -> Result<BTreeMap<String, String>, RDKafkaErrorCode> {
    let names: Vec<CString> = topics.iter().filter_map(|topic| CString::new(*topic).ok()).collect();
    let mut pointers: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: every object made here is destroyed here, after its last use; the names live through the call.
    unsafe {
        let queue = sys::rd_kafka_queue_new(client);
        let options = sys::rd_kafka_AdminOptions_new(
            client,
            sys::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
        );
        sys::rd_kafka_AdminOptions_set_request_timeout(options, millis, ptr::null_mut(), 0);
        if let Some(broker) = broker {
            sys::rd_kafka_AdminOptions_set_broker(options, broker, ptr::null_mut(), 0);
        }
        let collection = sys::rd_kafka_TopicCollection_of_topic_names(pointers.as_mut_ptr(), pointers.len());
        sys::rd_kafka_DescribeTopics(client, collection, options, queue);
        let event = sys::rd_kafka_queue_poll(queue, millis);
        let ids = read_event(event);
        if !event.is_null() {
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_TopicCollection_destroy(collection);
        sys::rd_kafka_AdminOptions_destroy(options);
        sys::rd_kafka_queue_destroy(queue);
        ids
    }
}

/// The broker that the cluster names as its controller; negative where it names none. Blocks.
///
/// # Safety
/// `client` must be a client that lives through the call.
pub(crate) unsafe fn controller(client: *mut sys::rd_kafka_t, timeout: Duration) -> i32 {
    let millis = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: by this function's contract.
    unsafe { sys::rd_kafka_controllerid(client, millis) }
}

/// # Safety
/// `event` must be null or an event that is not destroyed.
unsafe fn read_event(
    event: *mut sys::rd_kafka_event_t,
) -> Result<BTreeMap<String, String>, RDKafkaErrorCode> {
    if event.is_null() {
        return Err(RDKafkaErrorCode::OperationTimedOut);
    }
    // SAFETY: by this function's contract; what the event holds lives as long as it.
    unsafe {
        let error = sys::rd_kafka_event_error(event);
        if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(error.into());
        }
        let result = sys::rd_kafka_event_DescribeTopics_result(event);
        let mut count = 0;
        let descriptions = sys::rd_kafka_DescribeTopics_result_topics(result, &raw mut count);
        let mut ids = BTreeMap::new();
        for place in 0..count {
            let description = *descriptions.add(place);
            let error = sys::rd_kafka_TopicDescription_error(description);
            if sys::rd_kafka_error_code(error) != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                continue;
            }
            let name = CStr::from_ptr(sys::rd_kafka_TopicDescription_name(description));
            let id = CStr::from_ptr(sys::rd_kafka_Uuid_base64str(sys::rd_kafka_TopicDescription_topic_id(
                description,
            )));
            ids.insert(name.to_string_lossy().into_owned(), id.to_string_lossy().into_owned());
        }
        Ok(ids)
    }
}
