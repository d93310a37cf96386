//! What happens in the shop: the payments, sign-ups and exports of [`tidegate_demo`], each with its share of trouble.

pub(crate) use tidegate_demo::classes::{CLASSES, DemoClass, number};

/// Of ten events, how many are of each class, in the order of [`CLASSES`].
pub(crate) const SHARES: [u64; 3] = [5, 3, 2];

/// What the endpoint answers to a job's attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Done,
    /// Refused for good.
    Refused,
    /// An error that is gone at a later attempt.
    OutOfLuck,
    /// Busy: it asks for patience.
    Busy,
}

/// The fate of event `n` at this attempt, counted from 1. It depends on nothing else, so a repeated event meets the same one.
pub(crate) fn fate(n: u64, attempt: u64) -> Fate {
    match n {
        n if n % 50 == 7 => Fate::Refused,
        n if n % 20 == 3 && attempt == 1 => Fate::OutOfLuck,
        n if n % 40 == 11 && attempt <= 2 => Fate::OutOfLuck,
        n if n % 100 == 29 && attempt == 1 => Fate::Busy,
        _ => Fate::Done,
    }
}

/// Whether event `n` is published twice. None of them is refused: an operator may send a dead letter again, and so may a publisher.
pub(crate) fn is_repeated(n: u64) -> bool {
    n.is_multiple_of(10)
}

/// Whether bytes that are no event follow event `n`.
pub(crate) fn is_followed_by_garbage(n: u64) -> bool {
    n % 100 == 25
}

#[cfg(test)]
mod tests {
    use tidegate_codec::CompiledSchema;

    use super::*;

    #[test]
    fn every_event_fits_its_schema_and_has_its_number_in_its_key() {
        for class in &CLASSES {
            let schema = CompiledSchema::parse(1, class.schema, &[]).unwrap();
            for n in [0, 17, 1_000_000] {
                let event = class.event(n);
                schema.encode_json(&event).unwrap();
                assert_eq!(event[class.key].as_str().and_then(number), Some(n), "{}", class.name);
            }
        }
        assert_eq!(SHARES.iter().sum::<u64>(), 10);
    }

    #[test]
    fn whatever_fails_heals_before_its_attempts_are_used_up_unless_it_is_refused() {
        for n in 0..1000 {
            let last = fate(n, 3);
            assert_eq!(last == Fate::Refused, n % 50 == 7, "{n}");
            assert!(matches!(last, Fate::Done | Fate::Refused), "{n}: {last:?}");
        }
    }

    #[test]
    fn what_is_repeated_is_done_at_its_first_attempt() {
        let repeated: Vec<u64> = (0..1000).filter(|&n| is_repeated(n)).collect();
        assert!(repeated.len() == 100 && repeated.iter().all(|&n| fate(n, 1) == Fate::Done));
    }
}
