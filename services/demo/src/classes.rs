//! The three kinds of jobs: one for each tier.

use serde_json::{Value, json};

/// A kind of job, and the events that become one.
#[derive(Debug)]
pub struct DemoClass {
    /// Its name in the configuration, and the path of the endpoint that runs it.
    pub name: &'static str,
    /// Its tier.
    pub tier: &'static str,
    /// Its source topic.
    pub topic: &'static str,
    /// The field of its key.
    pub key: &'static str,
    /// The Avro schema of its events.
    pub schema: &'static str,
    /// How many of seven events are of this class.
    pub share: u64,
    event: fn(u64) -> Value,
}

impl DemoClass {
    /// The class's event of this number: always the same.
    pub fn event(&self, number: u64) -> Value {
        (self.event)(number)
    }
}

/// All of them.
pub const CLASSES: [DemoClass; 3] = [
    DemoClass {
        name: "charge",
        tier: "critical",
        topic: "demo.payments",
        key: "payment_id",
        schema: include_str!("../../../schemas/payment.avsc"),
        share: 4,
        event: |n| {
            json!({
                "payment_id": format!("pay-{n}"), "order_id": format!("ord-{n}"), "customer_id": format!("cus-{}", n % 100),
                "amount_cents": 100 + n, "currency": "EUR", "paid_at": "2026-01-31T12:00:00Z",
            })
        },
    },
    DemoClass {
        name: "welcome",
        tier: "default",
        topic: "demo.sign-ups",
        key: "user_id",
        schema: include_str!("../../../schemas/sign_up.avsc"),
        share: 2,
        event: |n| {
            json!({
                "user_id": format!("usr-{n}"), "email": format!("user{n}@example.org"), "plan": "TEAM", "referrer": null,
            })
        },
    },
    DemoClass {
        name: "export",
        tier: "bulk",
        topic: "demo.exports",
        key: "export_id",
        schema: include_str!("../../../schemas/export_request.avsc"),
        share: 1,
        event: |n| json!({ "export_id": format!("exp-{n}"), "user_id": format!("usr-{n}"), "format": "csv", "rows": 10 + n }),
    },
];

/// The number in an event's key: `usr-17` is 17.
pub fn number(key: &str) -> Option<u64> {
    key.rsplit_once('-')?.1.parse().ok()
}
