//! Who gets in, and how.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::{Method, StatusCode};
use tidegate_bootstrap::ExitCode;
use tidegate_console::{ConsoleError, NewToken, Server};

use crate::fake::Fake;
use crate::site::{Seen, Site, address, console, settings};

#[tokio::test]
async fn an_address_that_others_can_reach_is_refused_while_nobody_is_asked_who_they_are() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let text = format!("[console]\nlisten = \"{address}\"\n");
        let refused = Server::bind(console(settings(&text), Arc::new(Fake::default()))).await;
        let error = refused.expect_err(address);
        assert!(matches!(error, ConsoleError::NotForEverybody(_)), "{error}");
        assert_eq!(error.exit_code(), ExitCode::Usage);
        assert!(error.to_string().contains("tidegate console token"), "{error}");
    }
    let hash = NewToken::random().unwrap().hash();
    let text = format!(
        "[console]\nlisten = \"0.0.0.0:0\"\n[console.users.ana]\nrole = \"reader\"\ntoken_hash = \"{hash}\"\n"
    );
    Server::bind(console(settings(&text), Arc::new(Fake::default()))).await.unwrap();
    // A user without a token comes by a proxy only, and there is none: nobody would be asked.
    let text = "[console]\nlisten = \"0.0.0.0:0\"\n[console.users.ana]\nrole = \"reader\"\n";
    Server::bind(console(settings(text), Arc::new(Fake::default()))).await.unwrap_err();
}

#[tokio::test]
async fn a_port_in_use_is_told_with_the_setting() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let text = format!("[console]\nlisten = \"{}\"\n", taken.local_addr().unwrap());
    let error = Server::bind(console(settings(&text), Arc::new(Fake::default()))).await.unwrap_err();
    assert_eq!(error.exit_code(), ExitCode::Usage);
    assert!(error.to_string().contains("console.listen"), "{error}");
}

#[tokio::test]
async fn whoever_is_not_known_is_asked_to_log_in_and_then_brought_to_the_page() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let seen = site.get("/items?class=charge").await;
    assert_eq!(
        (seen.status, seen.header("location")),
        (StatusCode::SEE_OTHER, "/login?next=%2Fitems%3Fclass%3Dcharge")
    );
    let browser = site.browser().await;
    let seen = browser.post("/login", &[("token", &site.operator), ("next", "/items?class=charge")]).await;
    assert_eq!((seen.status, seen.header("location")), (StatusCode::SEE_OTHER, "/items?class=charge"));
    let seen = browser.post("/login", &[("token", &site.operator), ("next", "https://evil.example/")]).await;
    assert_eq!(seen.header("location"), "/");
}

#[tokio::test]
async fn a_session_begins_with_a_cookie_of_its_own_and_ends_when_it_is_ended() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let before = site.browser().await;
    let set = before.post("/login", &[("token", &site.reader)]).await;
    let header = set.header("set-cookie");
    assert!(
        header.contains("HttpOnly") && header.contains("SameSite=Strict") && !header.contains("Secure"),
        "{header}"
    );
    assert_ne!(
        set.cookie().unwrap(),
        before.cookie,
        "a cookie that was known before must not become the session's"
    );
    assert_eq!(before.get("/").await.status, StatusCode::SEE_OTHER, "the old one opens nothing");
    let browser = site.logged_in(&site.reader).await;
    let page = browser.get("/").await;
    assert!(page.text.contains("ben") && page.text.contains("reader"));
    assert_eq!(browser.post("/logout", &[]).await.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.get("/").await.status, StatusCode::SEE_OTHER);
    let noted: Vec<_> =
        site.inbox.changes().into_iter().filter(|(by, _)| by == "ben").map(|(_, what)| what).collect();
    assert_eq!(noted, ["log-in", "log-in", "log-out"]);
}

#[tokio::test]
async fn after_ten_wrong_tokens_even_the_right_one_waits() {
    // After six seconds there is one more try: on a busy machine that may be before all of them were made.
    for _ in 0..20 {
        let began = Instant::now();
        let (wrong, waiting, bearer) = thirteen_tries().await;
        if began.elapsed() > Duration::from_secs(5) {
            continue;
        }
        for seen in wrong {
            assert_eq!(seen.status, StatusCode::UNAUTHORIZED);
            assert!(seen.text.contains("this token is not known"), "{}", seen.text);
        }
        for seen in waiting {
            assert_eq!(seen.status, StatusCode::TOO_MANY_REQUESTS);
            assert!((1..=6).contains(&seen.header("retry-after").parse::<u64>().unwrap()));
        }
        assert_eq!(bearer.status, StatusCode::TOO_MANY_REQUESTS, "programs share the tries");
        return;
    }
    panic!("thirteen tries always took more than five seconds");
}

/// Ten with a wrong token, one more and one with the right token, and a program's.
async fn thirteen_tries() -> (Vec<Seen>, Vec<Seen>, Seen) {
    let site = Site::with_users("", Fake::with_items(3)).await;
    let browser = site.browser().await;
    let wrong = NewToken::random().unwrap();
    let (mut refused, mut waiting) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        refused.push(browser.post("/login", &[("token", wrong.token())]).await);
    }
    for token in [wrong.token(), &site.operator] {
        waiting.push(browser.post("/login", &[("token", token)]).await);
    }
    let bearer = site.request(Method::GET, "/api/v1/overview").bearer_auth(wrong.token());
    (refused, waiting, Seen::of(bearer).await)
}

#[tokio::test]
async fn right_log_ins_use_up_no_tries() {
    let site = Site::with_users("", Fake::with_items(3)).await;
    for _ in 0..15 {
        site.logged_in(&site.reader).await;
    }
}

#[tokio::test]
async fn while_nobody_is_asked_a_foreign_name_of_this_machine_gets_nothing() {
    let site = Site::open_to_all(Fake::with_items(3)).await;
    let page = site.get("/").await;
    assert!(page.text.contains("local-ana") && page.text.contains("operator"));
    for host in ["evil.example", "127.0.0.1.evil.example:9680"] {
        for path in ["/", "/api/v1/items", "/login"] {
            let seen = Seen::of(site.request(Method::GET, path).header("host", host)).await;
            assert_eq!(seen.status, StatusCode::MISDIRECTED_REQUEST, "{host} {path}");
            assert!(!seen.text.contains("connection to payments"), "{}", seen.text);
        }
    }
    let seen = Seen::of(site.request(Method::GET, "/").header("host", "localhost:9680")).await;
    assert_eq!(seen.status, StatusCode::OK);
}

const PROXY: &str = "[console]\nlisten = \"127.0.0.1:0\"\n[console.users.ana]\nrole = \"operator\"\n";

#[tokio::test]
async fn a_listed_proxy_says_who_it_is_and_an_unknown_name_has_no_access() {
    let site = Site::start(
        &format!("{PROXY}[console.proxy]\nheader = \"x-user\"\naddresses = [\"127.0.0.1\"]\n"),
        Fake::with_items(3),
    )
    .await;
    let by = |name: &str| site.request(Method::GET, "/").header("x-user", name);
    let seen = Seen::of(by("ana").header("x-forwarded-proto", "https")).await;
    assert!(seen.status == StatusCode::OK && seen.text.contains("operator"), "{}", seen.text);
    let cookie = seen.header("set-cookie");
    assert!(cookie.starts_with("__Host-tidegate=") && cookie.ends_with("; Secure"), "{cookie}");
    assert_eq!(Seen::of(by("eve")).await.status, StatusCode::FORBIDDEN);
    assert_eq!(
        Seen::of(by("ana").header("x-user", "eve")).await.status,
        StatusCode::BAD_REQUEST,
        "two names are no name"
    );
    assert_eq!(Seen::of(by("<script>")).await.status, StatusCode::BAD_REQUEST);
    assert_eq!(site.get("/").await.status, StatusCode::SEE_OTHER, "without the header");
}

#[tokio::test]
async fn an_unknown_name_may_be_a_reader() {
    let proxy = "[console.proxy]\nheader = \"x-user\"\naddresses = [\"127.0.0.1\"]\nothers = \"reader\"\n";
    let site = Site::start(&format!("{PROXY}{proxy}"), Fake::with_items(3)).await;
    let seen = Seen::of(site.request(Method::GET, "/").header("x-user", "eve")).await;
    assert!(seen.status == StatusCode::OK && seen.text.contains("reader"));
}

#[tokio::test]
async fn the_proxys_headers_mean_nothing_from_anybody_else() {
    let site = Site::start(
        &format!("{PROXY}[console.proxy]\nheader = \"x-user\"\naddresses = [\"192.0.2.1\"]\n"),
        Fake::with_items(3),
    )
    .await;
    let seen =
        Seen::of(site.request(Method::GET, "/").header("x-user", "ana").header("x-forwarded-proto", "https"))
            .await;
    assert_eq!(seen.status, StatusCode::SEE_OTHER);
    assert!(!seen.header("set-cookie").contains("Secure"), "{}", seen.header("set-cookie"));
}

/// What comes of a run that is watched, up to the end of the answer.
async fn rest(mut stream: reqwest::Response) -> String {
    let mut text = Vec::new();
    let whole = async {
        while let Some(part) = stream.chunk().await.unwrap() {
            text.extend_from_slice(&part);
        }
    };
    tokio::time::timeout(Duration::from_secs(90), whole).await.expect("it ends");
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn what_is_watched_live_ends_when_whoever_watches_logs_out() {
    let site = Site::with_users("", Fake::with_a_run_that_stands()).await;
    let path = address("/replays/{run}/events");
    let (leaving, staying) = (site.logged_in(&site.reader).await, site.logged_in(&site.reader).await);
    let (mut left, mut stayed) = (leaving.watch(&path).await, staying.watch(&path).await);
    for stream in [&mut left, &mut stayed] {
        let first = stream.chunk().await.unwrap().unwrap();
        assert!(String::from_utf8_lossy(&first).contains("event: progress"));
    }
    assert_eq!(leaving.post("/logout", &[]).await.status, StatusCode::SEE_OTHER);
    assert!(rest(left).await.ends_with("event: logged-out\ndata: the session ended\n\n"));
    let more = tokio::time::timeout(Duration::from_millis(1500), stayed.chunk()).await;
    assert!(more.is_err(), "who stays logged in goes on watching: {more:?}");
    let program = site.request(Method::GET, &path).bearer_auth(&site.reader).send().await.unwrap();
    let more = tokio::time::timeout(Duration::from_millis(1500), rest(program)).await;
    assert!(more.is_err(), "a token is no session: {more:?}");
}

#[tokio::test]
async fn what_is_watched_live_ends_when_the_session_does() {
    // Long enough to log in and to begin to watch, on a machine that does more than this.
    let lifetime = Some(Duration::from_secs(10));
    let site = Site::with_sessions("", lifetime, Fake::with_a_run_that_stands()).await;
    let watching = site.logged_in(&site.reader).await;
    let stream = watching.watch(&address("/replays/{run}/events")).await;
    let text = rest(stream).await;
    assert!(text.contains("event: progress") && text.contains("event: logged-out"), "{text}");
}
