//! The one cookie, and what is known of the connection that it travels on.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::token::{NoRandomness, random};

/// Random bytes that a browser gives back. With a session in our memory they are its key; without one they only tie forms to the
/// browser that they were made for.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Cookie([u8; 32]);

const PLAIN: &str = "tidegate";
/// Browsers take a cookie of this prefix from the very host only, and only by https.
const SECURE: &str = "__Host-tidegate";

impl Cookie {
    pub(crate) fn random() -> Result<Self, NoRandomness> {
        random().map(Self)
    }

    /// The cookie of a request. By https only the one that no other host can set counts.
    pub(crate) fn read(headers: &HeaderMap, transport: &Transport) -> Option<Self> {
        let values = || headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
        let named = |name: &str| {
            let mut pairs =
                values().flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
            pairs.find(|(found, _)| *found == name).map(|(_, value)| value.to_owned())
        };
        let text = named(if transport.is_https { SECURE } else { PLAIN })?;
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        bytes.try_into().ok().map(Self)
    }

    /// The header that sets it, until the browser is closed.
    pub(crate) fn set(&self, transport: &Transport) -> HeaderValue {
        let value = URL_SAFE_NO_PAD.encode(self.0);
        header_value(transport, &value, "")
    }

    /// The header that removes it.
    pub(crate) fn remove(transport: &Transport) -> HeaderValue {
        header_value(transport, "", "; Max-Age=0")
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl std::fmt::Debug for Cookie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookie(***)")
    }
}

fn header_value(transport: &Transport, value: &str, more: &str) -> HeaderValue {
    let (name, secure) = if transport.is_https { (SECURE, "; Secure") } else { (PLAIN, "") };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{more}");
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Who connects to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A proxy whose word counts.
    Proxy,
    /// Anybody.
    Anybody,
}

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transport {
    client: IpAddr,
    peer: Peer,
    pub(crate) is_https: bool,
}

impl Transport {
    pub(super) fn of(headers: &HeaderMap, address: IpAddr, peer: Peer) -> Self {
        let told =
            |name: &str| headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).next_back();
        if peer == Peer::Anybody {
            return Self { client: address, peer, is_https: false };
        }
        // The last address is the proxy's own observation; those before it are what the client claims.
        let last = told("x-forwarded-for").and_then(|list| list.rsplit(',').next()).map(str::trim);
        let client = last.and_then(address_of).unwrap_or(address).to_canonical();
        let is_https =
            told("x-forwarded-proto").is_some_and(|proto| proto.trim().eq_ignore_ascii_case("https"));
        Self { client, peer, is_https }
    }

    /// The address whose failed log-ins are counted.
    pub(crate) fn client(&self) -> IpAddr {
        self.client
    }

    pub(super) fn is_proxied(&self) -> bool {
        self.peer == Peer::Proxy
    }
}

/// An address that a proxy tells, with or without its port.
fn address_of(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']');
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    bare().unwrap_or(text).parse().ok().or_else(with_port)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 5));

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_cookie_is_for_this_site_alone_and_for_no_script() {
        let cookie = Cookie::random().unwrap();
        let plain = Transport::of(&HeaderMap::new(), PEER, Peer::Anybody);
        let text = cookie.set(&plain).to_str().unwrap().to_owned();
        assert!(text.starts_with("tidegate=") && text.contains("; HttpOnly; SameSite=Strict"), "{text}");
        assert!(!text.contains("Secure"));
        let https = Transport::of(&headers(&[("x-forwarded-proto", "https")]), PEER, Peer::Proxy);
        let secure = cookie.set(&https).to_str().unwrap().to_owned();
        assert!(secure.starts_with("__Host-tidegate=") && secure.ends_with("; Secure"), "{secure}");
        let read = |set: &str, transport| {
            let sent = set.split(';').next().unwrap();
            Cookie::read(&headers(&[("cookie", &format!("a=b; {sent}"))]), transport)
        };
        assert!(read(&text, &plain) == Some(cookie.clone()));
        assert!(read(&secure, &https) == Some(cookie.clone()));
        assert!(read(&text, &https).is_none(), "another host of the same domain could have set it");
    }

    #[test]
    fn what_a_proxy_would_say_counts_from_a_proxy_only() {
        let told = headers(&[("x-forwarded-for", "1.1.1.1, 2.2.2.2"), ("x-forwarded-proto", "https")]);
        let trusted = Transport::of(&told, PEER, Peer::Proxy);
        assert_eq!((trusted.client().to_string().as_str(), trusted.is_https), ("2.2.2.2", true));
        for (with_port, address) in [
            ("2.2.2.2:4711", "2.2.2.2"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
        ] {
            let told = headers(&[("x-forwarded-for", with_port)]);
            assert_eq!(Transport::of(&told, PEER, Peer::Proxy).client().to_string(), address);
        }
        let anybody = Transport::of(&told, PEER, Peer::Anybody);
        assert_eq!((anybody.client(), anybody.is_https), (PEER, false));
    }
}
