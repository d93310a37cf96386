//! Prometheus's text format, as far as tidegate's own metrics use it.

/// One sample: `name{label="value",…} 12`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample<'a> {
    pub(super) name: &'a str,
    labels: Vec<(&'a str, String)>,
    pub(super) value: f64,
}

impl Sample<'_> {
    pub(super) fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }
}

/// All samples of a text. Lines of another form are passed over: the format has more than we need.
pub(super) fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter(|line| !line.starts_with('#')).filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while !rest.starts_with('}') {
            let (label, after) = rest.split_once("=\"")?;
            let (value, after) = quoted(after)?;
            labels.push((label.trim_start_matches(',').trim(), value));
            rest = after;
        }
        rest = &rest[1..];
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// A value up to its closing quote, and what follows.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((place, character)) = characters.next() {
        match character {
            '"' => return Some((value, &text[place + 1..])),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_read_with_their_labels_and_anything_else_is_passed_over() {
        let text = "# HELP x y\n# TYPE x counter\nx 3\ny{class=\"a\",tier=\"b \\\"q\\\" \\\\ }\"} 1.5\n\nbroken{a=\"\nnan NaN\n";
        let all: Vec<Sample<'_>> = samples(text).collect();
        assert_eq!(all.len(), 3);
        assert_eq!((all[0].name, all[0].value), ("x", 3.0));
        assert_eq!(
            (all[1].label("class"), all[1].label("tier"), all[1].value),
            (Some("a"), Some("b \"q\" \\ }"), 1.5)
        );
    }
}
