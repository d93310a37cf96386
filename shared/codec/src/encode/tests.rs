use serde_json::{Value, json};

use super::*;
use crate::{CompiledSchema, Limits};

fn compile(schema: &str) -> CompiledSchema {
    CompiledSchema::parse(1, schema, &[]).expect("a schema")
}

fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"shop.Order","fields":[{fields}]}}"#)
}

/// What is written is shown again as the same JSON.
fn check(schema: &str, value: Value) {
    let schema = compile(schema);
    let datum = schema.encode_json(&value).unwrap_or_else(|error| panic!("{value}: {error}"));
    assert_eq!(schema.to_json(&datum, &Limits::default()), Ok(value));
}

fn refuse(schema: &str, value: Value) -> String {
    match compile(schema).encode_json(&value) {
        Ok(datum) => panic!("{value} became {datum:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_type_is_written() {
    check("\"null\"", json!(null));
    check("\"boolean\"", json!(true));
    check("\"int\"", json!(i32::MIN));
    check("\"long\"", json!(i64::MAX));
    check("\"float\"", json!(0.1));
    check("\"double\"", json!(0.1));
    check("\"double\"", json!("-Infinity"));
    check("\"string\"", json!("é"));
    check("\"bytes\"", json!("AP8="));
    check(r#"{"type":"fixed","name":"F","size":2}"#, json!("AP8="));
    check(r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, json!("B"));
    check(r#"{"type":"array","items":"int"}"#, json!([1, 2]));
    check(r#"{"type":"array","items":"int"}"#, json!([]));
    check(r#"{"type":"map","values":"int"}"#, json!({"a": 1, "b": 2}));
    check(r#"{"type":"map","values":"int"}"#, json!({}));
}

#[test]
fn every_logical_type_is_written() {
    for (name, text) in [
        ("timestamp-millis", "2024-02-29T12:00:00.123Z"),
        ("timestamp-micros", "1969-12-31T23:59:59.999999Z"),
        ("timestamp-nanos", "2024-02-29T12:00:00.000000001Z"),
        ("local-timestamp-micros", "2024-02-29T12:00:00.000001"),
        ("time-micros", "23:59:59.999999"),
    ] {
        check(&format!(r#"{{"type":"long","logicalType":"{name}"}}"#), json!(text));
    }
    check(r#"{"type":"int","logicalType":"date"}"#, json!("2024-02-29"));
    check(r#"{"type":"int","logicalType":"time-millis"}"#, json!("23:59:59.999"));
    check(r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#, json!("-12.34"));
    let fixed = r#"{"type":"fixed","name":"M","size":8,"logicalType":"decimal","precision":9,"scale":2}"#;
    check(fixed, json!("-12.34"));
    check(r#"{"type":"bytes","logicalType":"big-decimal"}"#, json!("-12.345"));
    let uuid = "0189f7e8-3b1c-7abc-9def-00112233aaff";
    check(r#"{"type":"string","logicalType":"uuid"}"#, json!(uuid));
    check(r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#, json!(uuid));
    let duration = r#"{"type":"fixed","name":"D","size":12,"logicalType":"duration"}"#;
    check(duration, json!({"months": 1, "days": 2, "millis": 3}));
}

#[test]
fn a_missing_field_takes_the_schemas_default() {
    let fields = r#"{"name":"id","type":"long"},{"name":"note","type":["null","string"],"default":null},
        {"name":"raw","type":"bytes","default":"\u0001ÿ"},
        {"name":"at","type":{"type":"record","name":"P","fields":[{"name":"x","type":"int","default":3}]},"default":{}}"#;
    let schema = compile(&record(fields));
    let datum = schema.encode_json(&json!({"id": 1})).expect("fits");
    assert_eq!(datum, b"\x02\x00\x04\x01\xff\x06");
}

#[test]
fn a_missing_field_without_a_default_is_named() {
    let nested =
        r#"{"name":"to","type":{"type":"record","name":"A","fields":[{"name":"city","type":"string"}]}}"#;
    let error = refuse(&record(nested), json!({"to": {}}));
    assert_eq!(error, "to.city: missing, and the schema has no default for it");
}

#[test]
fn an_unknown_field_is_answered_with_the_nearest_known_one() {
    let fields = r#"{"name":"customer_id","type":"long"},{"name":"amount","type":"long"}"#;
    let error = refuse(&record(fields), json!({"custmer_id": 1, "amount": 2}));
    assert_eq!(error, "custmer_id: the schema has no such field; did you mean customer_id?");
    let error = refuse(&record(fields), json!({"zzz": 1}));
    assert_eq!(error, "zzz: the schema has no such field");
}

#[test]
fn a_field_may_go_by_its_alias() {
    let schema = compile(&record(r#"{"name":"id","aliases":["order_id"],"type":"long"}"#));
    assert_eq!(schema.encode_json(&json!({"order_id": 1})), Ok(vec![2]));
}

#[test]
fn a_wrong_value_is_named_with_its_path() {
    let lines = r#"{"name":"lines","type":{"type":"array","items":{"type":"record","name":"L","fields":[{"name":"n","type":"int"}]}}}"#;
    let error = refuse(&record(lines), json!({"lines": [{"n": 1}, {"n": "two"}]}));
    assert_eq!(error, "lines[1].n: expected int, found \"two\"");
    assert_eq!(refuse("\"int\"", json!(1_i64 << 31)), "event: expected int, found 2147483648");
    assert_eq!(refuse("\"float\"", json!(1e300)), "event: expected float, found 1e+300");
    assert_eq!(
        refuse(r#"{"type":"enum","name":"E","symbols":["A","B"]}"#, json!("C")),
        "event: expected one of A, B, found \"C\""
    );
    let date = r#"{"type":"int","logicalType":"date"}"#;
    assert_eq!(
        refuse(date, json!("2023-02-29")),
        "event: expected a date (YYYY-MM-DD), found \"2023-02-29\""
    );
    let price = r#"{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}"#;
    assert_eq!(
        refuse(price, json!("1.234")),
        "event: expected a decimal of 4 digits, 2 after the point, found \"1.234\""
    );
}

#[test]
fn a_union_takes_the_branch_that_fits() {
    let union = r#"["null","int","double","string","boolean",{"type":"array","items":"int"},{"type":"map","values":"int"}]"#;
    for value in [json!(null), json!(1), json!(1.5), json!("a"), json!(false), json!([1]), json!({"a": 1})] {
        check(union, value);
    }
    let branch = |schema: &str, value: Value| compile(schema).encode_json(&value).map(|datum| datum[0] / 2);
    assert_eq!(branch(r#"["double","long","int"]"#, json!(1)), Ok(2));
    assert_eq!(branch(r#"["double","long","int"]"#, json!(1_i64 << 40)), Ok(1));
    assert_eq!(branch(r#"["float","double"]"#, json!(0.1)), Ok(0));
    assert_eq!(branch(r#"["float","double"]"#, json!(0.123456789012)), Ok(1));
    assert_eq!(branch(r#"["string",{"type":"enum","name":"E","symbols":["A"]}]"#, json!("A")), Ok(1));
    assert_eq!(
        branch(
            r#"["string",{"type":"long","logicalType":"timestamp-millis"}]"#,
            json!("2024-02-29T12:00:00Z")
        ),
        Ok(1)
    );
    assert_eq!(branch(r#"["bytes","string"]"#, json!("abcd")), Ok(1));
}

const PAYMENT: &str = r#"["null",
    {"type":"record","name":"pay.Card","fields":[{"name":"number","type":"string"}]},
    {"type":"record","name":"pay.Cash","fields":[{"name":"cents","type":"int"}]}]"#;

#[test]
fn a_union_of_records_takes_the_one_whose_fields_fit() {
    check(PAYMENT, json!({"number": "1"}));
    check(PAYMENT, json!({"cents": 1}));
    assert_eq!(
        refuse(PAYMENT, json!({"cent": 1})),
        "event: expected null or pay.Card or pay.Cash, found an object with 1 fields"
    );
}

#[test]
fn a_branch_may_be_named() {
    let schema = compile(PAYMENT);
    assert_eq!(schema.encode_json(&json!({"pay.Cash": {"cents": 1}})), Ok(vec![4, 2]));
    assert_eq!(schema.encode_json(&json!({"Cash": {"cents": 1}})), Ok(vec![4, 2]));
    assert_eq!(compile(r#"["string","bytes"]"#).encode_json(&json!({"bytes": "AA=="})), Ok(vec![2, 2, 0]));
}

#[test]
fn a_nullable_field_reports_the_error_of_its_only_other_branch() {
    let address = r#"{"name":"to","type":["null",{"type":"record","name":"A","fields":[{"name":"city","type":"string"}]}]}"#;
    let error = refuse(&record(address), json!({"to": {"city": 5}}));
    assert_eq!(error, "to.city: expected string, found 5");
}

#[test]
fn a_failed_branch_leaves_no_trace() {
    let union = r#"{"type":"array","items":[
        {"type":"record","name":"A","fields":[{"name":"x","type":"string"},{"name":"y","type":"int"}]},
        {"type":"record","name":"B","fields":[{"name":"x","type":"string"},{"name":"y","type":"string"}]}]}"#;
    check(union, json!([{"x": "1", "y": "2"}, {"x": "1", "y": 2}]));
}

#[test]
fn nesting_is_bounded() {
    let list = r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;
    let nested = (0..1000).fold(json!(null), |inner, _| json!({"next": inner}));
    let nested = json!({"next": nested});
    let error = compile(list).encode_json(&nested);
    // Dropping deep JSON recurses too; the stack of a test bears a thousand levels.
    assert!(matches!(error, Err(EncodeError::TooDeep { .. } | EncodeError::WrongValue { .. })), "{error:?}");
}

#[test]
fn possibilities_do_not_multiply_without_bound() {
    // An object at "next" is a record, or a map with the key "next" to a record: some 10^12 ways for 60 levels.
    let text = r#"{"type":"record","name":"R","fields":[{"name":"next","type":["null","R",{"type":"map","values":"R"}]}]}"#;
    let value = (0..60).fold(json!(5), |inner, _| json!({"next": inner}));
    assert!(compile(text).encode_json(&value).is_err());
}
