//! What ARCHITECTURE.md says about the code, checked against the code: layers, who names what, the table of faults.

use std::collections::{BTreeMap, BTreeSet};

use tidegate_tests::documents::read;

/// The layers, lowest first: a crate depends on crates of lower layers only.
const LAYERS: [&[&str]; 7] = [
    &["shared/domain"],
    &["shared/pipeline"],
    &["shared/bootstrap", "shared/codec", "shared/kafka", "shared/state"],
    &["shared/service"],
    &["services/demo", "services/ingest", "services/operator", "services/retry", "services/worker"],
    &["services/console", "services/dev"],
    &["cli", "examples/own-worker"],
];

/// The names in the `[dependencies]` of a member's manifest.
fn dependencies(member: &str) -> BTreeSet<String> {
    let manifest = read(&format!("{member}/Cargo.toml"));
    let (_, section) = manifest.split_once("\n[dependencies]\n").unwrap_or_default();
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let name = |line: &str| line.split(['.', ' ', '=']).next().map(str::to_owned);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(name).collect()
}

fn members() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let (_, list) = manifest.split_once("members = [").expect("the workspace has members");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split(',')
        .map(|member| member.trim().trim_matches('"').to_owned())
        .filter(|m| !m.is_empty())
        .collect()
}

#[test]
fn every_member_has_its_layer() {
    let layered: BTreeSet<&str> = LAYERS.iter().flat_map(|layer| layer.iter().copied()).collect();
    let members = members();
    let known: BTreeSet<&str> =
        members.iter().map(String::as_str).filter(|member| *member != "tests").collect();
    assert_eq!(layered, known);
}

#[test]
fn dependencies_point_downwards_only() {
    let package = |member: &str| format!("tidegate-{}", member.rsplit('/').next().unwrap_or(member));
    let layer_of: BTreeMap<String, usize> = (0..)
        .zip(LAYERS)
        .flat_map(|(n, layer)| layer.iter().map(move |member| (package(member), n)))
        .collect();
    let mut checked = 0;
    for (layer, members) in LAYERS.iter().enumerate() {
        for member in *members {
            for dependency in dependencies(member).iter().filter(|name| name.starts_with("tidegate-")) {
                let below = layer_of.get(dependency).is_some_and(|&other| other < layer);
                assert!(below, "{member} depends on {dependency}, which is not in a lower layer");
                checked += 1;
            }
        }
    }
    assert!(checked > 20, "only {checked} dependencies were found");
}

#[test]
fn only_one_crate_names_each_native_library() {
    for (library, owner) in [
        ("rdkafka", "shared/kafka"),
        ("rocksdb", "shared/state"),
        ("apache-avro", "shared/codec"),
        ("rusqlite", "services/operator"),
    ] {
        let members = members();
        let named: Vec<&String> =
            members.iter().filter(|m| *m != "tests" && dependencies(m).contains(library)).collect();
        assert_eq!(named, [owner], "{library}");
    }
}

#[test]
fn domain_depends_on_a_few_pure_crates_only() {
    let allowed = ["blake3", "itoa", "smallvec", "thiserror", "xxhash-rust"].map(str::to_owned);
    assert_eq!(dependencies("shared/domain"), allowed.into());
}

#[test]
fn unsafe_is_forbidden_everywhere_but_in_kafka() {
    assert!(read("Cargo.toml").contains("\nunsafe_code = \"forbid\"\n"));
    for member in members() {
        let inherits = read(&format!("{member}/Cargo.toml")).contains("\n[lints]\nworkspace = true\n");
        assert_eq!(inherits, member != "shared/kafka", "{member}: lints of the workspace");
    }
}

#[test]
fn every_row_of_the_failure_table_names_its_test() {
    let text = read("ARCHITECTURE.md");
    let (_, table) =
        text.split_once("| fault | behaviour | tests |\n|---|---|---|\n").expect("the table is there");
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() > 10);
    for row in rows {
        assert!(row.contains(".rs::"), "a row without a test: {row}");
    }
}
