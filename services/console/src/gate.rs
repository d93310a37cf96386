//! What stands before every route: who is it, may they, does the change come from a page of ours; and what every answer has.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{ConnectInfo, FromRequestParts, MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};

use crate::Console;
use crate::access::{Cookie, How, Identity, Transport, Visitor};
use crate::failure::Failure;
use crate::fields::{Fields, Form, address};
use crate::pages;
use crate::routes::{Access, Route};

/// The largest body of a request, in bytes.
const LARGEST: usize = 2 << 20;

/// Nothing but this console's own files; no inline script or style; in no frame; forms lead nowhere else.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Who asks, and how: for handlers and pages.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    visitor: Option<Visitor>,
    cookie: Cookie,
    csrf: String,
    pub(crate) transport: Transport,
}

impl Asker {
    pub(crate) fn known(&self) -> Option<&Visitor> {
        self.visitor.as_ref()
    }

    /// The visitor. On every route but those that are open to all, there is one.
    pub(crate) fn visitor(&self) -> Result<&Visitor, Failure> {
        self.visitor.as_ref().ok_or_else(Failure::log_in_first)
    }

    pub(crate) fn may_act(&self) -> bool {
        self.visitor.as_ref().is_some_and(Visitor::may_act)
    }

    /// The cookie that they are known by, where it is that of a session.
    pub(crate) fn session(&self) -> Option<&Cookie> {
        self.visitor.as_ref().filter(|visitor| visitor.how == How::Session).map(|_| &self.cookie)
    }

    /// What a form must carry.
    pub(crate) fn csrf(&self) -> &str {
        &self.csrf
    }
}

impl<S: Sync> FromRequestParts<S> for Asker {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Failure::broken)
    }
}

/// What the gate needs.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) console: Console,
    pub(crate) routes: Arc<Vec<Route>>,
}

/// The middleware.
pub(crate) async fn stand(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    let is_api = request.uri().path().starts_with("/api/");
    let asked = Asked::of(&request);
    let (mut asker, is_new) = match gate.asker(&request) {
        Ok(found) => found,
        Err(failure) => return finish(failure.into_response(), is_api),
    };
    let answer = gate.let_through(&mut asker, request, next).await;
    let mut response = match answer {
        Ok(response) => response,
        Err(Stop::LogIn(onwards)) => Redirect::to(&onwards).into_response(),
        Err(Stop::Failure(failure)) => failure.into_response(),
    };
    let failure = response.extensions_mut().remove::<Failure>().or_else(|| plain_failure(&response));
    if let Some(failure) = failure {
        response = match is_api {
            true => failure.problem(),
            false => pages::failure(&gate.console, &asker, &failure, &asked),
        };
    }
    if is_new && asked.is_look && !is_api && !asked.path.starts_with("/assets/") {
        response.headers_mut().append(header::SET_COOKIE, asker.cookie.set(&asker.transport));
    }
    finish(response, is_api)
}

/// What was asked for, and on which page of ours.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) is_look: bool,
    /// The page that had the link or the form.
    pub(crate) back: Option<String>,
}

impl Asked {
    fn of(request: &Request) -> Self {
        let text = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
        let back = text(header::REFERER).and_then(|referer| {
            let (_, place) = referer.split_once("://")?;
            let (host, path) = place.split_at(place.find('/')?);
            // Two slashes would lead to another site.
            let is_ours = Some(host) == text(header::HOST) && !path.starts_with("//");
            is_ours.then(|| path.to_owned())
        });
        Self { path: request.uri().path().to_owned(), is_look: is_safe(request.method()), back }
    }
}

/// What axum says by a status alone.
fn plain_failure(response: &Response) -> Option<Failure> {
    (response.status() == StatusCode::METHOD_NOT_ALLOWED).then(Failure::wrong_method)
}

/// Why a request does not reach its handler.
enum Stop {
    LogIn(String),
    Failure(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl Gate {
    /// Who asks, as far as nobody was asked yet, and whether the browser needs the cookie that is made for it.
    fn asker(&self, request: &Request) -> Result<(Asker, bool), Failure> {
        let peer = request.extensions().get::<ConnectInfo<SocketAddr>>();
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |ConnectInfo(address)| address.ip());
        let access = self.console.access();
        let transport = access.transport(request.headers(), peer);
        let sent = Cookie::read(request.headers(), &transport);
        let is_new = sent.is_none();
        let cookie = match sent {
            Some(cookie) => cookie,
            None => Cookie::random().map_err(|_| Failure::broken())?,
        };
        Ok((Asker { visitor: None, csrf: access.csrf_token(&cookie), cookie, transport }, is_new))
    }

    async fn let_through(&self, asker: &mut Asker, request: Request, next: Next) -> Result<Response, Stop> {
        let (mut parts, body) = request.into_parts();
        let rule = self.rule(&parts);
        match self.console.access().identify(&parts.headers, &asker.transport, Instant::now()) {
            Identity::Known(visitor) => asker.visitor = Some(visitor),
            // To log in, or for a style sheet, nobody has to be known.
            Identity::Nobody if rule == Access::Open => {}
            Identity::Nobody => return Err(nobody(&parts)),
            Identity::Refused(refusal) => return Err(Failure::from(refusal).into()),
        }
        let is_call = is_api(&parts) && !is_safe(&parts.method);
        if is_call {
            self.check_exists(&parts)?;
        }
        let body = read(body).await?;
        let form = form_of(&parts.headers, &body);
        if !is_safe(&parts.method) {
            self.check_origin(asker, &parts, form.as_ref())?;
        }
        if rule == Access::Operator && !asker.may_act() {
            return Err(Failure::not_for_readers().into());
        }
        if is_call && !body.is_empty() && !is_json(&parts.headers) {
            return Err(Failure::not_json().into());
        }
        parts.extensions.insert(asker.clone());
        parts.extensions.insert(Form(form.unwrap_or_default()));
        Ok(next.run(Request::from_parts(parts, Body::from(body))).await)
    }

    /// Who may use the route. What is in no table changes something for all we know.
    fn rule(&self, parts: &Parts) -> Access {
        let unknown = if is_safe(&parts.method) { Access::Reader } else { Access::Operator };
        self.route(parts).map_or(unknown, |route| route.access)
    }

    fn route(&self, parts: &Parts) -> Option<&Route> {
        let matched = matched(parts);
        let method = if parts.method == Method::HEAD { &Method::GET } else { &parts.method };
        self.routes.iter().find(|route| Some(route.path) == matched && route.method == *method)
    }

    /// A program that changes something where nothing can be changed is told so, not asked where it comes from.
    fn check_exists(&self, parts: &Parts) -> Result<(), Failure> {
        match (self.route(parts), matched(parts)) {
            (Some(_), _) => Ok(()),
            (None, Some(_)) => Err(Failure::wrong_method()),
            (None, None) => Err(Failure::no_page()),
        }
    }

    /// Whether a change was asked for on a page of ours, or by a program.
    fn check_origin(&self, asker: &Asker, parts: &Parts, form: Option<&Fields>) -> Result<(), Failure> {
        let how = asker.visitor.as_ref().map(|visitor| visitor.how);
        if how == Some(How::Token) {
            return Ok(());
        }
        // Browsers say where a request comes from. Those that don't are told by what follows.
        let site = parts.headers.get("sec-fetch-site").and_then(|site| site.to_str().ok());
        if !matches!(site, None | Some("same-origin" | "none")) {
            return Err(Failure::not_from_here());
        }
        // A page of another site can't send JSON here: its browser would ask us first, and get no permission.
        let is_program = how == Some(How::Loopback) && is_api(parts);
        if is_program && is_json(&parts.headers) {
            return Ok(());
        }
        let header = parts.headers.get("x-csrf-token").and_then(|token| token.to_str().ok());
        let token = form.and_then(|form| form.get("csrf")).or(header).unwrap_or_default();
        // The cookie must have been sent: one that was made for this answer is no proof.
        let sent = Cookie::read(&parts.headers, &asker.transport).is_some();
        let is_ours = sent && self.console.access().is_csrf_token(&asker.cookie, token);
        match is_ours {
            true => Ok(()),
            // What lacks is the type alone, which a form of another site can't have.
            false if is_program => Err(Failure::not_json()),
            false => Err(Failure::not_from_here()),
        }
    }
}

fn is_api(parts: &Parts) -> bool {
    parts.uri.path().starts_with("/api/")
}

fn matched(parts: &Parts) -> Option<&str> {
    parts.extensions.get::<MatchedPath>().map(MatchedPath::as_str)
}

fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// A person is asked to log in, and comes back to the page; a program is told.
fn nobody(parts: &Parts) -> Stop {
    if is_api(parts) || !is_safe(&parts.method) {
        return Failure::log_in_first().into();
    }
    let wanted = parts.uri.path_and_query().map_or("/", |wanted| wanted.as_str());
    Stop::LogIn(match wanted {
        "/" => "/login".to_owned(),
        wanted => address("/login", [("next", wanted.to_owned())]),
    })
}

async fn read(body: Body) -> Result<Bytes, Failure> {
    to_bytes(body, LARGEST).await.map_err(|_| Failure::too_large())
}

fn is_json(headers: &HeaderMap) -> bool {
    is_type(headers, "application/json")
}

fn is_type(headers: &HeaderMap, wanted: &str) -> bool {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().is_some_and(|found| found.trim().eq_ignore_ascii_case(wanted))
}

fn form_of(headers: &HeaderMap, body: &[u8]) -> Option<Fields> {
    is_type(headers, "application/x-www-form-urlencoded").then(|| Fields::parse(body))
}

/// What every answer has.
fn finish(mut response: Response, is_api: bool) -> Response {
    if is_api && let Some(failure) = response.extensions_mut().remove::<Failure>() {
        response = failure.problem();
    }
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}
