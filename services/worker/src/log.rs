//! The handler `log`: writes each job to the log. For trying a route out.

use tracing::info;

use crate::handler::{Handler, JobError};
use crate::job::Job;

pub(crate) struct Log;

impl Handler for Log {
    async fn run(&self, job: &Job) -> Result<(), JobError> {
        let event = job.json().await?;
        let header = job.header()?;
        info!(class = header.class, job_id = header.job_id(), key = %job.key(), attempt = job.attempt(), %event, "job");
        Ok(())
    }
}
