//! Field paths compiled against a schema: for every record on the way, which of its fields to look at.

use crate::field::FieldPaths;
use crate::plan::{Node, NodeId, Plan};

/// Paths compiled for one schema by [`crate::CompiledSchema::select`]; keep it beside the schema.
#[derive(Debug, Clone)]
pub struct Selection {
    pub(crate) schema: u64,
    pub(crate) slots: usize,
    pub(crate) root: Pick,
    unresolved: Vec<usize>,
}

impl Selection {
    /// The positions of the paths that the schema doesn't have, in any branch.
    pub fn unresolved(&self) -> &[usize] {
        &self.unresolved
    }

    /// Compiles the paths; `schema` is the plan's identity.
    pub(crate) fn compile(plan: &Plan, schema: u64, paths: &FieldPaths) -> Self {
        let wanted: Vec<_> =
            paths.iter().enumerate().map(|(slot, path)| Wanted { slot, rest: Some(path) }).collect();
        let mut found = vec![false; wanted.len()];
        let root = Pick::compile(plan, plan.root(), &wanted, &mut found);
        let unresolved = (0..found.len()).filter(|slot| !found[*slot]).collect();
        Self { schema, slots: found.len(), root, unresolved }
    }
}

/// What to do with a value that lies on a path.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pick {
    /// The slots that take this value.
    pub(crate) here: Box<[usize]>,
    /// These and all slots below: what a null here makes null.
    pub(crate) all: Box<[usize]>,
    /// What to pick from within, for each branch of a union; of another type there is one.
    pub(crate) within: Box<[Fields]>,
}

/// The picked fields of a record by position, ascending; empty if the branch is no record or has none of them.
pub(crate) type Fields = Box<[(usize, Pick)]>;

/// A path that has been followed up to some value: the rest of it is `None` at the path's end.
#[derive(Clone, Copy)]
struct Wanted<'p> {
    slot: usize,
    rest: Option<&'p str>,
}

impl Pick {
    fn compile(plan: &Plan, node: NodeId, wanted: &[Wanted<'_>], found: &mut [bool]) -> Self {
        let here: Box<[usize]> = wanted.iter().filter(|w| w.rest.is_none()).map(|w| w.slot).collect();
        for slot in &here {
            found[*slot] = true;
        }
        let within: Box<[Fields]> = match plan.node(node) {
            Node::Union(branches) => {
                plan.children(branches).iter().map(|branch| fields(plan, *branch, wanted, found)).collect()
            }
            _ => [fields(plan, node, wanted, found)].into_iter().collect(),
        };
        Self { here, all: wanted.iter().map(|w| w.slot).collect(), within }
    }
}

fn fields(plan: &Plan, node: NodeId, wanted: &[Wanted<'_>], found: &mut [bool]) -> Fields {
    let Node::Record { record, fields } = plan.node(node) else { return Box::default() };
    let mut by_field: Vec<(usize, Vec<Wanted<'_>>)> = Vec::new();
    for Wanted { slot, rest } in wanted.iter().copied() {
        let Some(path) = rest else { continue };
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        let Some(position) = plan.record(record).position(name) else { continue };
        match by_field.iter_mut().find(|(known, _)| *known == position) {
            Some((_, under)) => under.push(Wanted { slot, rest }),
            None => by_field.push((position, vec![Wanted { slot, rest }])),
        }
    }
    by_field.sort_by_key(|(position, _)| *position);
    let children = plan.children(fields);
    by_field
        .into_iter()
        .map(|(position, under)| (position, Pick::compile(plan, children[position], &under, found)))
        .collect()
}
