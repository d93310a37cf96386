//! From flags and answers to all that is needed, each answer checked where it is given.

use std::fmt::Display;

use super::answers::{Answers, BOOTSTRAP_VARIABLE, Given, REGISTRY_VARIABLE};
use super::asked::{Asked, Question};
use super::error::InitError;
use super::fields::{self, Field, FieldKind, SchemaTrouble, Schemas};
use crate::config::{
    BrokerAddress, ClassName, FieldPath, HttpUrl, InvalidValue, Start, TierName, TopicName, nearest,
};

/// Whether the names of fields are checked against the registry's schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldCheck {
    /// They are; where they can't be, nothing is written unless a person says so.
    Required,
    /// The registry is not asked.
    Offline,
}

const BROKERS: &str = "127.0.0.1:9092";
const REGISTRY: &str = "http://127.0.0.1:8081/apis/ccompat/v7";
/// What the configuration has if it names no tiers.
const TIERS: [&str; 3] = ["critical", "default", "bulk"];

/// Gets every answer: from its flag if it is given, else by asking.
pub fn interview(
    given: &Given,
    asked: &mut impl Asked,
    schemas: &impl Schemas,
    check: FieldCheck,
) -> Result<Answers, InitError> {
    check_given(given)?;
    let mut settings = Settings { asked };
    let environment = &given.environment;
    let known = environment.bootstrap.as_deref().unwrap_or(BROKERS);
    let bootstrap = settings.get(
        given.bootstrap.as_deref(),
        question("--bootstrap", "Kafka brokers, as host:port", Some(known)),
        brokers,
    )?;
    let known = environment.registry.as_deref().unwrap_or(REGISTRY);
    let registry: HttpUrl = settings.get(
        given.registry.as_deref(),
        question("--registry", "The schema registry's address", Some(known)),
        parse,
    )?;
    let topic: TopicName = settings.get(
        given.topic.as_deref(),
        question("--topic", "The topic with the events", None),
        parse,
    )?;
    let known = match check {
        FieldCheck::Offline => Vec::new(),
        FieldCheck::Required => settings.known_fields(schemas, &registry, &topic)?,
    };
    let start = "Where the first start begins: latest (only new events), earliest (all that the topic holds), or a time";
    let start = settings.get(given.start.as_deref(), question("--start", start, None), parse)?;
    let key = settings.key(given.key.as_deref(), &known)?;
    let class = settings.get(
        given.class.as_deref(),
        question("--class", "A name for these jobs", class_of(&topic).as_deref()),
        parse,
    )?;
    let tier = settings.get(
        given.tier.as_deref(),
        question("--tier", "Their tier: critical, default or bulk", Some("default")),
        tier,
    )?;
    let url = "The endpoint that does the work, like http://127.0.0.1:8000/charge: each job is one POST";
    let url = settings.get(given.url.as_deref(), question("--url", url, None), parse)?;
    Ok(Answers { bootstrap, registry, topic, start, class, key, tier, url })
}

/// Refuses at once what can be seen without asking anybody, be it a person or a registry.
fn check_given(given: &Given) -> Result<(), InitError> {
    fn check<T>(
        flag: &'static str,
        given: Option<&str>,
        parse: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Result<(), InitError> {
        let checked = given.map(parse).transpose();
        checked.map(drop).map_err(|invalid| InitError::Invalid { flag, invalid })
    }
    let from_environment = &given.environment;
    match &given.bootstrap {
        None => check(BOOTSTRAP_VARIABLE, from_environment.bootstrap.as_deref(), brokers)?,
        given => check("--bootstrap", given.as_deref(), brokers)?,
    }
    match &given.registry {
        None => check(REGISTRY_VARIABLE, from_environment.registry.as_deref(), parse::<HttpUrl>)?,
        given => check("--registry", given.as_deref(), parse::<HttpUrl>)?,
    }
    check("--topic", given.topic.as_deref(), parse::<TopicName>)?;
    check("--start", given.start.as_deref(), parse::<Start>)?;
    check("--key", given.key.as_deref(), |text| key_fields(text, &[]))?;
    check("--class", given.class.as_deref(), parse::<ClassName>)?;
    check("--tier", given.tier.as_deref(), tier)?;
    check("--url", given.url.as_deref(), parse::<HttpUrl>)
}

fn question<'a>(flag: &'static str, text: &'a str, default: Option<&str>) -> Question<'a> {
    Question { flag, text, default: default.map(str::to_owned) }
}

fn parse<T: std::str::FromStr<Err = InvalidValue>>(text: &str) -> Result<T, InvalidValue> {
    text.parse()
}

fn brokers(text: &str) -> Result<Vec<BrokerAddress>, InvalidValue> {
    text.split(',').map(|broker| broker.trim().parse()).collect()
}

fn tier(text: &str) -> Result<TierName, InvalidValue> {
    if TIERS.contains(&text) {
        return text.parse();
    }
    let remedy = nearest(text, &TIERS).map_or_else(
        || {
            "choose critical, default or bulk; tiers of your own are written into the file afterwards"
                .to_owned()
        },
        |near| format!("did you mean `{near}`?"),
    );
    Err(InvalidValue::new(format!("`{text}` is no tier"), remedy))
}

/// The last part of the topic's name, if a class may be called so.
fn class_of(topic: &TopicName) -> Option<String> {
    let is_version = |part: &&str| {
        part.strip_prefix(['v', 'V']).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit()))
    };
    let last = topic.as_str().rsplit('.').find(|part| !part.is_empty() && !is_version(part))?;
    let name = last.to_lowercase();
    name.parse::<ClassName>().ok().map(|name| name.to_string())
}

/// Asks for one setting after the other.
struct Settings<'a, A> {
    asked: &'a mut A,
}

impl<A: Asked> Settings<'_, A> {
    /// A flag's value, which must be right; else an answer, which may be corrected.
    fn get<T>(
        &mut self,
        given: Option<&str>,
        question: Question<'_>,
        parse: impl Fn(&str) -> Result<T, InvalidValue>,
    ) -> Result<T, InitError> {
        let flag = question.flag;
        if let Some(text) = given {
            return parse(text).map_err(|invalid| InitError::Invalid { flag, invalid });
        }
        loop {
            let answer = self.asked.ask(&question)?;
            match parse(&answer) {
                Ok(value) => return Ok(value),
                Err(invalid) if self.asked.corrects() => self.say_wrong(&invalid)?,
                Err(invalid) => return Err(InitError::Invalid { flag, invalid }),
            }
        }
    }

    fn say_wrong(&mut self, wrong: &dyn Display) -> Result<(), InitError> {
        self.asked.tell(&format!("  {wrong}"))
    }

    /// The fields of the topic's events; none if a person goes on without them.
    fn known_fields(
        &mut self,
        schemas: &impl Schemas,
        registry: &HttpUrl,
        topic: &TopicName,
    ) -> Result<Vec<Field>, InitError> {
        let trouble = match schemas.fields(registry, topic) {
            Ok(fields) => {
                self.asked.tell(&format!("  Its events have {}.", fields::list(fields.iter())))?;
                return Ok(fields);
            }
            Err(trouble) => trouble,
        };
        if !self.asked.corrects() {
            return Err(InitError::Unchecked { trouble });
        }
        self.go_on_without(trouble)
    }

    fn go_on_without(&mut self, trouble: SchemaTrouble) -> Result<Vec<Field>, InitError> {
        self.say_wrong(&trouble)?;
        let yes_or_no = |text: &str| match text.to_lowercase().as_str() {
            "y" | "yes" => Ok(true),
            "n" | "no" => Ok(false),
            _ => Err(InvalidValue::new(format!("`{text}` is neither yes nor no"), "write y or n")),
        };
        let text = "Go on without checking the names of fields (y/n)";
        match self.get(None, question("--offline", text, Some("n")), yes_or_no)? {
            true => Ok(Vec::new()),
            false => Err(InitError::Unchecked { trouble }),
        }
    }

    fn key(&mut self, given: Option<&str>, known: &[Field]) -> Result<Vec<FieldPath>, InitError> {
        let text = "The fields that make two events the same job, separated by commas";
        let question = question("--key", text, self.suggested_key(known));
        let key = self.get(given, question, |text| key_fields(text, known))?;
        let nullable = |path: &&FieldPath| {
            known.iter().any(|field| field.path == path.as_str() && field.kind == FieldKind::MaybeNull)
        };
        for path in key.iter().filter(nullable) {
            self.asked.tell(&format!(
                "  Note: `{path}` may be null, and an event without a key is dead-lettered as malformed."
            ))?;
        }
        Ok(key)
    }

    /// Only a person may take a suggestion: a key that was guessed wrong would make different jobs the same.
    fn suggested_key<'f>(&self, known: &'f [Field]) -> Option<&'f str> {
        if self.asked.corrects() { fields::likely_key(known) } else { None }
    }
}

fn key_fields(text: &str, known: &[Field]) -> Result<Vec<FieldPath>, InvalidValue> {
    let paths: Vec<FieldPath> = text.split(',').map(|path| path.trim().parse()).collect::<Result<_, _>>()?;
    if !known.is_empty() {
        paths.iter().try_for_each(|path| fields::check(path, known))?;
    }
    match paths.iter().enumerate().find(|(index, path)| paths[..*index].contains(path)) {
        Some((_, twice)) => {
            Err(InvalidValue::new(format!("`{twice}` stands there twice"), "keep one of them"))
        }
        None => Ok(paths),
    }
}
