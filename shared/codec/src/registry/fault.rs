//! What is wrong with a registry as a whole, told with what to do about it.

/// Why there is no registry to work with. `Display` says what is wrong and what to do, with `registry.url` as the setting that holds
/// the address; [`RegistryFault::told_of`] names another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.told_of("registry.url"))]
pub enum RegistryFault {
    /// Nothing answers, or only that it can't now.
    Away {
        /// The address.
        url: String,
        /// What happened.
        reason: String,
    },
    /// What listens there speaks plain HTTP, and the address says TLS.
    NoTls {
        /// The address.
        url: String,
    },
    /// What listens there speaks TLS, and the address says plain HTTP.
    Tls {
        /// The address.
        url: String,
    },
    /// Its certificate is not signed by an authority that is trusted here, is out of date, or names another host.
    Certificate {
        /// The address.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// It asks for a log-in, and accepts none or not this one.
    LogIn {
        /// The address.
        url: String,
        /// What it answered.
        answer: String,
    },
    /// It knows the user, and lets it read no schema that is needed.
    Forbidden {
        /// The address.
        url: String,
        /// What it answered.
        answer: String,
    },
    /// A registry's server answers, and its API is elsewhere.
    WrongPath {
        /// The address.
        url: String,
        /// What it answered.
        answer: String,
        /// Where on that server the API is, if it was found.
        found: Option<String>,
    },
    /// It redirects to another address, and whoever is redirected gets no schemas there: credentials are left out on the way to another
    /// server.
    Redirect {
        /// The address.
        url: String,
        /// Where to.
        to: String,
    },
    /// A server answers, and nothing shows that it is a registry's.
    NoRegistry {
        /// The address.
        url: String,
        /// What it answered.
        answer: String,
    },
}

/// How certain it is that the address or the credentials are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Weight {
    /// It is an outage as far as can be told: wait.
    Passes,
    /// It looks wrong, and a proxy before a registry that starts answers alike: ask again for a while.
    MayPass,
    /// It is wrong: asking again won't help.
    Certain,
}

impl RegistryFault {
    /// How certain it is that somebody has to correct something.
    pub fn weight(&self) -> Weight {
        match self {
            Self::Away { .. } => Weight::Passes,
            Self::Redirect { .. } | Self::NoRegistry { .. } => Weight::MayPass,
            _ => Weight::Certain,
        }
    }

    /// What is wrong and what to do about it, where the address is given by `setting`, such as `--registry`.
    pub fn told_of(&self, setting: &str) -> String {
        format!("{}; {}", self.wrong(), self.remedy(setting))
    }

    /// What is wrong.
    pub fn wrong(&self) -> String {
        match self {
            Self::Away { url, reason } => format!("the schema registry at {url} can't be reached: {reason}"),
            Self::NoTls { url } => format!("the schema registry at {url} does not speak TLS at this address"),
            Self::Tls { url } => format!("the schema registry at {url} speaks TLS at this address"),
            Self::Certificate { url, reason } => {
                format!("the TLS certificate of the schema registry at {url} can't be verified: {reason}")
            }
            Self::LogIn { url, answer } => {
                format!("the schema registry at {url} does not accept the log-in: {answer}")
            }
            Self::Forbidden { url, answer } => {
                format!("the schema registry at {url} lets this user read no schema: {answer}")
            }
            Self::WrongPath { url, answer, found: None } => {
                format!("the API of the schema registry is not at {url}: {answer}")
            }
            Self::WrongPath { url, answer, found: Some(found) } => {
                format!("there is no schema registry at {url} ({answer}), and there is one at {found}")
            }
            Self::Redirect { url, to } => format!("the schema registry at {url} redirects to {to}"),
            Self::NoRegistry { url, answer } => format!("there is no schema registry at {url}: {answer}"),
        }
    }

    /// What to do, where the address is given by `setting`.
    pub fn remedy(&self, setting: &str) -> String {
        match self {
            Self::Away { .. } => format!("check {setting}, and that it runs"),
            Self::NoTls { .. } => {
                format!("write http:// in {setting}, or the port at which it speaks TLS")
            }
            Self::Tls { .. } => format!("write https:// in {setting}"),
            Self::Certificate { .. } => format!(
                "let this machine trust the authority that signed it, or name that one's certificate in the environment variable \
                 SSL_CERT_FILE, and write the host in {setting} by the name that is in its certificate"
            ),
            Self::LogIn { .. } => {
                "correct username and password, or bearer_token, in [registry] or in the variables TIDEGATE_REGISTRY__…"
                    .to_owned()
            }
            Self::Forbidden { .. } => {
                "grant it to read the subjects of the sources, or log in as a user who may".to_owned()
            }
            Self::WrongPath { found: Some(_), .. } | Self::Redirect { .. } => format!("write that in {setting}"),
            Self::WrongPath { found: None, .. } | Self::NoRegistry { .. } => format!(
                "correct {setting}, with the path of the API if it has one: Apicurio's is /apis/ccompat/v7"
            ),
        }
    }
}
