//! Where in the schema a datum goes wrong: a second walk, taken only when the first one has failed, that keeps
//! the path which the fast one has no time for.

use crate::cursor::Cursor;
use crate::error::DecodeError;
use crate::plan::{Node, NodeId, Plan, Span};
use crate::walk::skip;

/// The dotted path of the value that the error is about; empty for the event as a whole.
pub(crate) fn locate(plan: &Plan, cursor: &mut Cursor<'_>) -> String {
    let mut path = Vec::new();
    match walk(plan, cursor, plan.root(), &mut path) {
        Err(_) => path.join(".").replace(".[", "["),
        Ok(()) => String::new(),
    }
}

/// On an error `path` stays as it was at that place.
fn walk(
    plan: &Plan,
    cursor: &mut Cursor<'_>,
    node: NodeId,
    path: &mut Vec<String>,
) -> Result<(), DecodeError> {
    match plan.node(node) {
        Node::Record { record, fields } => walk_record(plan, cursor, (record, fields), path),
        Node::Array(item) => walk_items(plan, cursor, item, path, |_, index| Ok(format!("[{index}]"))),
        Node::Map(value) => {
            walk_items(plan, cursor, value, path, |cursor, _| cursor.string().map(str::to_owned))
        }
        Node::Union(branches) => {
            let branches = plan.children(branches);
            let branch = branches[cursor.branch(branches.len())?];
            walk(plan, cursor, branch, path)
        }
        _ => skip(plan, cursor, node),
    }
}

fn walk_record(
    plan: &Plan,
    cursor: &mut Cursor<'_>,
    (record, fields): (u32, Span),
    path: &mut Vec<String>,
) -> Result<(), DecodeError> {
    let fields = plan.children(fields);
    cursor.enter()?;
    cursor.charge(fields.len() as u64)?;
    for (field, node) in plan.record(record).fields.iter().zip(fields) {
        path.push(field.name.clone());
        walk(plan, cursor, *node, path)?;
        path.pop();
    }
    cursor.leave();
    Ok(())
}

fn walk_items<'a>(
    plan: &Plan,
    cursor: &mut Cursor<'a>,
    item: NodeId,
    path: &mut Vec<String>,
    name: impl Fn(&mut Cursor<'a>, usize) -> Result<String, DecodeError>,
) -> Result<(), DecodeError> {
    cursor.enter()?;
    let (mut blocks, mut index) = (cursor.blocks()?, 0);
    while cursor.next_item(&mut blocks)? {
        let name = name(cursor, index)?;
        path.push(name);
        walk(plan, cursor, item, path)?;
        path.pop();
        index += 1;
    }
    cursor.leave();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{CompiledSchema, Limits};

    fn locate(datum: &[u8]) -> String {
        let text = r#"{"type":"record","name":"E","fields":[
            {"name":"id","type":"long"},
            {"name":"lines","type":{"type":"array","items":{"type":"record","name":"L","fields":[
                {"name":"sku","type":["null","string"]}]}}},
            {"name":"tags","type":{"type":"map","values":"boolean"}}]}"#;
        CompiledSchema::parse(1, text, &[]).expect("a schema").locate(datum, &Limits::default())
    }

    #[test]
    fn the_field_that_is_wrong_is_named() {
        assert_eq!(locate(b""), "id");
        assert_eq!(locate(b"\x02\x04\x00\x02\x02\xff\x00\x00"), "lines[1].sku");
        assert_eq!(locate(b"\x02\x04\x00\x06"), "lines[1].sku");
        assert_eq!(locate(b"\x02\x00\x02\x02x\x07"), "tags.x");
    }

    #[test]
    fn an_event_that_is_sound_or_too_long_is_wrong_nowhere() {
        assert_eq!(locate(b"\x02\x00\x00"), "");
        assert_eq!(locate(b"\x02\x00\x00\x00"), "");
    }
}
