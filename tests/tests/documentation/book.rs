//! The book is built as `./x docs` does, and what it links to is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tidegate_tests::documents::{anchor, documents, pages, prose, read, root, spans};

#[test]
fn every_page_is_in_the_summary_once() {
    let summary = read("docs/SUMMARY.md");
    let linked: Vec<String> = links(&summary).map(|link| link.trim_start_matches("./").to_owned()).collect();
    let once: BTreeSet<String> = linked.iter().cloned().collect();
    assert_eq!(once.len(), linked.len(), "a page stands in docs/SUMMARY.md twice");
    let pages: BTreeSet<String> = pages().into_iter().filter(|page| page != "SUMMARY.md").collect();
    assert_eq!(once, pages, "left: docs/SUMMARY.md, right: the pages in docs");
    assert!(pages.len() > 10);
}

#[test]
fn the_book_is_built_and_every_link_in_it_leads_somewhere() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    build(folder.path());
    let mut html = BTreeMap::new();
    gather(folder.path(), folder.path(), &mut html);
    assert!(html.len() > pages().len(), "{:?}", html.keys());
    let mut followed = 0;
    for (page, text) in &html {
        assert!(!text.contains("{{#"), "{page} shows a directive that was not followed");
        // The page for what is not found, and the one to print, have links of their own making.
        if matches!(page.as_str(), "404.html" | "print.html" | "toc.html") {
            continue;
        }
        let content = text.split_once("<main>").and_then(|(_, rest)| rest.split_once("</main>"));
        let (content, _) = content.unwrap_or_else(|| panic!("{page} has no content"));
        for link in attributes(content, "href").chain(attributes(content, "src")) {
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { joined(page, path) };
            let found = html.get(&target);
            assert!(
                found.is_some() || folder.path().join(&target).is_file(),
                "the page {page} of the book links to {link}, which is not in it"
            );
            let has_heading =
                |text: &String| heading.is_empty() || text.contains(&format!("id=\"{heading}\""));
            assert!(
                found.is_none_or(has_heading),
                "the page {page} of the book links to {link}: no such heading"
            );
            followed += 1;
        }
    }
    assert!(followed > 50, "only {followed} links");
}

/// Builds the book into this folder, by the tool that is a workspace of its own. The first time, it is compiled.
fn build(into: &Path) {
    let output = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--locked", "--manifest-path"])
        .arg(root().join("tests/book/Cargo.toml"))
        .arg("--target-dir")
        .arg(target_directory().join("book"))
        .arg("--")
        .args([&docs(), into])
        .stdin(Stdio::null())
        .output()
        .expect("cargo can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the book can't be built:\n{said}");
}

/// The target directory of this test: `./x docs` builds the tool in the same place.
fn target_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a program knows its own path");
    test.ancestors().nth(3).expect("it is in target/debug/deps").to_owned()
}

/// All pages that were made, by their path.
fn gather(root: &Path, folder: &Path, html: &mut BTreeMap<String, String>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            gather(root, &path, html);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            let name = path.strip_prefix(root).expect("it is below").display().to_string();
            html.insert(name, std::fs::read_to_string(&path).expect("a page can be read"));
        }
    }
}

fn attributes<'a>(html: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!("{name}=\"");
    let parts: Vec<&str> = html.split(&begin).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split('"').next())
}

/// The path that a link on this page leads to.
fn joined(page: &str, link: &str) -> String {
    let mut path: Vec<&str> = page.split('/').collect();
    path.pop();
    for part in link.split('/') {
        match part {
            ".." => drop(path.pop()),
            "." => {}
            part => path.push(part),
        }
    }
    path.join("/")
}

fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_link_within_the_repository_leads_somewhere() {
    let mut followed = 0;
    for document in documents() {
        let text = prose(&read(&document));
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let folder = Path::new(&document).parent().unwrap_or(Path::new(""));
            let target = if path.is_empty() { PathBuf::from(&document) } else { folder.join(path) };
            let file = root().join(&target);
            assert!(file.exists(), "{document} links to {link}, which is not there");
            let outside = document.starts_with("docs/")
                && !file.canonicalize().is_ok_and(|file| file.starts_with(docs()));
            assert!(!outside, "{document} is a page of the book and links to {link}, which is not in it");
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&file).expect("a document that is linked to can be read");
                let known =
                    text.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line) == heading);
                assert!(known, "{document} links to {link}: no such heading");
            }
            followed += 1;
        }
    }
    assert!(followed > 30, "only {followed} links were found");
}

fn docs() -> PathBuf {
    root().join("docs").canonicalize().expect("docs is there")
}

#[test]
fn every_test_that_a_document_names_exists() {
    let mut named = 0;
    for document in documents() {
        let text = prose(&read(&document));
        for (file, test) in spans(&text).filter_map(|span| span.split_once(".rs::")) {
            let file = format!("{file}.rs");
            let exists = root().join(&file).is_file() && read(&file).contains(&format!("fn {test}("));
            assert!(exists, "{document} names the test `{test}` of {file}, which is not there");
            named += 1;
        }
    }
    assert!(named > 30, "only {named} tests were found in the documents");
}
