//! Where the console may listen.

use std::net::SocketAddr;

use tidegate_bootstrap::config::Console as Settings;

/// The console would be open to whoever reaches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "console.listen is {address}, which others than this machine can reach, but nobody has to say who they are: \
     give a user a token (`tidegate console token`), or set [console.proxy], or listen on 127.0.0.1"
)]
pub struct NotForEverybody {
    /// The address of `console.listen`.
    pub address: SocketAddr,
}

/// Refuses an address that others can reach while the console asks nobody who they are.
pub fn may_listen(settings: &Settings) -> Result<(), NotForEverybody> {
    let address = settings.listen;
    if address.ip().to_canonical().is_loopback() || settings.asks_who_is_there() {
        return Ok(());
    }
    Err(NotForEverybody { address })
}
