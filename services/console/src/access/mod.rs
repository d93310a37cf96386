//! Who is asking, and what they may do.
//!
//! Reading order: [`Access::identify`] finds out who it is by a token, the proxy's header or a session's cookie;
//! [`crate::gate`] decides by that and by the route's entry in [`crate::routes`]; `csrf` shows that a change was asked for on
//! a page of ours.

mod bind;
mod cookie;
mod csrf;
mod limiter;
mod session;
mod token;

use std::net::IpAddr;
use std::time::Instant;

use axum::http::{HeaderMap, header};
use tidegate_bootstrap::config::{Console as Settings, Others, Role, UserName};

pub use bind::{NotForEverybody, may_listen};
pub(crate) use cookie::{Cookie, Transport};
pub use token::{NewToken, NoRandomness};

use cookie::Peer;
use csrf::CsrfKey;
use limiter::Limiter;
use session::Sessions;

/// Who is asking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    /// The name that stands beside what they do.
    pub(crate) name: String,
    /// What they may do.
    pub(crate) role: Role,
    /// How they said so.
    pub(crate) how: How,
}

impl Visitor {
    pub(crate) fn may_act(&self) -> bool {
        self.role == Role::Operator
    }
}

/// How a visitor is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// The console asks nobody: whoever reaches the loopback address is on this machine.
    Loopback,
    /// By the cookie of a session.
    Session,
    /// By a token in this very request: no browser adds that by itself, so no other site can.
    Token,
    /// By the proxy's header.
    Proxy,
}

/// What a request says of who sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Identity {
    /// Somebody we know.
    Known(Visitor),
    /// Nobody yet.
    Nobody,
    /// Somebody whom we don't let in.
    Refused(Refusal),
}

/// Why somebody is not let in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error(
        "this token is not known: make one with `tidegate console token` and put its hash into the configuration"
    )]
    UnknownToken,
    #[error("too many wrong tokens came from your address; try again in {} s", .0.as_secs().max(1))]
    TooMany(std::time::Duration),
    #[error("`{0}` has no access: add [console.users.\"{0}\"] to the configuration")]
    UnknownUser(String),
    #[error(
        "the proxy's header stands there twice or is no name, so it is not clear who you are: let the proxy replace it"
    )]
    UnclearUser,
    #[error(
        "the console was called by the name `{0}`, but answers to localhost only while it asks nobody who they are: \
         open it as localhost, or give users tokens"
    )]
    ForeignHost(String),
}

/// Decides who is who.
#[derive(Debug)]
pub(crate) struct Access {
    settings: Settings,
    /// The name of whoever asks on this machine while nobody has to say it.
    local_user: String,
    sessions: Sessions,
    limiter: Limiter,
    csrf: CsrfKey,
}

impl Access {
    pub(crate) fn new(settings: Settings, local_user: String) -> Result<Self, NoRandomness> {
        let lifetime = settings.session_lifetime;
        Ok(Self {
            settings,
            local_user,
            sessions: Sessions::new(lifetime),
            limiter: Limiter::default(),
            csrf: CsrfKey::random()?,
        })
    }

    /// Whether visitors have to say who they are.
    pub(crate) fn asks(&self) -> bool {
        self.settings.asks_who_is_there()
    }

    /// How a request came to us: what a trusted proxy says of it, or what the connection shows.
    pub(crate) fn transport(&self, headers: &HeaderMap, peer: IpAddr) -> Transport {
        let address = canonical(peer);
        let is_proxy = |proxy: &tidegate_bootstrap::config::Proxy| proxy.addresses.contains(&address);
        let peer =
            if self.settings.proxy.as_ref().is_some_and(is_proxy) { Peer::Proxy } else { Peer::Anybody };
        Transport::of(headers, address, peer)
    }

    /// Who sends this request.
    pub(crate) fn identify(&self, headers: &HeaderMap, transport: &Transport, now: Instant) -> Identity {
        if !self.asks() {
            return self.local(headers);
        }
        if let Some(token) = bearer(headers) {
            return match self.try_token(token, transport, now) {
                Ok(visitor) => Identity::Known(visitor),
                Err(refusal) => Identity::Refused(refusal),
            };
        }
        if let Some(known) = self.by_proxy(headers, transport) {
            return known;
        }
        let session = Cookie::read(headers, transport).and_then(|cookie| self.sessions.find(&cookie, now));
        match session.and_then(|name| self.user(&name, How::Session)) {
            Some(visitor) => Identity::Known(visitor),
            None => Identity::Nobody,
        }
    }

    /// Whoever reaches a loopback address is on this machine, if their browser was not led here by a name that somebody else owns:
    /// a page of theirs could then read ours.
    fn local(&self, headers: &HeaderMap) -> Identity {
        let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !is_this_machine(host) {
            return Identity::Refused(Refusal::ForeignHost(host.to_owned()));
        }
        let (name, role) = (self.local_user.clone(), Role::Operator);
        Identity::Known(Visitor { name, role, how: How::Loopback })
    }

    fn by_token(&self, token: &str) -> Option<Visitor> {
        let hash = token::hash(token)?;
        // All are compared, in constant time each: how long it takes tells nothing.
        let same = |user: &tidegate_bootstrap::config::User| {
            user.token_hash.is_some_and(|known| blake3::Hash::from(*known.as_bytes()) == hash)
        };
        let mut found = None;
        for (name, _) in self.settings.users.iter().filter(|(_, user)| same(user)) {
            found = Some(name.as_str());
        }
        self.user(found?, How::Token)
    }

    fn by_proxy(&self, headers: &HeaderMap, transport: &Transport) -> Option<Identity> {
        let proxy = self.settings.proxy.as_ref().filter(|_| transport.is_proxied())?;
        let mut values = headers.get_all(&proxy.header).iter();
        let first = values.next()?;
        let name = first.to_str().ok().and_then(|text| text.trim().parse::<UserName>().ok());
        let Some(name) = name.filter(|_| values.next().is_none()) else {
            return Some(Identity::Refused(Refusal::UnclearUser));
        };
        let known = self.user(name.as_str(), How::Proxy);
        let visitor = known.or_else(|| {
            let (name, role) = (name.to_string(), Role::Reader);
            (proxy.others == Others::Reader).then_some(Visitor { name, role, how: How::Proxy })
        });
        Some(
            visitor
                .map_or_else(|| Identity::Refused(Refusal::UnknownUser(name.to_string())), Identity::Known),
        )
    }

    fn user(&self, name: &str, how: How) -> Option<Visitor> {
        let (name, user) = self.settings.users.iter().find(|(known, _)| known.as_str() == name)?;
        Some(Visitor { name: name.to_string(), role: user.role, how })
    }

    /// Whose token it is. After many wrong ones of an address, a right one waits too: else guesses would cost nothing.
    fn try_token(&self, token: &str, transport: &Transport, now: Instant) -> Result<Visitor, Refusal> {
        let client = transport.client();
        if let Some(wait) = self.limiter.wait(client, now) {
            return Err(Refusal::TooMany(wait));
        }
        match self.by_token(token.trim()) {
            // A right one is no guess, and uses no try.
            Some(visitor) => Ok(visitor),
            None => {
                Err(self.limiter.take(client, now).map_or_else(Refusal::TooMany, |()| Refusal::UnknownToken))
            }
        }
    }

    /// Logs in by a token: the visitor, and the cookie of a new session.
    pub(crate) fn log_in(
        &self,
        token: &str,
        transport: &Transport,
        now: Instant,
    ) -> Result<(Visitor, Cookie), LogIn> {
        let visitor = self.try_token(token, transport, now).map_err(LogIn::Refused)?;
        let cookie = Cookie::random().map_err(LogIn::NoRandomness)?;
        self.sessions.begin(&cookie, visitor.name.clone(), now);
        Ok((Visitor { how: How::Session, ..visitor }, cookie))
    }

    /// Ends the session of this request, if it has one.
    pub(crate) fn log_out(&self, headers: &HeaderMap, transport: &Transport) {
        if let Some(cookie) = Cookie::read(headers, transport) {
            self.sessions.end(&cookie);
        }
    }

    /// Whether there still is a session of this cookie, for answers that go on.
    pub(crate) fn has_session(&self, cookie: &Cookie, now: Instant) -> bool {
        self.sessions.find(cookie, now).is_some()
    }

    /// What shows that a form was on a page which we made for the holder of this cookie.
    pub(crate) fn csrf_token(&self, cookie: &Cookie) -> String {
        self.csrf.token(cookie)
    }

    pub(crate) fn is_csrf_token(&self, cookie: &Cookie, token: &str) -> bool {
        self.csrf.is_token(cookie, token)
    }
}

/// Why nobody was logged in.
#[derive(Debug)]
pub(crate) enum LogIn {
    Refused(Refusal),
    NoRandomness(NoRandomness),
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a `Host` header names a loopback address.
fn is_this_machine(host: &str) -> bool {
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = without_port.trim_start_matches('[').trim_end_matches(']');
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// An IPv4 address that came through an IPv6 socket is the IPv4 address.
fn canonical(peer: IpAddr) -> IpAddr {
    peer.to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_this_machine() {
        for host in ["localhost", "LOCALHOST:9680", "127.0.0.1:9680", "127.8.8.8", "[::1]:9680", "[::1]"] {
            assert!(is_this_machine(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:9680",
            "localhost.evil.example",
            "10.0.0.1:9680",
            "127.0.0.1.evil.example",
        ] {
            assert!(!is_this_machine(host), "{host}");
        }
    }
}
