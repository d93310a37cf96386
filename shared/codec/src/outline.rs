//! A schema's fields as a person names them in a configuration.

use crate::plan::{BytesKind, IntKind, LongKind, Node, NodeId, Plan, StringKind, TimeUnit};

/// A field that a path can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutlinedField {
    /// The path: `customer.id`.
    pub path: String,
    /// The type, for people: `string`, `timestamp-millis`, a named type's full name.
    pub type_name: String,
    /// Whether it is a single value, rather than an array, a map or a record.
    pub is_value: bool,
    /// Whether an event may have null there, or on the way there.
    pub may_be_null: bool,
}

/// Deeper than anybody names a field.
const DEEPEST: usize = 8;
/// A schema that nests itself in several fields has far more paths than anybody reads.
const MOST: usize = 1000;

/// All fields that a path can name, in the writer's order; a record stands before its fields. Of a type that contains itself, the
/// fields down to a depth that nobody names.
pub(crate) fn outline(plan: &Plan) -> Vec<OutlinedField> {
    let mut outline = Vec::new();
    let mut open: Vec<NodeId> = Vec::new();
    record_fields(plan, plan.root(), "", false, &mut open, &mut outline);
    outline
}

fn record_fields(
    plan: &Plan,
    node: NodeId,
    prefix: &str,
    may_be_null: bool,
    open: &mut Vec<NodeId>,
    outline: &mut Vec<OutlinedField>,
) {
    let Node::Record { record, fields } = plan.node(node) else { return };
    if open.contains(&node) || open.len() >= DEEPEST {
        return;
    }
    open.push(node);
    for (field, id) in plan.record(record).fields.iter().zip(plan.children(fields)) {
        if outline.len() >= MOST {
            break;
        }
        let path = format!("{prefix}{}", field.name);
        let (branches, has_null) = branches(plan, *id);
        let may_be_null = may_be_null || has_null;
        outline.push(OutlinedField {
            path: path.clone(),
            type_name: branches.iter().map(|id| type_name(plan, *id)).collect::<Vec<_>>().join(" or "),
            is_value: branches.iter().any(|id| is_value(plan.node(*id))),
            may_be_null,
        });
        for branch in branches {
            record_fields(plan, branch, &format!("{path}."), may_be_null, open, outline);
        }
    }
    open.pop();
}

/// The types that a value can have, and whether null is another.
fn branches(plan: &Plan, id: NodeId) -> (Vec<NodeId>, bool) {
    let Node::Union(span) = plan.node(id) else { return (vec![id], false) };
    let all = plan.children(span);
    let others: Vec<NodeId> = all.iter().copied().filter(|id| plan.node(*id) != Node::Null).collect();
    let has_null = others.len() < all.len();
    (others, has_null)
}

fn is_value(node: Node) -> bool {
    !matches!(node, Node::Array(_) | Node::Map(_) | Node::Record { .. } | Node::Union(_) | Node::Null)
}

fn type_name(plan: &Plan, id: NodeId) -> String {
    let logical = match plan.node(id) {
        Node::Int(IntKind::Date) => "date",
        Node::Int(IntKind::TimeMillis) => "time-millis",
        Node::Long(LongKind::TimeMicros) => "time-micros",
        Node::Long(LongKind::Timestamp(unit)) => return format!("timestamp-{}", unit_name(unit)),
        Node::Long(LongKind::LocalTimestamp(unit)) => return format!("local-timestamp-{}", unit_name(unit)),
        Node::String(StringKind::Uuid) | Node::Bytes(BytesKind::Uuid) => "uuid",
        Node::Bytes(BytesKind::Decimal { .. } | BytesKind::BigDecimal) => "decimal",
        _ => plan.type_name(id),
    };
    logical.to_owned()
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Millis => "millis",
        TimeUnit::Micros => "micros",
        TimeUnit::Nanos => "nanos",
    }
}

#[cfg(test)]
mod tests {
    use crate::CompiledSchema;

    fn outline(fields: &str) -> Vec<(String, String, bool, bool)> {
        let text = format!(r#"{{"type":"record","name":"E","namespace":"t","fields":[{fields}]}}"#);
        let schema = CompiledSchema::parse(1, &text, &[]).unwrap();
        schema.outline().into_iter().map(|f| (f.path, f.type_name, f.is_value, f.may_be_null)).collect()
    }

    fn row(path: &str, type_name: &str, is_value: bool, may_be_null: bool) -> (String, String, bool, bool) {
        (path.to_owned(), type_name.to_owned(), is_value, may_be_null)
    }

    #[test]
    fn fields_are_listed_with_what_a_key_can_make_of_them() {
        let found = outline(
            r#"{"name":"id","type":{"type":"string","logicalType":"uuid"}},
               {"name":"at","type":{"type":"long","logicalType":"timestamp-micros"}},
               {"name":"note","type":["null","string"]},
               {"name":"lines","type":{"type":"array","items":"string"}},
               {"name":"who","type":["null",{"type":"record","name":"Who","fields":[{"name":"id","type":"long"}]}]},
               {"name":"either","type":["long","string"]}"#,
        );
        let expected = [
            row("id", "uuid", true, false),
            row("at", "timestamp-micros", true, false),
            row("note", "string", true, true),
            row("lines", "array", false, false),
            row("who", "t.Who", false, true),
            row("who.id", "long", true, true),
            row("either", "long or string", true, false),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_type_that_contains_itself_ends() {
        let found = outline(r#"{"name":"id","type":"long"},{"name":"next","type":["null","E"]}"#);
        assert_eq!(found, [row("id", "long", true, false), row("next", "t.E", false, true)]);
    }

    #[test]
    fn what_is_listed_can_be_selected() {
        let text = r#"{"type":"record","name":"E","fields":[{"name":"a","type":
            {"type":"record","name":"A","fields":[{"name":"b","type":"int"},{"name":"c","type":["null","string"]}]}}]}"#;
        let schema = CompiledSchema::parse(1, text, &[]).unwrap();
        let paths: Vec<String> = schema.outline().into_iter().map(|field| field.path).collect();
        assert_eq!(paths, ["a", "a.b", "a.c"]);
        let selection = schema.select(&crate::FieldPaths::new(paths).unwrap());
        assert!(selection.unresolved().is_empty());
    }
}
