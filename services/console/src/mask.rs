//! Fields of events that are hidden until somebody reveals them.

use std::borrow::Cow;

use serde_json::Value;
use tidegate_bootstrap::config::FieldPath;
use tidegate_domain::job::JOB_HEADER;
use tidegate_pipeline::dead_letter;

use crate::inbox::{Content, Event};

/// What stands where something is hidden.
pub(crate) const HIDDEN: &str = "•••";

/// How much of a content is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// All of it.
    Whole,
    /// Parts are hidden.
    Masked,
}

/// The content without what the configuration hides, and whether anything is hidden.
///
/// Bytes can't be hidden in part, so with one masked field all of the record's bytes are, and what the source put into key and
/// headers. So are the bytes of what can't be read, in which nobody knows what stands where.
pub(crate) fn mask(mut content: Content, fields: &[FieldPath]) -> (Content, Shown) {
    if fields.is_empty() {
        return (content, Shown::Whole);
    }
    let hides = match &mut content.event {
        Event::Decoded { json, .. } => {
            // Each one is looked for, also after the first was found.
            fields.iter().filter(|field| hide(json, field.as_str().split('.'))).count() > 0
        }
        Event::Undecodable { .. } => true,
        Event::Absent { .. } => content.value.is_some() || content.key.is_some(),
    };
    if !hides {
        return (content, Shown::Whole);
    }
    let hidden = || HIDDEN.as_bytes().to_vec();
    content.value = content.value.map(|_| hidden());
    content.key = content.key.map(|_| hidden());
    for header in content.headers.iter_mut().filter(|header| !is_ours(&header.name)) {
        header.value = header.value.take().map(|_| hidden());
    }
    (content, Shown::Masked)
}

/// Whether a header of a dead letter is one of tidegate's, which holds nothing of the event. A source may have headers that begin
/// alike.
pub(crate) fn is_ours(name: &[u8]) -> bool {
    dead_letter::is_ours(name) || name == JOB_HEADER.as_bytes() || name == b"traceparent"
}

/// A selection in words, as journal and runs keep it, without what was searched for: that stands in payloads, and who may not see
/// those may not read it here.
pub(crate) fn searched(selection: &str) -> Cow<'_, str> {
    const SEARCH: &str = "text \"";
    let Some((before, rest)) = selection.split_once(SEARCH) else { return Cow::Borrowed(selection) };
    let mut escaped = false;
    let end = rest.find(|c| match c {
        _ if escaped => {
            escaped = false;
            false
        }
        '\\' => {
            escaped = true;
            false
        }
        c => c == '"',
    });
    // Without its end, nobody knows where it ends.
    let after = end.map_or("\"", |end| &rest[end..]);
    Cow::Owned(format!("{before}{SEARCH}{HIDDEN}{after}"))
}

/// Hides the value at a path, in each entry of arrays and in each branch of a union on the way.
fn hide<'a>(value: &mut Value, mut path: impl Iterator<Item = &'a str> + Clone) -> bool {
    match value {
        // Each one is hidden, also after the first.
        Value::Array(entries) => entries.iter_mut().fold(false, |any, entry| hide(entry, path.clone()) | any),
        Value::Object(fields) => {
            let Some(name) = path.next() else { return false };
            let rest_is_empty = path.clone().next().is_none();
            match fields.get_mut(name) {
                Some(found) if rest_is_empty => {
                    *found = Value::from(HIDDEN);
                    true
                }
                Some(found) => hide(found, path),
                None => false,
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::inbox::Header;

    fn content(json: Value) -> Content {
        let header = |name: &str| Header { name: name.into(), value: Some(b"iban=DE1".to_vec()) };
        Content {
            event: Event::Decoded { schema: "s".to_owned(), json },
            key: Some(b"DE1".to_vec()),
            value: Some(b"..DE1..".to_vec()),
            headers: vec![header("source-header"), header("job-error-kind"), header("job-customer")],
        }
    }

    fn paths(texts: &[&str]) -> Vec<FieldPath> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn a_masked_field_is_hidden_wherever_it_stands_and_so_are_the_bytes_that_hold_it() {
        let event = json!({ "id": 1, "customer": { "iban": "DE1", "name": "Ana" }, "items": [{ "note": "DE1" }, { "note": "x" }] });
        let (masked, shown) = mask(content(event), &paths(&["customer.iban", "items.note"]));
        assert_eq!(shown, Shown::Masked);
        let Event::Decoded { json, .. } = &masked.event else { panic!("it is decoded") };
        assert_eq!(
            *json,
            json!({ "id": 1, "customer": { "iban": HIDDEN, "name": "Ana" }, "items": [{ "note": HIDDEN }, { "note": HIDDEN }] })
        );
        for bytes in [&masked.key, &masked.value, &masked.headers[0].value] {
            assert_eq!(bytes.as_deref(), Some(HIDDEN.as_bytes()));
        }
        assert_eq!(masked.headers[1].value.as_deref(), Some(&b"iban=DE1"[..]), "tidegate's own header");
        assert_eq!(masked.headers[2].value.as_deref(), Some(HIDDEN.as_bytes()), "the source's own");
    }

    #[test]
    fn an_event_without_masked_fields_is_shown_whole_and_one_that_cannot_be_read_is_not() {
        let event = json!({ "id": 1 });
        assert_eq!(mask(content(event.clone()), &paths(&["iban", "id.x"])).1, Shown::Whole);
        assert_eq!(mask(content(event), &[]).1, Shown::Whole);
        let undecodable =
            Content { event: Event::Undecodable { reason: "r".to_owned() }, ..content(Value::Null) };
        let (masked, shown) = mask(undecodable, &paths(&["iban"]));
        assert_eq!((shown, masked.value.as_deref()), (Shown::Masked, Some(HIDDEN.as_bytes())));
    }

    #[test]
    fn what_was_searched_for_is_hidden_in_a_selection_and_the_rest_is_kept() {
        let hidden = r#"classes ["charge"], text "•••", until 5"#;
        for searched_for in ["DE1", r#"a \" b"#, r"ends with a \\"] {
            let selection = format!(r#"classes ["charge"], text "{searched_for}", until 5"#);
            assert_eq!(searched(&selection), hidden);
        }
        assert_eq!(searched(r#"text "cut of"#), r#"text "•••""#);
        assert_eq!(searched("12 items"), "12 items");
    }

    #[test]
    fn a_masked_record_or_list_is_hidden_whole() {
        let (masked, _) =
            mask(content(json!({ "card": { "number": 1 }, "all": [1, 2] })), &paths(&["card", "all"]));
        let Event::Decoded { json, .. } = &masked.event else { panic!("it is decoded") };
        assert_eq!(*json, json!({ "card": HIDDEN, "all": HIDDEN }));
    }
}
