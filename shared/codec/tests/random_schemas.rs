//! Schemas and values at random, written by apache-avro: what it writes is read, what is damaged is refused,
//! what is noise does no harm.

use apache_avro::Schema;
use apache_avro::types::Value;
use apache_avro::writer::datum::GenericDatumWriter;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value as Json, json};
use tidegate_codec::{CompiledSchema, DecodeError, FieldPaths, FieldValue, Limits};

/// A type and a way to make values of it.
#[derive(Debug, Clone)]
enum Type {
    Null,
    Boolean,
    Int,
    Long,
    Double,
    String,
    Bytes,
    Timestamp,
    Fixed,
    Enum,
    Array(Box<Type>),
    Map(Box<Type>),
    Nullable(Box<Type>),
    Record(Vec<Type>),
}

fn any_type() -> impl Strategy<Value = Type> {
    let leaf = prop_oneof![
        Just(Type::Null),
        Just(Type::Boolean),
        Just(Type::Int),
        Just(Type::Long),
        Just(Type::Double),
        Just(Type::String),
        Just(Type::Bytes),
        Just(Type::Timestamp),
        Just(Type::Fixed),
        Just(Type::Enum),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            inner.clone().prop_map(|item| Type::Array(Box::new(item))),
            inner.clone().prop_map(|value| Type::Map(Box::new(value))),
            inner.clone().prop_filter_map("a union in a union", |inner| match inner {
                Type::Null | Type::Nullable(_) => None,
                other => Some(Type::Nullable(Box::new(other))),
            }),
            vec(inner, 0..5).prop_map(Type::Record),
        ]
    })
}

/// The schema's JSON; named types are numbered.
fn schema_of(kind: &Type, names: &mut usize) -> Json {
    *names += 1;
    let name = format!("T{names}");
    match kind {
        Type::Null => json!("null"),
        Type::Boolean => json!("boolean"),
        Type::Int => json!("int"),
        Type::Long => json!("long"),
        Type::Double => json!("double"),
        Type::String => json!("string"),
        Type::Bytes => json!("bytes"),
        Type::Timestamp => json!({"type": "long", "logicalType": "timestamp-millis"}),
        Type::Fixed => json!({"type": "fixed", "name": name, "size": 3}),
        Type::Enum => json!({"type": "enum", "name": name, "symbols": ["A", "B", "C"]}),
        Type::Array(item) => json!({"type": "array", "items": schema_of(item, names)}),
        Type::Map(value) => json!({"type": "map", "values": schema_of(value, names)}),
        Type::Nullable(inner) => json!(["null", schema_of(inner, names)]),
        Type::Record(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .enumerate()
                .map(|(index, field)| json!({"name": format!("f{index}"), "type": schema_of(field, names)}))
                .collect();
            json!({"type": "record", "name": name, "fields": fields})
        }
    }
}

fn value_of(kind: &Type) -> BoxedStrategy<Value> {
    match kind {
        Type::Null => Just(Value::Null).boxed(),
        Type::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Type::Int => any::<i32>().prop_map(Value::Int).boxed(),
        Type::Long => any::<i64>().prop_map(Value::Long).boxed(),
        Type::Double => any::<f64>().prop_map(Value::Double).boxed(),
        Type::String => ".{0,12}".prop_map(Value::String).boxed(),
        Type::Bytes => vec(any::<u8>(), 0..12).prop_map(Value::Bytes).boxed(),
        Type::Timestamp => any::<i64>().prop_map(Value::TimestampMillis).boxed(),
        Type::Fixed => vec(any::<u8>(), 3).prop_map(|bytes| Value::Fixed(3, bytes)).boxed(),
        Type::Enum => {
            (0_u32..3).prop_map(|index| Value::Enum(index, ["A", "B", "C"][index as usize].into())).boxed()
        }
        Type::Array(item) => vec(value_of(item), 0..4).prop_map(Value::Array).boxed(),
        Type::Map(value) => {
            proptest::collection::hash_map("[a-z]{0,3}", value_of(value), 0..4).prop_map(Value::Map).boxed()
        }
        Type::Nullable(inner) => prop_oneof![
            Just(Value::Union(0, Box::new(Value::Null))),
            value_of(inner).prop_map(|value| Value::Union(1, Box::new(value))),
        ]
        .boxed(),
        Type::Record(fields) => {
            let fields: Vec<_> = fields.iter().map(value_of).collect();
            fields
                .prop_map(|values| {
                    let named =
                        values.into_iter().enumerate().map(|(index, value)| (format!("f{index}"), value));
                    Value::Record(named.collect())
                })
                .boxed()
        }
    }
}

/// What the value should look like as JSON, told without this crate; `None` where only the crate's own tests say.
fn json_of(value: &Value) -> Option<Json> {
    Some(match value {
        Value::Null => Json::Null,
        Value::Boolean(value) => json!(value),
        Value::Int(value) => json!(value),
        Value::Long(value) => json!(value),
        Value::Double(value) if value.is_finite() => json!(value),
        Value::String(text) | Value::Enum(_, text) => json!(text),
        Value::Array(items) => Json::Array(items.iter().map(json_of).collect::<Option<_>>()?),
        Value::Map(entries) => Json::Object(
            entries.iter().map(|(key, value)| Some((key.clone(), json_of(value)?))).collect::<Option<_>>()?,
        ),
        Value::Union(_, inner) => json_of(inner)?,
        Value::Record(fields) => Json::Object(
            fields
                .iter()
                .map(|(name, value)| Some((name.clone(), json_of(value)?)))
                .collect::<Option<_>>()?,
        ),
        _ => return None,
    })
}

#[derive(Debug)]
struct Case {
    schema: CompiledSchema,
    value: Value,
    datum: Vec<u8>,
}

fn any_case() -> impl Strategy<Value = Case> {
    vec(any_type(), 1..6).prop_map(Type::Record).prop_flat_map(|kind| {
        let text = schema_of(&kind, &mut 0).to_string();
        value_of(&kind).prop_map(move |value| {
            let schema = Schema::parse_str(&text).expect("a schema");
            let writer = GenericDatumWriter::builder(&schema).build().expect("a writer");
            let datum = writer.write_value_to_vec(value.clone()).expect("a datum");
            Case { schema: CompiledSchema::parse(1, &text, &[]).expect("a schema"), value, datum }
        })
    })
}

const PATHS: [&str; 6] = ["f0", "f1", "f0.f0", "f0.f1", "f1.f0.f0", "f2"];

/// Reads the datum in every way there is; all agree on whether it is sound.
fn read_all(schema: &CompiledSchema, datum: &[u8], limits: &Limits) -> Result<Json, DecodeError> {
    let paths = schema.select(&FieldPaths::new(PATHS).expect("sound paths"));
    let nothing = schema.select(&FieldPaths::default());
    let mut values: Vec<FieldValue<'_>> = Vec::new();
    let picked = schema.check(datum, &paths, limits, &mut values);
    let checked = schema.check(datum, &nothing, limits, &mut Vec::new());
    let shown = schema.to_json(datum, limits);
    let ignored = schema.decode::<serde::de::IgnoredAny>(datum, limits).map(drop);
    assert_eq!(picked, checked);
    assert_eq!(checked, ignored);
    assert_eq!(checked, shown.as_ref().map(drop).map_err(Clone::clone));
    shown
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_apache_avro_writes_is_read(case in any_case()) {
        let shown = read_all(&case.schema, &case.datum, &Limits::default());
        let shown = shown.map_err(|error| TestCaseError::fail(error.to_string()))?;
        if let Some(expected) = json_of(&case.value) {
            prop_assert_eq!(&shown, &expected);
            // Without logical types and bytes serde's own value sees the same.
            let typed = case.schema.decode::<Json>(&case.datum, &Limits::default());
            prop_assert_eq!(typed, Ok(expected));
        }
    }

    #[test]
    fn what_is_shown_can_be_written_again(case in any_case()) {
        let shown = case.schema.to_json(&case.datum, &Limits::default()).expect("sound");
        let written = case.schema.encode_json(&shown).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(case.schema.to_json(&written, &Limits::default()), Ok(shown));
        prop_assert_eq!(written.len(), case.datum.len());
    }

    #[test]
    fn every_strict_prefix_and_every_longer_datum_is_refused(case in any_case(), extra: u8) {
        for length in 0..case.datum.len() {
            prop_assert!(read_all(&case.schema, &case.datum[..length], &Limits::default()).is_err());
        }
        let longer = [case.datum.as_slice(), &[extra]].concat();
        prop_assert!(read_all(&case.schema, &longer, &Limits::default()).is_err());
    }

    #[test]
    fn a_damaged_datum_is_read_one_way_or_refused(case in any_case(), at: prop::sample::Index, byte: u8) {
        let mut datum = case.datum.clone();
        if !datum.is_empty() {
            let at = at.index(datum.len());
            datum[at] = byte;
        }
        // Whatever the answer is, all readers give the same and none panics.
        let _answer = read_all(&case.schema, &datum, &Limits { max_items: 10_000, ..Limits::default() });
    }

    #[test]
    fn noise_does_no_harm(kind in any_type(), noise in vec(any::<u8>(), 0..200)) {
        let text = schema_of(&kind, &mut 0).to_string();
        let schema = CompiledSchema::parse(1, &text, &[]).expect("a schema");
        let _answer = read_all(&schema, &noise, &Limits { max_items: 10_000, ..Limits::default() });
    }

    #[test]
    fn text_that_is_no_schema_does_no_harm(text in "[\\[\\]{}\":,a-z ]{0,60}") {
        let _answer = CompiledSchema::parse(1, &text, &[]);
    }
}
