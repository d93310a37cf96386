//! `[console]`: the operators' web page, and who may do what there.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use axum::http::HeaderName as HttpHeaderName;
use serde::{Serialize, Serializer};

use super::error::InvalidValue;
use super::names::{FieldPath, MetricsAddress, UserName};
use super::reader::{Raw, Section};
use super::sections::listen_like;
use super::values::{self, write_duration};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// `[console]`: the operators' web page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Console {
    /// Address and port of the web page and the API. Default 127.0.0.1:9680. Elsewhere than on a loopback address it
    /// needs users with tokens, or a proxy.
    pub listen: SocketAddr,
    /// Where the services' `/metrics` are. Default: none, and then figures come from Kafka alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scrape: Vec<MetricsAddress>,
    /// Fields of events that nobody sees until an operator reveals them, which is written down. Default: none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masked: Vec<FieldPath>,
    /// How long a log-in lasts. Default 12h.
    #[serde(serialize_with = "write_duration")]
    pub session_lifetime: Duration,
    /// `[console.users.NAME]`
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub users: BTreeMap<UserName, User>,
    /// `[console.proxy]`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<Proxy>,
}

/// `[console.users.NAME]`: a person or a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct User {
    /// What the user may do: `reader` or `operator`. Required.
    pub role: Role,
    /// The hash of the user's token, as `tidegate console token` prints it. Without one, the user comes by the proxy only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_hash: Option<TokenHash>,
}

/// What a user may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Look at everything but masked fields, change nothing.
    Reader,
    /// Look and act.
    Operator,
}

/// `[console.proxy]`: a reverse proxy that says who the user is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Proxy {
    /// The header with the user's name. Required.
    #[serde(serialize_with = "write_header")]
    pub header: HttpHeaderName,
    /// The addresses that the proxy connects from; from any other, the header means nothing. Required.
    pub addresses: Vec<IpAddr>,
    /// What becomes of a name that is not in `users`: `refuse` or `reader`. Default refuse.
    pub others: Others,
}

/// What becomes of a user whom the proxy names and the configuration doesn't.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Others {
    /// No access.
    Refuse,
    /// The role of a reader.
    Reader,
}

/// What the configuration holds instead of a token: enough to know the token, too little to make it. Tokens are 256 random bits, so
/// nobody guesses one from its hash, and the hash is no secret.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    const PREFIX: &str = "blake3:";

    /// A hash from its bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl FromStr for TokenHash {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // The text is not repeated: it may be the token itself, put here by mistake.
        let refuse = || {
            InvalidValue::new(
                "it is no hash of a token",
                "run `tidegate console token`, and write what it prints for the configuration",
            )
        };
        let is_hex = |digits: &&str| digits.len() == 64 && digits.bytes().all(|c| c.is_ascii_hexdigit());
        let digits = text.strip_prefix(Self::PREFIX).filter(is_hex).ok_or_else(refuse)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| refuse())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| refuse())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Console {
    pub(super) fn read(section: &Section<'_>) -> Option<Self> {
        let default = SocketAddr::from((Ipv4Addr::LOCALHOST, 9680));
        let lifetime = values::duration_within(Duration::from_secs(60)..=30 * 24 * HOUR);
        let console = Self {
            listen: section.or("listen", default, listen_like("127.0.0.1:9680")),
            scrape: section.or("scrape", Vec::new(), values::one_or_many),
            masked: section.or("masked", Vec::new(), values::one_or_many),
            session_lifetime: section.or("session_lifetime", 12 * HOUR, lifetime),
            users: section.each("users", &[], |_: &UserName, section| User::read(section)),
            proxy: Proxy::read(section),
        };
        console.tokens_differ(section);
        Some(console)
    }

    /// Whether anybody has to say who they are before they see anything.
    pub fn asks_who_is_there(&self) -> bool {
        self.proxy.is_some() || self.users.values().any(|user| user.token_hash.is_some())
    }

    /// One token for two names would make it a matter of chance whose name an action carries.
    fn tokens_differ(&self, section: &Section<'_>) {
        let hashes = || self.users.iter().filter_map(|(name, user)| Some((name, user.token_hash?)));
        for (index, (name, hash)) in hashes().enumerate() {
            if let Some((other, _)) = hashes().take(index).find(|(_, earlier)| *earlier == hash) {
                let wrong = format!("`{name}` and `{other}` have the same token");
                section.problem("users", wrong, "give each a token of its own: `tidegate console token`");
            }
        }
    }
}

impl User {
    fn read(section: &Section<'_>) -> Option<Self> {
        let roles = [("reader", Role::Reader), ("operator", Role::Operator)];
        let role = section.required("role", "choose \"reader\" or \"operator\"", values::one_of(&roles));
        let token_hash = section.optional("token_hash", values::parsed);
        Some(Self { role: role?, token_hash })
    }
}

impl Proxy {
    fn read(console: &Section<'_>) -> Option<Self> {
        let is_given = console.has("proxy");
        console.section("proxy", |section| {
            if !is_given {
                return None;
            }
            let others = [("refuse", Others::Refuse), ("reader", Others::Reader)];
            let header =
                section.required("header", "name the header, like \"x-forwarded-user\"", proxy_header);
            let addresses = section.required(
                "addresses",
                "list the addresses that the proxy connects from: anybody else could claim to be anyone",
                addresses,
            );
            let others = section.or("others", Others::Refuse, values::one_of(&others));
            Some(Self { header: header?, addresses: addresses?, others })
        })
    }
}

fn proxy_header(raw: &Raw) -> Result<HttpHeaderName, InvalidValue> {
    const TAKEN: [&str; 5] = ["authorization", "cookie", "host", "x-forwarded-for", "x-forwarded-proto"];
    let text = values::text(raw)?;
    let remedy = "choose the header that the proxy sets, like \"x-forwarded-user\"";
    match HttpHeaderName::try_from(&text) {
        Ok(name) if TAKEN.contains(&name.as_str()) => {
            Err(InvalidValue::new(format!("`{name}` means something else"), remedy))
        }
        Ok(name) => Ok(name),
        Err(_) => Err(InvalidValue::new(format!("`{text}` is no header's name"), remedy)),
    }
}

/// An address as text, so that a list of them reads like any other list.
#[derive(PartialEq)]
struct Address(IpAddr);

impl FromStr for Address {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self).map_err(|_| {
            InvalidValue::new(format!("`{text}` is no IP address"), "write it like \"10.0.0.5\" or \"::1\"")
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn addresses(raw: &Raw) -> Result<Vec<IpAddr>, InvalidValue> {
    values::some::<Address>(raw).map(|addresses| addresses.into_iter().map(|Address(ip)| ip).collect())
}

fn write_header<S: Serializer>(name: &HttpHeaderName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::config::{Config, ConfigError};

    fn parse(text: &str) -> Result<Console, String> {
        let text = format!("[kafka]\nbootstrap = \"k:9092\"\n{text}");
        match Config::parse("a test", &text, std::iter::empty()) {
            Ok(config) => Ok(config.console),
            Err(ConfigError::Invalid(problems)) => {
                Err(problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[track_caller]
    fn check(text: &str, refusal: &str) {
        let problems = parse(text).expect_err("it is refused");
        assert!(problems.contains(refusal), "{problems}");
    }

    #[test]
    fn by_default_the_console_is_for_this_machine_and_asks_nobody() {
        let console = parse("").unwrap();
        assert!(console.listen.ip().is_loopback());
        assert!(!console.asks_who_is_there());
    }

    #[test]
    fn a_token_or_a_proxy_means_that_everybody_is_asked() {
        let hash = TokenHash::new([1; 32]);
        let user = format!("[console.users.ana]\nrole = \"reader\"\ntoken_hash = \"{hash}\"\n");
        assert!(parse(&user).unwrap().asks_who_is_there());
        let proxy = "[console.proxy]\nheader = \"x-user\"\naddresses = [\"10.0.0.5\", \"::1\"]\n";
        let console = parse(proxy).unwrap();
        assert!(console.asks_who_is_there());
        assert_eq!(console.proxy.unwrap().others, Others::Refuse);
        assert!(!parse("[console.users.ana]\nrole = \"reader\"\n").unwrap().asks_who_is_there());
    }

    #[test]
    fn what_would_let_anybody_in_or_blur_who_acted_is_refused() {
        check("[console.proxy]\nheader = \"x-user\"\n", "console.proxy.addresses: it is missing");
        check("[console.proxy]\nheader = \"x-user\"\naddresses = []\n", "the list is empty");
        check("[console.proxy]\nheader = \"cookie\"\naddresses = [\"::1\"]\n", "means something else");
        check("[console.proxy]\nheader = \"x-user\"\naddresses = [\"proxy\"]\n", "`proxy` is no IP address");
        check("[console.users.ana]\n", "console.users.ana.role: it is missing");
        check("[console.users.ana]\nrole = \"admin\"\n", "`admin` is not an option");
        let hash = TokenHash::new([1; 32]);
        let user = |name| format!("[console.users.{name}]\nrole = \"reader\"\ntoken_hash = \"{hash}\"\n");
        check(&format!("{}{}", user("ana"), user("ben")), "`ben` and `ana` have the same token");
        check("[console]\nscrape = [\"http://w:9600/metrics\"]\n", "is more than host and port");
    }

    #[test]
    fn a_hash_reads_what_it_writes_and_refuses_anything_else_without_repeating_it() {
        let hash = TokenHash::new([0xa7; 32]);
        assert_eq!(hash.to_string().parse::<TokenHash>().unwrap(), hash);
        for text in ["", "blake3:", "blake3:zz", &hash.to_string()[1..], "hunter2", &format!("{hash}0")] {
            let error = text.parse::<TokenHash>().unwrap_err();
            assert!(text.is_empty() || !error.wrong.contains(text), "{}", error.wrong);
        }
        assert!(format!("blake3:{}", "+1".repeat(32)).parse::<TokenHash>().is_err());
    }
}
