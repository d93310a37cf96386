//! A console that answers on a port of its own, and browsers and programs that visit it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use tidegate_bootstrap::config::Console as Settings;
use tidegate_bootstrap::{Config, Shutdown};
use tidegate_console::figures::{ClassFigures, Figures, Snapshot, TierFigures};
use tidegate_console::{Console, NewToken, Server, Setup};

use crate::fake::{Fake, GROUP, ITEM, PLAN, RUN};

pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) inbox: Arc<Fake>,
    pub(crate) reader: String,
    pub(crate) operator: String,
    client: Client,
    shutdown: Shutdown,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

pub(crate) fn settings(text: &str) -> Settings {
    let text = format!("[kafka]\nbootstrap = \"k:9092\"\n{text}");
    Config::parse("a test", &text, std::iter::empty()).unwrap_or_else(|error| panic!("{error}")).console
}

pub(crate) fn console(settings: Settings, inbox: Arc<Fake>) -> Console {
    let class = ClassFigures { running: 3, done_per_second: Some(1204.0), failing: Some(0.25), parked: true };
    let figures = Snapshot {
        at: Some(1_764_389_445_000),
        classes: [("charge".to_owned(), class)].into(),
        tiers: [("critical".to_owned(), TierFigures { waiting: Some(12), delayed: Some(4) })].into(),
        scraped: vec![("w:9600".to_owned(), Some(crate::fake::HOSTILE.to_owned()))],
        kafka_trouble: Some(crate::fake::HOSTILE.to_owned()),
    };
    let classes: BTreeMap<String, String> = [("charge".to_owned(), "critical".to_owned())].into();
    let setup = Setup {
        pipeline: "shop".to_owned(),
        settings,
        classes,
        local_user: "local-ana".to_owned(),
        inbox,
        figures: Figures::fixed(figures),
    };
    Console::new(setup).unwrap()
}

impl Site {
    /// A site where everybody on this machine is an operator.
    pub(crate) async fn open_to_all(inbox: Fake) -> Self {
        Self::start("[console]\nlisten = \"127.0.0.1:0\"\n", inbox).await
    }

    /// A site where ana is an operator and ben a reader; `more` is added to `[console]`.
    pub(crate) async fn with_users(more: &str, inbox: Fake) -> Self {
        Self::with_sessions(more, None, inbox).await
    }

    /// The same, with sessions that last this long.
    pub(crate) async fn with_sessions(more: &str, lifetime: Option<Duration>, inbox: Fake) -> Self {
        let (operator, reader) = (NewToken::random().unwrap(), NewToken::random().unwrap());
        let text = format!(
            "[console]\nlisten = \"127.0.0.1:0\"\n{more}\n\
             [console.users.ana]\nrole = \"operator\"\ntoken_hash = \"{}\"\n\
             [console.users.ben]\nrole = \"reader\"\ntoken_hash = \"{}\"\n",
            operator.hash(),
            reader.hash()
        );
        let mut settings = settings(&text);
        settings.session_lifetime = lifetime.unwrap_or(settings.session_lifetime);
        let mut site = Self::serve(settings, inbox).await;
        (site.operator, site.reader) = (operator.token().to_owned(), reader.token().to_owned());
        site
    }

    pub(crate) async fn start(text: &str, inbox: Fake) -> Self {
        Self::serve(settings(text), inbox).await
    }

    async fn serve(settings: Settings, inbox: Fake) -> Self {
        let inbox = Arc::new(inbox);
        let server = Server::bind(console(settings, inbox.clone())).await.unwrap();
        let (address, shutdown) = (server.address(), Shutdown::new());
        let stop = shutdown.clone();
        tokio::spawn(async move { server.serve(&stop).await.unwrap() });
        let client = Client::builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        Self { address, inbox, reader: String::new(), operator: String::new(), client, shutdown }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("http://{}{path}", self.address))
    }

    pub(crate) async fn get(&self, path: &str) -> Seen {
        Seen::of(self.request(Method::GET, path)).await
    }

    /// A browser that nobody has logged in with.
    pub(crate) async fn browser(&self) -> Browser<'_> {
        let seen = self.get("/login").await;
        let landed = if seen.status == StatusCode::OK { seen } else { self.get("/").await };
        let cookie = landed.cookie().expect("a first visit gets a cookie");
        let csrf = landed.csrf().unwrap_or_default();
        Browser { site: self, cookie, csrf }
    }

    pub(crate) async fn logged_in(&self, token: &str) -> Browser<'_> {
        let mut browser = self.browser().await;
        let seen = browser.post("/login", &[("token", token)]).await;
        assert_eq!(seen.status, StatusCode::SEE_OTHER, "{}", seen.text);
        browser.cookie = seen.cookie().expect("a log-in gets a cookie of its own");
        browser.csrf = browser.get("/").await.csrf().expect("each page has a form to log out");
        browser
    }
}

pub(crate) struct Browser<'a> {
    site: &'a Site,
    pub(crate) cookie: String,
    pub(crate) csrf: String,
}

impl Browser<'_> {
    pub(crate) async fn get(&self, path: &str) -> Seen {
        Seen::of(self.site.request(Method::GET, path).header("cookie", &self.cookie)).await
    }

    /// An answer that goes on.
    pub(crate) async fn watch(&self, path: &str) -> reqwest::Response {
        let request = self.site.request(Method::GET, path).header("cookie", &self.cookie);
        request.send().await.unwrap()
    }

    pub(crate) async fn post(&self, path: &str, fields: &[(&str, &str)]) -> Seen {
        self.post_with(path, fields, Some(&self.csrf)).await
    }

    pub(crate) async fn post_with(&self, path: &str, fields: &[(&str, &str)], csrf: Option<&str>) -> Seen {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        form.extend_pairs(csrf.map(|csrf| ("csrf", csrf)));
        let request = self.site.request(Method::POST, path).header("cookie", &self.cookie);
        Seen::of(request.header("content-type", "application/x-www-form-urlencoded").body(form.finish()))
            .await
    }
}

#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Seen {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn cookie(&self) -> Option<String> {
        let set = self.header("set-cookie");
        set.split(';').next().filter(|cookie| !cookie.is_empty()).map(str::to_owned)
    }

    pub(crate) fn csrf(&self) -> Option<String> {
        let (_, rest) = self.text.split_once("name=\"csrf\" value=\"")?;
        rest.split('"').next().map(str::to_owned)
    }
}

/// The address of a route, with parts that lead somewhere.
pub(crate) fn address(path: &str) -> String {
    let parts =
        [("{item}", ITEM), ("{group}", GROUP), ("{run}", RUN), ("{plan}", PLAN), ("{file}", "none.css")];
    parts.iter().fold(path.to_owned(), |path, (name, value)| path.replace(name, value))
}
