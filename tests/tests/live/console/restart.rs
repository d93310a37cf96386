//! A console that dies in the middle of a replay.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidegate_tests::background::block_on;
use tidegate_tests::jobs::{SOON, id};
use tidegate_tests::wait::wait_until;

use super::shop::{BROKEN, Shop};

/// What the API answers to an operator.
fn api(shop: &Shop, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
    let client = reqwest::Client::builder().no_proxy().timeout(SOON).build().unwrap();
    let mut request =
        client.request(method, shop.url(&format!("/api/v1/{path}"))).bearer_auth(&shop.operator);
    if let Some(body) = body {
        request = request.json(&body);
    }
    block_on(async move {
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let value = answer.json::<Value>().await.unwrap();
        assert!(status.is_success(), "{status}: {value}");
        value
    })
}

fn look(shop: &Shop, path: &str) -> Value {
    api(shop, reqwest::Method::GET, path, None)
}

fn act(shop: &Shop, path: &str, body: Value) -> Value {
    api(shop, reqwest::Method::POST, path, Some(body))
}

#[test]
fn a_console_that_is_killed_half_way_goes_on_when_it_is_back_and_each_item_runs_once() {
    let mut shop = Shop::open();
    wait_until("the index to have all letters", 3 * SOON, || {
        look(&shop, "overview")["inbox"]["waiting"] == BROKEN as u64 + 1
    });
    let group = look(&shop, "groups")["groups"][0].clone();
    assert_eq!(group["waiting"], BROKEN as u64, "{group}");
    shop.heal();
    // The third step of the ramp, from the 7th to the 31st, stays open as long as this; the rest is not published before its end.
    shop.answer(BROKEN / 2);
    let plan = act(&shop, "plans", json!({ "order": "replay", "filter": { "groups": [group["key"]] } }));
    assert_eq!(plan["total"], BROKEN as u64, "{plan}");
    let path = format!("plans/{}/run", plan["plan"].as_str().unwrap());
    let run = act(&shop, &path, json!({ "ramp": {} }))["run"].as_str().unwrap().to_owned();
    assert_eq!(act(&shop, &path, json!({ "ramp": {} }))["run"], run, "a second click is the same run");
    let path = format!("runs/{run}");
    let passed = |shop: &Shop| look(shop, &path)["passed"].as_u64().unwrap();
    wait_until("half of them to be done", 3 * SOON, || passed(&shop) >= BROKEN as u64 / 2);
    shop.jobs.pipeline.kill("console");
    assert!(shop.jobs.endpoint.calls().len() < 2 * BROKEN + 1, "it was killed before the end");
    shop.answer(usize::MAX);
    shop.start_console();
    wait_until("the run to end", 3 * SOON, || look(&shop, &path)["status"] == "finished");
    assert_eq!(passed(&shop), BROKEN as u64);
    let mut runs: BTreeMap<String, usize> = BTreeMap::new();
    shop.jobs.endpoint.calls().iter().for_each(|call| *runs.entry(id(call)).or_default() += 1);
    assert_eq!(runs.remove("refund-7"), Some(1), "it was in no order");
    assert!(runs.values().all(|&calls| calls == 2), "each failed once and ran once more: {runs:?}");
    assert_eq!(runs.len(), BROKEN);
}
