//! Whether events of a source can become jobs at all, by the latest schema of its topic: a slip in a field's name would send every
//! event to the dead-letter topic, one by one.

use std::sync::Arc;

use tidegate_bootstrap::Config;
use tidegate_bootstrap::config::{Class, FieldPath, KeySource, suggest};
use tidegate_codec::{CompiledSchema, FieldPaths, value_subject};
use tidegate_service::ServiceError;
use tracing::warn;

/// Refuses classes that need fields which the latest schema of their source lacks; `latest` is in the order of the sources. What the
/// registry does not tell is no fault: it may be away, or name its subjects otherwise.
pub(crate) fn fields(config: &Config, latest: &[Option<Arc<CompiledSchema>>]) -> Result<(), ServiceError> {
    let mut faults = Vec::new();
    for (topic, schema) in config.sources.keys().zip(latest) {
        let Some(schema) = schema else { continue };
        let of_topic = |class: &&Class| class.sources.iter().any(|source| source.as_str() == topic.as_str());
        for class in config.classes.values().filter(of_topic).filter(|class| is_of(class, schema)) {
            faults.extend(faults_of(class, topic.as_str(), schema));
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(ServiceError::Configuration(faults.join("\n"))) }
}

/// Whether the class takes events of this type.
fn is_of(class: &Class, schema: &CompiledSchema) -> bool {
    class.record.as_ref().is_none_or(|record| record.to_string() == schema.full_name())
}

fn faults_of(class: &Class, topic: &str, schema: &CompiledSchema) -> Vec<String> {
    let key: &[FieldPath] = match &class.key {
        KeySource::Fields(fields) => fields,
        KeySource::Header(_) | KeySource::Position => &[],
    };
    let window = class.key_window.as_ref().map(|window| &window.field);
    let needed = key.iter().map(|path| ("key", path)).chain(window.map(|path| ("key_window.field", path)));
    let lacks = |path: &str| {
        let alone = FieldPaths::new([path]).map(|paths| schema.select(&paths).unresolved().len());
        alone.is_ok_and(|unresolved| unresolved > 0)
    };
    for (path, _) in class.when.iter().filter(|(path, _)| lacks(path.as_str())) {
        warn!(
            class = %class.name, field = %path, topic, schema = schema.id(),
            "the latest schema lacks a field that the class's `when` asks for: no event with that schema is of this class"
        );
    }
    needed
        .filter(|(_, path)| lacks(path.as_str()))
        .map(|(setting, path)| {
            format!(
                "classes.{}.{setting}: events of `{topic}` have no field `{path}` (schema {}, the latest of `{}`): {}",
                class.name,
                schema.id(),
                value_subject(topic),
                suggest(path.as_str(), schema.field_names())
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYMENT: &str = r#"{"type":"record","name":"Payment","namespace":"shop","fields":[
        {"name":"payment_id","type":"string"},
        {"name":"customer","type":["null",{"type":"record","name":"Customer","fields":[{"name":"id","type":"long"}]}]}]}"#;

    fn faults(class: &str) -> Vec<String> {
        let text = format!(
            "[kafka]\nbootstrap = \"b:1\"\n[registry]\nurl = \"http://r\"\n[sources.pay]\nstart = \"latest\"\n[classes.charge]\nsource = \"pay\"\nhandler = {{ type = \"log\" }}\n{class}"
        );
        let config = Config::parse("test", &text, std::iter::empty()).expect("it is valid");
        let schema = CompiledSchema::parse(7, PAYMENT, &[]).expect("a schema");
        let classes = config.classes.values().filter(|class| is_of(class, &schema));
        classes.flat_map(|class| faults_of(class, "pay", &schema)).collect()
    }

    #[test]
    fn a_slip_in_a_field_is_told_with_the_name_that_was_meant() {
        let told = faults("key = [\"paymentid\"]");
        assert_eq!(
            told,
            [
                "classes.charge.key: events of `pay` have no field `paymentid` (schema 7, the latest of `pay-value`): did you mean `payment_id`?"
            ]
        );
    }

    #[test]
    fn fields_that_are_there_are_no_fault_however_deep() {
        assert_eq!(faults("key = [\"payment_id\", \"customer.id\"]"), [""; 0]);
        assert_eq!(faults("key = [\"customer.name\"]").len(), 1);
    }

    #[test]
    fn a_class_of_other_events_of_the_topic_is_not_judged_by_this_schema() {
        assert_eq!(faults("record = \"shop.Refund\"\nkey = [\"refund_id\"]"), [""; 0]);
        assert_eq!(faults("record = \"shop.Payment\"\nkey = [\"refund_id\"]").len(), 1);
    }
}
