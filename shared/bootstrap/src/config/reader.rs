//! Reads one TOML table setting by setting, and remembers every problem instead of stopping at the first.
//!
//! A key that no code asked for is unknown, so the code that reads a section is also the list of its keys:
//! there is no second list to keep in step.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use toml::{Table, Value};

use super::environment::{self, Overrides, Taken};
use super::error::{InvalidValue, NAMES_NO_SETTING, NO_SUCH_SETTING, Problem};
use super::reference::{self, Presence, Setting};
use super::slip::{Slip, Slips};
use super::suggestion::{nearest, suggest};

/// A value as it was given, before anything is known about it.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) value: Value,
    /// Set if the value comes from this variable: then it is text, whatever the setting needs.
    pub(super) variable: Option<String>,
}

impl Raw {
    pub(super) fn is_from_environment(&self) -> bool {
        self.variable.is_some()
    }
}

/// What all sections share.
#[derive(Debug)]
pub(super) struct Reader {
    overrides: RefCell<Overrides>,
    problems: RefCell<Vec<Problem>>,
    /// Folded paths of all settings that were asked for.
    known: RefCell<BTreeSet<String>>,
    /// Folded paths of those that neither the file nor a variable gives.
    absent: RefCell<BTreeSet<String>>,
    /// Names that were slips, and those that were meant.
    slips: RefCell<Slips>,
    /// What was asked for and what it accepts, where somebody wants to know.
    reference: Option<RefCell<Vec<Setting>>>,
}

impl Reader {
    pub(super) fn new(overrides: Overrides) -> Self {
        Self::after(overrides, Vec::new())
    }

    /// One that reads what is given anew, after these slips were corrected in it. They are problems all the same.
    pub(super) fn after(overrides: Overrides, corrected: Vec<Slip>) -> Self {
        let (problems, known, absent) = Default::default();
        let slips = RefCell::new(Slips { corrected, found: Vec::new() });
        Self { overrides: RefCell::new(overrides), problems, known, absent, slips, reference: None }
    }

    /// One that keeps a description of each setting that is asked for.
    pub(super) fn describing() -> Self {
        Self { reference: Some(RefCell::default()), ..Self::new(Overrides::default()) }
    }

    /// The settings that were asked for, in that order.
    pub(super) fn described(&self) -> Vec<Setting> {
        self.reference.as_ref().map(RefCell::take).unwrap_or_default()
    }

    /// Reads the whole document.
    pub(super) fn document<T>(&self, table: Table, body: impl FnOnce(&Section<'_>) -> T) -> T {
        read_section(Section { reader: self, path: Vec::new(), table, asked: RefCell::default() }, body)
    }

    /// The slips that were corrected in a section are told where it is read.
    fn note_corrected(&self, section: &[String]) {
        let mut slips = self.slips.borrow_mut();
        let here = slips.corrected.extract_if(.., |slip| slip.is_in(section));
        self.problems.borrow_mut().extend(here.map(|slip| slip.problem));
    }

    pub(super) fn note(&self, path: String, invalid: InvalidValue) {
        let InvalidValue { wrong, remedy } = invalid;
        self.problems.borrow_mut().push(Problem { path, wrong, remedy });
    }

    /// Whether nothing was wrong so far: cross checks of half-read settings would only mislead.
    pub(super) fn is_clean(&self) -> bool {
        self.problems.borrow().is_empty()
    }

    /// All problems, after the overrides that matched no setting were added to them; and the slips among them that stand where the
    /// setting that was meant is missing.
    pub(super) fn finish(self) -> (Vec<Problem>, Vec<Slip>) {
        let known: Vec<String> =
            self.known.into_inner().iter().map(|folded| environment::variable_name(folded)).collect();
        let absent = self.absent.into_inner();
        let mut problems = self.problems.into_inner();
        let Slips { corrected, mut found } = self.slips.into_inner();
        problems.extend(corrected.into_iter().map(|slip| slip.problem));
        for (variable, _) in self.overrides.borrow().unused() {
            let near = nearest(variable, &known.iter().map(String::as_str).collect::<Vec<_>>());
            let remedy = near.map_or_else(
                || "spell it TIDEGATE_SECTION__KEY after a setting that exists, or unset it".to_owned(),
                |name| format!("did you mean {name}?"),
            );
            let path = format!("environment variable {variable}");
            let problem = Problem { path, wrong: NAMES_NO_SETTING.to_owned(), remedy };
            let meant =
                near.filter(|name| absent.iter().any(|path| environment::variable_name(path) == **name));
            found.extend(meant.map(|meant| Slip::of_variable(variable, meant, problem.clone())));
            problems.push(problem);
        }
        (problems, found)
    }
}

/// One table of the document, with its place.
#[derive(Debug)]
pub(super) struct Section<'r> {
    reader: &'r Reader,
    path: Vec<String>,
    table: Table,
    asked: RefCell<BTreeSet<String>>,
}

fn read_section<T>(section: Section<'_>, body: impl FnOnce(&Section<'_>) -> T) -> T {
    let read = body(&section);
    section.reader.note_corrected(&section.path);
    section.refuse_unknown_keys();
    read
}

impl Section<'_> {
    /// The value of a setting, or nothing if it is absent or wrong (which is then noted).
    pub(super) fn optional<T>(
        &self,
        key: &str,
        parse: impl Fn(&Raw) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        self.describe(key, Presence::Optional, &parse);
        self.read(key, parse)
    }

    /// The value of a setting, or its default if it is absent.
    pub(super) fn or<T>(&self, key: &str, default: T, parse: impl Fn(&Raw) -> Result<T, InvalidValue>) -> T {
        self.optional(key, parse).unwrap_or(default)
    }

    /// The value of a setting without a default. `remedy` says what to write if it is absent.
    pub(super) fn required<T>(
        &self,
        key: &str,
        remedy: &str,
        parse: impl Fn(&Raw) -> Result<T, InvalidValue>,
    ) -> Option<T> {
        self.describe(key, Presence::Required, &parse);
        if !self.has(key) {
            // Asked for all the same, so that it is a known key.
            self.take(key);
            self.problem(key, "it is missing", remedy);
            return None;
        }
        self.read(key, parse)
    }

    /// A sub-table; an absent one is read as an empty one, so that its defaults apply.
    pub(super) fn section<T>(&self, key: &str, body: impl FnOnce(&Section<'_>) -> T) -> T {
        self.ask(key);
        let table = self.table_at(key);
        read_section(self.child(key.to_owned(), table), body)
    }

    /// A table of named tables. `defaults` are the names if the file gives none.
    pub(super) fn each<K, T>(
        &self,
        key: &str,
        defaults: &[&str],
        mut body: impl FnMut(&K, &Section<'_>) -> Option<T>,
    ) -> BTreeMap<K, T>
    where
        K: FromStr<Err = InvalidValue> + Ord,
    {
        self.ask(key);
        let tables = self.child(key.to_owned(), self.table_at(key));
        let mut read = BTreeMap::new();
        for name in self.names(key, defaults) {
            tables.ask(&name);
            let entry = tables.child(name.clone(), tables.table_at(&name));
            match name.parse::<K>() {
                Err(invalid) => self.reader.note(display_path(&entry.path), invalid),
                Ok(parsed) => {
                    let value = read_section(entry, |section| body(&parsed, section));
                    read.extend(value.map(|value| (parsed, value)));
                }
            }
        }
        read
    }

    /// The names in a table of named tables, whether or not their contents are right.
    pub(super) fn names(&self, key: &str, defaults: &[&str]) -> Vec<String> {
        match self.table.get(key).and_then(Value::as_table) {
            Some(table) if !table.is_empty() => table.keys().cloned().collect(),
            _ => defaults.iter().map(|name| (*name).to_owned()).collect(),
        }
    }

    /// An array of tables.
    pub(super) fn list<T>(&self, key: &str, mut body: impl FnMut(&Section<'_>) -> Option<T>) -> Vec<T> {
        self.ask(key);
        let entries = match self.table.get(key) {
            None => return Vec::new(),
            Some(Value::Array(entries)) => entries,
            Some(_) => {
                self.problem(
                    key,
                    "it must be a list of tables",
                    &format!("write [[{key}]] above each entry"),
                );
                return Vec::new();
            }
        };
        let tables = entries.iter().enumerate().filter_map(|(index, entry)| match entry {
            Value::Table(table) => {
                read_section(self.child(format!("{key}[{index}]"), table.clone()), &mut body)
            }
            _ => {
                self.problem(key, "its entries must be tables", &format!("write [[{key}]] above each entry"));
                None
            }
        });
        tables.collect()
    }

    /// A table with any keys. With `new_key`, variables may add keys: it spells one from the lower-case rest of a name.
    /// Keys with dots may stand there without quotes, which TOML reads as nested tables.
    pub(super) fn open<T>(
        &self,
        key: &str,
        new_key: Option<fn(&str) -> String>,
        parse: impl Fn(&str, &Raw) -> Result<T, InvalidValue>,
    ) -> BTreeMap<String, T> {
        self.ask(key);
        let mut flat = Table::new();
        flatten("", self.table_at(key), &mut flat);
        let entries = self.child(key.to_owned(), flat);
        entries.describe(reference::ANY, Presence::Optional, &|raw| parse("any", raw));
        let mut read = BTreeMap::new();
        for name in entries.table.keys() {
            read.extend(entries.read(name, |raw| parse(name, raw)).map(|value| (name.clone(), value)));
        }
        let Some(new_key) = new_key else { return read };
        let added = self.reader.overrides.borrow_mut().take_below(&entries.path);
        for (rest, variable, value) in added {
            let name = new_key(&rest);
            let raw = Raw { value: Value::String(value), variable: Some(variable) };
            match parse(&name, &raw) {
                Ok(value) => drop(read.insert(name, value)),
                Err(invalid) => entries.note_raw(&name, &raw, invalid),
            }
        }
        read
    }

    /// Takes any further key for known: what they should be can't be told. Except one that is most likely meant for a key that is
    /// missing, which may be why it can't.
    pub(super) fn tolerate_rest(&self) {
        let asked = self.asked.borrow().clone();
        let known: Vec<&str> = asked.iter().map(String::as_str).collect();
        let is_slip = |key: &String| nearest(key, &known).is_some_and(|meant| !self.has(meant));
        self.table.keys().filter(|key| !is_slip(key)).for_each(|key| self.ask(key));
    }

    /// Whether the file or a variable gives this key, or anything below it.
    pub(super) fn has(&self, key: &str) -> bool {
        let path = self.path_of(key);
        let overrides = self.reader.overrides.borrow();
        self.table.contains_key(key) || overrides.names(&path) || overrides.any_below(&path)
    }

    /// Notes what is wrong with a setting of this section.
    pub(super) fn problem(&self, key: &str, wrong: impl Into<String>, remedy: &str) {
        self.reader.note(display_path(&self.path_of(key)), InvalidValue::new(wrong, remedy));
    }

    fn describe<T>(&self, key: &str, presence: Presence, parse: &dyn Fn(&Raw) -> Result<T, InvalidValue>) {
        if let Some(reference) = &self.reader.reference {
            let accepts = reference::accepted_by(parse);
            reference.borrow_mut().push(Setting { path: self.path_of(key), presence, accepts });
        }
    }

    fn read<T>(&self, key: &str, parse: impl FnOnce(&Raw) -> Result<T, InvalidValue>) -> Option<T> {
        let raw = self.take(key)?;
        parse(&raw).map_err(|invalid| self.note_raw(key, &raw, invalid)).ok()
    }

    fn take(&self, key: &str) -> Option<Raw> {
        self.ask(key);
        let path = self.path_of(key);
        self.reader.known.borrow_mut().insert(environment::fold_path(&path));
        match self.reader.overrides.borrow_mut().take(&path) {
            Taken::Value { variable, value } => {
                return Some(Raw { value: Value::String(value), variable: Some(variable) });
            }
            Taken::Ambiguous { variable, other } => {
                let wrong = format!("{variable} would set it and {other} alike");
                self.problem(key, wrong, "unset the variable and set both in the file");
            }
            Taken::Nothing => {}
        }
        let Some(value) = self.table.get(key) else {
            self.reader.absent.borrow_mut().insert(environment::fold_path(&path));
            return None;
        };
        Some(Raw { value: value.clone(), variable: None })
    }

    fn note_raw(&self, key: &str, raw: &Raw, invalid: InvalidValue) {
        let path = display_path(&self.path_of(key));
        let place =
            raw.variable.as_ref().map_or(path.clone(), |variable| format!("{path} (from {variable})"));
        self.reader.note(place, invalid);
    }

    fn table_at(&self, key: &str) -> Table {
        match self.table.get(key) {
            None => Table::new(),
            Some(Value::Table(table)) => table.clone(),
            Some(other) => {
                let wrong = format!("it must be a table, not {}", kind_of(other));
                self.problem(key, wrong, &format!("write [{}]", display_path(&self.path_of(key))));
                Table::new()
            }
        }
    }

    fn child(&self, name: String, table: Table) -> Section<'_> {
        let path = self.path.iter().cloned().chain([name]).collect();
        Section { reader: self.reader, path, table, asked: RefCell::default() }
    }

    fn ask(&self, key: &str) {
        self.asked.borrow_mut().insert(key.to_owned());
    }

    fn path_of(&self, key: &str) -> Vec<String> {
        self.path.iter().cloned().chain([key.to_owned()]).collect()
    }

    fn refuse_unknown_keys(&self) {
        let asked = self.asked.borrow();
        for (key, value) in self.table.iter().filter(|(key, _)| !asked.contains(*key)) {
            let mut remedy = suggest(key, asked.iter().map(String::as_str));
            if value.is_table() && self.path.len() == 2 && !remedy.starts_with("did") {
                // `[sources.orders.v1]` is TOML for a table `v1` in a table `orders`.
                remedy = format!(
                    r#"if the dot belongs to the name, quote it: [{}."{}.{key}"]"#,
                    self.path[0], self.path[1]
                );
            }
            self.problem(key, NO_SUCH_SETTING, &remedy);
            let known: Vec<&str> = asked.iter().map(String::as_str).collect();
            let meant = nearest(key, &known).filter(|meant| !self.has(meant));
            if let (Some(meant), Some(problem)) = (meant, self.reader.problems.borrow().last()) {
                let slip = Slip::of_key(&self.path, (key, meant), problem.clone());
                self.reader.slips.borrow_mut().found.push(slip);
            }
        }
    }
}

fn flatten(prefix: &str, table: Table, flat: &mut Table) {
    for (key, value) in table {
        let name = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(nested) => flatten(&name, nested, flat),
            value => drop(flat.insert(name, value)),
        }
    }
}

/// What a person calls this kind of value.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fraction",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a time",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// A path as it would be written in the file.
fn display_path(path: &[String]) -> String {
    let quoted = path.iter().map(|segment| match segment.contains('.') {
        true => format!("\"{segment}\""),
        false => segment.clone(),
    });
    quoted.collect::<Vec<_>>().join(".")
}
