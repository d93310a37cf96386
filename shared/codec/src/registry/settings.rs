//! How to reach the registry.

use std::fmt;
use std::time::Duration;

use schema_registry_converter::async_impl::schema_registry::SrSettings;

/// Where the registry is and who asks.
#[derive(Debug, Clone)]
pub struct RegistrySettings {
    /// Base URLs of equal instances, tried in this order: `http://host:8081`, or Apicurio's
    /// `http://host:8080/apis/ccompat/v7`.
    pub urls: Vec<String>,
    /// The credentials.
    pub auth: RegistryAuth,
    /// How long one request may take.
    pub timeout: Duration,
    /// For how long an id that the registry doesn't know is asked for again.
    pub unknown_schema_grace: Duration,
    /// Certificates to trust besides the system's, in PEM.
    pub ca_pem: Option<Vec<u8>>,
}

/// Credentials; their `Debug` form hides the secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum RegistryAuth {
    /// None.
    #[default]
    None,
    /// User and password, or an API key and its secret.
    Basic {
        /// The user or the API key.
        user: String,
        /// The password or the API secret.
        password: String,
    },
    /// A bearer token.
    Bearer(String),
}

impl fmt::Debug for RegistryAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Basic { user, .. } => f.debug_struct("Basic").field("user", user).finish_non_exhaustive(),
            Self::Bearer(_) => f.write_str("Bearer(***)"),
        }
    }
}

impl RegistrySettings {
    /// Settings with the defaults: no credentials, 5 s for a request, 60 s of grace.
    pub fn new(urls: Vec<String>) -> Self {
        Self {
            urls,
            auth: RegistryAuth::None,
            timeout: Duration::from_secs(5),
            unknown_schema_grace: Duration::from_secs(60),
            ca_pem: None,
        }
    }

    pub(super) fn client(&self) -> Result<SrSettings, RegistrySettingsError> {
        let mut urls = self.urls.iter().map(|url| url.trim_end_matches('/'));
        for url in urls.clone() {
            let parsed = reqwest::Url::parse(url).ok();
            if !parsed.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host()) {
                return Err(RegistrySettingsError::BadUrl { url: url.to_owned() });
            }
        }
        let first = urls.next().ok_or(RegistrySettingsError::NoUrl)?;
        let mut builder = SrSettings::new_builder(first.to_owned());
        for url in urls {
            builder.add_url(url.to_owned());
        }
        match &self.auth {
            RegistryAuth::None => {}
            RegistryAuth::Basic { user, password } => {
                builder.set_basic_authorization(user, Some(password));
            }
            RegistryAuth::Bearer(token) => {
                builder.set_token_authorization(token);
            }
        }
        builder
            .set_timeout(self.timeout)
            .build_with(self.http()?)
            .map_err(|error| RegistrySettingsError::BadClient { reason: error.to_string() })
    }

    /// An HTTP client that trusts what these settings trust.
    pub(super) fn http(&self) -> Result<reqwest::ClientBuilder, RegistrySettingsError> {
        let mut client = reqwest::Client::builder().connect_timeout(self.timeout);
        if let Some(pem) = &self.ca_pem {
            let certificates = reqwest::Certificate::from_pem_bundle(pem)
                .map_err(|error| RegistrySettingsError::BadCertificate { reason: error.to_string() })?;
            for certificate in certificates {
                client = client.add_root_certificate(certificate);
            }
        }
        Ok(client)
    }
}

/// Settings that can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegistrySettingsError {
    /// No URL is given.
    #[error("no url of a schema registry is given")]
    NoUrl,
    /// A URL is none that HTTP can use.
    #[error("the schema registry's url {url} is not an http or https url")]
    BadUrl {
        /// The URL.
        url: String,
    },
    /// The certificates can't be read.
    #[error("the schema registry's certificates can't be read: {reason}")]
    BadCertificate {
        /// Why.
        reason: String,
    },
    /// No HTTP client can be made.
    #[error("no client for the schema registry can be made: {reason}")]
    BadClient {
        /// Why.
        reason: String,
    },
}
