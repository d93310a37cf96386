//! What happens in the shop: payments, sign-ups and exports, each with its share of trouble.

use serde_json::{Value, json};

/// A class of the demo.
#[derive(Debug)]
pub(crate) struct DemoClass {
    pub(crate) name: &'static str,
    pub(crate) tier: &'static str,
    /// Its source topic.
    pub(crate) topic: &'static str,
    /// The field that is its key.
    pub(crate) key: &'static str,
    pub(crate) schema: &'static str,
    pub(crate) event: fn(u64) -> Value,
    /// Of ten events, how many are of this class.
    pub(crate) share: u64,
}

pub(crate) const CLASSES: [DemoClass; 3] = [
    DemoClass {
        name: "charge",
        tier: "critical",
        topic: "shop.payments",
        key: "payment_id",
        schema: include_str!("../../../../schemas/payment.avsc"),
        event: |n| {
            json!({
                "payment_id": format!("pay-{n}"), "order_id": format!("ord-{n}"), "customer_id": format!("cus-{}", n % 100),
                "amount_cents": 100 + n, "currency": "EUR", "paid_at": "2026-01-31T12:00:00Z",
            })
        },
        share: 5,
    },
    DemoClass {
        name: "welcome",
        tier: "default",
        topic: "shop.sign-ups",
        key: "user_id",
        schema: include_str!("../../../../schemas/sign_up.avsc"),
        event: |n| {
            json!({
                "user_id": format!("usr-{n}"), "email": format!("user{n}@example.org"), "plan": "TEAM", "referrer": null,
            })
        },
        share: 3,
    },
    DemoClass {
        name: "export",
        tier: "bulk",
        topic: "shop.exports",
        key: "export_id",
        schema: include_str!("../../../../schemas/export_request.avsc"),
        event: |n| json!({ "export_id": format!("exp-{n}"), "user_id": format!("usr-{n}"), "format": "csv", "rows": 10 + n }),
        share: 2,
    },
];

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

/// The number in `pay-17`.
pub(crate) fn number(id: &str) -> Option<u64> {
    id.rsplit_once('-')?.1.parse().ok()
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
                let event = (class.event)(n);
                schema.encode_json(&event).unwrap();
                assert_eq!(event[class.key].as_str().and_then(number), Some(n), "{}", class.name);
            }
        }
        assert_eq!(CLASSES.iter().map(|class| class.share).sum::<u64>(), 10);
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
