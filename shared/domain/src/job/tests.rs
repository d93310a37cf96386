use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::*;

const TEXT: &str = "v=1 class=charge tier=critical topic=shop.payments partition=3 offset=1234 \
    key=000102030405060708090a0b0c0d0e0f lane=00000000deadbeef round=1 hop=2 attempt=3 due=1764432000000 \
    first-seen=1764431999500 origin=1764431999000 forced=true";

fn header() -> JobHeader<'static> {
    JobHeader {
        class: "charge",
        tier: "critical",
        topic: "shop.payments",
        partition: Partition(3),
        offset: Offset(1234),
        key: IdempotencyKey([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
        lane: Lane(0xdead_beef),
        round: Round(1),
        hop: Hop(2),
        attempt: Attempt(3),
        due: UnixMillis(1_764_432_000_000),
        first_seen: UnixMillis(1_764_431_999_500),
        origin: Some(UnixMillis(1_764_431_999_000)),
        forced: true,
    }
}

fn parse(text: &str) -> Result<JobHeader<'_>, JobHeaderError> {
    JobHeader::parse(text.as_bytes())
}

/// The text with one field's value replaced.
fn with(field: &str, value: &str) -> String {
    let replaced = |pair: &str| match pair.split_once('=') {
        Some((name, _)) if name == field => format!("{name}={value}"),
        _ => pair.to_owned(),
    };
    let text = TEXT.split(' ').map(replaced).collect::<Vec<_>>().join(" ");
    assert_ne!(text, TEXT, "{field}={value} changes nothing");
    text
}

fn check_invalid(text: &str, field: &str, value: &str) {
    let expected = JobHeaderError::Invalid { field: field.to_owned(), value: value.to_owned() };
    assert_eq!(parse(text), Err(expected), "{text}");
}

#[derive(Debug, Clone)]
struct Names {
    class: String,
    tier: String,
    topic: String,
}

fn names() -> impl Strategy<Value = Names> {
    ("[a-z][a-z0-9-]{0,12}", "[a-z]{1,8}", "[a-zA-Z0-9._-]{1,20}").prop_map(|(class, tier, topic)| Names {
        class,
        tier,
        topic,
    })
}

/// Everything of a header but its names.
fn headers() -> impl Strategy<Value = JobHeader<'static>> {
    let place = (any::<i32>(), any::<i64>(), any::<[u8; 16]>(), any::<u64>());
    let counts = (any::<u32>(), any::<u32>(), 1..=u32::MAX);
    let times = (any::<i64>(), any::<i64>(), option::of(any::<i64>()), any::<bool>());
    (place, counts, times).prop_map(|(place, counts, times)| JobHeader {
        partition: Partition(place.0),
        offset: Offset(place.1),
        key: IdempotencyKey(place.2),
        lane: Lane(place.3),
        round: Round(counts.0),
        hop: Hop(counts.1),
        attempt: Attempt(counts.2),
        due: UnixMillis(times.0),
        first_seen: UnixMillis(times.1),
        origin: times.2.map(UnixMillis),
        forced: times.3,
        ..header()
    })
}

proptest! {
    #[test]
    fn a_header_survives_being_written(names in names(), header in headers()) {
        let header = JobHeader { class: &names.class, tier: &names.tier, topic: &names.topic, ..header };
        let text = header.to_text();
        prop_assert_eq!(parse(&text), Ok(header));
    }

    #[test]
    fn the_quick_reader_and_the_general_one_agree(names in names(), header in headers(), cut in 0_usize..400, junk in "[ -~]{0,3}") {
        let header = JobHeader { class: &names.class, tier: &names.tier, topic: &names.topic, ..header };
        let mut text = header.to_text();
        prop_assert_eq!(JobHeader::parse_in_any_order(&text), Ok(header.clone()));
        let at = cut.min(text.len());
        text.replace_range(at..(at + 1).min(text.len()), &junk);
        if let Some(quick) = canonical::parse(&text) {
            prop_assert_eq!(JobHeader::parse_in_any_order(&text), Ok(quick));
        }
    }

    #[test]
    fn fields_stand_in_any_order_and_unknown_ones_are_passed_over(
        order in Just(TEXT.split(' ').collect::<Vec<_>>()).prop_shuffle(), unknown in vec("x[a-z-]{0,6}=[!-~]{0,8}", 0..4),
    ) {
        let pairs: Vec<String> = order.into_iter().map(str::to_owned).chain(unknown).collect();
        let text = pairs.join(" ");
        prop_assert_eq!(parse(&text), Ok(header()));
        let reversed = pairs.into_iter().rev().collect::<Vec<_>>().join("  ");
        prop_assert_eq!(parse(&reversed), Ok(header()));
    }

    #[test]
    fn whatever_bytes_arrive_nothing_panics(bytes in vec(any::<u8>(), 0..200)) {
        prop_assert!(JobHeader::parse(&bytes).is_err());
    }

    #[test]
    fn a_header_that_is_cut_anywhere_is_refused_or_lost_its_optional_end(at in 0..TEXT.len()) {
        let needed = TEXT.find(" origin=").unwrap();
        match parse(&TEXT[..at]) {
            Ok(cut) => prop_assert!(at >= needed - 12 && cut.key == header().key),
            Err(_) => prop_assert!(at < TEXT.len()),
        }
    }

    #[test]
    fn a_byte_that_changes_never_panics_and_never_goes_unnoticed_in_the_key(at in 0..TEXT.len(), byte in any::<u8>()) {
        let mut bytes = TEXT.as_bytes().to_vec();
        bytes[at] = byte;
        if let Ok(parsed) = JobHeader::parse(&bytes) {
            let in_key = TEXT[..at].ends_with(|c: char| c.is_ascii_hexdigit() || c == '=')
                && (TEXT.find("key=").unwrap() + 4..TEXT.find(" lane").unwrap()).contains(&at);
            let same = byte.eq_ignore_ascii_case(&TEXT.as_bytes()[at]);
            prop_assert!(!in_key || same || parsed.key != header().key);
        }
    }
}

#[test]
fn the_text_of_a_header_stays_what_it_is() {
    assert_eq!(header().to_text(), TEXT);
    assert_eq!(parse(TEXT), Ok(header()));
    let plain = JobHeader { origin: None, forced: false, ..header() };
    assert_eq!(plain.to_text(), TEXT.split_once(" origin").unwrap().0);
    let mut after = "before ".to_owned();
    header().write(&mut after);
    assert_eq!(after, format!("before {TEXT}"));
}

#[test]
fn every_needed_field_is_needed() {
    let optional = ["origin", "forced"];
    for pair in TEXT.split(' ') {
        let (name, _) = pair.split_once('=').unwrap();
        let without = TEXT.split(' ').filter(|other| *other != pair).collect::<Vec<_>>().join(" ");
        match parse(&without) {
            Ok(_) => assert!(optional.contains(&name), "{name}"),
            Err(JobHeaderError::Missing(missing)) => assert_eq!(missing, name),
            Err(other) => panic!("{name}: {other}"),
        }
    }
    assert_eq!(parse(""), Err(JobHeaderError::Missing("v")));
}

#[test]
fn another_version_is_named_whatever_else_it_changed() {
    for version in ["2", "", "01", "1.0", "\"1\""] {
        let text = with("v", version);
        assert_eq!(parse(&text), Err(JobHeaderError::Version(version.to_owned())), "{text}");
    }
    assert_eq!(parse("v=2 key=another-form nonsense"), Err(JobHeaderError::Version("2".to_owned())));
    assert_eq!(parse("key=another-form v=2"), Err(JobHeaderError::Version("2".to_owned())));
}

#[test]
fn a_value_that_is_not_of_its_form_is_refused_with_its_name() {
    for (field, values) in [
        ("partition", ["", "x", "3.0", "2147483648"].as_slice()),
        ("offset", &["", "0x1", "9223372036854775808"]),
        ("key", &["", "00", "000102030405060708090a0b0c0d0e0g", "000102030405060708090a0b0c0d0e0f0"]),
        ("lane", &["", "xyz", "0deadbeefdeadbeef1"]),
        ("round", &["", "-1", "4294967296"]),
        ("hop", &["-1", "two"]),
        ("attempt", &["0", "-1", ""]),
        ("due", &["soon", "1764432000000.5"]),
        ("first-seen", &["2025-11-29T12:00:00Z"]),
        ("origin", &["", "null"]),
        ("forced", &["", "yes", "1", "TRUE"]),
        ("class", &["", "\"charge\"", "a=b"]),
        ("tier", &["", "\"bulk\""]),
        ("topic", &["", "\"shop.payments\""]),
    ] {
        for value in values {
            check_invalid(&with(field, value), field, value);
        }
    }
    assert_eq!(parse(&with("forced", "false")), Ok(JobHeader { forced: false, ..header() }));
}

#[test]
fn a_field_that_stands_twice_is_refused_whether_it_says_the_same_or_not() {
    for pair in TEXT.split(' ') {
        let (name, value) = pair.split_once('=').unwrap();
        check_invalid(&format!("{TEXT} {pair}"), name, value);
    }
    check_invalid(&format!("{TEXT} attempt=9"), "attempt", "9");
}

#[test]
fn quoted_values_words_without_a_value_and_bytes_are_refused() {
    check_invalid(&with("class", "\"charge card\""), "class", "\"charge");
    check_invalid(&format!("{TEXT} note=\"two words\""), "words\"", "");
    check_invalid(&format!("{TEXT} forced"), "forced", "");
    check_invalid(&format!("{TEXT}\n"), "forced", "true\n");
    assert_eq!(
        JobHeader::parse(&[b"v=1 class=".as_slice(), &[0xff, 0xfe]].concat()),
        Err(JobHeaderError::NotText)
    );
    assert_eq!(JobHeader::parse(&[0; 64]), Err(JobHeaderError::Missing("v")));
}

#[test]
fn a_megabyte_of_garbage_is_refused() {
    for garbage in
        ["v=1 ".repeat(1 << 18), "=".repeat(1 << 20), "\u{0}".repeat(1 << 20), "v=1".repeat(1 << 18)]
    {
        assert!(parse(&garbage).is_err());
    }
}

#[test]
fn the_job_id_names_origin_and_class_and_does_not_change_with_rounds() {
    assert_eq!(header().job_id(), "shop.payments/3/1234/charge");
    let later = JobHeader {
        round: Round(9),
        hop: Hop(9),
        attempt: Attempt(9),
        tier: "bulk",
        forced: false,
        ..header()
    };
    assert_eq!((later.job_id(), later.job_hash()), (header().job_id(), header().job_hash()));
}

#[test]
fn jobs_that_differ_in_origin_or_class_have_different_hashes() {
    let others = [
        header(),
        JobHeader { class: "refund", ..header() },
        JobHeader { topic: "shop.payment", ..header() },
        JobHeader { partition: Partition(4), ..header() },
        JobHeader { offset: Offset(1235), ..header() },
        JobHeader { topic: "shop.paymentsc", class: "harge", ..header() },
    ];
    let hashes: std::collections::BTreeSet<_> = others.iter().map(JobHeader::job_hash).collect();
    assert_eq!(hashes.len(), others.len());
}

/// Marks hold these: a change makes every job look like another one after an upgrade.
#[test]
fn hashes_stay_what_they_are() {
    let payload = PayloadHash::of(Some(b"\0\0\0\0\x07payload"));
    assert_eq!((header().job_hash(), payload), (JobHash(0xa31cce58), PayloadHash(0x32fe61f0)));
}

#[test]
fn a_payload_is_hashed_without_its_schema_prefix() {
    let of = |value: &[u8]| PayloadHash::of(Some(value));
    assert_eq!(of(b"\0\0\0\0\x01payload"), of(b"\0\0\0\0\x02payload"));
    assert_ne!(of(b"\0\0\0\0\x01payload"), of(b"\0\0\0\0\x01payloae"));
    assert_eq!(of(b"\0\0\0\0\x01"), PayloadHash::of(None));
    assert_ne!(of(b"abcd"), of(b"abce"));
}
