//! Imports only go down: what each crate may depend on. ARCHITECTURE.md says why.
//!
//! Cargo refuses circles between crates, but not an arrow that runs up to a floor it should not know. The
//! list is complete: a crate that is not in it is a finding, so a new crate has to be placed.

use super::{File, Finding, whole};

const MAY_USE: [(&str, &[&str]); 34] = [
    ("stdx", &[]),
    ("allocator", &[]),
    ("acl", &["stdx"]),
    ("arena", &["stdx"]),
    ("disk", &["stdx"]),
    ("resp", &["stdx"]),
    ("runtime", &["stdx"]),
    ("tls", &["stdx"]),
    ("reactor", &["stdx", "tls"]),
    ("persist", &["stdx"]),
    ("keyspace", &["stdx", "arena"]),
    ("log", &["stdx"]),
    ("tier", &["stdx"]),
    ("codec", &["stdx", "persist", "keyspace"]),
    ("config", &["stdx", "acl", "resp", "runtime", "keyspace"]),
    ("replication", &["stdx", "resp", "log"]),
    ("script", &["stdx", "resp"]),
    ("cluster", &["stdx", "resp"]),
    ("commands", &["stdx", "resp", "persist", "keyspace", "codec"]),
    (
        "node",
        &[
            "acl",
            "allocator",
            "cluster",
            "commands",
            "config",
            "disk",
            "keyspace",
            "log",
            "persist",
            "reactor",
            "replication",
            "resp",
            "runtime",
            "script",
            "stdx",
            "tier",
            "tls",
        ],
    ),
    (
        "engine",
        &[
            "acl",
            "allocator",
            "cluster",
            "commands",
            "config",
            "keyspace",
            "log",
            "node",
            "persist",
            "replication",
            "resp",
            "runtime",
            "script",
            "stdx",
        ],
    ),
    ("swap", &["allocator", "commands", "config", "disk", "keyspace", "node", "runtime", "tier"]),
    (
        "durability",
        &[
            "allocator",
            "cluster",
            "codec",
            "commands",
            "config",
            "disk",
            "engine",
            "keyspace",
            "log",
            "node",
            "persist",
            "replication",
            "resp",
            "runtime",
            "stdx",
            "swap",
            "tier",
        ],
    ),
    (
        "replicas",
        &[
            "allocator",
            "cluster",
            "codec",
            "commands",
            "config",
            "disk",
            "durability",
            "engine",
            "keyspace",
            "log",
            "node",
            "reactor",
            "replication",
            "resp",
            "runtime",
            "stdx",
        ],
    ),
    (
        "membership",
        &[
            "cluster", "config", "disk", "engine", "keyspace", "node", "reactor", "replicas", "resp",
            "runtime", "stdx",
        ],
    ),
    (
        "server",
        &[
            "acl",
            "allocator",
            "cluster",
            "codec",
            "commands",
            "config",
            "disk",
            "durability",
            "engine",
            "keyspace",
            "log",
            "membership",
            "node",
            "persist",
            "reactor",
            "replicas",
            "replication",
            "resp",
            "runtime",
            "script",
            "stdx",
            "swap",
            "tier",
            "tls",
        ],
    ),
    // Tools talk to the server over a socket. The benchmark also measures the keyspace alone, without one,
    // and the disk, and is other nodes of a cluster.
    ("probe", &["stdx", "resp"]),
    ("bench", &["stdx", "arena", "disk", "cluster", "keyspace", "resp", "probe"]),
    ("check", &["stdx", "persist", "tier"]),
    ("cli", &["stdx", "resp", "reactor", "tls"]),
    ("conformance", &["stdx", "resp", "probe"]),
    ("memlab", &["stdx", "allocator", "probe"]),
    ("stress", &["stdx", "resp", "probe"]),
    ("xtask", &[]),
];

/// Crates that the tests of a crate may use in addition: the allocator counts what a command or a writer
/// takes, and random commands come from the grammar of the differential tester; the log is written to a disk
/// that crashes; servers need ports, and what they write is checked; files of the
/// tree are compared with their declarations.
const TESTS_MAY_USE: &[(&str, &[&str])] = &[
    ("codec", &["allocator"]),
    ("commands", &["allocator", "conformance"]),
    ("log", &["disk", "persist"]),
    ("cli", &["probe"]),
    ("config", &["probe"]),
    ("swap", &["stdx"]),
    ("server", &["check", "probe"]),
];

pub fn check(files: &[File]) -> Vec<Finding> {
    files
        .iter()
        .filter_map(|file| Some((crate_of(&file.path)?, file)))
        .flat_map(|(name, file)| check_manifest(name, file))
        .collect()
}

/// The folder's name, if the path is the manifest of one of our crates.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.strip_suffix("/Cargo.toml").filter(|name| !name.contains('/'))
}

fn check_manifest(name: &str, file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some((_, may_use)) = MAY_USE.iter().find(|(crate_name, _)| *crate_name == name) else {
        return vec![whole(&file.path, "a crate that tidy's list of arrows does not know")];
    };
    let package = if name == "server" { "isotherm".to_string() } else { format!("isotherm-{name}") };
    if !file.text.contains(&format!("name = \"{package}\"\n")) {
        findings.push(whole(&file.path, format!("the package of folder {name} is called {package}")));
    }
    if !file.text.contains("[lints]\nworkspace = true") {
        findings
            .push(whole(&file.path, "no `[lints] workspace = true`: the workspace's lints do not hold here"));
    }
    let tests_may_use =
        TESTS_MAY_USE.iter().find(|(crate_name, _)| *crate_name == name).map_or(&[][..], |(_, used)| used);
    let mut in_tests = false;
    for (index, line) in file.text.lines().enumerate() {
        if line.starts_with('[') {
            in_tests = line == "[dev-dependencies]";
        }
        let Some(used) = dependency(line) else { continue };
        if used != name && !may_use.contains(&used) && !(in_tests && tests_may_use.contains(&used)) {
            let what = format!("{name} must not know {used}: imports only go down");
            findings.push(Finding { path: file.path.clone(), line: index + 1, what });
        }
    }
    findings
}

/// `stdx`, if the line reads `isotherm-stdx.workspace = true` or the like; `server` for the server's package.
fn dependency(line: &str) -> Option<&str> {
    let key = line.split(['.', '=', ' ']).next()?;
    if key == "isotherm" { Some("server") } else { key.strip_prefix("isotherm-") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, dependencies: &str) -> Vec<String> {
        let text = format!(
            "[package]\nname = \"isotherm-{name}\"\n\n[dependencies]\n{dependencies}\n[lints]\nworkspace = true\n"
        );
        let file = File { path: format!("crates/{name}/Cargo.toml"), text };
        check(&[file]).into_iter().map(|finding| finding.what).collect()
    }

    #[test]
    fn tests_may_use_a_little_more() {
        let beside = "\n[dev-dependencies]\nisotherm-allocator.workspace = true\n";
        assert_eq!(found("commands", beside).len(), 0);
        assert_eq!(found("commands", "isotherm-allocator.workspace = true\n").len(), 1);
        assert_eq!(found("keyspace", beside).len(), 1);
    }

    #[test]
    fn catches_an_arrow_that_runs_up() {
        assert_eq!(found("keyspace", "isotherm-stdx.workspace = true\nlibc.workspace = true\n").len(), 0);
        assert_eq!(
            found("keyspace", "isotherm-resp.workspace = true\n"),
            ["keyspace must not know resp: imports only go down"]
        );
        assert_eq!(found("conformance", "isotherm = { path = \"../server\" }\n").len(), 1);
    }

    #[test]
    fn catches_a_crate_that_is_not_placed() {
        assert_eq!(found("nonsense", "").len(), 1);
    }
}
