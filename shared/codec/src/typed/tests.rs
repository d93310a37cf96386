use std::collections::HashMap;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::{CompiledSchema, DecodeError, Limits};

fn schema(fields: &str) -> CompiledSchema {
    let text = format!(r#"{{"type":"record","name":"shop.Order","fields":[{fields}]}}"#);
    CompiledSchema::parse(1, &text, &[]).expect("a schema")
}

/// Reads one field called `x`.
fn read<T: for<'a> Deserialize<'a>>(type_of_x: &str, datum: &[u8]) -> Result<T, DecodeError> {
    #[derive(Deserialize)]
    struct Holder<T> {
        x: T,
    }
    let schema = schema(&format!(r#"{{"name":"x","type":{type_of_x}}}"#));
    schema.decode::<Holder<T>>(datum, &Limits::default()).map(|holder| holder.x)
}

#[derive(Debug, PartialEq, Deserialize)]
struct Order {
    id: i64,
    #[serde(default)]
    note: Option<String>,
    #[serde(default = "euro", alias = "curr")]
    currency: String,
}

fn euro() -> String {
    "EUR".to_owned()
}

fn order(note: Option<&str>, currency: &str) -> Result<Order, DecodeError> {
    Ok(Order { id: 1, note: note.map(str::to_owned), currency: currency.to_owned() })
}

fn read_order(fields: &str, datum: &[u8]) -> Result<Order, DecodeError> {
    schema(fields).decode(datum, &Limits::default())
}

#[test]
fn a_field_that_the_writer_lacks_takes_the_types_default() {
    assert_eq!(read_order(r#"{"name":"id","type":"long"}"#, b"\x02"), order(None, "EUR"));
}

#[test]
fn a_field_that_the_type_lacks_is_passed_over_but_checked() {
    let fields = r#"{"name":"gone","type":{"type":"array","items":"string"}},{"name":"id","type":"long"}"#;
    assert_eq!(read_order(fields, b"\x02\x02a\x00\x02"), order(None, "EUR"));
    assert_eq!(read_order(fields, b"\x02\x02\xff\x00\x02"), Err(DecodeError::InvalidUtf8 { offset: 2 }));
}

#[test]
fn an_old_name_is_read_by_the_types_alias() {
    let fields = r#"{"name":"curr","type":"string"},{"name":"id","type":"long"}"#;
    assert_eq!(read_order(fields, b"\x06USD\x02"), order(None, "USD"));
}

#[test]
fn a_new_name_is_read_by_the_writers_alias() {
    let fields = r#"{"name":"identifier","aliases":["id"],"type":"long"}"#;
    assert_eq!(read_order(fields, b"\x02"), order(None, "EUR"));
}

#[test]
fn a_union_may_widen() {
    let with = |kind: &str| format!(r#"{{"name":"id","type":"long"}},{{"name":"note","type":{kind}}}"#);
    assert_eq!(read_order(&with("\"string\""), b"\x02\x02a"), order(Some("a"), "EUR"));
    assert_eq!(read_order(&with(r#"["null","string"]"#), b"\x02\x02\x02a"), order(Some("a"), "EUR"));
    assert_eq!(read_order(&with(r#"["null","string"]"#), b"\x02\x00"), order(None, "EUR"));
    assert_eq!(read_order(&with(r#"["null","string","long"]"#), b"\x02\x02\x02a"), order(Some("a"), "EUR"));
    let Err(DecodeError::Mismatch(mismatch)) =
        read_order(&with(r#"["null","string","long"]"#), b"\x02\x04\x02")
    else {
        panic!("a number passed for a note")
    };
    assert_eq!(mismatch.path, "note");
}

#[test]
fn numbers_are_promoted_and_never_cut() {
    assert_eq!(read::<i64>("\"int\"", b"\x03"), Ok(-2));
    assert_eq!(read::<f64>("\"int\"", b"\x03"), Ok(-2.0));
    assert_eq!(read::<f64>("\"long\"", b"\x03"), Ok(-2.0));
    assert_eq!(read::<f64>("\"float\"", &0.5_f32.to_le_bytes()), Ok(0.5));
    assert_eq!(read::<u8>("\"long\"", b"\xfe\x03"), Ok(255));
    assert!(matches!(read::<u8>("\"long\"", b"\x80\x04"), Err(DecodeError::Mismatch(_))));
    assert!(matches!(read::<u64>("\"long\"", b"\x01"), Err(DecodeError::Mismatch(_))));
    assert!(matches!(read::<i64>("\"double\"", &[0; 8]), Err(DecodeError::Mismatch(_))));
}

#[derive(Debug, PartialEq, Deserialize)]
enum State {
    New,
    #[serde(rename = "PAID")]
    Paid,
    #[serde(other)]
    Unknown,
}

#[test]
fn symbols_are_unit_variants_or_strings() {
    let symbols = r#"{"type":"enum","name":"S","symbols":["New","PAID","VOID"]}"#;
    assert_eq!(read(symbols, b"\x00"), Ok(State::New));
    assert_eq!(read(symbols, b"\x02"), Ok(State::Paid));
    assert_eq!(read(symbols, b"\x04"), Ok(State::Unknown));
    assert_eq!(read(symbols, b"\x02"), Ok("PAID".to_owned()));
    assert_eq!(read("\"string\"", b"\x08PAID"), Ok(State::Paid));
    assert_eq!(read(&format!(r#"["null",{symbols}]"#), b"\x02\x02"), Ok(Some(State::Paid)));
}

#[derive(Debug, PartialEq, Deserialize)]
struct Card {
    number: String,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Cash {
    cents: i64,
}

const PAYMENT: &str = r#"["null",
    {"type":"record","name":"pay.Card","fields":[{"name":"number","type":"string"}]},
    {"type":"record","name":"pay.Cash","fields":[{"name":"cents","type":"int"}]}]"#;

#[test]
fn a_union_of_records_is_an_enum_of_its_branches() {
    #[derive(Debug, PartialEq, Deserialize)]
    enum Payment {
        Card(Card),
        #[serde(rename = "pay.Cash")]
        Cash {
            cents: i64,
        },
    }
    assert_eq!(read(PAYMENT, b"\x02\x022"), Ok(Some(Payment::Card(Card { number: "2".to_owned() }))));
    assert_eq!(read(PAYMENT, b"\x04\x04"), Ok(Some(Payment::Cash { cents: 2 })));
    assert_eq!(read::<Option<Payment>>(PAYMENT, b"\x00"), Ok(None));
}

#[test]
fn a_union_of_records_is_an_untagged_enum_too() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(untagged)]
    enum Payment {
        Card(Card),
        Cash(Cash),
    }
    assert_eq!(read(PAYMENT, b"\x02\x022"), Ok(Some(Payment::Card(Card { number: "2".to_owned() }))));
    assert_eq!(read(PAYMENT, b"\x04\x04"), Ok(Some(Payment::Cash(Cash { cents: 2 }))));
}

#[test]
fn a_union_of_simple_types_is_an_enum_of_their_names() {
    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Either {
        Long(i64),
        Boolean(bool),
        Null,
    }
    assert_eq!(read(r#"["null","long","boolean"]"#, b"\x02\x02"), Ok(Either::Long(1)));
    assert_eq!(read(r#"["null","long","boolean"]"#, b"\x04\x01"), Ok(Either::Boolean(true)));
    assert_eq!(read(r#"["null","long","boolean"]"#, b"\x00"), Ok(Either::Null));
}

#[test]
fn the_type_decides_between_a_time_as_number_and_as_text() {
    let at = r#"{"type":"long","logicalType":"timestamp-millis"}"#;
    assert_eq!(read(at, b"\x02"), Ok(1_i64));
    assert_eq!(read(at, b"\x02"), Ok("1970-01-01T00:00:00.001Z".to_owned()));
    assert_eq!(read(r#"{"type":"int","logicalType":"date"}"#, b"\x02"), Ok("1970-01-02".to_owned()));
    assert!(matches!(read::<String>("\"long\"", b"\x02"), Err(DecodeError::Mismatch(_))));
}

#[test]
fn a_decimal_is_text_or_a_number_or_bytes() {
    let price = r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#;
    assert_eq!(read(price, b"\x04\xfb\x2e"), Ok("-12.34".to_owned()));
    assert_eq!(read(price, b"\x04\xfb\x2e"), Ok(-12.34));
    assert_eq!(read(price, b"\x04\xfb\x2e"), Ok(vec![0xfb_u8, 0x2e]));
}

#[test]
fn bytes_are_a_vector_or_an_array_of_bytes() {
    assert_eq!(read("\"bytes\"", b"\x04\x01\x02"), Ok(vec![1_u8, 2]));
    assert_eq!(read(r#"{"type":"fixed","name":"F","size":2}"#, b"\x01\x02"), Ok([1_u8, 2]));
    assert!(matches!(read::<[u8; 2]>("\"bytes\"", b"\x06\x01\x02\x03"), Err(DecodeError::Mismatch(_))));
}

#[test]
fn a_tuple_refuses_items_that_it_has_no_place_for() {
    let longs = r#"{"type":"array","items":"long"}"#;
    assert_eq!(read(longs, b"\x04\x02\x04\x00"), Ok((1_i64, 2_i64)));
    assert!(matches!(read::<(i64, i64)>(longs, b"\x06\x02\x04\x06\x00"), Err(DecodeError::Mismatch(_))));
    assert!(matches!(read::<(i64, i64)>(longs, b"\x02\x02\x00"), Err(DecodeError::Mismatch(_))));
}

#[test]
fn strings_may_borrow_from_the_event() {
    #[derive(Deserialize)]
    struct Borrowed<'a> {
        x: &'a str,
    }
    let (schema, body) = (schema(r#"{"name":"x","type":"string"}"#), b"\x04ab".to_vec());
    let event: Borrowed<'_> = schema.decode(&body, &Limits::default()).expect("sound");
    assert_eq!(event.x.as_ptr(), body[1..].as_ptr());
}

#[test]
fn flattened_and_generic_types_work() {
    #[derive(Debug, PartialEq, Deserialize)]
    struct Flat {
        id: i64,
        #[serde(flatten)]
        rest: HashMap<String, serde_json::Value>,
    }
    let schema = schema(r#"{"name":"id","type":"long"},{"name":"ok","type":"boolean"}"#);
    let flat: Flat = schema.decode(b"\x02\x01", &Limits::default()).expect("sound");
    assert_eq!(flat.rest, HashMap::from([("ok".to_owned(), serde_json::Value::Bool(true))]));
}

#[test]
fn a_mismatch_names_the_whole_path() {
    #[derive(Debug, Deserialize)]
    struct Line {
        #[allow(dead_code, reason = "only read")]
        sku: i64,
    }
    let lines =
        r#"{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"sku","type":"string"}]}}"#;
    let Err(DecodeError::Mismatch(mismatch)) = read::<Vec<Line>>(lines, b"\x02\x02a\x00") else {
        panic!("it fits")
    };
    assert_eq!(mismatch.path, "x[0].sku");
    assert!(mismatch.to_string().starts_with("the field x[0].sku doesn't fit"), "{mismatch}");
}

#[test]
fn what_the_check_refuses_is_not_read() {
    assert_eq!(read::<String>("\"string\"", b"\x04a"), Err(DecodeError::Truncated { offset: 1 }));
    assert_eq!(
        read::<String>("\"string\"", b"\x02a\x00"),
        Err(DecodeError::TrailingBytes { offset: 2, left: 1 })
    );
    assert_eq!(
        read::<IgnoredAny>("\"string\"", b"\x02\xff").err(),
        Some(DecodeError::InvalidUtf8 { offset: 1 })
    );
    let nulls = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0];
    let refused = read::<Vec<()>>(r#"{"type":"array","items":"null"}"#, &nulls);
    assert_eq!(refused, Err(DecodeError::TooManyItems { limit: 1 << 20 }));
}

#[test]
fn depth_is_bounded() {
    #[derive(Debug, Deserialize)]
    struct Node {
        #[allow(dead_code, reason = "only read")]
        next: Option<Box<Node>>,
    }
    let list = r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;
    let schema = CompiledSchema::parse(1, list, &[]).expect("a schema");
    let endless = schema.decode::<Node>(&[2; 100_000], &Limits::default());
    assert!(matches!(endless, Err(DecodeError::TooDeep { limit: 64, .. })), "{endless:?}");
}
