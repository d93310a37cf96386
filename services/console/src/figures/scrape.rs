//! Asks services for their metrics.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tidegate_bootstrap::config::MetricsAddress;

use super::rates::Scrape;

/// How long a service may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than any service of ours has to say.
const LARGEST: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Scraper {
    client: reqwest::Client,
    addresses: Vec<String>,
    begun: Instant,
}

impl Scraper {
    pub(super) fn new(addresses: &[MetricsAddress]) -> Result<Self, reqwest::Error> {
        let client = reqwest::Client::builder()
            .timeout(PATIENCE)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let addresses = addresses.iter().map(MetricsAddress::to_string).collect();
        Ok(Self { client, addresses, begun: Instant::now() })
    }

    /// Every address with what it says, or why it says nothing.
    pub(super) async fn scrape(&self) -> Vec<(String, Result<Scrape, String>)> {
        join_all(self.addresses.iter().map(async |address| (address.clone(), self.one(address).await))).await
    }

    async fn one(&self, address: &str) -> Result<Scrape, String> {
        let told = |error: reqwest::Error| match (error.is_timeout(), error.is_connect()) {
            (true, _) => "it took longer than 2 s".to_owned(),
            (_, true) => "nothing listens there".to_owned(),
            _ => error.without_url().to_string(),
        };
        let mut response = self.client.get(format!("http://{address}/metrics")).send().await.map_err(told)?;
        if !response.status().is_success() {
            return Err(format!("it answers {}", response.status()));
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(told)? {
            if body.len() + chunk.len() > LARGEST {
                return Err("what it says is larger than 4 MiB, so it is no service of ours".to_owned());
            }
            body.extend_from_slice(&chunk);
        }
        let text = String::from_utf8(body).map_err(|_| "what it says is no text".to_owned())?;
        Ok(Scrape { at: self.begun.elapsed().as_secs_f64(), text })
    }
}
