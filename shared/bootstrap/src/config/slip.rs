//! A misspelt name in the place of the one that was meant.
//!
//! What is missing because of it, and what is wrong only because that is missing, would be told as problems of their own. So the slip is
//! corrected, everything is read anew, and only the slip itself is told beside what is wrong then.

use toml::{Table, Value};

use super::error::Problem;

/// A name that no setting has, most likely meant for one that is not given.
#[derive(Debug, Clone)]
pub(super) struct Slip {
    place: Place,
    written: String,
    meant: String,
    pub(super) problem: Problem,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// A key of the section at this path.
    Section(Vec<String>),
    Environment,
}

/// The slips of one reading.
#[derive(Debug)]
pub(super) struct Slips {
    /// Those of earlier readings, which were corrected.
    pub(super) corrected: Vec<Slip>,
    /// New ones.
    pub(super) found: Vec<Slip>,
}

/// The slips that were corrected so far.
#[derive(Debug, Default)]
pub(super) struct Corrected {
    slips: Vec<Slip>,
}

impl Corrected {
    pub(super) fn slips(&self) -> &[Slip] {
        &self.slips
    }

    /// Corrects these, and says how many of them it could.
    pub(super) fn add(
        &mut self,
        slips: Vec<Slip>,
        document: &mut Table,
        environment: &mut [(String, String)],
    ) -> usize {
        let before = self.slips.len();
        for slip in slips {
            // Which names are known may depend on others: a correction is never taken back, or there might be no end of them.
            let is_own = |earlier: &Slip| earlier.place == slip.place && earlier.meant == slip.written;
            if !self.slips.iter().any(is_own) && slip.correct(document, environment) {
                self.slips.push(slip);
            }
        }
        self.slips.len() - before
    }
}

impl Slip {
    pub(super) fn of_key(section: &[String], (written, meant): (&str, &str), problem: Problem) -> Self {
        let place = Place::Section(section.to_vec());
        Self { place, written: written.to_owned(), meant: meant.to_owned(), problem }
    }

    pub(super) fn of_variable(written: &str, meant: &str, problem: Problem) -> Self {
        Self { place: Place::Environment, written: written.to_owned(), meant: meant.to_owned(), problem }
    }

    pub(super) fn is_in(&self, section: &[String]) -> bool {
        matches!(&self.place, Place::Section(path) if path == section)
    }

    /// Writes the name that was meant; whether that changed anything.
    fn correct(&self, document: &mut Table, environment: &mut [(String, String)]) -> bool {
        match &self.place {
            Place::Environment => {
                let variable = environment.iter_mut().find(|(name, _)| *name == self.written);
                variable.map(|(name, _)| self.meant.clone_into(name)).is_some()
            }
            Place::Section(path) => {
                let section = path.iter().try_fold(document, |table, name| below(table, name));
                section.is_some_and(|section| {
                    // Of two slips for one name, the second is left as it is.
                    if section.contains_key(&self.meant) {
                        return false;
                    }
                    let value = section.remove(&self.written);
                    value.map(|value| section.insert(self.meant.clone(), value)).is_some()
                })
            }
        }
    }
}

/// The table of this name: `handler`, or `ignore[0]` of a list.
fn below<'t>(table: &'t mut Table, name: &str) -> Option<&'t mut Table> {
    let value = match name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        Some((list, index)) if !table.contains_key(name) => {
            table.get_mut(list)?.as_array_mut()?.get_mut(index.parse::<usize>().ok()?)?
        }
        _ => table.get_mut(name)?,
    };
    match value {
        Value::Table(table) => Some(table),
        _ => None,
    }
}
