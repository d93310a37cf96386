//! Whether a registry is where it is looked for; and if not, whether that may pass.

use std::error::Error;

use reqwest::header::ACCEPT;
use reqwest::{Client, StatusCode, Url};
use tracing::warn;

use super::answer::without_library;
use super::fault::{RegistryFault, Weight};
use super::settings::{RegistryAuth, RegistrySettings, RegistrySettingsError};

/// Where registries have Confluent's API below a server's root: at the root itself (Confluent, Karapace, Redpanda, `tidegate dev`), or
/// where Apicurio has it.
const USUAL_PATHS: [&str; 4] = ["", "/apis/ccompat/v7", "/apis/ccompat/v8", "/apis/ccompat/v6"];
/// As much of an answer as tells what it is.
const ENOUGH: usize = 4096;
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
            Proxies::OfTheSystem => builder,
            Proxies::None => builder.no_proxy().redirect(reqwest::redirect::Policy::none()),
        };
        builder.build().map_err(|error| RegistrySettingsError::BadClient { reason: error.to_string() })
    });
    built.map_err(|error| RegistryFault::Away { url: url.to_owned(), reason: error.to_string() })
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

    /// A server of TLS tells a plain request that it is bad, if it tells anything.
    async fn speaks_plain_http(&self, url: &str) -> bool {
        let told = self.get_from_itself(&url.replacen("https:", "http:", 1)).await;
        told.is_ok_and(|told| told.status != StatusCode::BAD_REQUEST)
    }

    async fn speaks_tls(&self, url: &str) -> bool {
        if !url.starts_with("http:") {
            return false;
        }
        match self.get_from_itself(&url.replacen("http:", "https:", 1)).await {
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
        let mut beginning = Vec::new();
        while beginning.len() < ENOUGH
            && let Some(chunk) = response.chunk().await?
        {
            beginning.extend_from_slice(&chunk);
        }
        Ok(Told { status: response.status(), beginning })
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

    /// `status 404 Not Found`; of a success, that it does not help.
    fn summary(&self) -> String {
        match self.status.is_success() {
            true => "it answers, and not with a list of subjects".to_owned(),
            false => format!("it answers with status {}", self.status),
        }
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
