use proptest::collection::vec;
use proptest::prelude::*;

use super::FieldValue::{Bool, Bytes, Float, Int, Missing, NotScalar, Null, Str, Timestamp};
use super::*;

fn key(fields: &[FieldValue<'_>]) -> IdempotencyKey {
    IdempotencyKey::derive("charge", fields, None).unwrap()
}

fn check_refused(fields: &[FieldValue<'_>], expected: KeyError) {
    assert_eq!(IdempotencyKey::derive("charge", fields, None), Err(expected), "{fields:?}");
    assert_eq!(IdempotencyKey::derive("charge", fields, Some(WindowIndex(1))), Err(expected), "{fields:?}");
    assert_eq!(Lane::derive("charge", fields), Err(expected), "{fields:?}");
}

/// A field as the canonical form sees it: fields that are equal here must meet, all others must not.
#[derive(Clone, Debug, PartialEq)]
enum Owned {
    Bool(bool),
    Int(i64),
    Fraction(u32),
    Text(String),
    Timestamp(i128),
}

impl Owned {
    fn value(&self) -> FieldValue<'_> {
        match self {
            Self::Bool(b) => Bool(*b),
            Self::Int(n) => Int(*n),
            Self::Fraction(n) => Float(f64::from(*n) + 0.5),
            Self::Text(text) => Str(text),
            Self::Timestamp(nanos) => Timestamp(*nanos),
        }
    }
}

/// Few and short values, so that concatenations meet often.
fn owned() -> impl Strategy<Value = Owned> {
    prop_oneof![
        1 => any::<bool>().prop_map(Owned::Bool),
        1 => (0..3_i64).prop_map(Owned::Int),
        1 => (0..3_u32).prop_map(Owned::Fraction),
        6 => "[a-c\u{0}]{1,4}".prop_map(Owned::Text),
        1 => (0..3_i128).prop_map(Owned::Timestamp),
    ]
}

fn derived(scope: &str, fields: &[Owned], window: Option<i64>) -> IdempotencyKey {
    let fields: Vec<FieldValue<'_>> = fields.iter().map(Owned::value).collect();
    IdempotencyKey::derive(scope, &fields, window.map(WindowIndex)).unwrap()
}

proptest! {
    #[test]
    fn two_keys_meet_only_if_scope_fields_and_window_are_the_same(
        a in ("[a-c]{0,2}", vec(owned(), 0..4), prop::option::of(0..2_i64)),
        b in ("[a-c]{0,2}", vec(owned(), 0..4), prop::option::of(0..2_i64)),
    ) {
        prop_assert_eq!(derived(&a.0, &a.1, a.2) == derived(&b.0, &b.1, b.2), a == b);
        prop_assert_eq!(derived(&a.0, &a.1, a.2), derived(&a.0, &a.1, a.2));
    }

    #[test]
    fn fields_that_are_cut_elsewhere_are_another_key(text in "[a-z]{3,12}", one in 1..12_usize, other in 1..12_usize) {
        let (one, other) = (one % (text.len() - 1) + 1, other % (text.len() - 1) + 1);
        let cut = |at: usize| key(&[Str(&text[..at]), Str(&text[at..])]);
        prop_assert_eq!(cut(one) == cut(other), one == other);
        prop_assert_ne!(cut(one), key(&[Str(&text)]));
    }

    #[test]
    fn a_key_survives_being_written(bytes in any::<[u8; 16]>()) {
        let key = IdempotencyKey(bytes);
        prop_assert_eq!(key.to_string().len(), 32);
        prop_assert_eq!(IdempotencyKey::parse(&key.to_string()), Some(key));
        prop_assert_eq!(IdempotencyKey::parse(&key.to_string().to_uppercase()), Some(key));
    }

    #[test]
    fn a_number_that_is_widened_from_long_to_double_keeps_its_key(n in -(1_i64 << 53) + 1..1 << 53) {
        prop_assert_eq!(key(&[Int(n)]), key(&[Float(n as f64)]));
    }

    #[test]
    fn a_window_holds_the_times_from_its_start_to_its_end(
        at in -10_000_000_000_000..10_000_000_000_000_i64, offset in -50_400..50_400_i32, every in 1..100_000_000_u64,
    ) {
        let WindowIndex(index) = WindowIndex::of(UnixMillis(at), offset, Duration::from_millis(every));
        let (local, every) = (i128::from(at) + i128::from(offset) * 1000, i128::from(every));
        let start = i128::from(index) * every;
        prop_assert!(start <= local && local < start + every);
    }
}

#[test]
fn the_same_letters_in_other_fields_are_another_key() {
    assert_ne!(key(&[Str("ab"), Str("c")]), key(&[Str("a"), Str("bc")]));
    assert_ne!(key(&[Str("ab")]), key(&[Str("a"), Str("b")]));
    assert_ne!(key(&[Str("a"), Str("b")]), key(&[Str("b"), Str("a")]));
    let scoped = |scope, field| IdempotencyKey::derive(scope, &[Str(field)], None).unwrap();
    assert_ne!(scoped("ab", "c"), scoped("a", "bc"));
    assert_ne!(scoped("charge", "1"), scoped("refund", "1"));
}

#[test]
fn values_of_other_types_are_other_keys() {
    let values = [
        Int(1),
        Str("1"),
        Bool(true),
        Timestamp(1),
        Float(1.5),
        Str("\u{1}"),
        Bytes(&1_i64.to_be_bytes()),
        Bytes(&1_i128.to_be_bytes()),
        Bytes(&1.5_f64.to_bits().to_be_bytes()),
        Int(0),
        Bool(false),
        Str("true"),
        Float(f64::NAN),
        Float(f64::INFINITY),
        Float(f64::NEG_INFINITY),
    ];
    let keys: std::collections::BTreeSet<_> = values.iter().map(|value| key(&[*value])).collect();
    assert_eq!(keys.len(), values.len());
}

#[test]
fn a_field_that_changes_between_string_and_bytes_keeps_its_key() {
    assert_eq!(key(&[Str("größe")]), key(&[Bytes("größe".as_bytes())]));
}

#[test]
fn floats_that_are_the_same_number_are_the_same_key() {
    assert_eq!(key(&[Float(-0.0)]), key(&[Float(0.0)]));
    assert_eq!(key(&[Float(-0.0)]), key(&[Int(0)]));
    assert_eq!(key(&[Float(f64::NAN)]), key(&[Float(-f64::NAN)]));
    assert_eq!(key(&[Float(f64::NAN)]), key(&[Float(f64::from_bits(0x7ff8_0000_0000_0001))]));
    // From here on a double is not one whole number any more.
    let limit = 1_i64 << 53;
    assert_ne!(key(&[Int(limit)]), key(&[Float(limit as f64)]));
    assert_ne!(key(&[Int(i64::MAX)]), key(&[Float(i64::MAX as f64)]));
    assert_ne!(key(&[Float(i64::MAX as f64)]), key(&[Float(2.0 * i64::MAX as f64)]));
}

#[test]
fn a_key_field_without_a_value_is_refused_with_its_place() {
    for nothing in [Missing, Null, Str(""), Bytes(b"")] {
        check_refused(&[nothing], KeyError::NoValue(0));
        check_refused(&[Int(1), Str("a"), nothing], KeyError::NoValue(2));
    }
    check_refused(&[Int(1), NotScalar], KeyError::NotScalar(1));
    check_refused(&[NotScalar, Null], KeyError::NotScalar(0));
    // These are values, though they look like none.
    for value in [Int(0), Bool(false), Float(0.0), Str(" "), Str("null"), Timestamp(0), Bytes(&[0])] {
        assert!(IdempotencyKey::derive("charge", &[value], None).is_ok(), "{value:?}");
    }
}

#[test]
fn keys_of_different_windows_differ_and_no_window_is_another_one_still() {
    let windows =
        [None, Some(0), Some(1), Some(-1)].map(|window| derived("charge", &[Owned::Int(1)], window));
    let distinct: std::collections::BTreeSet<_> = windows.iter().collect();
    assert_eq!(distinct.len(), windows.len());
}

#[test]
fn windows_before_1970_count_downwards_and_none_is_double() {
    let day = Duration::from_secs(86_400);
    let index = |at, offset| WindowIndex::of(UnixMillis(at), offset, day).0;
    assert_eq!(
        [-86_400_001, -86_400_000, -1, 0, 1, 86_399_999, 86_400_000].map(|at| index(at, 0)),
        [-2, -1, -1, 0, 0, 0, 1]
    );
    // 23:30 UTC is the next day in Berlin, and 00:30 UTC still the day before in New York.
    assert_eq!(index(84_600_000, 3600), 1);
    assert_eq!(index(1_800_000, -18_000), -1);
}

#[test]
fn windows_at_the_ends_of_time_do_not_overflow() {
    assert_eq!(WindowIndex::of(UnixMillis(i64::MAX), i32::MAX, Duration::ZERO), WindowIndex(i64::MAX));
    assert_eq!(
        WindowIndex::of(UnixMillis(i64::MIN), i32::MIN, Duration::from_nanos(1)),
        WindowIndex(i64::MIN)
    );
    assert_eq!(WindowIndex::of(UnixMillis(i64::MAX), 0, Duration::MAX), WindowIndex(1));
    assert_eq!(WindowIndex::of(UnixMillis(5), 0, Duration::MAX), WindowIndex(0));
}

/// A change of these is a change of the format: after an upgrade nothing that is done would be known any more.
#[test]
fn keys_and_lanes_stay_what_they_are() {
    let all = [
        Str("customer-7"),
        Int(-42),
        Bool(true),
        Float(1.5),
        Bytes(&[0, 255]),
        Timestamp(1_764_432_000_000_000_000),
    ];
    let keys = [
        key(&[Str("a")]),
        key(&all),
        IdempotencyKey::derive("daily", &all[..1], Some(WindowIndex(20_421))).unwrap(),
        key(&[]),
    ];
    assert_eq!(
        keys.map(|key| key.to_string()),
        [
            "df1dcdb08e342658ea1f471d7e9cce9c",
            "763060d3ad67805876302fb749fab8b6",
            "b1737ebf645c9ed0dc908a6e061b4683",
            "0647cdd082c84d4880928785a54ff1e9"
        ]
    );
    assert_eq!(format!("{:?}", keys[0]), keys[0].to_string());
    let lane = |field| Lane::derive("charge", &[field]).unwrap();
    let lanes = [Str("a"), Int(7), Timestamp(1)].map(lane);
    assert_eq!(
        lanes.map(|lane| format!("{:016x}", lane.0)),
        ["d3dcbe578e31c9c7", "5b5b6bbf8af930a5", "c5d01ab7f10a68d6"]
    );
    assert_eq!(lanes.map(|lane| lane.partition(12)), [3, 9, 10].map(Partition));
    assert_eq!(lanes.map(|lane| lane.partition(1)), [0; 3].map(Partition));
}

#[test]
fn a_lane_is_cut_to_partitions_by_its_remainder() {
    for (lane, count, partition) in
        [(0, 6, 0), (5, 6, 5), (6, 6, 0), (u64::MAX, 6, 3), (9, 0, 0), (u64::MAX, 1, 0)]
    {
        assert_eq!(Lane(lane).partition(count), Partition(partition), "{lane} of {count}");
    }
}

#[test]
fn lanes_are_spread_over_the_partitions_evenly() {
    for count in [6_u32, 16, 48] {
        let mut hits = vec![0_u32; count as usize];
        for n in 0..200 * i64::from(count) {
            let Partition(partition) = Lane::derive("charge", &[Int(n)]).unwrap().partition(count);
            hits[usize::try_from(partition).unwrap()] += 1;
        }
        // The deviation is about 14; five of it are a fault, not chance.
        assert!(hits.iter().all(|hits| (130..270).contains(hits)), "{count}: {hits:?}");
    }
}

#[test]
fn what_is_no_key_is_refused() {
    for text in [
        "",
        "12",
        "+0000000000000000000000000000001",
        "g0000000000000000000000000000000",
        &"0".repeat(33),
        &"é".repeat(16),
    ] {
        assert_eq!(IdempotencyKey::parse(text), None, "{text}");
    }
}
