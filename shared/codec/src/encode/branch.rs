//! Which branch of a union a JSON value means. Plain JSON doesn't say; the branch that fits it most closely is
//! taken, and `{"branch": value}` says it where that is not what is meant.

use serde_json::Value;

use super::{EncodeError, Encoder, describe_value, double};
use crate::plan::{BytesKind, IntKind, LongKind, Node, NodeId, Span, StringKind};
use crate::{json, uuid};

impl Encoder<'_> {
    pub(super) fn union(&mut self, branches: Span, value: &Value) -> Result<(), EncodeError> {
        let branches = self.plan.children(branches);
        let mut candidates: Vec<(u8, usize)> = branches
            .iter()
            .enumerate()
            .filter_map(|(index, branch)| Some((self.closeness(*branch, value)?, index)))
            .collect();
        candidates.sort_unstable();
        let mut first_error = None;
        for (_, index) in &candidates {
            match self.branch(*index, branches[*index], value) {
                Ok(()) => return Ok(()),
                Err(error) => {
                    first_error.get_or_insert(error);
                }
            }
        }
        if let Some((index, inner)) = self.tagged(branches, value) {
            return self.branch(index, branches[index], inner);
        }
        match (first_error, candidates.len()) {
            // With one candidate there is no doubt about what was meant, so its own error says more.
            (Some(error), 1) => Err(error),
            _ => Err(EncodeError::WrongValue {
                path: self.at(),
                expected: self.describe_branches(branches),
                found: describe_value(value),
            }),
        }
    }

    /// Writes the value as the branch, or leaves no trace.
    fn branch(&mut self, index: usize, node: NodeId, value: &Value) -> Result<(), EncodeError> {
        self.attempts =
            self.attempts.checked_sub(1).ok_or_else(|| EncodeError::TooDeep { path: self.at() })?;
        let (written, depth, notation) = (self.out.len(), self.path.len(), self.notation);
        self.long(index as i64);
        let done = self.value(node, value);
        if done.is_err() {
            self.out.truncate(written);
            self.path.truncate(depth);
            self.notation = notation;
        }
        done
    }

    /// The branch that an object with a single key names, in full or by its last part.
    fn tagged<'v>(&self, branches: &[NodeId], value: &'v Value) -> Option<(usize, &'v Value)> {
        let object = value.as_object().filter(|object| object.len() == 1)?;
        let (tag, inner) = object.iter().next()?;
        let names = |index: usize| self.plan.type_name(branches[index]);
        let short = |index: usize| names(index).rsplit('.').next().unwrap_or_default();
        let by_full_name = (0..branches.len()).find(|index| names(*index) == tag);
        by_full_name
            .or_else(|| (0..branches.len()).find(|index| short(*index) == tag))
            .map(|index| (index, inner))
    }

    /// How closely a branch's type fits the value, 0 being closest; `None`: not at all. Whether a record fits
    /// is seen by trying.
    fn closeness(&self, branch: NodeId, value: &Value) -> Option<u8> {
        match (self.plan.node(branch), value) {
            (Node::Null, Value::Null)
            | (Node::Boolean, Value::Bool(_))
            | (Node::Array(_), Value::Array(_)) => Some(0),
            (Node::Record { .. }, Value::Object(_)) => Some(0),
            (Node::Map(_), Value::Object(_)) => Some(1),
            (Node::Fixed { kind: BytesKind::Duration, .. }, Value::Object(_)) => Some(0),
            (node, Value::Number(_)) => closeness_of_number(node, value),
            (node, Value::String(text)) => self.closeness_of_text(node, text),
            _ => None,
        }
    }

    fn closeness_of_text(&self, node: Node, text: &str) -> Option<u8> {
        match node {
            Node::Enum(index) => self.plan.symbols(index).iter().any(|symbol| symbol == text).then_some(0),
            Node::String(StringKind::Uuid) => Some(if uuid::parse(text).is_some() { 0 } else { 3 }),
            Node::String(StringKind::Plain) => Some(2),
            // Texts of dates, times, numbers and UUIDs are distinct enough to go before plain strings.
            Node::Int(kind) if kind != IntKind::Plain => super::int(kind, &Value::from(text)).map(|_| 1),
            Node::Long(kind) if kind != LongKind::Plain => super::long(kind, &Value::from(text)).map(|_| 1),
            Node::Double => double(&Value::from(text)).map(|_| 3),
            Node::Float => double(&Value::from(text)).map(|_| 4),
            Node::Bytes(kind) | Node::Fixed { kind, .. } => Some(match kind {
                BytesKind::Uuid if uuid::parse(text).is_some() => 1,
                BytesKind::Decimal { .. } | BytesKind::BigDecimal => 5,
                _ => 6,
            }),
            _ => None,
        }
    }

    fn describe_branches(&self, branches: &[NodeId]) -> String {
        let mut names: Vec<_> = branches.iter().map(|branch| self.describe(*branch)).collect();
        names.dedup();
        names.join(" or ")
    }
}

fn closeness_of_number(node: Node, value: &Value) -> Option<u8> {
    let whole = value.as_i64();
    match node {
        Node::Int(kind) => {
            let fits = whole.is_some_and(|value| i32::try_from(value).is_ok());
            fits.then_some(if kind == IntKind::Plain { 0 } else { 3 })
        }
        Node::Long(kind) => whole.is_some().then_some(if kind == LongKind::Plain { 1 } else { 4 }),
        // A float that loses digits comes after every type that keeps them.
        Node::Float => Some(if json::same_as_float(value) { 5 } else { 8 }),
        Node::Double => Some(6),
        Node::Bytes(kind) | Node::Fixed { kind, .. } => {
            matches!(kind, BytesKind::Decimal { .. } | BytesKind::BigDecimal).then_some(7)
        }
        _ => None,
    }
}
