//! Logging in by a token, and out.

use std::time::Instant;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use maud::html;
use tracing::{info, warn};

use crate::Console;
use crate::access::{Cookie, LogIn, Refusal, Visitor};
use crate::failure::{Answer, Failure};
use crate::fields::{Form, Query};
use crate::gate::Asker;
use crate::inbox::Audit;

use super::go_to;
use super::layout::{Page, Section};

pub(crate) async fn show(State(console): State<Console>, asker: Asker, Query(fields): Query) -> Answer {
    let next = onwards(fields.raw("next"));
    if asker.known().is_some() {
        return Ok(go_to(next));
    }
    Ok(form(&console, &asker, next, None))
}

fn form(console: &Console, asker: &Asker, next: &str, refusal: Option<&Refusal>) -> Response {
    let body = html! {
        section.login {
            h1 { "Log in" }
            p.lead { "to the inbox of " strong { (console.pipeline()) } }
            @if let Some(refusal) = refusal { p.note role="alert" { (refusal) } }
            form.card method="post" action="/login" {
                input type="hidden" name="csrf" value=(asker.csrf());
                input type="hidden" name="next" value=(next);
                label { span { "Your token" }
                    input type="password" name="token" required autofocus autocomplete="current-password" placeholder="tgc_…" spellcheck="false";
                }
                button.primary type="submit" { "Log in" }
            }
            p.hint { "Whoever runs this console makes tokens with " code { "tidegate console token" } "." }
        }
    };
    Page { section: Section::None, title: "Log in", reload: None, body }.show(console, asker)
}

pub(crate) async fn log_in(State(console): State<Console>, asker: Asker, Form(fields): Form) -> Answer {
    let next = onwards(fields.raw("next")).to_owned();
    let token = fields.get("token").unwrap_or_default();
    match console.access().log_in(token, &asker.transport, Instant::now()) {
        Ok((visitor, cookie)) => {
            note(&console, &visitor, "log-in").await;
            let mut response = go_to(&next);
            response.headers_mut().append(header::SET_COOKIE, cookie.set(&asker.transport));
            Ok(response)
        }
        Err(LogIn::Refused(refusal)) => {
            warn!(client = %asker.transport.client(), %refusal, "nobody was logged in");
            let failure = Failure::from(refusal.clone());
            let mut response =
                (failure.status, form(&console, &asker, &next, Some(&refusal))).into_response();
            failure.add_retry_after(&mut response);
            Ok(response)
        }
        Err(LogIn::NoRandomness(error)) => Err(Failure::unavailable(error.to_string())),
    }
}

pub(crate) async fn log_out(State(console): State<Console>, asker: Asker, headers: HeaderMap) -> Answer {
    console.access().log_out(&headers, &asker.transport);
    if let Some(visitor) = asker.known() {
        note(&console, visitor, "log-out").await;
    }
    let mut response = go_to("/login");
    response.headers_mut().append(header::SET_COOKIE, Cookie::remove(&asker.transport));
    Ok(response)
}

/// A log-in changes nothing, so it is not refused when the journal can't be written: an operator has to see why it can't.
async fn note(console: &Console, visitor: &Visitor, what: &'static str) {
    info!(user = visitor.name, what, "session");
    let by = visitor.name.clone();
    let noted = console.ask(move |inbox| inbox.note(&by, &Audit { what, item: None, detail: None })).await;
    if let Err(failure) = noted {
        warn!(user = visitor.name, what, error = failure.detail, "the journal does not have it");
    }
}

/// Where somebody goes after logging in: a page of ours, or the first one.
fn onwards(next: Option<&str>) -> &str {
    let is_ours = |path: &&str| {
        // Browsers read a backslash as a slash, and two slashes as another host.
        path.starts_with('/') && !path.starts_with("//") && !path.contains(['\\', '\n', '\r', '\t'])
    };
    next.filter(is_ours).unwrap_or("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_logging_in_nobody_is_sent_to_another_site() {
        assert_eq!(onwards(Some("/items?class=a")), "/items?class=a");
        for foreign in
            ["https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil.example", "evil", ""]
        {
            assert_eq!(onwards(Some(foreign)), "/", "{foreign}");
        }
    }
}
