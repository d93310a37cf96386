//! Other members of the pipeline's groups: whoever starts a service beside dev mode takes a part of the work away, and counts it elsewhere.

use tidegate_bootstrap::Config;
use tidegate_pipeline::events;
use tidegate_service::wiring;

use crate::figures::Page;

/// The groups that took partitions from this process while it went on working. What others did with them is in none of its figures.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Others {
    /// Of ingest and of workers: what is made from events is not known as a whole, or what became of it.
    spoiling: Vec<String>,
    /// Of retry, which makes no job and ends none.
    harmless: Vec<String>,
}

impl Others {
    /// As the members of this process say it.
    pub(crate) fn of(page: &Page, config: &Config) -> Self {
        let taken = page.by("group", events::PARTITIONS_TAKEN, &[]);
        let groups = taken.into_iter().filter(|(_, partitions)| *partitions > 0).map(|(group, _)| group);
        let retry = wiring::names(config).retry_group();
        let (harmless, spoiling) = groups.partition(|group| *group == retry);
        Self { spoiling, harmless }
    }

    /// Whether what is not finished can't be said.
    pub(crate) fn spoil_the_sum(&self) -> bool {
        !self.spoiling.is_empty()
    }

    /// In few words, while it goes on.
    pub(crate) fn now(&self) -> Option<String> {
        let groups: Vec<&str> = self.spoiling.iter().chain(&self.harmless).map(String::as_str).collect();
        (!groups.is_empty()).then(|| format!("shared with others: {}", groups.join(", ")))
    }

    /// What it means for the figures at the end, a sentence for each kind.
    pub(crate) fn told(&self) -> Vec<String> {
        let spoil = "what it did is not in these figures, so nobody can say here what is not finished";
        let harmless = "it handed on what was due, which changes no figure here";
        [(&self.spoiling, spoil), (&self.harmless, harmless)]
            .into_iter()
            .filter(|(groups, _)| !groups.is_empty())
            .map(|(groups, meaning)| {
                let groups = groups.join(" and of group ");
                format!(
                    "Another member of group {groups} took part, or this process stood still for so long that one could: {meaning}."
                )
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(groups: &[(&str, u32)]) -> Others {
        let text = "[kafka]\nbootstrap = \"b:1\"\n[registry]\nurl = \"http://r\"\n";
        let config = Config::parse("a test", text, std::iter::empty()).unwrap();
        let line = |(group, count): &(&str, u32)| {
            format!("tidegate_partitions_taken_total{{group=\"{group}\"}} {count}\n")
        };
        Others::of(&Page::parse(&groups.iter().map(line).collect::<String>()), &config)
    }

    #[test]
    fn whoever_makes_or_ends_jobs_elsewhere_spoils_the_sum_and_whoever_hands_them_on_does_not() {
        let alone = of(&[("tidegate.ingest", 0)]);
        assert_eq!((alone.spoil_the_sum(), alone.now(), alone.told().len()), (false, None, 0));
        let retry = of(&[("tidegate.retry", 40), ("tidegate.ingest", 0)]);
        assert!(
            !retry.spoil_the_sum()
                && retry.told()[0].contains("group tidegate.retry took part, or this process stood still for so long that one could: it handed on")
        );
        let all = of(&[("tidegate.retry", 1), ("tidegate.ingest", 2), ("tidegate.default.worker", 3)]);
        assert!(all.spoil_the_sum());
        assert_eq!(all.told().len(), 2);
        let groups = "group tidegate.default.worker and of group tidegate.ingest took part, or this process stood still for so long that one could: what it did is not";
        assert!(all.told()[0].contains(groups), "{:?}", all.told());
        assert_eq!(
            all.now().as_deref(),
            Some("shared with others: tidegate.default.worker, tidegate.ingest, tidegate.retry")
        );
    }
}
