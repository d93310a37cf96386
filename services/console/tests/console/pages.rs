//! What pages show and do, for whom.

use reqwest::StatusCode;

use crate::fake::{Fake, GROUP, ITEM, PLAN, RUN};
use crate::site::{Site, address};

#[tokio::test]
async fn a_bad_deploy_is_told_at_a_glance() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let page = site.get("/").await.text;
    assert!(page.contains("4,012 items wait") && page.contains("for a decision"), "{page}");
    assert!(page.contains("1,204") && page.contains("25 %"), "rates of the services: {page}");
    assert!(page.contains("Parked"));
    let group = site.get(&address("/groups/{group}")).await.text;
    assert!(group.contains("4,812 items") && group.contains("Regressed"), "{group}");
    assert!(group.contains("<svg class=\"chart\""));
}

#[tokio::test]
async fn an_empty_inbox_says_so_on_every_page_and_leads_on() {
    let site = Site::open_to_all(Fake::with_items(0)).await;
    for (path, says) in [
        ("/", "Nothing waits for you"),
        ("/groups", "Nothing is dead-lettered here"),
        ("/groups?class=charge", "Nothing fits"),
        ("/items", "The inbox is empty"),
        ("/replays", "No run yet"),
        ("/history", "Nobody has done anything yet"),
    ] {
        let seen = site.get(path).await;
        assert!(seen.status == StatusCode::OK && seen.text.contains(says), "{path}: {}", seen.text);
    }
}

#[tokio::test]
async fn a_long_list_is_paged_on_the_server_and_keeps_its_filter() {
    let site = Site::open_to_all(Fake::with_items(120)).await;
    let mut path = "/items?class=charge&order=oldest-first".to_owned();
    let mut sizes = Vec::new();
    loop {
        let page = site.get(&path).await.text;
        sizes.push(page.matches("<tr data-row>").count());
        let next = page.split("rel=\"next\"").next().filter(|before| before.len() < page.len());
        let Some(before) = next else { break };
        let link = before.rsplit("href=\"").next().unwrap().split('"').next().unwrap();
        path = link.replace("&amp;", "&");
        assert!(path.contains("class=charge") && path.contains("order=oldest-first"), "{path}");
    }
    assert_eq!(sizes, [50, 50, 20]);
}

#[tokio::test]
async fn masked_fields_are_shown_to_nobody_until_an_operator_reveals_them_by_name() {
    let site = Site::with_users("masked = [\"customer.iban\"]", Fake::with_items(3)).await;
    let secret = "DE89370400440532013000";
    let path = address("/items/{item}");
    for token in [&site.reader, &site.operator] {
        let page = site.logged_in(token).await.get(&path).await.text;
        assert!(page.contains("•••") && !page.contains(secret), "{page}");
        assert!(!page.contains("44 45 38 39"), "not in the dump either");
    }
    let reader = site.logged_in(&site.reader).await;
    assert_eq!(reader.post(&format!("{path}/reveal"), &[]).await.status, StatusCode::FORBIDDEN);
    let search = reader.get(&format!("/items?q={secret}")).await;
    assert_eq!(search.status, StatusCode::BAD_REQUEST, "a search in payloads would tell what is masked");
    let operator = site.logged_in(&site.operator).await;
    let revealed = operator.post(&format!("{path}/reveal"), &[]).await;
    assert!(revealed.status == StatusCode::OK && revealed.text.contains(secret));
    let reveals: Vec<_> = site.inbox.changes().into_iter().filter(|(_, what)| what == "reveal").collect();
    assert_eq!(reveals, [("ana".to_owned(), "reveal".to_owned())]);
}

#[tokio::test]
async fn what_operators_searched_for_is_hidden_from_those_who_may_not_search() {
    let said = r#"classes ["charge"], text "DE89 3704""#;
    let places = [
        "/replays".to_owned(),
        address("/replays/{run}"),
        "/history".to_owned(),
        "/api/v1/runs".to_owned(),
        address("/api/v1/runs/{run}"),
        "/api/v1/history".to_owned(),
    ];
    let site = Site::with_users("masked = [\"customer.iban\"]", Fake::saying(said)).await;
    let [reader, operator] = [site.logged_in(&site.reader).await, site.logged_in(&site.operator).await];
    for place in &places {
        let (hidden, shown) = (reader.get(place).await, operator.get(place).await);
        assert_eq!((hidden.status, shown.status), (StatusCode::OK, StatusCode::OK), "{place}");
        let count = |text: &str, what: &str| text.matches(what).count();
        // The fake says it elsewhere too, where it is no selection.
        let (secret, mask) = (count(&hidden.text, "DE89 3704"), count(&hidden.text, "•••"));
        assert!(mask > 0, "{place}: {}", hidden.text);
        assert_eq!(secret + mask, count(&shown.text, "DE89 3704"), "{place}: {}", hidden.text);
    }
    let open = Site::with_users("", Fake::saying(said)).await;
    let reader = open.logged_in(&open.reader).await;
    assert!(reader.get("/history").await.text.contains("DE89 3704"), "without masks a reader may search too");
}

#[tokio::test]
async fn an_item_shows_event_bytes_headers_failures_and_what_was_done() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let page = site.get(&address("/items/{item}")).await.text;
    for part in [
        "DE89370400440532013000",
        "000000  00 00 00 00 07",
        "Round 1, attempt 4",
        "First failure",
        "null",
        "Edit and replay",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    assert_eq!(site.get("/items/00000000000000ff").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_replay_is_shown_before_it_happens_and_then_watched() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.logged_in(&site.operator).await;
    let seen = browser.post("/plans", &[("order", "replay"), ("scope", "filter"), ("group", GROUP)]).await;
    assert_eq!(seen.header("location"), format!("/plans/{PLAN}"));
    let page = browser.get(&format!("/plans/{PLAN}")).await.text;
    assert!(page.contains("Nothing has happened yet") && page.contains("Canary"), "{page}");
    for told in ["were not checked against today’s schema", "keys were not checked", "run again, by force"]
    {
        assert!(page.contains(told), "{told}: {page}");
    }
    let paced = [("pace", "canary"), ("first", "2"), ("failures", "20"), ("rate", "50")];
    let seen = browser.post(&format!("/plans/{PLAN}/run"), &paced).await;
    assert_eq!(seen.header("location"), format!("/replays/{RUN}"));
    let (_, done) = site.inbox.changes().pop().unwrap();
    assert!(
        done.contains("rate: Some(50.0)") && done.contains("first: 2") && done.contains("failures: 0.2"),
        "{done}"
    );
    let page = browser.get(&format!("/replays/{RUN}")).await.text;
    assert!(page.contains(&format!("data-live=\"/replays/{RUN}/events\"")), "{page}");
    assert!(page.contains("<noscript><meta http-equiv=\"refresh\""), "it is watched without a script too");
    assert!(page.contains("value=\"pause\"") && page.contains("value=\"stop\""));
}

#[tokio::test]
async fn a_discard_without_a_reason_and_an_order_without_items_are_refused() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let mut browser = site.browser().await;
    browser.csrf = browser.get(&address("/items/{item}")).await.csrf().unwrap();
    for (fields, says) in [
        (vec![("order", "discard"), ("item", ITEM)], "Say why you discard"),
        (vec![("order", "replay"), ("forced", "yes"), ("item", ITEM)], "Say why you force a replay"),
        (vec![("order", "replay"), ("scope", "items")], "No item is ticked"),
        (vec![("order", "drop"), ("item", ITEM)], "must be replay, discard or reopen"),
    ] {
        let seen = browser.post("/plans", &fields).await;
        assert!(seen.status == StatusCode::BAD_REQUEST && seen.text.contains(says), "{says}: {}", seen.text);
    }
    assert_eq!(site.inbox.changes(), []);
}

#[tokio::test]
async fn a_reader_sees_no_button_that_would_refuse_them() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let reader = site.logged_in(&site.reader).await;
    for path in ["/items", "/items/{item}", "/groups/{group}", "/plans/{plan}", "/replays/{run}"] {
        let page = reader.get(&address(path)).await.text;
        let forms = page.matches("method=\"post\"").count();
        assert_eq!(forms, 1, "{path}: only the form to log out\n{page}");
    }
}

#[tokio::test]
async fn every_page_can_be_used_by_keyboard_and_read_aloud() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    for path in [
        "/",
        "/groups",
        "/groups/{group}",
        "/items",
        "/items/{item}",
        "/plans/{plan}",
        "/replays",
        "/replays/{run}",
        "/history",
    ] {
        let page = site.get(&address(path)).await.text;
        assert!(page.contains("<html lang=\"en\">") && page.contains("href=\"#main\""), "{path}");
        assert_eq!(page.matches("<h1").count(), 1, "{path} has one heading");
        for control in page.split("<input ").skip(1).chain(page.split("<select ").skip(1)) {
            let tag = control.split('>').next().unwrap();
            let is_hidden = tag.contains("type=\"hidden\"");
            let before = page.split(tag).next().unwrap();
            let is_labelled = before.rfind("<label") > before.rfind("</label");
            assert!(is_hidden || is_labelled, "{path}: a control without a label: {tag}");
        }
    }
}
