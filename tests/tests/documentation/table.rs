//! Tables that are made from the code: rows and some columns come from there, the words of the others stay as they were written.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_tests::documents::{read, root};

/// Set (to anything), tables that differ are written anew.
const UPDATE: &str = "UPDATE_DOCS";

/// A table of a document, between `<!-- table: NAME -->` and `<!-- end of table -->`.
pub(crate) struct Table<'a> {
    pub(crate) document: &'a str,
    pub(crate) name: &'a str,
    pub(crate) header: &'a [&'a str],
    /// The first cell names the row; an empty cell is kept as somebody wrote it.
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table<'_> {
    /// Compares, or writes the table into its document.
    ///
    /// # Panics
    /// When they differ, or a cell that a person has to write is empty.
    pub(crate) fn check(&self) {
        let text = read(self.document);
        let begin = format!("<!-- table: {} -->\n", self.name);
        let (before, rest) =
            text.split_once(&begin).unwrap_or_else(|| panic!("{} has no table {}", self.document, self.name));
        let (old, after) = rest.split_once("<!-- end of table -->").expect("the table has an end");
        let new = self.merged(old);
        if new != old && std::env::var_os(UPDATE).is_some() {
            let text = format!("{before}{begin}{new}<!-- end of table -->{after}");
            std::fs::write(root().join(self.document), text).expect("a document can be written");
        } else {
            let [old, new] = [old, &new].map(|table| table.lines().collect::<BTreeSet<&str>>());
            let (gone, come): (Vec<&&str>, Vec<&&str>) =
                (old.difference(&new).collect(), new.difference(&old).collect());
            assert!(
                gone.is_empty() && come.is_empty(),
                "the table {} of {} has {gone:#?}, and the code says {come:#?}. To write it anew: \
                 {UPDATE}=1 cargo test -p tidegate-tests --test documentation",
                self.name,
                self.document
            );
        }
        assert!(
            !new.contains("|  |"),
            "{}: describe what is new in the table {}:\n{new}",
            self.document,
            self.name
        );
    }

    /// The rows in the order that they have, new ones behind them.
    fn merged(&self, old: &str) -> String {
        let cells = |line: &str| -> Vec<String> {
            line.trim().trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
        };
        let old: Vec<Vec<String>> =
            old.lines().skip(2).filter(|line| line.starts_with('|')).map(cells).collect();
        let place: BTreeMap<&str, usize> =
            (0..).zip(&old).map(|(place, row)| (row[0].as_str(), place)).collect();
        let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
        for row in &self.rows {
            let place = place.get(row[0].as_str()).copied();
            let kept =
                |column: usize| place.and_then(|place| old[place].get(column).cloned()).unwrap_or_default();
            let filled = (0..)
                .zip(row)
                .map(|(column, cell)| if cell.is_empty() { kept(column) } else { cell.clone() });
            rows.push((place.unwrap_or(usize::MAX), filled.collect()));
        }
        rows.sort_by_key(|(place, _)| *place);
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let header: Vec<String> = self.header.iter().map(ToString::to_string).collect();
        let rule = format!("|{}\n", "---|".repeat(header.len()));
        std::iter::once(line(&header)).chain([rule]).chain(rows.iter().map(|(_, row)| line(row))).collect()
    }
}

#[test]
fn rows_follow_the_code_and_keep_what_people_wrote() {
    let row = |cells: [&str; 3]| cells.map(str::to_owned).into();
    let rows = vec![row(["`new`", "text", ""]), row(["`b`", "number", ""]), row(["`a`", "text", ""])];
    let table = Table { document: "-", name: "-", header: &["setting", "type", "meaning"], rows };
    let old = "| setting | type | meaning |\n|---|---|---|\n| `a` | was | The first. |\n| `gone` | x | Y. |\n| `b` | x | The second. |\n";
    assert_eq!(
        table.merged(old),
        "| setting | type | meaning |\n|---|---|---|\n| `a` | text | The first. |\n| `b` | number | The second. |\n\
         | `new` | text |  |\n"
    );
}
