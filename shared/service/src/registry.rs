//! The registry at the start of a service: what is wrong for certain is refused, and an outage is not.

use std::sync::Arc;
use std::time::Duration;

use tidegate_bootstrap::Config;
use tidegate_codec::{CompiledSchema, RegistryFault, SchemaRegistry, Weight, value_subject};
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::{Process, ServiceError, wiring};

/// How long a registry may look as if its address was wrong, before that is believed: as long as one takes to start behind a proxy that
/// answers for it. Whoever starts the process again after that, as supervisors do, tries again.
const LOOKS_WRONG_FOR: Duration = Duration::from_secs(20);
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Whether a service that needs schemas may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// It may.
    WithRegistry,
    /// It may, although the registry is away, which is told in the log: what needs it waits.
    WithoutRegistry,
    /// A stop was asked for meanwhile.
    Stopped,
}

/// Looks whether the registry is where the configuration says and lets this user read one of the `subjects`.
///
/// # Errors
/// When the address or the credentials are wrong for certain: every event would wait for schemas that never come.
pub async fn at_start(
    process: &Process,
    registry: &SchemaRegistry,
    subjects: &[String],
) -> Result<Start, ServiceError> {
    tokio::select! {
        biased;
        () = process.shutdown.requested() => {
            info!("stopped before it had begun: the registry was not looked at");
            Ok(Start::Stopped)
        }
        looked = settle(async || registry.check(subjects).await) => looked,
    }
}

/// Gets the latest schema of each subject, so that the first records do not wait for theirs. Returns what is at hand, in the order of the
/// subjects; none where a stop was asked for meanwhile.
pub async fn warmed(
    process: &Process,
    registry: &SchemaRegistry,
    subjects: &[String],
) -> Option<Vec<Option<Arc<CompiledSchema>>>> {
    tokio::select! {
        biased;
        () = process.shutdown.requested() => {
            info!("stopped before it had begun: schemas were not waited for");
            None
        }
        latest = registry.warm(subjects) => {
            info!(warmed = latest.iter().flatten().count(), of = subjects.len(), "schemas known at start");
            Some(latest)
        }
    }
}

/// Tells in the log what is wrong with the registry, if anything is, for a process that works without it and shows less then.
pub async fn tell(config: Arc<Config>) {
    if config.registry.is_none() {
        return;
    }
    let subjects: Vec<String> = config.sources.keys().map(|source| value_subject(source.as_str())).collect();
    let checked = match wiring::registry(&config) {
        Ok(registry) => registry.check(&subjects).await.map_err(ServiceError::from),
        Err(error) => Err(error),
    };
    if let Err(error) = checked {
        warn!(%error, "the schema registry can't be used; events whose schemas are not known are not shown");
    }
}

async fn settle(mut look: impl AsyncFnMut() -> Result<(), RegistryFault>) -> Result<Start, ServiceError> {
    let begun = Instant::now();
    let mut looked_wrong = false;
    loop {
        let Err(fault) = look().await else { return Ok(Start::WithRegistry) };
        let waits = begun.elapsed() < LOOKS_WRONG_FOR;
        match fault.weight() {
            // One answer that is late is no proof that what looked wrong before is right.
            Weight::Passes if looked_wrong && waits => {}
            Weight::Passes => {
                warn!(%fault, "the schema registry is away; events whose schemas are not known wait for it");
                return Ok(Start::WithoutRegistry);
            }
            Weight::MayPass if waits => {
                if !looked_wrong {
                    warn!(%fault, "waiting for the schema registry: a proxy may answer for one that starts just now");
                }
                looked_wrong = true;
            }
            Weight::MayPass | Weight::Certain => return Err(ServiceError::Registry(fault)),
        }
        sleep(ASK_AGAIN_AFTER).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> RegistryFault {
        RegistryFault::Away { url: "http://registry:8081".to_owned(), reason: "status 502".to_owned() }
    }

    fn page() -> RegistryFault {
        RegistryFault::NoRegistry { url: "http://registry:8081".to_owned(), answer: "status 404".to_owned() }
    }

    fn no_log_in() -> RegistryFault {
        RegistryFault::LogIn { url: "http://registry:8081".to_owned(), answer: "status 401".to_owned() }
    }

    /// What comes of these answers, the last of which is given again and again, and after how long.
    async fn settled(answers: &[Option<RegistryFault>]) -> (Result<Start, String>, Duration) {
        let begun = Instant::now();
        let mut left = answers.iter().cloned();
        let mut last = None;
        let looked = settle(async || {
            last = left.next().unwrap_or_else(|| last.clone());
            last.clone().map_or(Ok(()), Err)
        });
        let settled = looked.await.map_err(|error| {
            assert_eq!(error.exit_code(), tidegate_bootstrap::ExitCode::Usage);
            error.to_string()
        });
        (settled, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_at_the_start_holds_nothing_up() {
        assert_eq!(settled(&[Some(away())]).await, (Ok(Start::WithoutRegistry), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_wrong_for_certain_is_refused_at_once_with_what_to_correct() {
        let (settled, after) = settled(&[Some(no_log_in())]).await;
        assert_eq!(after, Duration::ZERO);
        assert!(settled.is_err_and(|text| text.contains("username and password")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_proxy_that_answers_for_a_registry_that_starts_is_waited_for() {
        let starts = [Some(page()), Some(page()), Some(page()), None];
        assert_eq!(settled(&starts).await, (Ok(Start::WithRegistry), 3 * ASK_AGAIN_AFTER));
        let falls = [Some(page()), Some(away())];
        assert_eq!(settled(&falls).await, (Ok(Start::WithoutRegistry), LOOKS_WRONG_FOR));
        let rises = [Some(page()), Some(away()), Some(away()), None];
        assert_eq!(settled(&rises).await, (Ok(Start::WithRegistry), 3 * ASK_AGAIN_AFTER));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_goes_on_to_look_wrong_is_refused() {
        let (settled, after) = settled(&[Some(page())]).await;
        assert!(settled.is_err_and(|text| text.contains("registry.url")));
        assert_eq!(after, LOOKS_WRONG_FOR);
    }
}
