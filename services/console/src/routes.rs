//! Every address of the console, and who may use it.
//!
//! The router is made from this table and from nothing else, so that a route without a rule can't exist.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use axum::{Router, middleware};

use crate::failure::Failure;
use crate::gate::{self, Gate};
use crate::{Console, api, assets, live, pages};

/// Who may use a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everybody, whoever they are.
    Open,
    /// Readers and operators.
    Reader,
    /// Operators.
    Operator,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Its method.
    pub method: Method,
    /// Its path, with `{names}` of its parts.
    pub path: &'static str,
    /// Who may use it.
    pub access: Access,
}

/// Routes with their handlers.
#[derive(Debug, Default)]
pub(crate) struct Table {
    routes: Vec<Route>,
    router: Router<Console>,
}

impl Table {
    /// A page or figures to look at.
    pub(crate) fn look<T: 'static>(self, path: &'static str, handler: impl Handler<T, Console>) -> Self {
        self.add(Method::GET, path, Access::Reader, handler)
    }

    /// Something that everybody gets.
    pub(crate) fn open<T: 'static>(self, path: &'static str, handler: impl Handler<T, Console>) -> Self {
        self.add(Method::GET, path, Access::Open, handler)
    }

    /// Something to look at that only operators can have made.
    pub(crate) fn review<T: 'static>(self, path: &'static str, handler: impl Handler<T, Console>) -> Self {
        self.add(Method::GET, path, Access::Operator, handler)
    }

    /// A change: for operators.
    pub(crate) fn act<T: 'static>(self, path: &'static str, handler: impl Handler<T, Console>) -> Self {
        self.add(Method::POST, path, Access::Operator, handler)
    }

    /// Logging in or out: a change of nothing but who is asking.
    fn door<T: 'static>(self, path: &'static str, handler: impl Handler<T, Console>) -> Self {
        self.add(Method::POST, path, Access::Open, handler)
    }

    fn add<T: 'static>(
        mut self,
        method: Method,
        path: &'static str,
        access: Access,
        handler: impl Handler<T, Console>,
    ) -> Self {
        let filter = if method == Method::GET { MethodFilter::GET } else { MethodFilter::POST };
        self.router = self.router.route(path, on(filter, handler));
        self.routes.push(Route { method, path, access });
        self
    }

    pub(crate) fn list(self) -> Vec<Route> {
        self.routes
    }

    pub(crate) fn into_router(self, console: Console) -> Router {
        let gate = Gate { console: console.clone(), routes: Arc::new(self.routes) };
        self.router
            .fallback(async || Failure::no_page())
            .layer(middleware::from_fn_with_state(gate, gate::stand))
            .with_state(console)
    }
}

/// The whole table.
pub(crate) fn table() -> Table {
    let doors = Table::default()
        .open("/login", pages::login::show)
        .door("/login", pages::login::log_in)
        .door("/logout", pages::login::log_out)
        .open("/assets/{file}", assets::serve)
        .open("/livez", assets::alive);
    let pages = doors
        .look("/", pages::overview::show)
        .look("/groups", pages::groups::show)
        .look("/groups/{group}", pages::group::show)
        .look("/items", pages::items::show)
        .look("/items/{item}", pages::item::show)
        .act("/items/{item}/reveal", pages::item::reveal)
        .act("/plans", pages::plan::prepare)
        .review("/plans/{plan}", pages::plan::show)
        .act("/plans/{plan}/run", pages::plan::carry_out)
        .look("/replays", pages::runs::list)
        .look("/replays/{run}", pages::runs::show)
        .look("/replays/{run}/events", live::events)
        .act("/replays/{run}/steer", pages::runs::steer)
        .look("/history", pages::history::show);
    api::add_to(pages)
}
