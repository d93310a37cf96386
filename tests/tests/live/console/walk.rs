//! One operator's night, and what a reader may not do.

use std::path::Path;

use tidegate_tests::browser::{Browser, Theme, Width};
use tidegate_tests::jobs::SOON;
use tidegate_tests::wait::wait_until;

use super::shop::{BROKEN, Shop};

/// Pictures of the page that is shown: light, dark and on a phone. They are build output.
pub(crate) fn shoot(browser: &Browser, name: &str) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("console");
    for (theme, width, what) in [
        (Theme::Dark, Width::Desk, "dark"),
        (Theme::Light, Width::Phone, "phone"),
        (Theme::Light, Width::Desk, "light"),
    ] {
        browser.look_as(theme, width);
        let wide =
            browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth");
        assert_eq!(wide, 0, "{name}, {what}: the page is wider than its window");
        browser.shoot(&folder.join(format!("{name}-{what}.png")));
    }
}

fn log_in(browser: &Browser, shop: &Shop, token: &str) {
    browser.open(&shop.url("/"));
    browser.type_into("//input[@name='token']", token);
    browser.click("//button[text()='Log in']");
    browser.wait_for("//nav[@aria-label='Main']");
}

#[test]
fn an_operator_finds_the_cause_replays_it_by_a_canary_and_discards_the_rest_and_a_reader_may_not() {
    let mut shop = Shop::open();
    let browser = Browser::start();
    browser.open(&shop.url("/"));
    shoot(&browser, "login");
    log_in(&browser, &shop, &shop.operator);
    find_the_group(&browser, &shop);
    read_an_item(&browser);
    replay_by_a_canary(&browser, &mut shop);
    discard_with_a_reason(&browser, &shop);
    browser.click("//a[text()='History']");
    browser.wait_for_text("the account is closed for good");
    shoot(&browser, "history");
    browser.click("//button[text()='Log out']");
    browser.wait_for("//input[@name='token']");
    fail_as_a_reader(&browser, &shop);
}

fn find_the_group(browser: &Browser, shop: &Shop) {
    let all = format!("{} items wait", BROKEN + 1);
    wait_until("the index to have all letters", 3 * SOON, || {
        browser.open(&shop.url("/"));
        browser.text().contains(&all)
    });
    shoot(browser, "overview");
    browser.click("//a[text()='Groups']");
    browser.wait_for("//h1[text()='Groups']");
    shoot(browser, "groups");
    browser.click("//a[contains(., 'currency')]");
    browser.wait_for_text(&format!("{BROKEN} items"));
    shoot(browser, "group");
}

fn read_an_item(browser: &Browser) {
    browser.click("//table//a[contains(@href, '/items/')]");
    browser.wait_for("//h2[text()='Event']");
    let text = browser.text();
    assert!(text.contains("\"id\": \"order-") && text.contains("headers of tidegate"), "{text}");
    assert!(text.contains("Round 0, attempt 1") && text.contains("http-422"), "{text}");
    shoot(browser, "item");
    browser.click("//nav[@aria-label='Where you are']/a[2]");
}

fn replay_by_a_canary(browser: &Browser, shop: &mut Shop) {
    browser.click("//button[@value='replay']");
    browser.wait_for_text(&format!("Replay {BROKEN} items?"));
    assert!(browser.text().contains("Nothing has happened yet"));
    shoot(browser, "dry-run");
    assert_eq!(shop.jobs.endpoint.calls().len(), BROKEN + 1, "a dry run runs nothing");
    shop.heal();
    browser.click(&format!("//button[text()='Replay {BROKEN} items']"));
    browser.wait_for("//section[@aria-label='Progress']");
    // The page is not loaded again: events bring it up to date.
    browser.run("window.sameDocument = true");
    browser.wait_at_most("//section[@data-rests]//span[text()='Finished']", 3 * SOON);
    assert_eq!(browser.run("return window.sameDocument"), true);
    let text = browser.text();
    assert!(text.contains(&format!("{BROKEN} of {BROKEN} have an end")), "{text}");
    assert!(browser.has("//ol[@aria-label='Steps of the ramp']/li[3]"), "1, 5, 25, …: {text}");
    shoot(browser, "run");
    assert_eq!(shop.jobs.endpoint.calls().len(), 2 * BROKEN + 1, "each ran once more");
    browser.click("//a[text()='Runs']");
    browser.wait_for("//h1[text()='Runs']");
    shoot(browser, "runs");
}

fn discard_with_a_reason(browser: &Browser, shop: &Shop) {
    browser.open(&shop.url("/items?state=open"));
    browser.wait_for_text("1 item");
    shoot(browser, "items");
    browser.click("//a[contains(., 'account is closed')]");
    browser.click("//button[@value='discard']");
    browser.wait_for_text("Say why you discard");
    shoot(browser, "refused");
    browser.click("//a[text()='Back']");
    browser.type_into("//input[@name='reason']", "the account is closed for good");
    browser.click("//button[@value='discard']");
    browser.wait_for_text("Discard 1 item?");
    shoot(browser, "discard");
    browser.click("//button[text()='Discard 1 item']");
    browser.wait_for("//span[text()='Finished']");
    wait_until("the overview to know of it", 3 * SOON, || {
        browser.open(&shop.url("/"));
        browser.text().contains("Nothing waits for you")
    });
    shoot(browser, "overview-done");
}

fn fail_as_a_reader(browser: &Browser, shop: &Shop) {
    log_in(browser, shop, &shop.reader);
    browser.open(&shop.url("/items?state=discarded"));
    browser.click("//a[contains(., 'account is closed')]");
    browser.wait_for_text("You are a reader");
    shoot(browser, "item-reader");
    assert!(!browser.has("//button[@value='reopen']"), "no button that would refuse");
    // Somebody who writes the request by hand, with everything that a page has.
    let status = browser.run(
        "const csrf = document.querySelector('input[name=csrf]').value;
         const item = location.pathname.split('/').pop();
         const body = new URLSearchParams({ csrf, item, scope: 'items', order: 'replay', forced: 'yes', reason: 'x' });
         return fetch('/plans', { method: 'POST', body }).then((answer) => answer.status)",
    );
    assert_eq!(status, 403);
    browser.open(&shop.url("/no-such-page"));
    browser.wait_for_text("There is nothing here");
    shoot(browser, "not-found");
}
