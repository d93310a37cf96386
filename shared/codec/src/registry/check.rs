//! Whether a registry is where it is looked for; and if not, whether that may pass.

use std::error::Error;

use reqwest::header::{ACCEPT, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use tracing::warn;

use super::answer::without_library;
use super::fault::{RegistryFault, Weight};
use super::settings::{RegistryAuth, RegistrySettings, RegistrySettingsError};

/// Where registries have Confluent's API below a server's root: at the root itself (Confluent, Karapace, Redpanda, `tidegate dev`), or
/// where Apicurio has it.
const USUAL_PATHS: [&str; 4] = ["", "/apis/ccompat/v7", "/apis/ccompat/v8", "/apis/ccompat/v6"];
/// As much of an answer as tells what it is.
const ENOUGH: usize = 4096;
/// As many redirects as the client of the schemas follows.
const MAX_REDIRECTS: usize = 10;
/// How OpenSSL calls a certificate that it does not trust.
const UNVERIFIED: &str = "certificate verify failed";

/// Asks the registry about itself.
struct Asker<'s> {
    client: Client,
    settings: &'s RegistrySettings,
}

/// The beginning of an answer.
struct Told {
    status: StatusCode,
    beginning: Vec<u8>,
    /// Where the question was sent on to, whether it was followed there or not.
    sent_on: Option<Url>,
}

/// Whether one of the addresses is a registry's, which lets this user read one of the `subjects`. The addresses are of equal instances,
/// so the mildest fault counts: one that may come back is enough.
pub(super) async fn check(settings: &RegistrySettings, subjects: &[String]) -> Result<(), RegistryFault> {
    let mut faults = Vec::new();
    for url in settings.urls.iter().map(|url| url.trim_end_matches('/')) {
        match Asker::new(settings, url)?.look(url, subjects).await {
            Err(fault) => faults.push(fault),
            Ok(()) => {
                for fault in faults.iter().filter(|fault| fault.weight() > Weight::Passes) {
                    warn!(%fault, "one address of the schema registry is wrong, and another one answers");
                }
                return Ok(());
            }
        }
    }
    faults.into_iter().min_by_key(RegistryFault::weight).map_or(Ok(()), Err)
}

/// A client is only made to look, and a process that has its schemas never does: reading the authorities that a machine trusts takes time.
fn client(settings: &RegistrySettings, url: &str, proxies: Proxies) -> Result<Client, RegistryFault> {
    let built = settings.http().and_then(|builder| {
        let builder = match proxies {
            Proxies::OfTheSystem => builder.redirect(redirects(&settings.auth)),
            Proxies::None => builder.no_proxy().redirect(Policy::none()),
        };
        builder.build().map_err(|error| RegistrySettingsError::BadClient { reason: error.to_string() })
    });
    built.map_err(|error| RegistryFault::Away { url: url.to_owned(), reason: error.to_string() })
}

/// Follows redirects as the client of the schemas does, and stops where that one would leave out the credentials: what a server says to
/// nobody must not be told as a refused log-in.
fn redirects(auth: &RegistryAuth) -> Policy {
    let has_credentials = *auth != RegistryAuth::None;
    Policy::custom(move |attempt| {
        let came_from = attempt.previous().last().map(Url::origin);
        let loses_them = has_credentials && came_from != Some(attempt.url().origin());
        match loses_them || attempt.previous().len() > MAX_REDIRECTS {
            true => attempt.stop(),
            false => attempt.follow(),
        }
    })
}

/// Which proxies a client asks through.
#[derive(Clone, Copy)]
enum Proxies {
    OfTheSystem,
    /// What a proxy says proves nothing about the server behind it.
    None,
}

impl<'s> Asker<'s> {
    fn new(settings: &'s RegistrySettings, url: &str) -> Result<Self, RegistryFault> {
        Ok(Self { client: client(settings, url, Proxies::OfTheSystem)?, settings })
    }

    async fn look(&self, url: &str, subjects: &[String]) -> Result<(), RegistryFault> {
        match self.get(&self.client, &format!("{url}/subjects"), &self.settings.auth).await {
            Ok(told) => self.weigh(url, &told, subjects).await,
            Err(error) => Err(self.unanswered(url, &error).await),
        }
    }

    async fn weigh(&self, url: &str, told: &Told, subjects: &[String]) -> Result<(), RegistryFault> {
        let (url, answer) = (url.to_owned(), told.summary());
        if let Some(to) = told.sent_on_without_credentials(&url) {
            return self.look_without_credentials(url, to).await;
        }
        match told.status {
            _ if told.is_list() => Ok(()),
            StatusCode::UNAUTHORIZED => Err(RegistryFault::LogIn { url, answer }),
            StatusCode::FORBIDDEN if self.reads_one_of(&url, subjects).await => Ok(()),
            StatusCode::FORBIDDEN => Err(RegistryFault::Forbidden { url, answer }),
            // A server that can't now, and one that is asked too much.
            status
                if status.is_server_error()
                    || matches!(
                        status,
                        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
                    ) =>
            {
                Err(RegistryFault::Away { url, reason: answer })
            }
            // nginx and Go tell so a client that speaks plain HTTP to their TLS.
            StatusCode::BAD_REQUEST if self.speaks_tls(&url).await => Err(RegistryFault::Tls { url }),
            _ => Err(self.elsewhere(url, told).await),
        }
    }

    /// The client of the schemas follows a redirect to another server without credentials. Where nobody asks for them, that works.
    async fn look_without_credentials(&self, url: String, to: &Url) -> Result<(), RegistryFault> {
        match self.get(&self.client, to.as_str(), &RegistryAuth::None).await {
            Ok(told) if told.is_list() => Ok(()),
            _ => Err(redirected(url, to)),
        }
    }

    /// Whoever may not list subjects may be allowed to read those that it needs.
    async fn reads_one_of(&self, url: &str, subjects: &[String]) -> bool {
        for subject in subjects {
            let latest = format!("{url}/subjects/{subject}/versions/latest");
            let told = self.get(&self.client, &latest, &self.settings.auth).await;
            // An outage between the two questions is no refusal.
            if !told.is_ok_and(|told| told.status == StatusCode::FORBIDDEN) {
                return true;
            }
        }
        false
    }

    /// Something answers, and not as the API of a registry does. A proxy whose registry starts just now answers "not found" too, or with
    /// a page, though the address is right. So it counts as wrong only if the server shows itself to be a registry's: by its way to tell
    /// errors, or because it answers where registries usually do.
    async fn elsewhere(&self, url: String, told: &Told) -> RegistryFault {
        let answer = told.summary();
        if let Some(found) = self.usual_place(&url).await {
            return RegistryFault::WrongPath { url, answer, found: Some(found) };
        }
        if let Some(to) = told.sent_on.as_ref().filter(|to| base(to) != url) {
            return RegistryFault::Redirect { url, to: base(to) };
        }
        match told.is_of_api() {
            true => RegistryFault::WrongPath { url, answer, found: None },
            false => RegistryFault::NoRegistry { url, answer },
        }
    }

    async fn usual_place(&self, url: &str) -> Option<String> {
        let origin = Url::parse(url).ok()?.origin().ascii_serialization();
        for path in USUAL_PATHS {
            let place = format!("{origin}{path}");
            if place == url {
                continue;
            }
            match self.get(&self.client, &format!("{place}/subjects"), &self.settings.auth).await {
                Ok(told) if told.is_list() => return Some(place),
                Ok(_) => {}
                // Further questions would fail the same way, and each may take its whole time.
                Err(_) => return None,
            }
        }
        None
    }

    async fn unanswered(&self, url: &str, error: &reqwest::Error) -> RegistryFault {
        let url = url.to_owned();
        if let Some(reason) = unverified(error) {
            return RegistryFault::Certificate { url, reason };
        }
        let is_tls = url.starts_with("https:");
        // The libraries have many words for an answer in another protocol, and a server that just closes the connection leaves none:
        // what counts is whether it answers in the other one.
        match is_tls {
            true if self.speaks_plain_http(&url).await => RegistryFault::NoTls { url },
            false if self.speaks_tls(&url).await => RegistryFault::Tls { url },
            _ => RegistryFault::Away { url, reason: without_library(&innermost(error)) },
        }
    }

    /// A server of TLS tells a plain request that it is bad, or sends it on to `https`, if it tells anything.
    async fn speaks_plain_http(&self, url: &str) -> bool {
        let Some(plain) = in_protocol(url, "http") else { return false };
        let told = self.get_from_itself(&plain).await;
        told.is_ok_and(|told| told.status != StatusCode::BAD_REQUEST && !told.is_sent_to_tls())
    }

    async fn speaks_tls(&self, url: &str) -> bool {
        if !url.starts_with("http:") {
            return false;
        }
        let Some(tls) = in_protocol(url, "https") else { return false };
        match self.get_from_itself(&tls).await {
            Ok(_) => true,
            Err(cause) => cause.contains(UNVERIFIED),
        }
    }

    /// What the server itself says in another protocol, whoever asks; or why it says nothing.
    async fn get_from_itself(&self, url: &str) -> Result<Told, String> {
        let direct = client(self.settings, url, Proxies::None).map_err(|fault| fault.to_string())?;
        let told = self.get(&direct, &format!("{url}/subjects"), &RegistryAuth::None).await;
        told.map_err(|error| innermost(&error))
    }

    async fn get(&self, client: &Client, url: &str, auth: &RegistryAuth) -> Result<Told, reqwest::Error> {
        let request = client
            .get(url)
            .timeout(self.settings.timeout)
            .header(ACCEPT, "application/vnd.schemaregistry.v1+json, application/json");
        let request = match auth {
            RegistryAuth::None => request,
            RegistryAuth::Basic { user, password } => request.basic_auth(user, Some(password)),
            RegistryAuth::Bearer(token) => request.bearer_auth(token),
        };
        let mut response = request.send().await?;
        let sent_on = sent_on(url, &response);
        let mut beginning = Vec::new();
        while beginning.len() < ENOUGH
            && let Some(chunk) = response.chunk().await?
        {
            beginning.extend_from_slice(&chunk);
        }
        Ok(Told { status: response.status(), beginning, sent_on })
    }
}

impl Told {
    /// Whether it is a list, as the names of subjects are. A long one was not read to its end.
    fn is_list(&self) -> bool {
        self.status.is_success() && self.beginning.trim_ascii_start().starts_with(b"[")
    }

    /// Whether it is an error as the APIs of Confluent tell them, a registry's or that of another of their servers.
    fn is_of_api(&self) -> bool {
        let error: Option<serde_json::Value> = serde_json::from_slice(&self.beginning).ok();
        error.is_some_and(|error| error["error_code"].is_u64() && error["message"].is_string())
    }

    /// The other server to which the question was sent on, if that one got no credentials and that may be why there is no list.
    fn sent_on_without_credentials(&self, url: &str) -> Option<&Url> {
        let is_refused = self.status.is_redirection()
            || matches!(self.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN);
        let asked = Url::parse(url).ok()?.origin();
        self.sent_on.as_ref().filter(|to| is_refused && to.origin() != asked)
    }

    fn is_sent_to_tls(&self) -> bool {
        self.status.is_redirection() && self.sent_on.as_ref().is_some_and(|to| to.scheme() == "https")
    }

    /// `status 404 Not Found`; of a success, that it does not help.
    fn summary(&self) -> String {
        match self.status.is_success() {
            true => "it answers, and not with a list of subjects".to_owned(),
            false => format!("it answers with status {}", self.status),
        }
    }
}

/// The same port of the same server in another protocol. What listens at that protocol's own port is another server, and proves nothing.
fn in_protocol(url: &str, scheme: &str) -> Option<String> {
    let mut url = Url::parse(url).ok()?;
    let port = url.port_or_known_default();
    url.set_scheme(scheme).ok()?;
    url.set_port(port).ok()?;
    Some(url.as_str().trim_end_matches('/').to_owned())
}

/// Where a question was sent on to, by a redirect that was followed or by one that was not.
fn sent_on(asked: &str, response: &Response) -> Option<Url> {
    let answered = response.url();
    if response.status().is_redirection() {
        return answered.join(response.headers().get(LOCATION)?.to_str().ok()?).ok();
    }
    let asked = Url::parse(asked).ok()?;
    let is_elsewhere = (asked.origin(), asked.path()) != (answered.origin(), answered.path());
    is_elsewhere.then(|| answered.clone())
}

/// What to write as the registry's address, so that `/subjects` is asked there. A query may hold secrets, as those of log-in pages do.
fn base(to: &Url) -> String {
    let mut to = to.clone();
    to.set_query(None);
    to.set_fragment(None);
    let to = to.as_str().trim_end_matches('/');
    to.strip_suffix("/subjects").unwrap_or(to).to_owned()
}

/// A redirect to the same address with `https://` says how to write it; with any other one, `https://` alone would not help.
fn redirected(url: String, to: &Url) -> RegistryFault {
    let to = base(to);
    let with_tls = Url::parse(&url).ok().and_then(|mut with_tls| {
        with_tls.set_scheme("https").ok()?;
        Some(with_tls.as_str().trim_end_matches('/').to_owned())
    });
    match url.starts_with("http:") && with_tls.as_ref() == Some(&to) {
        true => RegistryFault::Tls { url },
        false => RegistryFault::Redirect { url, to },
    }
}

fn causes(error: &reqwest::Error) -> Vec<String> {
    let mut causes = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        causes.push(cause.to_string());
        source = cause.source();
    }
    causes
}

fn innermost(error: &reqwest::Error) -> String {
    causes(error).pop().unwrap_or_default()
}

/// What is wrong with a certificate, if that is why there is no answer. It stands in parentheses after OpenSSL's own words.
fn unverified(error: &reqwest::Error) -> Option<String> {
    let mut told = causes(error);
    told.retain(|cause| cause.contains(UNVERIFIED));
    let detail = told.iter().find_map(|cause| cause.strip_suffix(')')?.rsplit_once('('));
    let detail = detail.map_or("it is not trusted here", |(_, detail)| detail);
    (!told.is_empty()).then(|| detail.to_owned())
}

#[cfg(test)]
mod tests;
