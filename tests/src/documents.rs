//! The documents of the repository as tests see them, and the code blocks in them.
//!
//! What a block is for stands in its info string, and what a test needs to know besides in comments just above it, which readers do
//! not see:
//!
//! ````text
//! <!-- not run: it takes minutes -->
//! ```sh,not-run
//! ./x test
//! ```
//! ````
//!
//! | info string | what becomes of the block |
//! |---|---|
//! | `sh` | run, in the order of the page: [`crate::walk`] |
//! | `sh,terminal` | each line is started, and goes on to the end of the page, as in a terminal of its own |
//! | `sh,not-run` | not run; the comment `not run` says why |
//! | `toml` | a whole configuration |
//! | `toml,part` | a part of one: what it lacks is added before it is read |
//! | `toml,other` | something else in TOML |
//! | `json` | one value, or one a line |
//! | `python`, `rust`, `sql`, `text`, `yaml`, or nothing | shown only |

use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the root").to_owned()
}

/// A file of the repository.
///
/// # Panics
/// When it can't be read.
#[track_caller]
pub fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages of the book, by their paths below `docs`.
pub fn pages() -> Vec<String> {
    let mut pages = Vec::new();
    for folder in ["", "adr/"] {
        let entries = fs::read_dir(root().join("docs").join(folder)).expect("the folder is there");
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        pages.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}{name}")));
    }
    pages.sort();
    pages
}

/// Every document of the repository, by its path.
pub fn documents() -> Vec<String> {
    let others =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/own-worker/README.md"];
    let pages = pages().into_iter().map(|page| format!("docs/{page}"));
    others.map(str::to_owned).into_iter().chain(pages).collect()
}

/// Documents whose commands are for developers of tidegate, and are left to them: records of decisions and of measurements.
pub fn is_record(document: &str) -> bool {
    document.starts_with("docs/adr/") || document == "docs/performance.md"
}

/// A code block of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The document's path.
    pub document: String,
    /// The line of its first fence.
    pub line: usize,
    /// The first word of its info string.
    pub language: String,
    /// The others.
    pub flags: Vec<String>,
    /// What the comments above it say: name and text.
    pub notes: Vec<(String, String)>,
    /// What stands in it.
    pub text: String,
}

impl Block {
    /// Whether its info string has this flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.iter().any(|known| known == flag)
    }

    /// What the comments of this name say.
    pub fn notes<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.notes.iter().filter(move |(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// Where it stands, for messages.
    pub fn place(&self) -> String {
        format!("{}:{}", self.document, self.line)
    }

    /// Whether it is a command to run.
    pub fn is_run(&self) -> bool {
        self.language == "sh" && !self.is("not-run")
    }
}

/// The blocks of a document, in order.
///
/// # Panics
/// When a block does not end.
#[track_caller]
pub fn blocks(document: &str) -> Vec<Block> {
    blocks_of(document, &read(document))
}

fn blocks_of(document: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut notes = Vec::new();
    let mut lines = (1..).zip(text.lines());
    while let Some((number, line)) = lines.next() {
        if let Some(note) = note(line) {
            notes.push(note);
            continue;
        }
        let Some((fence, info)) = fence(line) else {
            notes.clear();
            continue;
        };
        let mut body = String::new();
        loop {
            let (_, line) =
                lines.next().unwrap_or_else(|| panic!("{document}:{number}: the block does not end"));
            if line.trim_start() == fence {
                break;
            }
            body.push_str(line);
            body.push('\n');
        }
        let mut words = info.split(',').map(str::to_owned);
        blocks.push(Block {
            document: document.to_owned(),
            line: number,
            language: words.next().unwrap_or_default(),
            flags: words.collect(),
            notes: std::mem::take(&mut notes),
            text: body,
        });
    }
    blocks
}

/// The fence that begins a block, and the info string after it.
fn fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let length = line.chars().take_while(|c| *c == '`').count();
    (length >= 3).then(|| line.split_at(length)).map(|(fence, info)| (fence, info.trim()))
}

/// `<!-- name: text -->`
fn note(line: &str) -> Option<(String, String)> {
    let inner = line.trim().strip_prefix("<!--")?.strip_suffix("-->")?.trim();
    let (name, text) = inner.split_once(": ")?;
    Some((name.to_owned(), text.trim().to_owned()))
}

/// The document without its code blocks.
pub fn prose(text: &str) -> String {
    let mut prose = String::new();
    let mut inside: Option<&str> = None;
    for line in text.lines() {
        match (inside, fence(line)) {
            (Some(open), _) if line.trim_start() == open => inside = None,
            (None, Some((open, _))) => inside = Some(open),
            (None, None) => {
                prose.push_str(line);
                prose.push('\n');
            }
            (Some(_), _) => {}
        }
    }
    prose
}

/// What stands in backticks.
pub fn spans(prose: &str) -> impl Iterator<Item = &str> {
    prose.split('`').skip(1).step_by(2)
}

/// The anchor that a heading gets.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches(['#', ' ']).to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_its_flags_and_the_comments_just_above_it() {
        let text = "<!-- far: away -->\ntext\n<!-- not run: slow -->\n<!-- shows: a: b -->\n```sh,not-run\nls\n```\n````text\n```\n````\n";
        let blocks = blocks_of("a.md", text);
        assert_eq!(blocks.len(), 2);
        assert_eq!((blocks[0].language.as_str(), blocks[0].line, blocks[0].text.as_str()), ("sh", 5, "ls\n"));
        assert!(blocks[0].is("not-run") && !blocks[0].is_run());
        assert_eq!(blocks[0].notes("shows").collect::<Vec<_>>(), ["a: b"]);
        assert_eq!(blocks[0].notes("far").count(), 0);
        assert_eq!(blocks[1].text, "```\n");
    }

    #[test]
    fn prose_is_what_stands_outside_of_blocks() {
        assert_eq!(prose("a\n```sh\nb\n```\nc `d`\n"), "a\nc `d`\n");
        assert_eq!(spans("c `d` e `f`").collect::<Vec<_>>(), ["d", "f"]);
    }
}
