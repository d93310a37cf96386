//! Which jobs is this event? Every route that matches makes a job; an event that matches none must be ignored by an explicit
//! rule, or it is dead-lettered.

use crate::key::FieldValue;

/// A value that a condition compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// Equals null and missing.
    Null,
    /// Equals a boolean.
    Bool(bool),
    /// Equals a whole number.
    Int(i64),
    /// Equals a number.
    Float(f64),
    /// Equals a string or an enum's symbol.
    Str(String),
}

impl Literal {
    fn equals(&self, value: &FieldValue<'_>) -> bool {
        match (self, value) {
            (Self::Null, FieldValue::Null | FieldValue::Missing) => true,
            (Self::Bool(a), FieldValue::Bool(b)) => a == b,
            (Self::Int(a), FieldValue::Int(b)) => a == b,
            (Self::Int(a), FieldValue::Float(b)) => *a as f64 == *b,
            (Self::Float(a), FieldValue::Float(b)) => a == b,
            (Self::Float(a), FieldValue::Int(b)) => *a == *b as f64,
            (Self::Str(a), FieldValue::Str(b)) => a == b,
            _ => false,
        }
    }
}

/// A condition over one field: its value is one of these.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// The place of the field in the caller's list of wanted fields.
    pub field: usize,
    /// Any of them suffices.
    pub one_of: Vec<Literal>,
}

/// What an event must be like.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pattern {
    /// One of these source topics; any where there is none.
    pub sources: Vec<String>,
    /// The full name of the Avro record; any where there is none.
    pub record: Option<String>,
    /// All of them must hold.
    pub when: Vec<Condition>,
}

impl Pattern {
    /// Whether the source alone rules it out, before anything is decoded.
    pub fn reads(&self, topic: &str) -> bool {
        self.sources.is_empty() || self.sources.iter().any(|source| source == topic)
    }

    /// Whether the event matches.
    pub fn matches(&self, event: &Event<'_>) -> bool {
        self.reads(event.topic)
            && self.record.as_deref().is_none_or(|record| record == event.record)
            && self.when.iter().all(|condition| {
                let value = event.fields.get(condition.field).unwrap_or(&FieldValue::Missing);
                condition.one_of.iter().any(|literal| literal.equals(value))
            })
    }
}

/// What routes see of an event.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// The source topic.
    pub topic: &'a str,
    /// The full name of the Avro record.
    pub record: &'a str,
    /// The wanted fields, in the order that the patterns were compiled with.
    pub fields: &'a [FieldValue<'a>],
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routing {
    /// It is jobs: the places of the matching routes were pushed to the caller's list.
    Jobs,
    /// The ignore rule at this place names it.
    Ignored(usize),
    /// Nothing names it.
    Unroutable,
}

/// Finds every route that matches. A route wins over an ignore rule.
pub fn route(routes: &[Pattern], ignore: &[Pattern], event: &Event<'_>, jobs: &mut Vec<usize>) -> Routing {
    jobs.clear();
    jobs.extend(routes.iter().enumerate().filter(|(_, route)| route.matches(event)).map(|(place, _)| place));
    if !jobs.is_empty() {
        return Routing::Jobs;
    }
    match ignore.iter().position(|rule| rule.matches(event)) {
        Some(place) => Routing::Ignored(place),
        None => Routing::Unroutable,
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::FieldValue as Field;
    use super::*;

    fn pattern(sources: &[&str], record: Option<&str>, when: &[(usize, &[Literal])]) -> Pattern {
        Pattern {
            sources: sources.iter().map(|&source| source.to_owned()).collect(),
            record: record.map(str::to_owned),
            when: when.iter().map(|&(field, one_of)| Condition { field, one_of: one_of.to_vec() }).collect(),
        }
    }

    fn check(routes: &[Pattern], ignore: &[Pattern], fields: &[Field<'_>], expected: (Routing, &[usize])) {
        let event = Event { topic: "shop.payments", record: "shop.PaymentMade", fields };
        // What an earlier event left must not stay.
        let mut jobs = vec![99];
        let routing = route(routes, ignore, &event, &mut jobs);
        assert_eq!((routing, jobs.as_slice()), expected);
    }

    #[test]
    fn every_route_that_matches_makes_a_job_in_the_order_of_the_routes() {
        let routes = [
            pattern(&[], None, &[]),
            pattern(&["other"], None, &[]),
            pattern(&["other", "shop.payments"], Some("shop.PaymentMade"), &[]),
            pattern(&["shop.payments"], Some("shop.PaymentFailed"), &[]),
            pattern(&[], None, &[(0, &[Literal::Int(1), Literal::Int(2)]), (1, &[Literal::Bool(true)])]),
            pattern(&[], None, &[(0, &[Literal::Int(2)]), (1, &[Literal::Bool(false)])]),
        ];
        check(&routes, &[], &[Field::Int(2), Field::Bool(true)], (Routing::Jobs, &[0, 2, 4]));
    }

    #[test]
    fn an_event_is_ignored_only_if_no_route_matches() {
        let all = [pattern(&[], None, &[])];
        let none = [pattern(&["other"], None, &[])];
        check(&all, &all, &[], (Routing::Jobs, &[0]));
        check(&none, &[none[0].clone(), all[0].clone(), all[0].clone()], &[], (Routing::Ignored(1), &[]));
    }

    #[test]
    fn an_event_that_nothing_names_is_unroutable() {
        let other = [pattern(&["other"], None, &[])];
        check(&other, &other, &[], (Routing::Unroutable, &[]));
        check(&[], &[], &[], (Routing::Unroutable, &[]));
    }

    #[test]
    fn the_source_alone_can_rule_a_pattern_out() {
        assert!(pattern(&[], Some("x"), &[]).reads("any"));
        assert!(pattern(&["a", "b"], None, &[]).reads("b"));
        assert!(!pattern(&["a", "b"], None, &[]).reads("ab"));
    }

    #[test]
    fn a_literal_equals_values_of_its_kind() {
        let text = |text: &str| Literal::Str(text.to_owned());
        for (literal, value, equal) in [
            (Literal::Null, Field::Null, true),
            (Literal::Null, Field::Missing, true),
            (Literal::Null, Field::Str(""), false),
            (Literal::Null, Field::Int(0), false),
            (Literal::Bool(true), Field::Bool(true), true),
            (Literal::Bool(true), Field::Bool(false), false),
            (Literal::Bool(true), Field::Int(1), false),
            (Literal::Bool(true), Field::Str("true"), false),
            (Literal::Int(7), Field::Int(7), true),
            (Literal::Int(7), Field::Int(8), false),
            (Literal::Int(7), Field::Float(7.0), true),
            (Literal::Int(7), Field::Float(7.5), false),
            (Literal::Int(7), Field::Str("7"), false),
            (Literal::Float(7.0), Field::Int(7), true),
            (Literal::Float(7.5), Field::Float(7.5), true),
            (Literal::Float(7.5), Field::Int(7), false),
            (Literal::Float(0.0), Field::Float(-0.0), true),
            (Literal::Float(f64::NAN), Field::Float(f64::NAN), false),
            (text("open"), Field::Str("open"), true),
            (text("open"), Field::Str("Open"), false),
            (text("open"), Field::Bytes(b"open"), false),
            (text(""), Field::Missing, false),
            (Literal::Int(7), Field::Timestamp(7), false),
            (Literal::Int(7), Field::NotScalar, false),
            (Literal::Null, Field::NotScalar, false),
        ] {
            let expected =
                if equal { (Routing::Jobs, [0].as_slice()) } else { (Routing::Unroutable, [].as_slice()) };
            check(&[pattern(&[], None, &[(0, std::slice::from_ref(&literal))])], &[], &[value], expected);
            assert_eq!(literal.equals(&value), equal, "{literal:?} {value:?}");
        }
    }

    #[test]
    fn a_condition_on_a_field_that_the_event_lacks_sees_it_as_missing() {
        check(&[pattern(&[], None, &[(5, &[Literal::Null])])], &[], &[Field::Int(1)], (Routing::Jobs, &[0]));
        check(
            &[pattern(&[], None, &[(5, &[Literal::Int(1)])])],
            &[],
            &[Field::Int(1)],
            (Routing::Unroutable, &[]),
        );
    }

    #[test]
    fn a_condition_without_a_literal_never_holds() {
        check(&[pattern(&[], None, &[(0, &[])])], &[], &[Field::Null], (Routing::Unroutable, &[]));
    }

    proptest! {
        #[test]
        fn jobs_are_exactly_the_routes_that_match(
            wanted in vec(vec(0..3_i64, 0..3), 0..6), ignored in vec(0..3_i64, 0..3), value in 0..3_i64,
        ) {
            let on = |values: &[i64]| {
                let literals: Vec<Literal> = values.iter().map(|&n| Literal::Int(n)).collect();
                pattern(&[], None, &[(0, &literals)])
            };
            let routes: Vec<Pattern> = wanted.iter().map(|values| on(values)).collect();
            let ignore: Vec<Pattern> = ignored.iter().map(|&n| on(&[n])).collect();
            let mut jobs = Vec::new();
            let event = Event { topic: "t", record: "r", fields: &[Field::Int(value)] };
            let routing = route(&routes, &ignore, &event, &mut jobs);
            let expected: Vec<usize> = (0..wanted.len()).filter(|&place| wanted[place].contains(&value)).collect();
            prop_assert_eq!(routing == Routing::Jobs, !expected.is_empty());
            prop_assert_eq!(jobs, expected.clone());
            if expected.is_empty() {
                let rule = ignored.iter().position(|&n| n == value);
                prop_assert_eq!(routing, rule.map_or(Routing::Unroutable, Routing::Ignored));
            }
        }
    }
}
