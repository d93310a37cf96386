//! The Dockerfile and .dockerignore against the workspace.

use std::collections::BTreeSet;
use std::process::Command;

use tidegate_tests::compose::{Dockerfile, read};
use tidegate_tests::process::tidegate_binary;

/// Where the image looks for its configuration.
pub(crate) fn configuration() -> String {
    let image = Dockerfile::of_repository();
    let environment = image.stage("run").last("ENV");
    environment.strip_prefix("TIDEGATE_CONFIG=").expect("it is the only variable").to_owned()
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let (_, rest) = text.split_once(before).unwrap_or_else(|| panic!("no {before} in {text}"));
    rest.split_once(after).unwrap_or_else(|| panic!("no {after} in {rest}")).0
}

#[test]
fn the_image_is_built_with_the_toolchain_of_the_workspace_for_the_debian_that_it_runs_on() {
    let image = Dockerfile::of_repository();
    let (build, run) = (&image.stage("build").image, &image.stage("run").image);
    let toolchain = read("rust-toolchain.toml");
    let channel = between(&toolchain, "channel = \"", "\"");
    let debian = between(run, "debian:", "-slim");
    assert_eq!(build, &format!("rust:{channel}-slim-{debian}"));
    let workspace = read("Cargo.toml");
    assert!(channel.starts_with(between(&workspace, "rust-version = \"", "\"")));
    assert_eq!(image.stages.len(), 2);
}

#[test]
fn the_binary_is_the_workspaces_and_is_copied_from_where_it_is_put() {
    let image = Dockerfile::of_repository();
    let (build, run) = (image.stage("build"), image.stage("run"));
    let manifest = read("cli/Cargo.toml");
    let package = between(&manifest, "name = \"", "\"");
    let compile = build.all("RUN").find(|run| run.contains("cargo build")).expect("it is compiled");
    for part in ["--release", "--locked", &format!("--package {package}")] {
        assert!(compile.contains(part), "{part}: {compile}");
    }
    for cache in ["/usr/local/cargo/registry", "/src/target"] {
        assert!(compile.contains(&format!("--mount=type=cache,target={cache}")), "{cache}");
    }
    assert_eq!(build.last("WORKDIR"), "/src", "the cache of build products is below it");
    let put = between(&format!("{compile}\n"), &format!("cp target/release/{package} "), "\n").to_owned();
    assert_eq!(run.last("COPY"), format!("--from={} {put} {put}", build.name));
    assert_eq!(run.last("ENTRYPOINT"), format!("[\"{package}\"]"));
    assert!(put.starts_with("/usr/local/bin/"), "the search path has it");
}

#[test]
fn the_process_is_nobody_of_importance_and_owns_the_folder_of_its_state() {
    let image = Dockerfile::of_repository();
    let run = image.stage("run");
    let (user, group) = run.last("USER").split_once(':').expect("a user and a group");
    for id in [user, group] {
        // A name could be root's under another name.
        assert!(id.parse::<u32>().is_ok_and(|id| id >= 1000), "{id}");
    }
    let order: Vec<&str> = run.instructions.iter().map(|(word, _)| word.as_str()).collect();
    let place = |word: &str| order.iter().rposition(|known| *known == word);
    assert!(place("USER") > place("RUN") && place("USER") > place("COPY"), "who installs is root");
    let config = read("deploy/compose/tidegate.toml");
    let state = between(&config, "dir = \"", "\"");
    assert_eq!(run.last("WORKDIR"), state);
    let made = run.all("RUN").find(|run| run.contains("useradd")).expect("the user is made");
    assert!(made.contains(&format!("--uid {user}")) && made.contains(&format!("--gid {group}")), "{made}");
    assert!(made.contains("install -d -o tidegate -g tidegate") && made.ends_with(state), "{made}");
    assert_eq!(run.last("STOPSIGNAL"), "SIGTERM", "which services take for a request to stop");
    let listen = between(&config, "listen = \"0.0.0.0:", "\"");
    assert_eq!(run.last("EXPOSE"), listen);
}

#[test]
fn the_build_has_the_packages_that_setup_installs() {
    let script = read("x");
    let missing = between(&script, "missing_packages() {", "\n}");
    // Without what only the tests need: servers, and a browser.
    let of_tests = ["openjdk-17-jre-headless", "maven", "curl", "chromium", "chromium-driver"];
    let needed: BTreeSet<String> = missing
        .lines()
        .filter_map(|line| line.rsplit_once("|| echo ").map(|(_, package)| package.trim().to_owned()))
        .filter(|package| !package.ends_with(')') && !of_tests.contains(&package.as_str()))
        .collect();
    assert!(needed.len() >= 5, "{needed:?}");
    assert_eq!(Dockerfile::of_repository().stage("build").packages(), needed);
}

/// Which package of Debian has a library that a binary may link to; none: it is part of every Debian.
fn package_of(library: &str) -> Option<&'static str> {
    let known = [
        ("libssl.", Some("libssl3t64")),
        ("libcrypto.", Some("libssl3t64")),
        ("libz.", Some("zlib1g")),
        ("libstdc++.", Some("libstdc++6")),
        ("libgcc_s.", None),
        ("libc.", None),
        ("libm.", None),
        ("ld-linux", None),
        ("linux-vdso", None),
    ];
    let found = known.iter().find(|(start, _)| library.starts_with(start));
    found.unwrap_or_else(|| panic!("the binary links to {library}: which package of the image has it?")).1
}

#[test]
fn the_image_has_every_library_that_the_binary_links_to() {
    let output = Command::new("ldd").arg(tidegate_binary()).output().expect("ldd comes with the C library");
    let text = String::from_utf8_lossy(&output.stdout);
    let libraries: BTreeSet<&str> =
        text.lines().filter_map(|line| line.split_whitespace().next()?.rsplit('/').next()).collect();
    assert!(libraries.len() > 4, "{text}");
    let mut needed: BTreeSet<String> =
        libraries.into_iter().filter_map(package_of).map(str::to_owned).collect();
    // TLS without the public authorities' certificates refuses everybody.
    needed.insert("ca-certificates".to_owned());
    assert_eq!(Dockerfile::of_repository().stage("run").packages(), needed);
}

/// Whether the build gets a file: the last pattern that fits decides.
fn is_sent(path: &str) -> bool {
    let fits = |pattern: &str| match pattern.strip_prefix("**/") {
        Some(name) => path.split('/').any(|part| match name.strip_prefix('*') {
            Some(end) => part.ends_with(end),
            None => part == name,
        }),
        None => pattern == "*" || path == pattern || path.starts_with(&format!("{pattern}/")),
    };
    let mut sent = true;
    for line in read(".dockerignore").lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.strip_prefix('!') {
            Some(pattern) if fits(pattern) => sent = true,
            None if fits(line) => sent = false,
            _ => {}
        }
    }
    sent
}

#[test]
fn the_build_gets_every_member_of_the_workspace_and_nothing_that_is_secret_or_large() {
    let image = Dockerfile::of_repository();
    assert_eq!(image.stage("build").last("COPY"), ". .");
    let manifest = read("Cargo.toml");
    let members: Vec<&str> = between(&manifest, "members = [", "]")
        .split(',')
        .map(|member| member.trim().trim_matches('"'))
        .collect();
    assert!(members.len() > 10);
    for member in members.iter().filter(|member| !member.is_empty()) {
        assert!(is_sent(&format!("{member}/Cargo.toml")), "{member}");
        assert!(is_sent(&format!("{member}/src/lib.rs")), "{member}");
    }
    for needed in ["Cargo.toml", "Cargo.lock", "schemas/payment.avsc", "tests/servers/pom.xml"] {
        assert!(is_sent(needed), "{needed}");
    }
    for other in [
        ".git/config",
        ".run/kafka.log",
        "target/debug/tidegate",
        "shared/kafka/target/x",
        "tidegate.toml",
        ".env",
    ] {
        assert!(!is_sent(other), "{other}");
    }
    // With it, rustup would fetch components that compile nothing.
    assert!(!is_sent("rust-toolchain.toml"));
}
