//! The declarations are those of the real server.

mod command_log;
mod member;
mod request;
mod slot_deletion;

use super::COMMANDS;
use isotherm_commands::spec::{Argument, ArgumentKind, Spec};
use isotherm_node::request::registry::Commands;

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

/// Descriptions of commands in isotherm-cli are those of this server.
#[test]
fn the_list_of_the_client_is_fresh() {
    let commands = Commands::build(COMMANDS);
    let mut lines: Vec<(String, String)> =
        commands.all().iter().map(|entry| listed(&entry.name.replace('|', " "), entry.spec)).collect();
    lines.sort();
    let text: String = lines.into_iter().map(|(_, lines)| lines).collect();
    isotherm_probe::check_fresh("crates/cli/src/docs.txt", &text);
}

fn listed(name: &str, spec: &Spec) -> (String, String) {
    let head = format!("{name}|{}|{}|{}\n", spec.group.name(), spec.since, spec.summary);
    let arguments: String = spec.arguments.iter().map(|argument| listed_argument(argument, 1)).collect();
    (name.to_ascii_uppercase(), head + &arguments)
}

fn listed_argument(argument: &Argument, depth: usize) -> String {
    let kind = match argument.kind {
        ArgumentKind::Integer | ArgumentKind::UnixTime => "integer",
        ArgumentKind::Double | ArgumentKind::PureToken | ArgumentKind::OneOf | ArgumentKind::Block => {
            argument.kind.name()
        }
        ArgumentKind::String | ArgumentKind::Key | ArgumentKind::Pattern => "word",
    };
    let is_nested = !argument.arguments.is_empty();
    let name = argument.display.filter(|_| !is_nested).unwrap_or(argument.name);
    let mut line = format!("{:depth$}{name}:{kind}", "");
    if let Some(token) = argument.token {
        line += &format!(" token={token}");
    }
    let flags = [
        (argument.optional, " optional"),
        (argument.multiple, " multiple"),
        (argument.multiple_token, " multiple_token"),
    ];
    line.extend(flags.iter().filter(|(set, _)| *set).map(|(_, flag)| *flag));
    let inner = argument.arguments.iter().map(|inner| listed_argument(inner, depth + 1));
    line + "\n" + &inner.collect::<String>()
}
