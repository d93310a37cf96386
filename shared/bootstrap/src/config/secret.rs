//! Values that must not reach a log, an error message or the effective configuration.

use std::collections::BTreeMap;
use std::fmt;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

const MASK: &str = "***";

/// Parts of a setting's name that say that its value is confidential.
const SENSITIVE: [&str; 7] = ["pass", "secret", "token", "key", "authorization", "cookie", "jaas"];

/// A value that prints as `***` wherever it is printed. Only [`Secret::expose`] gives it out.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Wraps a value.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one call that has to send it.
    pub fn expose(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> fmt::Display for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

/// Names with text values, some of which may be confidential: librdkafka properties, HTTP headers.
///
/// Values whose name contains `pass`, `secret`, `token`, `key`, `authorization`, `cookie` or `jaas` print as `***`; the path of a file
/// (`ssl.key.location`) does not.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MaskedMap(BTreeMap<String, String>);

impl MaskedMap {
    /// The names with their real values, in alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The real value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn printable(&self) -> impl Iterator<Item = (&str, &str)> {
        self.iter().map(|(name, value)| (name, if is_sensitive(name) { MASK } else { value }))
    }
}

impl FromIterator<(String, String)> for MaskedMap {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(entries: I) -> Self {
        Self(entries.into_iter().collect())
    }
}

impl fmt::Debug for MaskedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.printable()).finish()
    }
}

impl Serialize for MaskedMap {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in self.printable() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Whether a setting of this name is confidential.
pub(super) fn is_sensitive(name: &str) -> bool {
    let name = name.to_lowercase();
    !name.ends_with(".location") && SENSITIVE.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_prints_as_three_stars_everywhere() {
        let secret = Secret::new("hunter2".to_owned());
        assert_eq!(format!("{secret} {secret:?}"), "*** ***");
        assert_eq!(serde_json::to_string(&secret).unwrap(), "\"***\"");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_map_masks_only_the_values_whose_name_is_sensitive() {
        let map = MaskedMap::from_iter([
            ("sasl.password".to_owned(), "hunter2".to_owned()),
            ("linger.ms".to_owned(), "5".to_owned()),
        ]);
        assert_eq!(format!("{map:?}"), r#"{"linger.ms": "5", "sasl.password": "***"}"#);
        assert_eq!(map.get("sasl.password"), Some("hunter2"));
    }

    #[test]
    fn every_secret_that_a_kafka_client_takes_is_masked_and_no_path_is() {
        for secret in [
            "sasl.password",
            "sasl.oauthbearer.client.secret",
            "sasl.oauthbearer.assertion.private.key.pem",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.jaas.config",
            "ssl.key.password",
            "ssl.key.pem",
            "ssl.keystore.password",
        ] {
            assert!(is_sensitive(secret), "{secret}");
        }
        for open in ["ssl.key.location", "ssl.keystore.location", "sasl.username", "sasl.mechanisms"] {
            assert!(!is_sensitive(open), "{open}");
        }
    }
}
