//! The pages. Each file has one, from its query to its markup; what they share is in `layout`, `parts` and `format`.

mod filters;
mod format;
pub(crate) mod group;
pub(crate) mod groups;
pub(crate) mod history;
pub(crate) mod item;
pub(crate) mod items;
mod layout;
pub(crate) mod login;
pub(crate) mod overview;
mod parts;
pub(crate) mod plan;
pub(crate) mod runs;
mod selection;

pub(crate) use filters::check_search;
pub(crate) use layout::failure;
pub(crate) use runs::progress;

use axum::response::{Html, IntoResponse, Redirect, Response};
use maud::Markup;

/// A whole document.
fn html(document: Markup) -> Response {
    Html(document.into_string()).into_response()
}

/// After a change: the browser shows the result by a new request, so that a reload repeats nothing.
fn go_to(address: &str) -> Response {
    Redirect::to(address).into_response()
}
