use serde_json::{Value, json};

use crate::{CompiledSchema, DecodeError, Limits};

fn check(schema: &str, datum: &[u8], expected: Value) {
    let schema = CompiledSchema::parse(1, schema, &[]).expect("a schema");
    assert_eq!(schema.to_json(datum, &Limits::default()), Ok(expected));
}

#[test]
fn unions_are_shown_without_their_branch() {
    check(r#"["null","string"]"#, b"\x02\x02a", json!("a"));
    check(r#"["null","string"]"#, b"\x00", json!(null));
}

#[test]
fn numbers_keep_their_digits() {
    check("\"float\"", &0.1_f32.to_le_bytes(), json!(0.1));
    check("\"double\"", &0.1_f64.to_le_bytes(), json!(0.1));
    check("\"long\"", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", json!(i64::MIN));
}

#[test]
fn numbers_that_json_lacks_are_text() {
    check("\"double\"", &f64::NAN.to_le_bytes(), json!("NaN"));
    check("\"double\"", &f64::INFINITY.to_le_bytes(), json!("Infinity"));
    check("\"float\"", &f32::NEG_INFINITY.to_le_bytes(), json!("-Infinity"));
}

#[test]
fn bytes_are_base64() {
    check("\"bytes\"", b"\x06\x00\xff\x10", json!("AP8Q"));
    check(r#"{"type":"fixed","name":"F","size":2}"#, b"\x00\xff", json!("AP8="));
}

#[test]
fn logical_types_are_shown_as_people_write_them() {
    let long = |name: &str| format!(r#"{{"type":"long","logicalType":"{name}"}}"#);
    let int = |name: &str| format!(r#"{{"type":"int","logicalType":"{name}"}}"#);
    check(&long("timestamp-millis"), b"\x02", json!("1970-01-01T00:00:00.001Z"));
    check(&long("timestamp-micros"), b"\x01", json!("1969-12-31T23:59:59.999999Z"));
    check(&long("timestamp-nanos"), b"\x02", json!("1970-01-01T00:00:00.000000001Z"));
    check(&long("local-timestamp-millis"), b"\x02", json!("1970-01-01T00:00:00.001"));
    check(&long("time-micros"), b"\x02", json!("00:00:00.000001"));
    check(&int("date"), b"\x01", json!("1969-12-31"));
    check(&int("time-millis"), b"\x02", json!("00:00:00.001"));
    let decimal = r#"{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}"#;
    check(decimal, b"\x04\xfb\x2e", json!("-12.34"));
    check(r#"{"type":"bytes","logicalType":"big-decimal"}"#, b"\x08\x04\x04\xd2\x04", json!("12.34"));
    let uuid = r#"{"type":"fixed","name":"U","size":16,"logicalType":"uuid"}"#;
    check(uuid, &1_u128.to_be_bytes(), json!("00000000-0000-0000-0000-000000000001"));
    let duration = r#"{"type":"fixed","name":"D","size":12,"logicalType":"duration"}"#;
    check(duration, b"\x01\0\0\0\x02\0\0\0\x03\0\0\0", json!({"months": 1, "days": 2, "millis": 3}));
}

#[test]
fn times_beyond_the_calendar_stay_numbers() {
    check(r#"{"type":"int","logicalType":"date"}"#, b"\xfe\xff\xff\xff\x0f", json!(i32::MAX));
    let max = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01";
    check(r#"{"type":"long","logicalType":"timestamp-millis"}"#, max, json!(i64::MAX));
    check(r#"{"type":"int","logicalType":"time-millis"}"#, b"\x01", json!(-1));
}

#[test]
fn records_maps_and_arrays_nest() {
    let schema = r#"{"type":"record","name":"E","fields":[
        {"name":"m","type":{"type":"map","values":{"type":"array","items":"boolean"}}},
        {"name":"k","type":{"type":"enum","name":"K","symbols":["A","B"]}}]}"#;
    check(schema, b"\x02\x02x\x03\x04\x01\x00\x00\x00\x02", json!({"m": {"x": [true, false]}, "k": "B"}));
}

#[test]
fn what_the_check_refuses_is_not_shown() {
    let schema = CompiledSchema::parse(1, "\"string\"", &[]).expect("a schema");
    let show = |body: &[u8]| schema.to_json(body, &Limits::default());
    assert_eq!(show(b"\x02"), Err(DecodeError::Truncated { offset: 1 }));
    assert_eq!(show(b"\x00x"), Err(DecodeError::TrailingBytes { offset: 1, left: 1 }));
    assert_eq!(show(b"\x02\xff"), Err(DecodeError::InvalidUtf8 { offset: 1 }));
}
