//! Whether the handlers of a worker can have the schemas that they read events by.

use std::collections::BTreeSet;

use tidegate_bootstrap::config::{BodyFormat, Class, Handler};
use tidegate_codec::value_subject;
use tidegate_service::registry::{Start, at_start, warmed};
use tidegate_service::{Process, ServiceError};

use crate::job::Events;

/// Looks at the registry, if one of the classes' handlers needs it, and gets the latest schemas: else all of the first jobs would depend
/// on one request each time a worker starts, and go by a delay topic where its answer is late.
pub(crate) async fn look(
    process: &Process,
    served: &[&Class],
    events: &Events,
) -> Result<Start, ServiceError> {
    let needed = needed_by(served);
    let Some(registry) = events.registry.as_ref().filter(|_| !needed.is_empty()) else {
        return Ok(Start::WithoutRegistry);
    };
    match at_start(process, registry, &needed).await? {
        Start::WithRegistry if warmed(process, registry, &needed).await.is_none() => Ok(Start::Stopped),
        start => Ok(start),
    }
}

/// The subjects of the events that handlers read; a handler that passes bytes on reads none.
fn needed_by(served: &[&Class]) -> Vec<String> {
    let reads =
        |class: &&&Class| !matches!(&class.handler, Handler::Http(http) if http.format == BodyFormat::Avro);
    let sources: BTreeSet<_> = served.iter().filter(reads).flat_map(|class| &class.sources).collect();
    sources.into_iter().map(|source| value_subject(source.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use tidegate_bootstrap::Config;

    use super::*;

    #[test]
    fn only_handlers_that_read_events_need_the_registry() {
        let class = |name: &str, handler: &str| {
            format!("[classes.{name}]\nsource = \"{name}\"\nkey = [\"id\"]\nhandler = {{ {handler} }}\n")
        };
        let text = [
            "[kafka]\nbootstrap = \"b:1\"\n[registry]\nurl = \"http://r\"\n".to_owned(),
            ["a", "b", "c", "d"].map(|source| format!("[sources.{source}]\nstart = \"latest\"\n")).concat(),
            class("a", "type = \"http\", url = \"http://x/\""),
            class("b", "type = \"http\", url = \"http://x/\", format = \"avro\""),
            class("c", "type = \"log\""),
            class("d", "type = \"rust\""),
        ];
        let config = Config::parse("test", &text.concat(), std::iter::empty()).expect("it is valid");
        let served: Vec<&Class> = config.classes.values().collect();
        assert_eq!(needed_by(&served), ["a-value", "c-value", "d-value"]);
    }
}
