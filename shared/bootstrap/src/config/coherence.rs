//! What must hold between settings of different sections.

use std::time::Duration;

use super::Config;
use super::class::Class;
use super::class_key::KeySource;
use super::error::InvalidValue;
use super::kafka::WRITE_A_MECHANISM;
use super::reader::Reader;
use super::values::duration_text;

/// A mark of a waiting job is believed this much longer than the wait itself.
const MARK_SLACK: Duration = Duration::from_secs(60 * 60);

/// Notes what is wrong between the sections of a configuration whose sections are right.
pub(super) fn check(config: &Config, reader: &Reader) {
    let mut note =
        |path: String, wrong: String, remedy: &str| reader.note(path, InvalidValue::new(wrong, remedy));
    registry_is_there(config, &mut note);
    a_log_in_has_its_mechanism(config, &mut note);
    sources_are_not_our_topics(config, &mut note);
    retentions_cover_the_waits(config, &mut note);
    memory_holds_the_largest_record(config, &mut note);
    classes_of_one_scope_agree(config, &mut note);
    ignore_rules_have_names_of_their_own(config, &mut note);
}

/// What is allowed, and probably not meant.
pub(super) fn notes(config: &Config) -> Vec<String> {
    let is_read = |source| {
        let by_class = config.classes.values().any(|class| class.sources.contains(source));
        by_class || config.ignore.iter().any(|rule| rule.sources.contains(source))
    };
    let unread = config.sources.keys().filter(|source| !is_read(*source));
    let note = |source| {
        format!(
            "no class and no ignore rule reads source `{source}`: all its events will be dead-lettered as unroutable; \
             write a class, an ignore rule, or remove the source"
        )
    };
    unread.map(note).chain(windows_that_outlast_their_marks(config)).collect()
}

/// A key's window says for how long it is one job, and marks can't keep that.
fn windows_that_outlast_their_marks(config: &Config) -> impl Iterator<Item = String> {
    let remembered = config.state.retention;
    config.classes.values().filter_map(move |class| {
        let every = class.key_window.as_ref().map(|window| window.every).filter(|every| *every > remembered)?;
        let (name, every, remembered) = (&class.name, duration_text(every), duration_text(remembered));
        Some(format!(
            "classes.{name}.key_window.every = {every}, but a done job is remembered for {remembered} only: a duplicate that comes \
             later in the same window runs again; raise state.retention to {every} or more"
        ))
    })
}

/// For how long a duplicate is refused, and what an older one does.
pub(super) fn duplicates_summary(config: &Config) -> String {
    let (remembered, held) = (config.state.retention, config.topics.job_retention);
    let promise = format!(
        "a duplicate is refused for {} after its job was done; a replay of an older record runs the job again",
        duration_text(remembered)
    );
    if remembered >= held {
        return format!(
            "{promise}. Job and delay topics hold a record for {}, so marks outlast whatever waits in them",
            duration_text(held)
        );
    }
    format!(
        "{promise}. Job and delay topics hold a record for {held}: after an outage longer than {remembered}, a duplicate that waited in \
         them may run again",
        held = duration_text(held),
        remembered = duration_text(remembered)
    )
}

type Note<'a> = &'a mut dyn FnMut(String, String, &str);

fn registry_is_there(config: &Config, note: Note<'_>) {
    if config.registry.is_none() && !config.classes.is_empty() {
        let wrong = "it is missing, and the classes' events need its schemas".to_owned();
        note("registry.url".to_owned(), wrong, "write url = \"http://host:8081\" under [registry]");
    }
}

fn a_log_in_has_its_mechanism(config: &Config, note: Note<'_>) {
    if config.kafka.lacks_its_mechanism() {
        let wrong = "it is missing, and security.protocol asks for a log-in".to_owned();
        note("kafka.properties.\"sasl.mechanisms\"".to_owned(), wrong, WRITE_A_MECHANISM);
    }
}

/// Such a source would feed the pipeline its own output, without end.
fn sources_are_not_our_topics(config: &Config, note: Note<'_>) {
    let pipeline = &config.pipeline.name;
    for source in config.sources.keys() {
        let Some(rest) = source.as_str().strip_prefix(&format!("{pipeline}.")) else { continue };
        let of_a_tier = rest.rsplit_once('.').is_some_and(|(tier, kind)| {
            config.tiers.keys().any(|known| known.as_str() == tier)
                && (kind == "jobs" || kind == "marks" || kind.starts_with("retry-"))
        });
        if of_a_tier || ["dlq", "dlq-journal", "reingest", "config"].contains(&rest) {
            let wrong = "it is a topic of this pipeline itself".to_owned();
            note(format!("sources.\"{source}\""), wrong, "remove it, or give the pipeline another name");
        }
    }
}

fn retentions_cover_the_waits(config: &Config, note: Note<'_>) {
    let wait = config.retry.longest_wait();
    // Otherwise a mark is gone before the job that it tells of is back, and a duplicate of that would run beside it.
    let needed = config.retry.total_wait() + wait + MARK_SLACK;
    if config.state.retention < needed {
        let wrong = format!(
            "{} is less than a job may wait in all delay topics, and its mark is believed then",
            duration_text(config.state.retention)
        );
        note(
            "state.retention".to_owned(),
            wrong,
            &format!("set at least \"{}\"", whole_seconds_above(needed)),
        );
    }
    if config.topics.job_retention < 2 * wait {
        let wrong =
            format!("{} is less than twice the longest wait", duration_text(config.topics.job_retention));
        let least = whole_seconds_above(2 * wait);
        let remedy = format!("set at least \"{least}\", or shorten the longest rung");
        note("topics.job_retention".to_owned(), wrong, &remedy);
    }
}

fn whole_seconds_above(least: Duration) -> String {
    duration_text(Duration::from_secs(least.as_secs() + 1))
}

/// A partition whose bounds are smaller than one of its records would stand still for ever.
fn memory_holds_the_largest_record(config: &Config, note: Note<'_>) {
    let largest = config.topics.max_message_bytes;
    let windows =
        config.tiers.iter().map(|(name, tier)| (format!("tiers.{name}.window_bytes"), tier.window_bytes));
    let heap = ("retry.heap_bytes".to_owned(), config.retry.heap_bytes);
    for (path, bytes) in windows.chain([heap]).filter(|(_, bytes)| *bytes < largest) {
        let wrong = format!("{bytes} can't hold the largest record, topics.max_message_bytes = {largest}");
        note(path, wrong, "raise it, or lower topics.max_message_bytes");
    }
}

/// Equal keys of classes that share a scope must be equal jobs in one partition of one tier.
fn classes_of_one_scope_agree(config: &Config, note: Note<'_>) {
    let classes: Vec<&Class> = config.classes.values().collect();
    for (index, class) in classes.iter().enumerate() {
        let Some(first) = classes[..index].iter().find(|other| other.key_scope == class.key_scope) else {
            continue;
        };
        let path = format!("classes.{}.key_scope", class.name);
        let shared = format!("`{}` is the scope of `{}` too", class.key_scope, first.name);
        if first.tier != class.tier {
            let wrong =
                format!("{shared}, which is in tier `{}`, and marks don't reach across tiers", first.tier);
            note(path, wrong, "put both into one tier, or give them scopes of their own");
        } else if lane_shape(first) != lane_shape(class) || first.key_window != class.key_window {
            let wrong = format!("{shared}, but their keys are made differently, so they never meet");
            note(
                path,
                wrong,
                "use as many key fields, the same of them in partition_by, and the same key_window",
            );
        }
    }
}

/// How a key is made, without the names of the fields: those differ between events that mean the same.
fn lane_shape(class: &Class) -> (usize, Vec<Option<usize>>) {
    match &class.key {
        KeySource::Fields(key) => {
            let places = class.partition_by.iter().map(|field| key.iter().position(|other| other == field));
            (key.len(), places.collect())
        }
        // Counts that no list of fields has.
        KeySource::Header(_) => (usize::MAX, Vec::new()),
        KeySource::Position => (usize::MAX - 1, Vec::new()),
    }
}

fn ignore_rules_have_names_of_their_own(config: &Config, note: Note<'_>) {
    for (index, rule) in config.ignore.iter().enumerate() {
        if config.ignore[..index].iter().any(|other| other.name == rule.name) {
            let wrong = format!("another rule is named `{}`", rule.name);
            note(format!("ignore[{index}].name"), wrong, "name it differently: drops are counted by name");
        }
    }
}
