//! Tokens: 256 random bits with a prefix, of which the configuration holds the hash.
//!
//! The hash is BLAKE3 in its key-derivation mode, not a slow one such as Argon2. A slow hash protects passwords, because people
//! choose those from few; nobody finds 256 random bits by trying, however fast each try is. And the API checks one with each
//! request: at some ten milliseconds and megabytes each, the check itself would be the way to overload the console. Tokens of
//! another form are never hashed, so nobody can use a password here by mistake.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRngCore;
use rand::rngs::OsRng;
use tidegate_bootstrap::config::TokenHash;

/// Tells scanners for leaked secrets, and people, what it is.
const PREFIX: &str = "tgc_";
const BYTES: usize = 32;
const CONTEXT: &str = "tidegate 2026-11 console token";

/// The operating system gives no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the operating system gives no random bytes, and without them no token and no session is safe; see whether /dev/urandom can be read"
)]
pub struct NoRandomness;

/// Random bytes that nobody can foresee.
pub(super) fn random() -> Result<[u8; BYTES], NoRandomness> {
    let mut bytes = [0; BYTES];
    OsRng.try_fill_bytes(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A token that was just made.
#[derive(Clone)]
pub struct NewToken {
    token: String,
    hash: TokenHash,
}

impl NewToken {
    /// Makes one.
    pub fn random() -> Result<Self, NoRandomness> {
        let token = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(random()?));
        let hash = TokenHash::new(blake3::derive_key(CONTEXT, token.as_bytes()));
        Ok(Self { token, hash })
    }

    /// The token itself, which is shown once and held nowhere.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// What the configuration holds.
    pub fn hash(&self) -> TokenHash {
        self.hash
    }
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NewToken").field("hash", &self.hash).finish_non_exhaustive()
    }
}

/// The hash of a token; none: it is not of a token's form.
pub(super) fn hash(token: &str) -> Option<blake3::Hash> {
    let random = token.strip_prefix(PREFIX)?;
    URL_SAFE_NO_PAD.decode(random).ok().filter(|bytes| bytes.len() == BYTES)?;
    Some(blake3::Hash::from(blake3::derive_key(CONTEXT, token.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_known_by_its_hash_and_nothing_else_is() {
        let (new, other) = (NewToken::random().unwrap(), NewToken::random().unwrap());
        assert_eq!(hash(new.token()).unwrap(), blake3::Hash::from(*new.hash().as_bytes()));
        assert_ne!(hash(other.token()).unwrap(), hash(new.token()).unwrap());
        for wrong in ["", "tgc_", "hunter2", &new.token()[4..], &new.token()[..20], &new.hash().to_string()] {
            assert_eq!(hash(wrong), None, "{wrong}");
        }
        assert!(!format!("{new:?}").contains(new.token()));
    }
}
