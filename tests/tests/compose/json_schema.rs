//! The part of JSON Schema (draft 7) that the schema of compose files is written in. A word that it does not know is a failure of
//! the test, never a rule that is passed over. (The crates that know all of it change how `serde_json` reads numbers in every crate
//! that is built beside them, tidegate included.)

use serde_json::Value;

/// Annotations: they refuse nothing.
const SAY_NOTHING: [&str; 7] =
    ["$schema", "$id", "title", "description", "default", "deprecated", "definitions"];
/// Words that are looked at together with another.
const LOOKED_AT_ELSEWHERE: [&str; 2] = ["patternProperties", "additionalProperties"];

/// What of the value the schema refuses: `path: why`, one for each.
pub(crate) fn refusals(schema: &Value, value: &Value) -> Vec<String> {
    let mut refusals = Vec::new();
    Check { root: schema, refusals: &mut refusals }.check(schema, value, "");
    refusals
}

struct Check<'a> {
    root: &'a Value,
    refusals: &'a mut Vec<String>,
}

impl Check<'_> {
    fn check(&mut self, schema: &Value, value: &Value, path: &str) {
        let rules = match schema {
            Value::Bool(true) => return,
            Value::Bool(false) => return self.refuse(path, "nothing may stand here"),
            _ => schema.as_object().expect("a schema is an object or a boolean"),
        };
        for (word, rule) in rules {
            self.rule(word, rule, value, path);
        }
        if ["properties", "patternProperties", "additionalProperties"].iter().any(|w| rules.contains_key(*w))
        {
            self.members(schema, value, path);
        }
    }

    fn rule(&mut self, word: &str, rule: &Value, value: &Value, path: &str) {
        match word {
            "$ref" => {
                let pointer =
                    rule.as_str().and_then(|text| text.strip_prefix('#')).expect("it refers to itself");
                let target = self.root.pointer(pointer).expect("what is referred to is there").clone();
                self.check(&target, value, path);
            }
            "type" if !is_of(rule, value) => self.refuse(path, &format!("it must be of type {rule}")),
            "enum" if !rule.as_array().expect("a list").contains(value) => {
                self.refuse(path, &format!("it must be one of {rule}"));
            }
            "pattern" if value.as_str().is_some_and(|text| !matches(rule, text)) => {
                self.refuse(path, &format!("it does not match {rule}"));
            }
            "minimum" if value.as_f64() < rule.as_f64() && value.is_number() => {
                self.refuse(path, "it is too small")
            }
            "maximum" if value.as_f64() > rule.as_f64() && value.is_number() => {
                self.refuse(path, "it is too large")
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    self.check(rule, item, &format!("{path}[{index}]"));
                }
            }
            "uniqueItems" if rule == true => {
                let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
                if (1..items.len()).any(|index| items[..index].contains(&items[index])) {
                    self.refuse(path, "an entry stands there twice");
                }
            }
            "required" if value.is_object() => {
                for name in rule.as_array().into_iter().flatten().filter_map(Value::as_str) {
                    if value.get(name).is_none() {
                        self.refuse(path, &format!("`{name}` is missing"));
                    }
                }
            }
            "oneOf" => self.one_of(rule, value, path),
            "type" | "enum" | "pattern" | "minimum" | "maximum" | "uniqueItems" | "required"
            | "properties" => {}
            known if SAY_NOTHING.contains(&known) || LOOKED_AT_ELSEWHERE.contains(&known) => {}
            unknown => panic!("the schema uses `{unknown}`, which this check does not know"),
        }
    }

    fn one_of(&mut self, alternatives: &Value, value: &Value, path: &str) {
        let alternatives = alternatives.as_array().expect("a list");
        let outcomes: Vec<Vec<String>> = alternatives
            .iter()
            .map(|schema| {
                let mut refusals = Vec::new();
                Check { root: self.root, refusals: &mut refusals }.check(schema, value, path);
                refusals
            })
            .collect();
        match outcomes.iter().filter(|refusals| refusals.is_empty()).count() {
            1 => {}
            0 => self.refuse(path, &format!("it is none of the alternatives: {outcomes:?}")),
            several => self.refuse(path, &format!("it is {several} of the alternatives at once")),
        }
    }

    fn members(&mut self, schema: &Value, value: &Value, path: &str) {
        let empty = serde_json::Map::new();
        let patterns = schema["patternProperties"].as_object().unwrap_or(&empty);
        for (name, member) in value.as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            let named = schema["properties"].get(name);
            let mut rules: Vec<&Value> = named.into_iter().collect();
            let matching =
                patterns.iter().filter(|(pattern, _)| matches(&Value::String((*pattern).clone()), name));
            rules.extend(matching.map(|(_, rule)| rule));
            if rules.is_empty() {
                rules.extend(schema.get("additionalProperties"));
            }
            for rule in rules {
                self.check(rule, member, &path);
            }
        }
    }

    fn refuse(&mut self, path: &str, why: &str) {
        self.refusals.push(format!("{}: {why}", path.trim_start_matches('.')));
    }
}

fn is_of(types: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        unknown => panic!("the schema names the type `{unknown}`"),
    };
    match types {
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        name => is(name.as_str().expect("a type's name")),
    }
}

fn matches(pattern: &Value, text: &str) -> bool {
    let pattern = pattern.as_str().expect("a pattern is text");
    regex_lite::Regex::new(pattern).expect("the schema's patterns are regular").is_match(text)
}
