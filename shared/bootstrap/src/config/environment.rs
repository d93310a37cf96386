//! `TIDEGATE_…` variables that override single settings.
//!
//! `TIDEGATE_CLASSES__CHARGE_CARD__TIME_LIMIT` sets `classes.charge-card.time_limit`: `__` separates the
//! levels, case doesn't matter, and `_` stands for `-` and `.` too. Only settings that exist are matched.

use std::collections::BTreeMap;

const PREFIX: &str = "TIDEGATE_";
/// The command line's own variables: they name the file, and who uses it, so they can't be settings in it.
const NOT_SETTINGS: [&str; 2] = ["TIDEGATE_CONFIG", "TIDEGATE_OPERATOR"];

/// One variable, and which setting has taken it.
#[derive(Debug)]
struct Override {
    variable: String,
    value: String,
    taken_by: Option<String>,
}

/// The overrides, by folded path.
#[derive(Debug, Default)]
pub(super) struct Overrides {
    by_path: BTreeMap<String, Override>,
    /// Variables that look like overrides but name no level.
    malformed: Vec<String>,
}

/// What taking an override gave.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    Nothing,
    Value {
        variable: String,
        value: String,
    },
    /// Another setting with the same folded path has it already.
    Ambiguous {
        variable: String,
        other: String,
    },
}

impl Overrides {
    pub(super) fn collect(env: impl Iterator<Item = (String, String)>) -> Self {
        let mut overrides = Self::default();
        for (variable, value) in env {
            let Some(path) = variable.strip_prefix(PREFIX) else { continue };
            // `VAR=${UNSET:-}` in a compose file means "not set", never "set to nothing".
            if value.is_empty() || NOT_SETTINGS.contains(&variable.as_str()) || is_service_link(path) {
                continue;
            }
            if path.contains("__") {
                let entry = Override { variable: variable.clone(), value, taken_by: None };
                overrides.by_path.insert(fold(path), entry);
            } else {
                overrides.malformed.push(variable);
            }
        }
        overrides
    }

    /// The override for this setting, if there is one. `path` is its name in the file's terms.
    pub(super) fn take(&mut self, path: &[String]) -> Taken {
        let Some(entry) = self.by_path.get_mut(&fold_path(path)) else { return Taken::Nothing };
        let setting = path.join(".");
        match &entry.taken_by {
            Some(other) if *other != setting => {
                Taken::Ambiguous { variable: entry.variable.clone(), other: other.clone() }
            }
            _ => {
                entry.taken_by = Some(setting);
                Taken::Value { variable: entry.variable.clone(), value: entry.value.clone() }
            }
        }
    }

    /// All overrides below `path` that no setting has taken yet: (rest of the path in lower case, variable, value).
    pub(super) fn take_below(&mut self, path: &[String]) -> Vec<(String, String, String)> {
        let prefix = format!("{}__", fold_path(path));
        let setting = path.join(".");
        self.by_path
            .iter_mut()
            .filter(|(_, entry)| entry.taken_by.is_none())
            .filter_map(|(folded, entry)| {
                let rest = folded.strip_prefix(&prefix)?.to_lowercase();
                entry.taken_by = Some(setting.clone());
                Some((rest, entry.variable.clone(), entry.value.clone()))
            })
            .collect()
    }

    /// Whether an override sets exactly `path`.
    pub(super) fn names(&self, path: &[String]) -> bool {
        self.by_path.contains_key(&fold_path(path))
    }

    /// Whether any override lies below `path`.
    pub(super) fn any_below(&self, path: &[String]) -> bool {
        let prefix = format!("{}__", fold_path(path));
        self.by_path.keys().any(|folded| folded.starts_with(&prefix))
    }

    /// The variables that no setting has taken, with their folded path.
    pub(super) fn unused(&self) -> impl Iterator<Item = (&str, &str)> {
        let unknown = self.by_path.iter().filter(|(_, entry)| entry.taken_by.is_none());
        unknown
            .map(|(folded, entry)| (entry.variable.as_str(), folded.as_str()))
            .chain(self.malformed.iter().map(|variable| (variable.as_str(), &variable[PREFIX.len()..])))
    }
}

/// The name of the variable that would set this folded path.
pub(super) fn variable_name(folded: &str) -> String {
    format!("{PREFIX}{folded}")
}

/// A path as it stands in a variable's name.
pub(super) fn fold_path(path: &[String]) -> String {
    path.iter().map(|segment| fold(segment)).collect::<Vec<_>>().join("__")
}

fn fold(segment: &str) -> String {
    segment.to_uppercase().replace(['-', '.'], "_")
}

/// Kubernetes sets `TIDEGATE_SERVICE_HOST`, `TIDEGATE_PORT_9600_TCP_ADDR` and the like in every pod beside a
/// Service named `tidegate`: not ours, and no reason to refuse to start.
fn is_service_link(rest: &str) -> bool {
    let rest = format!("_{rest}");
    let port = rest.split_once("_PORT").map(|(_, after)| after);
    rest.contains("_SERVICE_HOST")
        || rest.contains("_SERVICE_PORT")
        || port.is_some_and(|after| {
            after.is_empty() || ["_TCP", "_UDP", "_SCTP"].iter().any(|protocol| after.contains(protocol))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(variables: &[(&str, &str)]) -> Overrides {
        Overrides::collect(variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())))
    }

    fn path(segments: &[&str]) -> Vec<String> {
        segments.iter().map(|segment| (*segment).to_owned()).collect()
    }

    #[test]
    fn an_underscore_stands_for_a_dash_and_a_dot() {
        let mut found = overrides(&[("TIDEGATE_SOURCES__SHOP_ORDERS_V1__START", "latest")]);
        let taken = found.take(&path(&["sources", "shop.orders-v1", "start"]));
        assert_eq!(
            taken,
            Taken::Value {
                variable: "TIDEGATE_SOURCES__SHOP_ORDERS_V1__START".to_owned(),
                value: "latest".to_owned()
            }
        );
        assert_eq!(found.unused().count(), 0);
    }

    #[test]
    fn one_variable_cannot_set_two_settings() {
        let mut found = overrides(&[("TIDEGATE_CLASSES__A_B__TIER", "bulk")]);
        assert!(matches!(found.take(&path(&["classes", "a-b", "tier"])), Taken::Value { .. }));
        assert!(matches!(found.take(&path(&["classes", "a.b", "tier"])), Taken::Ambiguous { .. }));
    }

    #[test]
    fn what_kubernetes_sets_beside_a_service_named_tidegate_is_not_ours() {
        let found = overrides(&[
            ("TIDEGATE_SERVICE_HOST", "10.0.0.1"),
            ("TIDEGATE_PORT", "tcp://10.0.0.1:9600"),
            ("TIDEGATE_WORKER_PORT_9600_TCP_ADDR", "10.0.0.1"),
            ("TIDEGATE_WORKER_SERVICE_PORT_METRICS", "9600"),
        ]);
        assert_eq!(found.unused().count(), 0);
    }

    #[test]
    fn a_single_underscore_where_two_belong_is_noticed() {
        let found = overrides(&[("TIDEGATE_KAFKA_BOOTSTRAP", "localhost:9092")]);
        assert_eq!(found.unused().collect::<Vec<_>>(), [("TIDEGATE_KAFKA_BOOTSTRAP", "KAFKA_BOOTSTRAP")]);
    }

    #[test]
    fn an_empty_variable_is_not_set() {
        let mut found = overrides(&[("TIDEGATE_REGISTRY__PASSWORD", "")]);
        assert_eq!(found.take(&path(&["registry", "password"])), Taken::Nothing);
    }
}
