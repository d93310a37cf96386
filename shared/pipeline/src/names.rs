//! The names of a pipeline's topics and groups. Part of the format: operators' tools and ACLs rely on them.

use std::time::Duration;

use tidegate_domain::Topic;
use tidegate_domain::ladder::{parse_rung_name, rung_name};

/// The names under one pipeline's prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// The names of the pipeline called `prefix`.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into() }
    }

    /// The pipeline's name.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The job topic of a tier.
    pub fn jobs(&self, tier: &str) -> Topic {
        Topic::new(format!("{}.{tier}.jobs", self.prefix))
    }

    /// The delay topic of a tier and a rung.
    pub fn delay(&self, tier: &str, rung: Duration) -> Topic {
        Topic::new(format!("{}.{tier}.retry-{}", self.prefix, rung_name(rung)))
    }

    /// The pattern that all delay topics match, of any ladder: a changed ladder strands nothing.
    pub fn delay_pattern(&self) -> String {
        format!("^{}\\.[a-z0-9-]+\\.retry-[0-9]+(ms|s|m|h|d)$", self.prefix.replace('.', "\\."))
    }

    /// The delay that a delay topic's name says.
    pub fn delay_of(&self, topic: &str) -> Option<Duration> {
        let (_, rung) = topic.strip_prefix(&self.prefix)?.rsplit_once(".retry-")?;
        parse_rung_name(rung)
    }

    /// The changelog of a tier's marks, partitioned like its jobs.
    pub fn marks(&self, tier: &str) -> Topic {
        Topic::new(format!("{}.{tier}.marks", self.prefix))
    }

    /// The dead-letter topic.
    pub fn dlq(&self) -> Topic {
        Topic::new(format!("{}.dlq", self.prefix))
    }

    /// What operators ordered about dead letters, and what came of it.
    pub fn dlq_journal(&self) -> Topic {
        Topic::new(format!("{}.dlq-journal", self.prefix))
    }

    /// Where operators send what ingest dead-lettered.
    pub fn reingest(&self) -> Topic {
        Topic::new(format!("{}.reingest", self.prefix))
    }

    /// The compacted topic of what must not drift.
    pub fn config(&self) -> Topic {
        Topic::new(format!("{}.config", self.prefix))
    }

    /// The consumer group of ingest.
    pub fn ingest_group(&self) -> String {
        format!("{}.ingest", self.prefix)
    }

    /// The names of the pipeline whose ingest is this group; none where it is another group.
    pub fn of_ingest_group(group: &str) -> Option<Self> {
        group.strip_suffix(".ingest").map(Self::new)
    }

    /// Whether this is a job topic of the pipeline, of whatever tier.
    pub fn is_jobs(&self, topic: &str) -> bool {
        self.tier_of_jobs(topic).is_some()
    }

    /// The tier whose job topic this is; none where it is no job topic of the pipeline.
    pub fn tier_of_jobs<'t>(&self, topic: &'t str) -> Option<&'t str> {
        let rest = topic.strip_prefix(&self.prefix)?.strip_prefix('.')?;
        rest.strip_suffix(".jobs").filter(|tier| !tier.is_empty() && !tier.contains('.'))
    }

    /// The consumer group of a tier's workers.
    pub fn worker_group(&self, tier: &str) -> String {
        format!("{}.{tier}.worker", self.prefix)
    }

    /// The consumer group of retry.
    pub fn retry_group(&self) -> String {
        format!("{}.retry", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_topic_says_its_delay() {
        let names = Names::new("shop.pay");
        for rung in [Duration::from_millis(1500), Duration::from_secs(1), Duration::from_secs(600)] {
            assert_eq!(names.delay_of(names.delay("bulk", rung).as_str()), Some(rung));
        }
        assert_eq!(names.delay_of("other.bulk.retry-1s"), None);
        assert_eq!(names.delay_of("shop.pay.dlq"), None);
    }

    #[test]
    fn a_pipeline_knows_its_ingest_group_and_its_job_topics() {
        let names = Names::new("shop.pay");
        assert_eq!(Names::of_ingest_group(&names.ingest_group()), Some(names.clone()));
        assert_eq!(Names::of_ingest_group(&names.retry_group()), None);
        assert!(names.is_jobs(names.jobs("bulk").as_str()));
        for other in ["shop.pay.jobs", "shop.pay.a.b.jobs", "shop.payments.bulk.jobs", "shop.pay.dlq", ""] {
            assert!(!names.is_jobs(other), "{other}");
        }
    }
}
