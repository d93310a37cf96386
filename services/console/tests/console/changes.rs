//! Every route that changes something, as the table of routes has them: so that a new one can't be forgotten.

use reqwest::{Method, StatusCode};
use tidegate_console::{Console, Route, RouteAccess};

use crate::fake::{Fake, ITEM};
use crate::site::{Seen, Site, address};

const DOORS: [&str; 2] = ["/login", "/logout"];
/// Fields that every form's route understands some of.
const FIELDS: [(&str, &str); 5] =
    [("order", "replay"), ("scope", "items"), ("item", ITEM), ("steer", "pause"), ("reason", "because")];

fn changing() -> Vec<Route> {
    let routes: Vec<Route> = Console::routes()
        .into_iter()
        .filter(|route| route.method != Method::GET && !DOORS.contains(&route.path))
        .collect();
    assert!(routes.len() >= 8, "only {} routes change something", routes.len());
    routes
}

/// A body that the route of a program understands.
fn json(path: &str) -> &'static str {
    match path {
        path if path.ends_with("/plans") => r#"{"order":"replay","items":["00000000000000a1"]}"#,
        path if path.ends_with("/steer") => r#"{"steer":"pause"}"#,
        _ => "{}",
    }
}

fn changes_but_log_ins(site: &Site) -> Vec<(String, String)> {
    site.inbox.changes().into_iter().filter(|(_, what)| what != "log-in").collect()
}

#[test]
fn every_route_that_is_no_look_is_for_operators_but_the_doors() {
    for route in Console::routes() {
        let expected = match (route.method == Method::GET, DOORS.contains(&route.path)) {
            (_, true) => RouteAccess::Open,
            (false, false) => RouteAccess::Operator,
            (true, false) if ["/livez", "/assets/{file}"].contains(&route.path) => RouteAccess::Open,
            // What operators prepared may tell what is masked.
            (true, false) if route.path.contains("/plans/") => RouteAccess::Operator,
            (true, false) => RouteAccess::Reader,
        };
        assert_eq!(route.access, expected, "{} {}", route.method, route.path);
    }
}

#[tokio::test]
async fn a_reader_is_refused_on_every_route_that_changes_something() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.logged_in(&site.reader).await;
    for route in changing() {
        let path = address(route.path);
        let seen = browser.post(&path, &FIELDS).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path} by a session");
        let program = site.request(Method::POST, &path).bearer_auth(&site.reader).body(json(&path));
        let seen = Seen::of(program.header("content-type", "application/json")).await;
        assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path} by a token");
        assert!(
            seen.text.contains("not-for-readers") || seen.text.contains("This is for operators"),
            "{path}: {}",
            seen.text
        );
    }
    assert_eq!(changes_but_log_ins(&site), []);
}

#[tokio::test]
async fn an_unknown_visitor_is_refused_on_every_route_that_changes_something() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.browser().await;
    for route in changing() {
        let path = address(route.path);
        assert_eq!(browser.post(&path, &FIELDS).await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    assert_eq!(site.inbox.changes(), []);
}

#[tokio::test]
async fn a_change_without_its_token_or_with_another_browsers_is_refused_on_every_route() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.logged_in(&site.operator).await;
    let other = site.logged_in(&site.operator).await;
    for route in Console::routes().into_iter().filter(|route| route.method != Method::GET) {
        let path = address(route.path);
        for (csrf, what) in [
            (None, "missing"),
            (Some(""), "empty"),
            (Some("x"), "wrong"),
            (Some(other.csrf.as_str()), "another's"),
        ] {
            let seen = browser.post_with(&path, &FIELDS, csrf).await;
            assert_eq!(seen.status, StatusCode::FORBIDDEN, "{path}, {what}");
            assert!(
                seen.text.contains("not-from-here") || seen.text.contains("Nothing was changed"),
                "{path}: {}",
                seen.text
            );
        }
    }
    assert_eq!(changes_but_log_ins(&site), []);
    assert_eq!(browser.get("/").await.status, StatusCode::OK, "nobody was logged out either");
}

#[tokio::test]
async fn a_request_that_another_site_makes_is_refused_even_where_nobody_is_asked_who_they_are() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let browser = site.browser().await;
    let csrf = browser.get(&address("/items/{item}")).await.csrf().unwrap();
    let send = |path: String, kind: &'static str, body: String| {
        let request = site.request(Method::POST, &path).header("cookie", &browser.cookie);
        request.header("content-type", kind).header("sec-fetch-site", "cross-site").body(body)
    };
    for route in changing() {
        let path = address(route.path);
        let form = send(path.clone(), "application/x-www-form-urlencoded", format!("csrf={csrf}"));
        assert_eq!(Seen::of(form).await.status, StatusCode::FORBIDDEN, "{path}");
        let program = send(path.clone(), "application/json", json(&path).to_owned());
        assert_eq!(Seen::of(program).await.status, StatusCode::FORBIDDEN, "{path}");
        // What a form of another site can send without asking first.
        let plain = site.request(Method::POST, &path).header("content-type", "text/plain").body(json(&path));
        let refused = match path.starts_with("/api/") {
            true => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            false => StatusCode::FORBIDDEN,
        };
        assert_eq!(Seen::of(plain).await.status, refused, "{path}");
    }
    assert_eq!(site.inbox.changes(), []);
}

#[tokio::test]
async fn an_operator_with_the_pages_own_token_may_do_all_of_it() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.logged_in(&site.operator).await;
    let before = changes_but_log_ins(&site).len();
    let (mut forms, mut programs) = (0, 0);
    for route in changing() {
        let path = address(route.path);
        let is_api = path.starts_with("/api/");
        let seen = if is_api {
            programs += 1;
            let request = site.request(Method::POST, &path).bearer_auth(&site.operator).body(json(&path));
            Seen::of(request.header("content-type", "application/json")).await
        } else {
            forms += 1;
            browser.post(&path, &FIELDS).await
        };
        assert!(
            seen.status.is_success() || seen.status == StatusCode::SEE_OTHER,
            "{path}: {} {}",
            seen.status,
            seen.text
        );
    }
    assert_eq!(changes_but_log_ins(&site).len() - before, forms + programs);
    assert!(changes_but_log_ins(&site).iter().all(|(by, _)| by == "ana"), "each carries a name");
}

#[tokio::test]
async fn a_route_that_does_not_exist_is_not_open_either() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let reader = site.logged_in(&site.reader).await;
    assert_eq!(reader.post("/no/such/route", &[]).await.status, StatusCode::FORBIDDEN);
    assert_eq!(reader.get("/no/such/page").await.status, StatusCode::NOT_FOUND);
    let operator = site.logged_in(&site.operator).await;
    assert_eq!(operator.post("/history", &[]).await.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(
        site.get("/no/such/page").await.status,
        StatusCode::SEE_OTHER,
        "it does not tell the unknown what exists"
    );
}
