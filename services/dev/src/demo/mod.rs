//! A shop to watch: three kinds of events, a producer that publishes them with repeats and garbage, and an endpoint that plays what
//! the jobs depend on, with all its moods.

pub(crate) mod endpoint;
pub(crate) mod events;
pub(crate) mod producer;

use events::CLASSES;

/// The configuration of the demo, but for the servers: those are the embedded ones. Each dead letter is a warning, and here they are
/// meant to come: only errors are told.
pub(crate) fn config(endpoint: &str) -> String {
    let mut text = "[pipeline]\nname = \"demo\"\n\n[observe]\nlog = \"error\"\n".to_owned();
    for class in &CLASSES {
        let section = format!(
            "\n[tiers.{tier}]\npartitions = 3\n\n[sources.\"{topic}\"]\nstart = \"earliest\"\n\n[classes.{name}]\nsource = \"{topic}\"\n\
             tier = \"{tier}\"\nkey = [\"{key}\"]\ntime_limit = \"10s\"\nhandler = {{ type = \"http\", url = \"{endpoint}/{name}\" }}\n",
            tier = class.tier,
            topic = class.topic,
            name = class.name,
            key = class.key,
        );
        text.push_str(&section);
    }
    text
}
