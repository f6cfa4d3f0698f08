//! The declarations are those of the real server.

use super::COMMANDS;
use isotherm_commands::spec::Spec;

/// The lines of the commands that Valkey has too.
const DECLARED: &str = include_str!("declared.tsv");

/// Valkey 9.1.2 has no such command.
const OURS: [&str; 22] = [
    "acl|digest",
    "client|maint_notifications",
    "dumpfromssdb",
    "hotkeys",
    "hotkeys|get",
    "hotkeys|help",
    "hotkeys|reset",
    "locatekey",
    "memory|diff",
    "memory|map",
    "memory|prefixes",
    "memory|profile",
    "memory|top",
    "rediskeys",
    "ssdbkeys",
    "storetossdb",
    "swap",
    "swap|clean",
    "swap|forget",
    "swap|help",
    "swap|status",
    "swap|verify",
];

/// Deviations that a COMPAT marker states.
const OTHERWISE: [&str; 1] = ["memory|malloc-stats"];

#[test]
fn declarations_are_those_of_valkey() {
    let mut all: Vec<(String, &Spec)> = Vec::new();
    for command in COMMANDS.iter().copied().flatten() {
        let name = command.spec.name;
        all.push((name.to_string(), &command.spec));
        all.extend(command.subcommands.iter().map(|sub| (format!("{name}|{}", sub.spec.name), &sub.spec)));
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    let (ours, shared): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(name, _)| OURS.contains(&name.as_str()));
    assert_eq!(ours.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), OURS);
    let theirs: Vec<&str> = DECLARED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(shared.len(), theirs.len());
    for ((name, spec), theirs) in shared.iter().zip(&theirs) {
        let row = spec.row(name);
        assert_eq!(row != *theirs, OTHERWISE.contains(&name.as_str()), "{row}\n{theirs}");
    }
}
