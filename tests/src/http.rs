//! Short HTTP calls to servers on this machine, from plain and from async tests.

use std::sync::LazyLock;
use std::time::Duration;

use serde_json::Value;

use crate::background::block_on;

/// Status and body of a GET.
pub fn get(url: &str) -> Result<(u16, String), reqwest::Error> {
    send(CLIENT.get(url))
}

/// The same, with a bearer token.
pub fn get_with_token(url: &str, token: &str) -> Result<(u16, String), reqwest::Error> {
    send(CLIENT.get(url).bearer_auth(token))
}

/// Status and body of a POST of the value as JSON.
pub fn post_json(url: &str, body: &Value) -> Result<(u16, String), reqwest::Error> {
    send(CLIENT.post(url).json(body))
}

/// One for all calls: to build one reads all authorities that the machine trusts, which takes longer than hundreds of calls.
static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(|| {
    reqwest::Client::builder()
        .no_proxy() // they're on this machine, whatever the environment says
        .pool_max_idle_per_host(0) // a server that was stopped is to be found stopped
        .timeout(Duration::from_secs(60))
        .build()
        .expect("an HTTP client can be built")
});

fn send(request: reqwest::RequestBuilder) -> Result<(u16, String), reqwest::Error> {
    block_on(async move {
        let answer = request.send().await?;
        Ok((answer.status().as_u16(), answer.text().await?))
    })
}
