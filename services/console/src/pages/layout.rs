//! The frame of every page, and the page of a failure.

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};
use tidegate_bootstrap::config::Role;

use super::html as document;
use crate::Console;
use crate::access::How;
use crate::assets;
use crate::failure::Failure;
use crate::gate::{Asked, Asker};

/// The part of the console that a page belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Overview,
    Groups,
    Items,
    Replays,
    History,
    None,
}

const NAVIGATION: [(Section, &str, &str); 5] = [
    (Section::Overview, "/", "Overview"),
    (Section::Groups, "/groups", "Groups"),
    (Section::Items, "/items", "Items"),
    (Section::Replays, "/replays", "Runs"),
    (Section::History, "/history", "History"),
];

/// A page.
pub(super) struct Page<'a> {
    pub(super) section: Section,
    pub(super) title: &'a str,
    /// What it shows comes again after so many seconds: with JavaScript only that, without it the whole page.
    pub(super) reload: Option<u32>,
    pub(super) body: Markup,
}

impl Page<'_> {
    pub(super) fn show(self, console: &Console, asker: &Asker) -> Response {
        document(self.document(console, asker))
    }

    fn document(self, console: &Console, asker: &Asker) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · " (console.pipeline()) }
                    link rel="stylesheet" href=(assets::address("console.css"));
                    link rel="icon" type="image/svg+xml" href=(assets::address("mark.svg"));
                    script defer src=(assets::address("console.js")) {}
                    @if let Some(seconds) = self.reload {
                        noscript { meta http-equiv="refresh" content=(seconds); }
                    }
                }
                body data-refresh=[self.reload] {
                    a.skip href="#main" { "Skip to the content" }
                    (header(console, asker, self.section))
                    main #main tabindex="-1" { (self.body) }
                    footer.foot {
                        span { "All times are UTC." }
                        span.keys { kbd { "/" } " search " kbd { "j" } " " kbd { "k" } " move " kbd { "Enter" } " open " kbd { "g" } " then " kbd { "o" } kbd { "g" } kbd { "i" } kbd { "r" } kbd { "h" } " go" }
                    }
                }
            }
        }
    }
}

fn header(console: &Console, asker: &Asker, section: Section) -> Markup {
    html! {
        header.top {
            div.bar {
                a.brand href="/" {
                    img src=(assets::address("mark.svg")) alt="" width="24" height="24";
                    span { "tidegate" }
                    @if console.pipeline() != "tidegate" { span.pipeline { (console.pipeline()) } }
                }
                @if asker.known().is_some() {
                    nav aria-label="Main" {
                        @for (part, address, name) in NAVIGATION {
                            a href=(address) aria-current=[(part == section).then_some("page")] { (name) }
                        }
                    }
                }
                (who(asker))
            }
        }
    }
}

fn who(asker: &Asker) -> Markup {
    let Some(visitor) = asker.known() else { return html! {} };
    let role = match visitor.role {
        Role::Reader => "reader",
        Role::Operator => "operator",
    };
    html! {
        div.who {
            span.name { (visitor.name) }
            span.role { (role) }
            @if visitor.how == How::Session {
                form method="post" action="/logout" {
                    input type="hidden" name="csrf" value=(asker.csrf());
                    button.quiet type="submit" { "Log out" }
                }
            }
        }
    }
}

/// The page that tells of a failure, with what to do.
pub(crate) fn failure(console: &Console, asker: &Asker, failure: &Failure, asked: &Asked) -> Response {
    let body = html! {
        section.trouble role="alert" {
            p.code { (failure.status.as_u16()) }
            h1 { (failure.title) }
            p.lead { (failure.detail) }
            p.actions {
                @if failure.status == StatusCode::UNAUTHORIZED { a.button href="/login" { "Log in" } }
                @else if asked.is_look && failure.status.is_server_error() { a.button href=(asked.path) { "Try again" } }
                @else if let Some(back) = &asked.back { a.button href=(back) { "Back" } }
                a.button.plain href="/" { "Overview" }
            }
        }
    };
    let page = Page { section: Section::None, title: failure.title, reload: None, body };
    let mut response = (failure.status, page.show(console, asker)).into_response();
    failure.add_retry_after(&mut response);
    response
}
