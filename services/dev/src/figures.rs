//! Figures from a page of metrics: what the services say of themselves is parsed, and nothing is counted a second time.

use std::time::Duration;

/// A page in Prometheus's text format, taken apart.
#[derive(Debug, Clone, Default)]
pub(crate) struct Page {
    samples: Vec<Sample>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn has(&self, wanted: &[(&str, &str)]) -> bool {
        wanted.iter().all(|&(name, value)| self.label(name) == Some(value))
    }

    fn label(&self, wanted: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str())
    }
}

impl Page {
    /// Nothing measured yet.
    pub(crate) const fn empty() -> Self {
        Self { samples: Vec::new() }
    }

    /// Takes a page apart; lines that are no samples are passed over.
    pub(crate) fn parse(text: &str) -> Self {
        let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(sample);
        Self { samples: samples.collect() }
    }

    /// This page and another one together: each sample counts.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.samples.extend(other.samples);
        self
    }

    fn of<'a>(&'a self, name: &str, labels: &'a [(&'a str, &'a str)]) -> impl Iterator<Item = &'a Sample> {
        let name = name.to_owned();
        self.samples.iter().filter(move |sample| sample.name == name && sample.has(labels))
    }

    /// The sum of a counter or gauge over all samples that have these labels.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.of(name, labels).map(|sample| sample.value.max(0.0)).sum::<f64>().round() as u64
    }

    /// The values of a label of such samples, each once, with their sums.
    pub(crate) fn by(&self, label: &str, name: &str, labels: &[(&str, &str)]) -> Vec<(String, u64)> {
        let mut values: Vec<String> =
            self.of(name, labels).filter_map(|sample| sample.label(label)).map(str::to_owned).collect();
        values.sort_unstable();
        values.dedup();
        let sum = |value: String| {
            let mut labels = labels.to_vec();
            labels.push((label, &value));
            let sum = self.sum(name, &labels);
            (value, sum)
        };
        values.into_iter().map(sum).collect()
    }

    /// A histogram's buckets: upper bound in seconds, and how many samples are at or below it.
    fn buckets(&self, histogram: &str, labels: &[(&str, &str)]) -> Vec<(f64, f64)> {
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for sample in self.of(&format!("{histogram}_bucket"), labels) {
            let bound = match sample.label("le") {
                Some("+Inf") => f64::INFINITY,
                Some(text) => text.parse().unwrap_or(f64::INFINITY),
                None => continue,
            };
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, count)) => *count += sample.value,
                None => buckets.push((bound, sample.value)),
            }
        }
        buckets.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        buckets
    }

    /// The 95th percentile of what a histogram of seconds has taken since `before`; none: nothing.
    pub(crate) fn p95_since(
        &self,
        before: &Self,
        histogram: &str,
        labels: &[(&str, &str)],
    ) -> Option<Duration> {
        let earlier = before.buckets(histogram, labels);
        let count_at =
            |bound: f64| earlier.iter().find(|(known, _)| *known == bound).map_or(0.0, |(_, count)| *count);
        let buckets: Vec<(f64, f64)> = self
            .buckets(histogram, labels)
            .into_iter()
            .map(|(bound, count)| (bound, (count - count_at(bound)).max(0.0)))
            .collect();
        quantile(&buckets, 0.95).map(Duration::from_secs_f64)
    }
}

/// Within its bucket, a quantile is taken as if values lay evenly; beyond the last bound it is that bound.
fn quantile(buckets: &[(f64, f64)], share: f64) -> Option<f64> {
    let total = buckets.last().map(|(_, count)| *count).filter(|total| *total > 0.0)?;
    let rank = total * share;
    let (mut low, mut below) = (0.0, 0.0);
    for &(bound, count) in buckets {
        if count >= rank {
            let within = if count > below { (rank - below) / (count - below) } else { 1.0 };
            return Some(if bound.is_finite() { low + (bound - low) * within } else { low });
        }
        (low, below) = (bound, count);
    }
    None
}

fn sample(line: &str) -> Option<Sample> {
    let (series, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok()?;
    let (name, labels) = match series.split_once('{') {
        None => (series, Vec::new()),
        Some((name, rest)) => (name, self::labels(rest.strip_suffix('}')?)),
    };
    Some(Sample { name: name.to_owned(), labels, value })
}

/// `a="b",c="d"`, with a backslash before a quote, a backslash or the n of a new line.
fn labels(text: &str) -> Vec<(String, String)> {
    let mut labels = Vec::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once("=\"") {
        let (mut value, mut chars, mut end) = (String::new(), after.char_indices(), after.len());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = at + 1;
                    break;
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped)) => value.push(escaped),
                    None => {}
                },
                c => value.push(c),
            }
        }
        labels.push((name.trim_start_matches(',').to_owned(), value));
        rest = &after[end..];
    }
    labels
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r#"
# HELP jobs_total jobs
# TYPE jobs_total counter
jobs_total{class="charge",outcome="done"} 7
jobs_total{class="charge",outcome="dead"} 2
jobs_total{class="a \"b\", c",outcome="done"} 1
lag 3
wait_seconds_bucket{class="charge",le="1"} 10
wait_seconds_bucket{class="charge",le="2"} 20
wait_seconds_bucket{class="charge",le="+Inf"} 20
"#;

    #[test]
    fn samples_are_summed_by_their_labels() {
        let page = Page::parse(PAGE);
        assert_eq!(page.sum("jobs_total", &[]), 10);
        assert_eq!(page.sum("jobs_total", &[("class", "charge")]), 9);
        assert_eq!(page.sum("jobs_total", &[("class", "charge"), ("outcome", "done")]), 7);
        assert_eq!(page.sum("jobs_total", &[("class", "a \"b\", c")]), 1);
        assert_eq!((page.sum("lag", &[]), page.sum("none", &[])), (3, 0));
        assert_eq!(page.clone().and(page).sum("lag", &[]), 6);
    }

    #[test]
    fn the_values_of_a_label_come_with_their_sums() {
        let page = Page::parse(PAGE);
        let expected = [("dead".to_owned(), 2), ("done".to_owned(), 7)];
        assert_eq!(page.by("outcome", "jobs_total", &[("class", "charge")]), expected);
    }

    #[test]
    fn a_percentile_counts_what_came_since_and_lies_within_its_bucket() {
        let (page, nothing) = (Page::parse(PAGE), Page::default());
        let p95 = |before: &Page| page.p95_since(before, "wait_seconds", &[("class", "charge")]);
        assert_eq!(p95(&nothing), Some(Duration::from_millis(1900)));
        assert_eq!(p95(&page), None);
        let before = Page::parse(
            "wait_seconds_bucket{class=\"charge\",le=\"1\"} 10\nwait_seconds_bucket{class=\"charge\",le=\"2\"} 10\nwait_seconds_bucket{class=\"charge\",le=\"+Inf\"} 10",
        );
        assert_eq!(p95(&before), Some(Duration::from_millis(1950)));
    }

    #[test]
    fn a_percentile_beyond_the_last_bound_is_that_bound() {
        assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 5.0)], 0.95), Some(1.0));
        assert_eq!(quantile(&[], 0.95), None);
    }
}
