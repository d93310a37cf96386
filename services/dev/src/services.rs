//! The three services inside this process, each on a thread of its own.

use std::sync::Arc;
use std::time::Duration;

use tidegate_bootstrap::config::TierName;
use tidegate_bootstrap::{Config, Health, Shutdown};
use tidegate_service::{Process, ServiceError};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::error::DevError;

/// Services that run.
#[derive(Debug)]
pub(crate) struct Services {
    shutdown: Shutdown,
    running: Vec<(&'static str, Health)>,
    ended: mpsc::UnboundedReceiver<(&'static str, Result<(), ServiceError>)>,
}

/// Which services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    /// Ingest, retry, and a worker of all tiers that have classes.
    All,
    /// All but the worker, which is a process of its own.
    AllButTheWorker,
}

/// The tiers that have classes: of others there is nothing to see.
pub(crate) fn used_tiers(config: &Config) -> Vec<TierName> {
    config.tiers.keys().filter(|tier| config.classes_of(tier).next().is_some()).cloned().collect()
}

impl Services {
    /// Starts them. Must be called on a runtime, which they use.
    pub(crate) fn start(config: &Arc<Config>, which: Which) -> Result<Self, DevError> {
        let shutdown = Shutdown::new();
        let (tell, ended) = mpsc::unbounded_channel();
        let mut services = Self { shutdown, running: Vec::new(), ended };
        services.launch(config, "ingest", &tell, async |process| tidegate_ingest::run(process).await)?;
        services.launch(config, "retry", &tell, async |process| tidegate_retry::run(process).await)?;
        let tiers = used_tiers(config);
        if which == Which::All && !tiers.is_empty() {
            services.launch(config, "worker", &tell, async move |process| {
                tidegate_worker::run(process, &tiers, &Default::default()).await
            })?;
        }
        Ok(services)
    }

    fn launch(
        &mut self,
        config: &Arc<Config>,
        name: &'static str,
        tell: &mpsc::UnboundedSender<(&'static str, Result<(), ServiceError>)>,
        run: impl AsyncFnOnce(&Process) -> Result<(), ServiceError> + Send + 'static,
    ) -> Result<(), DevError> {
        let process = Process::within(config.clone(), self.shutdown.clone());
        self.running.push((name, process.health.clone()));
        let (runtime, tell) = (Handle::current(), tell.clone());
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let result = runtime.block_on(run(&process));
            // Nobody listens any more when the whole has ended first.
            drop(tell.send((name, result)));
        })?;
        Ok(())
    }

    /// What is not ready yet, and why.
    pub(crate) fn not_ready(&self) -> Vec<String> {
        let reasons = |(name, health): &(&str, Health)| -> Vec<String> {
            health.readiness().into_iter().map(|reason| format!("{name}: {}", reason.reason)).collect()
        };
        self.running.iter().flat_map(reasons).collect()
    }

    /// An error if one of them has ended: nobody asked it to.
    pub(crate) fn check(&mut self) -> Result<(), DevError> {
        match self.ended.try_recv() {
            Err(_) => Ok(()),
            Ok((service, Err(source))) => Err(DevError::Service { service: service.to_owned(), source }),
            Ok((service, Ok(()))) => Err(DevError::Ended(service.to_owned())),
        }
    }

    /// Asks all of them to end, and waits for it.
    pub(crate) async fn stop(mut self) -> Result<(), DevError> {
        self.shutdown.request();
        let mut result = Ok(());
        for _ in 0..self.running.len() {
            match tokio::time::timeout(STOPPED_WITHIN, self.ended.recv()).await {
                Ok(Some((_, Ok(())))) => {}
                Ok(Some((service, Err(source)))) => {
                    result = Err(DevError::Service { service: service.to_owned(), source });
                }
                Ok(None) | Err(_) => break,
            }
        }
        result
    }
}

impl Drop for Services {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// They cut off what runs after `consume.shutdown_deadline` themselves.
const STOPPED_WITHIN: Duration = Duration::from_secs(40);
