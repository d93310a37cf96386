//! Many at once.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::StatusCode;

use crate::fake::Fake;
use crate::site::Site;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_thousand_requests_at_once_are_all_answered() {
    let site = Site::open_to_all(Fake::slow(200, Duration::from_millis(5))).await;
    let paths = ["/", "/groups", "/items", "/api/v1/items?limit=200", "/history"];
    let answers = join_all((0..1000).map(|n| site.get(paths[n % paths.len()]))).await;
    assert_eq!(answers.len(), 1000);
    for seen in answers {
        assert_eq!(seen.status, StatusCode::OK, "{}", seen.text);
    }
}

#[tokio::test]
async fn a_page_of_fifty_items_is_small_and_made_at_once() {
    let site = Site::open_to_all(Fake::with_items(1_000_000)).await;
    let mut times = Vec::new();
    for _ in 0..21 {
        let began = Instant::now();
        let seen = site.get("/items").await;
        times.push(began.elapsed());
        assert!(seen.text.len() < 100_000, "{} bytes", seen.text.len());
    }
    // What the pages themselves take, without an index; in a debug build. The fastest one counts: a machine may do more than this, but
    // what it takes to make a page slows all of them.
    assert!(times.iter().min().unwrap() < &Duration::from_millis(100), "{times:?}");
}
