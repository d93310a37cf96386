//! The same for programs.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::fake::{Fake, ITEM, PLAN, RUN};
use crate::site::{Seen, Site, address};

async fn call(site: &Site, method: Method, path: &str, body: Option<Value>) -> (StatusCode, String, Value) {
    let mut request = site.request(method, path).bearer_auth(&site.operator);
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let seen = Seen::of(request).await;
    let value = if seen.text.is_empty() { Value::Null } else { serde_json::from_str(&seen.text).unwrap() };
    (seen.status, seen.header("content-type").to_owned(), value)
}

#[tokio::test]
async fn a_program_finds_reads_tries_out_and_replays() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let (_, _, groups) = call(&site, Method::GET, "/api/v1/groups?limit=1", None).await;
    assert_eq!(groups["groups"][0]["waiting"], 4012);
    let (_, _, items) = call(&site, Method::GET, "/api/v1/items?limit=2", None).await;
    assert_eq!((items["items"].as_array().unwrap().len(), &items["next"]), (2, &json!("2")));
    let (_, _, item) = call(&site, Method::GET, &address("/api/v1/items/{item}"), None).await;
    assert_eq!(item["item"], ITEM);
    assert_eq!(item["content"]["headers"][1]["value"]["base64"], "/zxzY3JpcHQ+YWxlcnQoMSk8L3NjcmlwdD4=");
    let (status, _, plan) =
        call(&site, Method::POST, "/api/v1/plans", Some(json!({ "order": "replay", "items": [ITEM] }))).await;
    assert_eq!((status, &plan["plan"], &plan["total"]), (StatusCode::CREATED, &json!(PLAN), &json!(31)));
    let pace = json!({ "rate": 10.0, "ramp": { "first": 3 } });
    let (status, _, run) = call(&site, Method::POST, &address("/api/v1/plans/{plan}/run"), Some(pace)).await;
    assert_eq!((status, run), (StatusCode::ACCEPTED, json!({ "run": RUN })));
    let (_, done) = site.inbox.changes().pop().unwrap();
    assert!(done.contains("first: 3, factor: 5, failures: 0.1, timeout: 120s"), "{done}");
    let (status, _, _) = call(
        &site,
        Method::POST,
        &address("/api/v1/runs/{run}/steer"),
        Some(json!({ "steer": "stop", "why": "enough" })),
    )
    .await;
    assert_eq!(status, StatusCode::NO_CONTENT);
    let (_, _, run) = call(&site, Method::GET, &address("/api/v1/runs/{run}"), None).await;
    assert_eq!((&run["status"], &run["total"]), (&json!("running"), &json!(31)));
    let (_, _, history) = call(&site, Method::GET, "/api/v1/history?by=ana", None).await;
    assert_eq!(history["entries"][0]["by"], "ana");
    let (_, _, overview) = call(&site, Method::GET, "/api/v1/overview", None).await;
    assert_eq!(overview["figures"]["classes"]["charge"]["running"], 3);
}

#[tokio::test]
async fn whatever_goes_wrong_is_a_problem_document() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let wrong_filter =
        json!({ "order": "discard", "items": [], "filter": { "klass": ["a"] }, "reason": "r" });
    for (method, path, body, status, name) in [
        (Method::GET, "/api/v1/items/00000000000000ff", None, 404, "not-found"),
        (Method::GET, "/api/v1/nothing", None, 404, "not-found"),
        (Method::GET, "/api/v1/items?since=soon", None, 400, "bad-request"),
        (Method::POST, "/api/v1/items", Some(json!({})), 405, "method-not-allowed"),
        (Method::POST, "/api/v1/plans", Some(json!({ "order": "drop" })), 400, "bad-request"),
        (Method::POST, "/api/v1/plans", Some(json!({ "order": "replay" })), 400, "bad-request"),
        (
            Method::POST,
            "/api/v1/plans",
            Some(json!({ "order": "discard", "items": [ITEM] })),
            400,
            "bad-request",
        ),
        (
            Method::POST,
            "/api/v1/plans",
            Some(json!({ "order": "replay", "forced": true, "items": [ITEM] })),
            400,
            "bad-request",
        ),
        (Method::POST, "/api/v1/plans", Some(wrong_filter), 400, "bad-request"),
        (
            Method::POST,
            "/api/v1/plans/00000000000000d1/run",
            Some(json!({ "rate": -1.0 })),
            400,
            "bad-request",
        ),
        (
            Method::POST,
            "/api/v1/plans/00000000000000d1/run",
            Some(json!({ "ramp": { "failures": 7.0 } })),
            400,
            "bad-request",
        ),
        (
            Method::POST,
            "/api/v1/plans",
            Some(json!({ "order": "replay", "event": "x".repeat(3 << 20) })),
            413,
            "too-large",
        ),
    ] {
        let (found, kind, problem) = call(&site, method.clone(), path, body).await;
        assert_eq!(
            (found.as_u16(), kind.as_str()),
            (status, "application/problem+json"),
            "{method} {path}: {problem}"
        );
        assert_eq!(problem["type"], format!("urn:tidegate:problem:{name}"), "{method} {path}: {problem}");
        assert_eq!(problem["status"], status);
        assert!(problem["title"].is_string() && problem["detail"].is_string());
    }
}

#[tokio::test]
async fn without_a_token_a_program_is_told_what_to_send() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let seen = site.get("/api/v1/overview").await;
    assert_eq!((seen.status, seen.header("www-authenticate")), (StatusCode::UNAUTHORIZED, "Bearer"));
    assert!(seen.text.contains("urn:tidegate:problem:log-in-first"), "{}", seen.text);
}

#[tokio::test]
async fn a_reader_gets_masked_content_and_an_operator_reveals_it() {
    let site = Site::with_users("masked = [\"customer.iban\"]", Fake::with_items(3)).await;
    let read = site.request(Method::GET, &address("/api/v1/items/{item}")).bearer_auth(&site.reader);
    let item: Value = serde_json::from_str(&Seen::of(read).await.text).unwrap();
    assert_eq!((&item["content"]["masked"], &item["content"]["value"]), (&json!(true), &json!("•••")));
    assert_eq!(item["content"]["event"]["event"]["customer"]["iban"], "•••");
    let (_, _, item) = call(&site, Method::POST, &address("/api/v1/items/{item}/reveal"), None).await;
    assert_eq!(item["content"]["event"]["event"]["customer"]["iban"], "DE89370400440532013000");
    assert_eq!(site.inbox.changes(), [("ana".to_owned(), "reveal".to_owned())]);
}

#[tokio::test]
async fn on_this_machine_alone_no_token_is_needed() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let request = site.request(Method::POST, "/api/v1/plans").header("content-type", "application/json");
    let seen = Seen::of(request.body(json!({ "order": "replay", "items": [ITEM] }).to_string())).await;
    assert_eq!(seen.status, StatusCode::CREATED, "{}", seen.text);
    assert_eq!(site.inbox.changes()[0].0, "local-ana");
}

#[tokio::test]
async fn a_parameter_that_is_not_understood_is_refused_by_its_name() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    for (path, told) in [
        ("items?states=open", vec!["`states`", "did you mean `state`?"]),
        ("items?limt=2", vec!["`limt`", "did you mean `limit`?"]),
        ("items?colour=red", vec!["`colour`", "known here: after, class, group"]),
        ("groups?order=oldest-first", vec!["`order`", "known here"]),
        ("history?state=open", vec!["`state`", "known here: after, by, limit, what"]),
        ("runs?state=open", vec!["`state`", "known here: limit"]),
        ("overview?limit=1", vec!["`limit`", "remove it"]),
        ("items/{item}?x", vec!["`x`", "remove it"]),
        ("runs/{run}?x=", vec!["`x`", "remove it"]),
        ("plans/{plan}?x=1", vec!["`x`", "remove it"]),
        ("groups?by=zzz", vec!["`by` is `zzz`", "fingerprint, class, tier, kind, schema, handler, source"]),
        ("groups?sort=zzz", vec!["`sort` is `zzz`", "waiting, latest, items"]),
        ("items?order=newest", vec!["`order` is `newest`", "newest-first, oldest-first"]),
        ("items?limit=5000", vec!["`limit` is `5000`", "from 1 to 1000"]),
        ("runs?limit=0", vec!["`limit` is `0`", "from 1 to 1000"]),
        ("history?limit=-1", vec!["`limit` is `-1`", "from 1 to 1000"]),
        ("items?limit=1&limit=2", vec!["`limit` stands there twice"]),
        ("items?since=2h", vec!["`since` is `2h`", "milliseconds since 1970"]),
    ] {
        let path = address(&format!("/api/v1/{path}"));
        let (status, kind, problem) = call(&site, Method::GET, &path, None).await;
        assert_eq!((status.as_u16(), kind.as_str()), (400, "application/problem+json"), "{path}: {problem}");
        assert_eq!(problem["type"], "urn:tidegate:problem:bad-request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(told.iter().all(|part| detail.contains(part)), "{path}: {detail}");
    }
    let order = json!({ "order": "replay", "items": [ITEM] });
    let (status, _, _) = call(&site, Method::POST, "/api/v1/plans?dry=1", Some(order)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert_eq!(site.inbox.changes(), []);
}

#[tokio::test]
async fn every_parameter_that_is_documented_is_taken() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let filter = "state=open&state=failed-again&class=-&tier=critical&kind=timeout&group=00000000000000f1&schema=1\
                  &handler=h&source=s&since=1&until=2&q=refus*";
    for path in [
        format!("items?{filter}&order=newest-first&after=&limit=1000"),
        format!("items?{filter}&order=oldest-first"),
        format!("groups?{filter}&by=class&sort=latest&skip=1&limit=1"),
        "runs?limit=1".to_owned(),
        "history?by=ana&what=replay&after=&limit=1".to_owned(),
    ] {
        let (status, _, answer) = call(&site, Method::GET, &format!("/api/v1/{path}"), None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {answer}");
    }
}

#[tokio::test]
async fn a_link_of_a_page_may_have_more_than_the_page_reads() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    for path in ["/items?utm_source=mail", "/groups?by=zzz"] {
        assert_eq!(site.get(path).await.status, StatusCode::OK, "{path}");
    }
}

#[tokio::test]
async fn a_change_that_is_not_sent_as_json_is_told_to_say_that_it_is() {
    let open = Site::open_to_all(Fake::with_items(3)).await;
    let users = Site::with_users("", Fake::with_items(3)).await;
    let order = json!({ "order": "replay", "items": [ITEM] }).to_string();
    for kind in
        [None, Some("application/x-www-form-urlencoded"), Some("text/plain"), Some("application/jsonp")]
    {
        for (site, name) in [(&open, "without a token"), (&users, "with a token")] {
            let mut request = site.request(Method::POST, "/api/v1/plans").body(order.clone());
            if !site.operator.is_empty() {
                request = request.bearer_auth(&site.operator);
            }
            if let Some(kind) = kind {
                request = request.header("content-type", kind);
            }
            let seen = Seen::of(request).await;
            assert_eq!(seen.status.as_u16(), 415, "{name}, {kind:?}: {}", seen.text);
            assert_eq!(seen.header("content-type"), "application/problem+json");
            let is_told = ["urn:tidegate:problem:not-json", "Content-Type: application/json"]
                .map(|part| seen.text.contains(part));
            assert_eq!(is_told, [true, true], "{}", seen.text);
        }
    }
    let look = Seen::of(open.request(Method::GET, "/api/v1/items").body("{}")).await;
    assert_eq!(look.status, StatusCode::OK, "what changes nothing has no body to read: {}", look.text);
    // Without a body, the type is all that a page of another site can't send.
    let bare = Seen::of(open.request(Method::POST, &address("/api/v1/items/{item}/reveal"))).await;
    assert_eq!(bare.status.as_u16(), 415, "{}", bare.text);
    assert_eq!((open.inbox.changes(), users.inbox.changes()), (vec![], vec![]));
}

#[tokio::test]
async fn a_method_or_an_address_that_is_none_is_told_before_the_type_of_the_body() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    for (method, path, status) in [
        (Method::DELETE, "/api/v1/plans", 405),
        (Method::PUT, "/api/v1/overview", 405),
        (Method::POST, "/api/v1/items", 405),
        (Method::POST, "/api/v1/nothing", 404),
    ] {
        let seen = Seen::of(site.request(method.clone(), path)).await;
        assert_eq!(seen.status.as_u16(), status, "{method} {path}: {}", seen.text);
        assert_eq!(seen.header("content-type"), "application/problem+json");
    }
    assert_eq!(site.inbox.changes(), []);
}
