//! Asking a running process how it is: what a container's health check calls.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

use crate::config::HttpUrl;

/// Why a process counts as not well.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// It answered, and another status than success.
    #[error("{url} answers {status}: {body}")]
    Unwell {
        /// What was asked.
        url: String,
        /// The status.
        status: u16,
        /// What it said of itself, or the beginning of it.
        body: String,
    },
    /// It did not answer in time, or nobody listens there.
    #[error("{url} does not answer: {reason}; is the process running, and does it listen there?")]
    NoAnswer {
        /// What was asked.
        url: String,
        /// What happened.
        reason: String,
    },
}

/// More of a body than a person reads in the output of a health check.
const SHOWN: usize = 2000;
/// A longer body than this is none of ours.
const READ: usize = 1 << 20;

/// Gets the address; an answer with a status of success within `at_most` is a process that is well.
pub async fn probe(url: &HttpUrl, at_most: Duration) -> Result<(), ProbeError> {
    let answer = async {
        match url.as_str().starts_with("https:") {
            true => get_by_tls(url).await,
            false => get_plainly(url).await,
        }
    };
    let no_answer = |reason| ProbeError::NoAnswer { url: url.to_string(), reason };
    let (status, body) = match tokio::time::timeout(at_most, answer).await {
        Ok(answer) => answer.map_err(no_answer)?,
        Err(_) => return Err(no_answer(format!("no answer within {at_most:?}"))),
    };
    if status.is_success() {
        return Ok(());
    }
    Err(ProbeError::Unwell {
        url: url.to_string(),
        status: status.as_u16(),
        body: body.trim().chars().take(SHOWN).collect(),
    })
}

/// As most are asked, every few seconds. A client that knows of TLS reads all authorities that the machine trusts when it is made, which
/// takes longer than all the rest.
async fn get_plainly(url: &HttpUrl) -> Result<(StatusCode, String), String> {
    let request = Request::get(url.as_str()).body(Body::empty()).map_err(|error| innermost(&error))?;
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.map_err(|error| innermost(&error))?;
    let status = response.status();
    let body = to_bytes(Body::new(response.into_body()), READ).await.map_err(|error| innermost(&error))?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

async fn get_by_tls(url: &HttpUrl) -> Result<(StatusCode, String), String> {
    let got = async {
        // A proxy is for the way out: what is asked here is on this machine or beside it.
        let client = reqwest::Client::builder().no_proxy().build()?;
        let response = client.get(url.as_str()).send().await?;
        Ok((response.status(), response.text().await?))
    };
    got.await.map_err(|error: reqwest::Error| innermost(&error))
}

fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// Where a process that listens at `listen` is reached from its own machine: "all interfaces" is no address to connect to.
pub fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Health;
    use crate::observe::ObserveServer;
    use crate::telemetry::Metrics;

    /// For a process that answers, on a machine that does more than this.
    const SOON: Duration = Duration::from_secs(60);

    async fn ask(address: SocketAddr, path: &str) -> Result<(), ProbeError> {
        probe(&format!("http://{address}{path}").parse().unwrap(), SOON).await
    }

    #[tokio::test]
    async fn a_process_is_well_once_it_is_ready_and_says_until_then_why_it_is_not() {
        let health = Health::expecting(["kafka"]);
        let any = "127.0.0.1:0".parse().unwrap();
        let server = ObserveServer::bind(any, health.clone(), Metrics::install().unwrap()).await.unwrap();
        let address = server.address();
        tokio::spawn(server.serve(std::future::pending()));
        let error = ask(address, "/readyz").await.unwrap_err().to_string();
        assert!(error.contains("answers 503") && error.contains("kafka"), "{error}");
        health.ready("kafka");
        ask(address, "/readyz").await.unwrap();
        ask(address, "/livez").await.unwrap();
    }

    #[tokio::test]
    async fn nobody_there_is_not_well() {
        // It holds the port and does not listen, so that no other test gets it.
        let holder = tokio::net::TcpSocket::new_v4().unwrap();
        holder.bind(([127, 0, 0, 1], 0).into()).unwrap();
        let address = holder.local_addr().unwrap();
        let error = ask(address, "/readyz").await.unwrap_err();
        assert!(matches!(error, ProbeError::NoAnswer { .. }), "{error}");
        assert!(error.to_string().contains("does not answer"), "{error}");
    }

    #[tokio::test]
    async fn who_takes_the_connection_and_says_nothing_is_not_well() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/readyz", silent.local_addr().unwrap()).parse().unwrap();
        let error = probe(&url, Duration::from_millis(200)).await.unwrap_err().to_string();
        assert!(error.contains("no answer within 200ms"), "{error}");
    }

    #[test]
    fn all_interfaces_are_reached_by_the_loopback() {
        for (listen, reached) in
            [("0.0.0.0:9600", "127.0.0.1:9600"), ("[::]:9600", "[::1]:9600"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            assert_eq!(reachable(listen.parse().unwrap()), reached.parse().unwrap());
        }
    }
}
