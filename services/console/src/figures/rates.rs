//! From counters that only grow to what happened in the last minute.

use std::collections::{BTreeMap, VecDeque};

use super::ClassFigures;
use super::exposition::samples;

/// So many scrapes are looked back: a minute of them.
const BACK: usize = 12;

/// What each service said lately.
#[derive(Debug, Default)]
pub(super) struct Rates(BTreeMap<String, VecDeque<Scrape>>);

/// What one service said.
#[derive(Debug)]
pub(super) struct Scrape {
    /// In seconds, on a clock that never jumps.
    pub(super) at: f64,
    pub(super) text: String,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    done: f64,
    failed: f64,
    running: f64,
    parked: bool,
}

impl Rates {
    pub(super) fn add(&mut self, address: &str, scrape: &Scrape) {
        let held = self.0.entry(address.to_owned()).or_default();
        held.push_back(Scrape { at: scrape.at, text: scrape.text.clone() });
        if held.len() > BACK {
            held.pop_front();
        }
    }

    /// It does not answer: what it said before is no longer so.
    pub(super) fn forget(&mut self, address: &str) {
        self.0.remove(address);
    }

    /// All services together, by class.
    pub(super) fn classes(&self) -> BTreeMap<String, ClassFigures> {
        let mut figures: BTreeMap<String, (ClassFigures, f64, f64)> = BTreeMap::new();
        for held in self.0.values() {
            let (Some(first), Some(last)) = (held.front(), held.back()) else { continue };
            let (before, now) = (counters(&first.text), counters(&last.text));
            let seconds = last.at - first.at;
            for (class, now) in now {
                let before = before.get(&class).copied().unwrap_or_default();
                let (figure, done, failed) = figures.entry(class).or_default();
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a gauge of handlers"
                )]
                let running = now.running.max(0.0) as u64;
                figure.running += running;
                figure.parked |= now.parked;
                if seconds > 0.0 {
                    *done += grown(before.done, now.done) / seconds;
                    *failed += grown(before.failed, now.failed) / seconds;
                    figure.done_per_second = Some(*done);
                }
            }
        }
        let share = |(mut figure, done, failed): (ClassFigures, f64, f64)| {
            figure.failing = (done + failed > 0.0).then(|| failed / (done + failed));
            figure
        };
        figures.into_iter().map(|(class, figure)| (class, share(figure))).collect()
    }
}

/// By how much a counter grew. One that is smaller than before began anew with its process.
fn grown(before: f64, now: f64) -> f64 {
    if now < before { now } else { now - before }
}

fn counters(text: &str) -> BTreeMap<String, Counters> {
    let mut classes: BTreeMap<String, Counters> = BTreeMap::new();
    for sample in samples(text) {
        let Some(class) = sample.label("class") else { continue };
        let wanted = [
            "tidegate_jobs_total",
            "tidegate_job_failures_total",
            "tidegate_jobs_in_flight",
            "tidegate_class_parked",
        ];
        if !wanted.contains(&sample.name) {
            continue;
        }
        let counters = classes.entry(class.to_owned()).or_default();
        match (sample.name, sample.label("outcome")) {
            ("tidegate_jobs_total", Some("done")) => counters.done += sample.value,
            ("tidegate_job_failures_total", _) => counters.failed += sample.value,
            ("tidegate_jobs_in_flight", _) => counters.running += sample.value,
            ("tidegate_class_parked", _) => counters.parked |= sample.value > 0.0,
            _ => {}
        }
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scrape(at: f64, done: u32, failed: u32) -> Scrape {
        let text = format!(
            "tidegate_jobs_total{{class=\"a\",tier=\"t\",outcome=\"done\"}} {done}\n\
             tidegate_jobs_total{{class=\"a\",tier=\"t\",outcome=\"dead\"}} 99\n\
             tidegate_job_failures_total{{class=\"a\",tier=\"t\",kind=\"timeout\"}} {failed}\n\
             tidegate_jobs_in_flight{{class=\"a\",tier=\"t\"}} 3\n"
        );
        Scrape { at, text }
    }

    #[test]
    fn services_are_added_up_and_one_that_began_anew_counts_from_zero() {
        let mut rates = Rates::default();
        rates.add("w1", &scrape(0.0, 100, 0));
        assert_eq!(rates.classes()["a"].done_per_second, None, "one scrape is no rate");
        rates.add("w1", &scrape(10.0, 200, 10));
        rates.add("w2", &scrape(0.0, 1000, 5));
        rates.add("w2", &scrape(10.0, 20, 0));
        let a = rates.classes()["a"];
        assert_eq!((a.running, a.done_per_second), (6, Some(12.0)));
        assert!((a.failing.unwrap() - 1.0 / 13.0).abs() < 1e-9);
        rates.forget("w2");
        assert_eq!(rates.classes()["a"].running, 3);
    }
}
