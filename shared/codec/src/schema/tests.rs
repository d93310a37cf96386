use super::*;

fn parse(text: &str) -> Result<CompiledSchema, SchemaError> {
    CompiledSchema::parse(7, text, &[])
}

#[test]
fn a_schema_tells_its_name_and_fields() {
    let text =
        r#"{"type":"record","name":"Paid","namespace":"shop.v1","fields":[{"name":"id","type":"long"}]}"#;
    let schema = parse(text).expect("a schema");
    assert_eq!((schema.id(), schema.full_name(), schema.raw()), (7, "shop.v1.Paid", text));
    assert_eq!(schema.field_names().collect::<Vec<_>>(), ["id"]);
    assert_eq!(parse("\"string\"").expect("a schema").full_name(), "string");
}

#[test]
fn the_fingerprint_ignores_what_does_not_change_the_bytes() {
    let fingerprint = |text| parse(text).expect("a schema").fingerprint();
    let plain = fingerprint(r#"{"type":"record","name":"E","fields":[{"name":"id","type":"long"}]}"#);
    let same = fingerprint(
        r#"{"name":"E","doc":"x","type":"record","fields":[{"type":"long","name":"id","doc":"y"}]}"#,
    );
    let other = fingerprint(r#"{"type":"record","name":"E","fields":[{"name":"id","type":"int"}]}"#);
    assert_eq!(plain, same);
    assert_ne!(plain, other);
}

#[test]
fn a_text_that_is_no_schema_is_refused() {
    for text in
        ["", "{", "1", "\"nothing\"", r#"{"type":"record"}"#, r#"{"type":"record","name":"E","fields":3}"#]
    {
        assert!(matches!(parse(text), Err(SchemaError::Unparsable(_))), "{text}");
    }
    let deep = format!("{}\"int\"{}", r#"{"type":"array","items":"#.repeat(500), "}".repeat(500));
    assert!(matches!(parse(&deep), Err(SchemaError::Unparsable(_))));
}

#[test]
fn defaults_that_the_parser_refuses_do_not_keep_events_from_being_read() {
    let text = r#"{"type":"record","name":"E","fields":[
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":4,"scale":2},"default":"\u0000"},
        {"name":"n","type":"int","default":"zero"}]}"#;
    let schema = parse(text).expect("a schema");
    let value = schema.to_json(b"\x02\x01\x04", &Limits::default());
    assert_eq!(value, Ok(serde_json::json!({"price": "0.01", "n": 2})));
}

#[test]
fn a_panic_of_the_parser_is_an_invalid_schema() {
    let result: Result<(), _> = contain_panics(|| panic!("odd schema"));
    assert!(matches!(result, Err(SchemaError::Unparsable(_))));
}

#[test]
fn an_event_carries_its_schema_and_bytes() {
    let schema =
        parse(r#"{"type":"record","name":"E","fields":[{"name":"id","type":"long"}]}"#).expect("a schema");
    let event = Decoded { schema: &schema, body: b"\x02", limits: Limits::default() };
    assert_eq!(event.to_json(), Ok(serde_json::json!({"id": 1})));
    assert_eq!(event.decode::<std::collections::BTreeMap<String, i64>>(), Ok([("id".to_owned(), 1)].into()));
}
