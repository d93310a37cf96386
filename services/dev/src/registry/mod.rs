//! A schema registry inside the process, with the Confluent API: what a producer and tidegate ask of one. It keeps everything in
//! memory.
//!
//! `store` is what it knows and decides, `http` what it answers.

mod http;
mod store;

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A running registry; it ends when dropped.
#[derive(Debug)]
pub struct Registry {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Registry {
    /// Starts an empty registry on a free port of the loopback interface.
    ///
    /// # Errors
    /// When the system gives no port.
    pub async fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            // It never returns: failed accepts are retried.
            if let Err(error) = axum::serve(listener, http::routes()).await {
                tracing::error!(%error, "the schema registry ended");
            }
        });
        Ok(Self { address, task })
    }

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests;
