use crate::{CompiledSchema, DecodeError, FieldPaths, FieldValue, Limits, TimeUnit};

const ORDER: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
    {"name":"id","type":"long","aliases":["order_id"]},
    {"name":"customer","type":["null",{"type":"record","name":"Customer","fields":[
        {"name":"email","type":"string"},
        {"name":"address","type":["null",{"type":"record","name":"Address","fields":[
            {"name":"city","type":"string"}]}]}]}]},
    {"name":"billing","type":"shop.Address"},
    {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},
    {"name":"tags","type":{"type":"map","values":"string"}},
    {"name":"lines","type":{"type":"array","items":"int"}}]}"#;

// id 150, customer (email "a@b", address null), billing city "Rome", state PAID, no tags, lines [1, 2]
const DATUM: &[u8] = b"\xac\x02\x02\x06a@b\x00\x08Rome\x02\x00\x04\x02\x04\x00";

fn schema(text: &str) -> CompiledSchema {
    CompiledSchema::parse(1, text, &[]).expect("a schema")
}

/// Runs `check` and shows the values; the type's `Debug` text is what the tests compare.
fn pick(text: &str, body: &[u8], paths: &[&str]) -> Result<Vec<String>, DecodeError> {
    pick_within(text, body, paths, &Limits::default())
}

fn pick_within(text: &str, body: &[u8], paths: &[&str], limits: &Limits) -> Result<Vec<String>, DecodeError> {
    let schema = schema(text);
    let selection = schema.select(&FieldPaths::new(paths.iter().copied()).expect("sound paths"));
    let mut values = Vec::new();
    schema.check(body, &selection, limits, &mut values)?;
    Ok(values.iter().map(|value| format!("{value:?}")).collect())
}

#[test]
fn fields_are_picked_in_the_order_of_the_paths() {
    let found = pick(ORDER, DATUM, &["state", "customer.email", "id", "billing.city", "state"]);
    assert_eq!(
        found,
        Ok(["Enum(\"PAID\")", "Str(\"a@b\")", "Int(150)", "Str(\"Rome\")", "Enum(\"PAID\")"]
            .map(Into::into)
            .to_vec())
    );
}

#[test]
fn the_same_type_at_another_place_is_not_picked() {
    assert_eq!(pick(ORDER, DATUM, &["customer.address.city"]), Ok(vec!["Null".to_owned()]));
}

#[test]
fn below_a_null_everything_is_null() {
    let body = b"\xac\x02\x00\x08Rome\x02\x00\x04\x02\x04\x00";
    let found = pick(ORDER, body, &["customer", "customer.email", "customer.address.city"]);
    assert_eq!(found, Ok(vec!["Null".to_owned(); 3]));
}

#[test]
fn a_path_that_the_schema_lacks_is_missing_and_reported() {
    assert_eq!(
        pick(ORDER, DATUM, &["ide", "id.x", "lines.0", "customer.phone"]),
        Ok(vec!["Missing".to_owned(); 4])
    );
    let selection =
        schema(ORDER).select(&FieldPaths::new(["id", "ide", "billing.city"]).expect("sound paths"));
    assert_eq!(selection.unresolved(), [1]);
}

#[test]
fn a_record_and_a_collection_are_no_scalars() {
    let found = pick(ORDER, DATUM, &["customer", "billing", "tags", "lines", "customer.email"]);
    assert_eq!(found.expect("sound"), ["NotScalar", "NotScalar", "NotScalar", "NotScalar", "Str(\"a@b\")"]);
}

#[test]
fn a_renamed_field_is_found_by_its_alias() {
    assert_eq!(pick(ORDER, DATUM, &["order_id"]), Ok(vec!["Int(150)".to_owned()]));
}

#[test]
fn a_branch_without_the_field_is_missing_it() {
    let union = r#"{"type":"record","name":"E","fields":[{"name":"of","type":[
        {"type":"record","name":"A","fields":[{"name":"x","type":"int"}]},
        {"type":"record","name":"B","fields":[{"name":"y","type":"int"},{"name":"x","type":"string"}]},
        "string"]}]}"#;
    assert_eq!(pick(union, b"\x00\x02", &["of.x", "of.y"]).expect("sound"), ["Int(1)", "Missing"]);
    assert_eq!(pick(union, b"\x02\x02\x02z", &["of.x", "of.y"]).expect("sound"), ["Str(\"z\")", "Int(1)"]);
    assert_eq!(pick(union, b"\x04\x02z", &["of", "of.y"]).expect("sound"), ["Str(\"z\")", "Missing"]);
}

#[test]
fn logical_types_keep_their_meaning() {
    let text = r#"{"type":"record","name":"E","fields":[
        {"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
        {"name":"day","type":{"type":"int","logicalType":"date"}},
        {"name":"price","type":{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}},
        {"name":"id","type":{"type":"string","logicalType":"uuid"}},
        {"name":"ref","type":{"type":"fixed","name":"Ref","size":16,"logicalType":"uuid"}}]}"#;
    let id = "00000000-0000-0000-0000-0000000000FF";
    let body = [b"\x02\x04\x02\x7f\x48", id.as_bytes(), &[0; 15], &[0xff]].concat();
    let schema = schema(text);
    let selection =
        schema.select(&FieldPaths::new(["at", "day", "price", "id", "ref"]).expect("sound paths"));
    let mut values = Vec::new();
    schema.check(&body, &selection, &Limits::default(), &mut values).expect("sound");
    let uuid = FieldValue::Uuid(255_u128.to_be_bytes());
    let at = FieldValue::Timestamp { value: 1, unit: TimeUnit::Micros };
    assert_eq!(
        values,
        [at, FieldValue::Date(2), FieldValue::Decimal { unscaled: &[0x7f], scale: 2 }, uuid, uuid]
    );
}

#[test]
fn a_uuid_that_is_none_stays_a_string() {
    assert_eq!(
        pick(
            r#"{"type":"record","name":"E","fields":[{"name":"id","type":{"type":"string","logicalType":"uuid"}}]}"#,
            b"\x02x",
            &["id"]
        ),
        Ok(vec!["Str(\"x\")".to_owned()])
    );
}

#[test]
fn every_strict_prefix_is_refused() {
    for length in 0..DATUM.len() {
        for paths in [&[][..], &["id", "customer.address.city", "lines"]] {
            assert!(pick(ORDER, &DATUM[..length], paths).is_err(), "{length} bytes");
        }
    }
}

#[test]
fn a_byte_left_over_is_refused() {
    let body = [DATUM, &[0]].concat();
    assert_eq!(pick(ORDER, &body, &[]), Err(DecodeError::TrailingBytes { offset: DATUM.len(), left: 1 }));
    assert_eq!(pick(ORDER, &body, &["id"]), Err(DecodeError::TrailingBytes { offset: DATUM.len(), left: 1 }));
}

#[test]
fn branches_and_symbols_that_do_not_exist_are_refused() {
    assert_eq!(
        pick(r#"["null","int"]"#, b"\x04\x00", &[]),
        Err(DecodeError::BadBranch { offset: 0, found: 2, known: 2 })
    );
    assert_eq!(
        pick(r#"["null","int"]"#, b"\x01\x00", &[]),
        Err(DecodeError::BadBranch { offset: 0, found: -1, known: 2 })
    );
    let symbols = r#"{"type":"enum","name":"E","symbols":["A"]}"#;
    assert_eq!(pick(symbols, b"\x02", &[]), Err(DecodeError::BadSymbol { offset: 0, found: 1, known: 1 }));
}

const LIST: &str = r#"{"type":"record","name":"Node","fields":[{"name":"next","type":["null","Node"]}]}"#;

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| [vec![2; levels - 1], vec![0]].concat();
    assert_eq!(pick(LIST, &nested(64), &[]), Ok(vec![]));
    assert_eq!(pick(LIST, &nested(65), &[]), Err(DecodeError::TooDeep { offset: 64, limit: 64 }));
    assert_eq!(
        pick(LIST, &nested(1_000_000), &["next.next"]),
        Err(DecodeError::TooDeep { offset: 64, limit: 64 })
    );
    let shallow = Limits { max_depth: 3, ..Limits::default() };
    assert!(pick_within(LIST, &nested(4), &[], &shallow).is_err());
}

#[test]
fn a_record_that_contains_itself_has_no_datum() {
    let endless = r#"{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}"#;
    assert_eq!(pick(endless, b"", &[]), Err(DecodeError::TooDeep { offset: 0, limit: 64 }));
}

#[test]
fn nulls_without_number_are_refused_at_once() {
    let body = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20, 0];
    let refused = Err(DecodeError::TooManyItems { limit: 1 << 20 });
    assert_eq!(pick(r#"{"type":"array","items":"null"}"#, &body, &[]), refused);
    assert_eq!(pick(r#"{"type":"map","values":"null"}"#, &body, &[]), refused);
}

#[test]
fn records_of_no_bytes_cannot_multiply_without_bound() {
    // Each type holds the one before eight times: an empty datum stands for 8^20 records.
    let mut text = r#"{"type":"record","name":"R0","fields":[]}"#.to_owned();
    for level in 1..=20 {
        let again: String =
            (1..8).map(|n| format!(r#",{{"name":"f{n}","type":"R{}"}}"#, level - 1)).collect();
        text = format!(
            r#"{{"type":"record","name":"R{level}","fields":[{{"name":"f0","type":{text}}}{again}]}}"#
        );
    }
    assert_eq!(pick(&text, b"", &[]), Err(DecodeError::TooManyItems { limit: 1 << 20 }));
}

#[test]
fn a_datum_beyond_the_size_limit_is_refused() {
    let limits = Limits { max_bytes: 3, ..Limits::default() };
    assert_eq!(
        pick_within("\"string\"", b"\x06abc", &[], &limits),
        Err(DecodeError::TooLarge { length: 4, limit: 3 })
    );
}

#[test]
fn a_selection_of_another_schema_is_refused() {
    let (one, other) = (schema(ORDER), schema(ORDER));
    let selection = one.select(&FieldPaths::default());
    assert_eq!(
        other.check(DATUM, &selection, &Limits::default(), &mut Vec::new()),
        Err(DecodeError::ForeignSelection)
    );
}

#[test]
fn a_block_that_states_its_size_is_held_to_it() {
    // Two longs, 150 and 1, in three bytes.
    let block =
        |size: u8| pick(r#"{"type":"array","items":"long"}"#, &[3, size * 2, 0xac, 0x02, 0x02, 0], &[]);
    assert_eq!(block(3), Ok(vec![]));
    for size in [0, 2, 4, 60] {
        assert_eq!(block(size), Err(DecodeError::BlockSize { offset: 0 }), "{size} bytes");
    }
}
