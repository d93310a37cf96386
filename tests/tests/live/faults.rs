//! Processes and brokers that die, stop, come and go; offsets with gaps; local state that is lost; and what operators see of it.

mod broker;
mod gaps;
mod local;
mod observed;
mod stops;
mod topics;

use tidegate_tests::jobs::Jobs;

/// Where nobody is killed and runs are counted exactly: a process that stands still for some seconds, on a busy machine, must keep its
/// partitions.
fn with_long_sessions(mut jobs: Jobs) -> Jobs {
    jobs.pipeline.reconfigure("session_timeout = \"6s\"", "session_timeout = \"30s\"");
    jobs
}
