//! No block of a document is passed over: commands are run by a test or say why not, settings and values are read.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_tests::documents::{Block, blocks, documents, is_record, read};
use toml::{Table, Value};

use crate::settings::parse;

/// Documents whose blocks are looked at.
fn all_blocks() -> Vec<Block> {
    documents().iter().filter(|document| !is_record(document)).flat_map(|document| blocks(document)).collect()
}

#[test]
fn every_block_says_what_it_is() {
    const SHOWN: [&str; 6] = ["", "text", "python", "rust", "sql", "yaml"];
    let known: BTreeMap<&str, &[&str]> =
        [("sh", &["terminal", "not-run"][..]), ("toml", &["part", "other"]), ("json", &[])].into();
    let blocks = all_blocks();
    for block in &blocks {
        let (place, language) = (block.place(), block.language.as_str());
        match known.get(language) {
            Some(flags) => {
                for flag in &block.flags {
                    assert!(flags.contains(&flag.as_str()), "{place}: no test knows the flag {flag}");
                }
            }
            None => {
                assert!(SHOWN.contains(&language), "{place}: a block of {language} is looked at by no test")
            }
        }
    }
    assert!(blocks.len() > 20, "only {} blocks", blocks.len());
}

#[test]
fn a_command_that_is_not_run_says_why() {
    for block in all_blocks().iter().filter(|block| block.language == "sh") {
        let place = block.place();
        let reason = block.notes("not run").next().unwrap_or_default();
        assert_eq!(
            block.is("not-run"),
            reason.len() > 10,
            "{place}: what is not run has the flag `not-run` and, above it, <!-- not run: the reason -->"
        );
        assert!(!block.text.is_empty(), "{place} is empty");
        let in_background = block.text.lines().any(|line| line.trim_end().ends_with(" &"));
        assert!(!in_background, "{place}: nobody would end it; write a block `sh,terminal`");
    }
}

#[test]
fn every_page_with_commands_is_run_by_a_test() {
    let tests = ["tests/tests/live/documentation.rs", "tests/tests/live/acls.rs"].map(read).concat();
    let pages: BTreeSet<String> =
        all_blocks().iter().filter(|block| block.is_run()).map(|block| block.document.clone()).collect();
    assert!(pages.len() >= 4, "only {pages:?} have commands that are run");
    for page in &pages {
        assert!(
            tests.contains(&format!("Walk::of(\"{page}\")")),
            "no test of live/documentation.rs or live/acls.rs runs {page}"
        );
    }
    let run: usize = all_blocks().iter().filter(|block| block.is_run()).count();
    let told: usize = all_blocks().iter().filter(|block| block.language == "sh" && !block.is_run()).count();
    assert!(run > told, "{run} blocks of commands are run, and {told} are not");
}

/// What a part of a configuration may lack.
const REST: &str = r#"
[kafka]
bootstrap = "k:9092"
[registry]
url = "http://r:8081"
[sources."shop.payments"]
start = "latest"
[sources."shop.orders"]
start = "latest"
[classes.charge]
source = "shop.payments"
key = ["payment_id"]
tier = "critical"
handler = { type = "http", url = "http://h/" }
"#;

/// `part` over `whole`.
fn merge(whole: &mut Table, part: Table) {
    for (key, value) in part {
        match (whole.get_mut(&key), value) {
            (Some(Value::Table(known)), Value::Table(more)) => merge(known, more),
            (_, value) => drop(whole.insert(key, value)),
        }
    }
}

#[test]
fn every_configuration_that_is_shown_is_valid() {
    let mut read = 0;
    for block in all_blocks().iter().filter(|block| block.language == "toml" && !block.is("other")) {
        let mut text = block.text.clone();
        if block.is("part") {
            let mut whole: Table = REST.parse().expect("the rest is TOML");
            merge(&mut whole, text.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place())));
            text = whole.to_string();
        }
        if let Err(error) = parse(&text, &[]) {
            panic!("{} shows a configuration that is refused: {error}\n{text}", block.place());
        }
        read += 1;
    }
    assert!(read > 3, "only {read} configurations were read");
    for file in ["tidegate.example.toml", "examples/own-worker/tidegate.toml"] {
        if let Err(error) = parse(&self::read(file), &[]) {
            panic!("{file} is refused: {error}");
        }
    }
}

#[test]
fn every_value_of_json_that_is_shown_is_one() {
    for block in all_blocks().iter().filter(|block| block.language == "json") {
        let is_json = |text: &str| serde_json::from_str::<serde_json::Value>(text).is_ok();
        let well = is_json(&block.text) || block.text.lines().all(is_json);
        assert!(well, "{} is no JSON:\n{}", block.place(), block.text);
    }
}

#[test]
fn readme_and_walk_show_the_example_without_its_comments() {
    let example = read("tidegate.example.toml");
    let bare = |line: &str| line.split(" #").next().unwrap_or_default().trim_end().to_owned();
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.starts_with('#')).map(bare).filter(|line| !line.is_empty()).collect()
    };
    for page in ["README.md", "docs/payments.md"] {
        let shown = blocks(page).into_iter().find(|block| block.language == "toml");
        assert_eq!(lines(&shown.expect("the page has one").text), lines(&example), "{page}");
    }
}
