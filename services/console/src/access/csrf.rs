//! What shows that a change was asked for on a page of ours.
//!
//! A form carries a value that only this process can make, of the cookie of the browser that the page was made for. Another site
//! can make a browser send the cookie, but can't read the page that has the value.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::cookie::Cookie;
use super::token::{NoRandomness, random};

/// The key of this process.
pub(super) struct CsrfKey([u8; 32]);

impl CsrfKey {
    pub(super) fn random() -> Result<Self, NoRandomness> {
        random().map(Self)
    }

    pub(super) fn token(&self, cookie: &Cookie) -> String {
        URL_SAFE_NO_PAD.encode(self.hash(cookie).as_bytes())
    }

    pub(super) fn is_token(&self, cookie: &Cookie, token: &str) -> bool {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        // Hashes compare in constant time.
        bytes.is_some_and(|bytes| blake3::Hash::from(bytes) == self.hash(cookie))
    }

    fn hash(&self, cookie: &Cookie) -> blake3::Hash {
        blake3::keyed_hash(&self.0, cookie.bytes())
    }
}

impl std::fmt::Debug for CsrfKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CsrfKey(***)")
    }
}
