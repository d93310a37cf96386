//! The handler `http`: POSTs each job to an endpoint.
//!
//! 2xx is done. 408, 425, 429, 5xx, timeouts and connection errors may heal, every other answer is permanent; what is kept of it
//! is the first KiB. `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) is the same in every attempt.

use std::time::{Duration, SystemTime};

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use tidegate_bootstrap::config::{BodyFormat, HttpHandler};
use tidegate_domain::{Failure, FailureKind};
use tidegate_service::ServiceError;

use crate::handler::{Handler, JobError};
use crate::job::Job;
use crate::trace;

/// How much of an answer is kept.
const KEPT: usize = 1024;

pub(crate) struct Http {
    client: Client,
    url: String,
    format: BodyFormat,
    headers: HeaderMap,
    timeout: Duration,
}

/// One pool of connections for all classes of a process. Redirects are not followed: a POST would become a GET.
pub(crate) fn client() -> Result<Client, ServiceError> {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("tidegate/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|error| ServiceError::Local(format!("the HTTP client can't start: {error}")))
}

impl Http {
    pub(crate) fn new(client: Client, handler: &HttpHandler) -> Result<Self, ServiceError> {
        let mut headers = HeaderMap::new();
        for (name, value) in handler.headers.iter() {
            let invalid = |_| {
                ServiceError::Configuration(format!(
                    "handler.headers: `{name}` or its value is no HTTP header"
                ))
            };
            let header = HeaderName::try_from(name).map_err(|_| invalid(()))?;
            headers.insert(header, HeaderValue::try_from(value).map_err(|_| invalid(()))?);
        }
        Ok(Self {
            client,
            url: handler.url.as_str().to_owned(),
            format: handler.format,
            headers,
            timeout: handler.timeout,
        })
    }

    async fn body(&self, job: &Job) -> Result<(&'static str, Vec<u8>), JobError> {
        match self.format {
            BodyFormat::Json => {
                let json = job.json().await?;
                let bytes = serde_json::to_vec(&json)
                    .map_err(|error| JobError::permanent("json", format!("the event is no JSON: {error}")))?;
                Ok(("application/json", bytes))
            }
            BodyFormat::Avro => {
                Ok(("application/vnd.confluent.avro", job.value().unwrap_or_default().to_vec()))
            }
        }
    }
}

impl Handler for Http {
    async fn run(&self, job: &Job) -> Result<(), JobError> {
        let (content_type, body) = self.body(job).await?;
        let header = job.header()?;
        let mut request = self
            .client
            .post(&self.url)
            .timeout(self.timeout)
            .headers(self.headers.clone())
            .header(CONTENT_TYPE, content_type)
            .header("idempotency-key", job.key().to_string())
            .header("tidegate-class", header.class)
            .header("tidegate-job-id", header.job_id())
            .header("tidegate-attempt", job.attempt())
            .body(body);
        if let Some(traceparent) = job.header_value("traceparent").and_then(trace::continued) {
            request = request.header("traceparent", traceparent);
        }
        match request.send().await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(refused(response).await.into()),
            Err(error) => Err(no_answer(&error).into()),
        }
    }
}

async fn refused(response: Response) -> Failure {
    let status = response.status();
    let retry_after =
        response.headers().get(RETRY_AFTER).and_then(|value| wait_asked(value, SystemTime::now()));
    let text = first_kib(response).await;
    let kind = kind_of(status, retry_after.is_some());
    let failure = Failure::new(kind, format!("http-{}", status.as_u16()), format!("HTTP {status}: {text}"));
    match retry_after {
        Some(wait) if kind.may_heal() => failure.with_retry_after(wait),
        _ => failure,
    }
}

fn kind_of(status: StatusCode, asked_to_wait: bool) -> FailureKind {
    match status {
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => FailureKind::Timeout,
        StatusCode::TOO_MANY_REQUESTS => FailureKind::Overload,
        StatusCode::SERVICE_UNAVAILABLE if asked_to_wait => FailureKind::Overload,
        StatusCode::TOO_EARLY => FailureKind::Transient,
        status if status.is_server_error() => FailureKind::Transient,
        _ => FailureKind::Permanent,
    }
}

/// `Retry-After` is a number of seconds or a date (RFC 9110, section 10.2.3).
fn wait_asked(value: &HeaderValue, now: SystemTime) -> Option<Duration> {
    let text = value.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds.min(MOST_ASKED)));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or_default().min(Duration::from_secs(MOST_ASKED)))
}

/// A day: what an endpoint asks beyond it is more likely a mistake than a wish.
const MOST_ASKED: u64 = 86_400;

async fn first_kib(mut response: Response) -> String {
    let mut kept = Vec::new();
    while kept.len() < KEPT {
        match response.chunk().await {
            Ok(Some(chunk)) => kept.extend_from_slice(&chunk[..chunk.len().min(KEPT - kept.len())]),
            // The status says what became of the job; a broken body only shortens the message.
            Ok(None) | Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&kept).into_owned();
    if text.is_empty() { "(no body)".to_owned() } else { text }
}

fn no_answer(error: &reqwest::Error) -> Failure {
    let cause = innermost(error);
    if error.is_timeout() {
        Failure::new(FailureKind::Timeout, "http-timeout", format!("no answer in time: {cause}"))
    } else if error.is_connect() {
        Failure::transient("http-connect", format!("the endpoint can't be reached: {cause}"))
    } else if error.is_builder() {
        Failure::permanent("http-request", format!("the request can't be made: {cause}"))
    } else {
        Failure::transient("http-connection", format!("the connection broke: {cause}"))
    }
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_its_kind() {
        for (status, asked, kind) in [
            (408, false, FailureKind::Timeout),
            (425, false, FailureKind::Transient),
            (429, false, FailureKind::Overload),
            (500, false, FailureKind::Transient),
            (503, false, FailureKind::Transient),
            (503, true, FailureKind::Overload),
            (504, false, FailureKind::Timeout),
            (301, false, FailureKind::Permanent),
            (400, false, FailureKind::Permanent),
            (401, false, FailureKind::Permanent),
            (404, true, FailureKind::Permanent),
            (409, false, FailureKind::Permanent),
            (422, false, FailureKind::Permanent),
        ] {
            assert_eq!(kind_of(StatusCode::from_u16(status).unwrap(), asked), kind, "{status}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let ask = |text: &str| wait_asked(&HeaderValue::from_str(text).unwrap(), now);
        assert_eq!(ask("7"), Some(Duration::from_secs(7)));
        assert_eq!(
            ask(&httpdate::fmt_http_date(now + Duration::from_secs(90))),
            Some(Duration::from_secs(90))
        );
        assert_eq!(ask(&httpdate::fmt_http_date(now - Duration::from_secs(90))), Some(Duration::ZERO));
        assert_eq!(ask("99999999999"), Some(Duration::from_secs(86_400)));
        assert_eq!(ask("soon"), None);
    }
}
