//! Logs to stderr, and metrics for Prometheus.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use metrics_exporter_prometheus::{
    BuildError, Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use parking_lot::Mutex;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

use crate::config::{LogFormat, Observe};

/// Why logs or metrics can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// Something else in the process receives the logs already.
    #[error("logs have a receiver already: {0}; set up logging once, at the start of the process")]
    LogsTaken(#[from] TryInitError),
    /// Something else in the process receives the metrics already.
    #[error("metrics have a recorder already; install tidegate's before any other library's")]
    MetricsTaken,
    /// The recorder refused its settings.
    #[error("the metrics recorder can't be built: {0}; report this as a bug of tidegate")]
    Recorder(#[from] BuildError),
    /// No thread could be started.
    #[error("cannot start the thread that tidies metrics: {0}; raise the limit on threads")]
    Thread(#[source] io::Error),
}

/// Sends all log lines of the process to stderr, filtered and formatted as configured. Once per process.
pub fn init_logs(observe: &Observe) -> Result<(), TelemetryError> {
    init_logs_with(SystemTime, observe)
}

/// The same, but for the clock: each line of text says how many seconds after `began` it was written, for whoever tells more in such
/// seconds beside it.
pub fn init_logs_since(began: Instant, observe: &Observe) -> Result<(), TelemetryError> {
    match observe.log_format {
        LogFormat::Text => init_logs_with(Since(began), observe),
        // Whoever reads it with a program wants the time of day.
        LogFormat::Json => init_logs(observe),
    }
}

struct Since(Instant);

impl FormatTime for Since {
    fn format_time(&self, out: &mut Writer<'_>) -> std::fmt::Result {
        write!(out, "{:>6.1} s", self.0.elapsed().as_secs_f64())
    }
}

fn init_logs_with(
    clock: impl FormatTime + Send + Sync + 'static,
    observe: &Observe,
) -> Result<(), TelemetryError> {
    let filter = EnvFilter::new(observe.log.as_str());
    let colours =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_timer(clock)
        .with_ansi(colours)
        .with_writer(io::stderr);
    match observe.log_format {
        LogFormat::Text => lines.finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

/// Sends all log lines of the process to a file, filtered and formatted as configured: where a screen is not to be written to. Once
/// per process.
pub fn init_logs_to(file: std::fs::File, observe: &Observe) -> Result<(), TelemetryError> {
    let filter = EnvFilter::new(observe.log.as_str());
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(Arc::new(file));
    match observe.log_format {
        LogFormat::Text => lines.finish().try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).finish().try_init()?,
    }
    Ok(())
}

/// Tells what a command without a log waits for, as notes on stderr: the warnings of this target, and nothing else. Once per process.
pub fn init_notes(target: &str) -> Result<(), TelemetryError> {
    let filter = EnvFilter::new(format!("off,{target}=warn"));
    let notes = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(io::stderr);
    Ok(notes.event_format(Note).finish().try_init()?)
}

/// `note: ` and what a person is told.
struct Note;

impl<S, N> FormatEvent<S, N> for Note
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> std::fmt::Result {
        writer.write_str("note: ")?;
        context.field_format().format_fields(writer.by_ref(), event)?;
        writer.write_char('\n')
    }
}

/// Upper bounds of the buckets of `…_seconds`: fine where jobs live (from 1 ms), and up to ten minutes.
const SECONDS: [f64; 18] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0,
    600.0,
];
/// Upper bounds of the buckets of `…_bytes`: 256 B to 64 MiB.
const BYTES: [f64; 10] = [
    256.0,
    1024.0,
    4096.0,
    16384.0,
    65536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
    67_108_864.0,
];
/// Upper bounds of the buckets of everything else, which are counts: batch sizes, attempts.
const COUNTS: [f64; 14] =
    [1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10000.0];

/// How often the recorder folds the samples of its histograms together. Until then each one costs memory.
const UPKEEP: Duration = Duration::from_secs(5);

/// The metrics of this process.
#[derive(Clone)]
pub struct Metrics {
    handle: PrometheusHandle,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

static INSTALLED: Mutex<Option<Metrics>> = Mutex::new(None);

impl Metrics {
    /// Installs the recorder behind the `metrics` macros; a later call gives the one that is there.
    pub fn install() -> Result<Self, TelemetryError> {
        // Held to the end: a second caller must not find the recorder set and its handle not yet here.
        let mut installed = INSTALLED.lock();
        if let Some(metrics) = &*installed {
            return Ok(metrics.clone());
        }
        let recorder = recorder()?;
        let metrics = Self { handle: recorder.handle() };
        metrics::set_global_recorder(recorder).map_err(|_| TelemetryError::MetricsTaken)?;
        *installed = Some(metrics.clone());
        metrics.start_upkeep()?;
        Ok(metrics)
    }

    /// On a thread of its own: it must go on when the runtime is busy, which is when samples pile up.
    fn start_upkeep(&self) -> Result<(), TelemetryError> {
        let handle = self.handle.clone();
        let upkeep = move || {
            loop {
                thread::sleep(UPKEEP);
                handle.run_upkeep();
            }
        };
        let thread = thread::Builder::new().name("metrics-upkeep".to_owned()).spawn(upkeep);
        thread.map(drop).map_err(TelemetryError::Thread)
    }

    /// All metrics in Prometheus's text format.
    pub fn render(&self) -> String {
        self.handle.render()
    }
}

/// Real histograms throughout: the exporter's default, summaries, can't be added up over processes.
fn recorder() -> Result<PrometheusRecorder, BuildError> {
    let builder = PrometheusBuilder::new()
        .set_buckets(&COUNTS)?
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_bytes".to_owned()), &BYTES)?;
    Ok(builder.build_recorder())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_sizes_and_counts_get_buckets_of_their_own() {
        let recorder = recorder().unwrap();
        let handle = recorder.handle();
        metrics::with_local_recorder(&recorder, || {
            metrics::histogram!("handler_seconds").record(0.004);
            metrics::histogram!("event_bytes").record(300.0);
            metrics::histogram!("batch_records").record(7.0);
        });
        let text = handle.render();
        for line in [
            r#"handler_seconds_bucket{le="0.005"} 1"#,
            r#"handler_seconds_bucket{le="600"} 1"#,
            r#"event_bytes_bucket{le="1024"} 1"#,
            r#"batch_records_bucket{le="10"} 1"#,
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn installing_twice_gives_the_same_metrics() {
        let first = Metrics::install().unwrap();
        let second = Metrics::install().unwrap();
        metrics::counter!("seen_by_both").increment(1);
        assert!(first.render().contains("seen_by_both 1") && second.render().contains("seen_by_both 1"));
    }
}
