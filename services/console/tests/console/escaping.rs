//! Whatever comes from payloads, errors, headers and addresses is text on every page.

use reqwest::{Method, StatusCode};
use tidegate_console::{Console, RouteAccess};

use crate::fake::{Fake, HOSTILE};
use crate::site::{Browser, Seen, Site, address};

/// No text became markup: the one script is ours, there is no image but ours, and nothing inline.
#[track_caller]
fn check(seen: &Seen, page: &str) {
    let html = &seen.text;
    let whole = html.contains("<!DOCTYPE html>");
    assert_eq!(html.matches("<script").count(), usize::from(whole), "{page}: a script more\n{html}");
    assert_eq!(html.matches("<script defer src=\"/assets/").count(), usize::from(whole), "{page}");
    for image in html.split("<img ").skip(1) {
        assert!(
            image.starts_with("src=\"/assets/"),
            "{page}: a foreign image: {}",
            &image[..60.min(image.len())]
        );
    }
    for element in html.split('<').skip(1) {
        // Quotes of texts are escaped, so what stands in an element's own quotes can be taken out before looking at its attributes.
        let tag = element.split('>').next().unwrap_or_default();
        let bare: String = tag.split('"').step_by(2).collect();
        for attribute in [" on", " style"] {
            assert!(!bare.contains(attribute), "{page}: an attribute{attribute}… in <{tag}>");
        }
    }
}

/// Every page that a visitor of this role may see, by the table of routes.
fn pages_of(is_operator: bool) -> Vec<String> {
    let routes = Console::routes().into_iter();
    let routes = routes.filter(|route| is_operator || route.access != RouteAccess::Operator);
    let shown = routes.filter(|route| route.method == Method::GET && !route.path.starts_with("/api/"));
    let shown = shown.filter(|route| !route.path.starts_with("/assets/") && route.path != "/livez");
    shown.map(|route| address(route.path)).collect()
}

fn pages() -> Vec<String> {
    pages_of(true)
}

async fn check_all(browser: &Browser<'_>, is_operator: bool) {
    let mut checked = 0;
    for page in pages_of(is_operator) {
        let seen = browser.get(&page).await;
        assert_eq!(
            seen.status,
            if page == "/login" { StatusCode::SEE_OTHER } else { StatusCode::OK },
            "{page}"
        );
        check(&seen, &page);
        let tells = seen.text.contains("&lt;script&gt;alert(1)&lt;/script&gt;");
        assert!(
            tells || page == "/login",
            "{page} shows nothing of the texts, so it proves nothing\n{}",
            seen.text
        );
        checked += 1;
    }
    assert!(checked >= 10, "only {checked} pages were seen");
}

#[tokio::test]
async fn hostile_text_in_every_field_is_text_on_every_page() {
    let site = Site::with_users("", Fake::hostile()).await;
    check_all(&site.logged_in(&site.operator).await, true).await;
    check_all(&site.logged_in(&site.reader).await, false).await;
}

#[tokio::test]
async fn hostile_addresses_are_text_too() {
    let site = Site::open_to_all(Fake::hostile()).await;
    let encoded: String = form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    let names = [
        "q", "state", "class", "kind", "tier", "group", "source", "schema", "handler", "order", "by", "sort",
        "after",
    ];
    let query = names.map(|name| format!("{name}={encoded}")).join("&");
    for path in ["/items", "/groups", "/history"] {
        let seen = site.get(&format!("{path}?{query}")).await;
        assert!(seen.text.contains("&lt;script&gt;"), "{path}");
        check(&seen, path);
    }
    for path in [
        format!("/items/{encoded}"),
        format!("/{encoded}"),
        format!("/items?since={encoded}"),
        format!("/replays/{encoded}"),
    ] {
        let seen = site.get(&path).await;
        assert!(seen.status.is_client_error(), "{path}: {}", seen.status);
        check(&seen, &path);
    }
    let users = Site::with_users("", Fake::hostile()).await;
    let seen = users.get(&format!("/login?next=/{encoded}")).await;
    check(&seen, "/login");
    assert!(seen.text.contains("&quot;&gt;&lt;script&gt;"), "{}", seen.text);
}

#[tokio::test]
async fn the_page_of_a_failure_escapes_what_failed() {
    let site = Site::open_to_all(Fake::broken()).await;
    for page in pages().into_iter().filter(|page| page != "/login") {
        let seen = site.get(&page).await;
        assert_eq!(seen.status, StatusCode::SERVICE_UNAVAILABLE, "{page}");
        assert!(seen.text.contains("Kafka is away: &lt;/pre&gt;"), "{page}");
        check(&seen, &page);
    }
}

#[tokio::test]
async fn events_of_a_run_are_escaped_markup_in_one_piece_and_end_with_it() {
    let site = Site::open_to_all(Fake::hostile()).await;
    let seen = site.get(&address("/replays/{run}/events")).await;
    assert_eq!(seen.header("content-type"), "text/event-stream");
    let events: Vec<&str> =
        seen.text.split("\n\n").filter(|event| event.contains("event: progress")).collect();
    assert!(events.len() >= 2, "it changed on the way:\n{}", seen.text);
    assert!(events.last().unwrap().contains("data-rests"), "the last one tells the end");
    check(&seen, "events");
    assert!(seen.text.contains("&lt;script&gt;alert(1)"));
}

#[tokio::test]
async fn every_answer_forbids_what_pages_do_not_need() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let mut checked = 0;
    for route in Console::routes().into_iter().filter(|route| route.method == Method::GET) {
        let seen = site.get(&address(route.path)).await;
        let policy = seen.header("content-security-policy");
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"),
            "{}: {policy}",
            route.path
        );
        assert!(!policy.contains("unsafe"), "{policy}");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"), "{policy}");
        assert_eq!(seen.header("x-content-type-options"), "nosniff", "{}", route.path);
        let is_json = seen.header("content-type").contains("json");
        assert_eq!(is_json, route.path.starts_with("/api/"), "{}", route.path);
        checked += 1;
    }
    assert!(checked > 20, "only {checked} answers were seen");
}

#[test]
fn nothing_in_the_code_goes_around_the_escaping() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut folders, mut read) = (vec![root], 0);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            if entry.path().is_dir() {
                folders.push(entry.path());
                continue;
            }
            let text = std::fs::read_to_string(entry.path()).unwrap();
            assert!(!text.contains("PreEscaped"), "{} has raw markup", entry.path().display());
            read += 1;
        }
    }
    assert!(read > 30);
}
