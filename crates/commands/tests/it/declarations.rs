//! The declarations are those of Valkey, and agree with themselves.

use isotherm_commands::COMMANDS;
use isotherm_commands::spec::{Argument, ArgumentKind, Find, Flags, KeyFlags, Reach, Spec, key_positions};
use isotherm_resp::ArgsBuf;

const DECLARED: &str = include_str!("transcripts/declared.tsv");

/// Every declaration with its full name, `object|freq` for a subcommand.
fn declarations() -> Vec<(String, &'static Spec)> {
    let mut all = Vec::new();
    for command in COMMANDS.iter().copied().flatten() {
        all.push((command.spec.name.to_string(), &command.spec));
        for sub in command.subcommands {
            all.push((format!("{}|{}", command.spec.name, sub.spec.name), &sub.spec));
        }
    }
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

#[test]
fn declarations_are_those_of_valkey() {
    let ours: Vec<String> = declarations().iter().map(|(name, spec)| spec.row(name)).collect();
    let theirs: Vec<&str> = DECLARED.lines().filter(|line| !line.starts_with('#')).collect();
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.len(), theirs.len());
}

#[test]
fn declarations_agree_with_themselves() {
    for (name, spec) in declarations() {
        assert!(
            spec.name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'-')),
            "{name}"
        );
        assert!(!spec.summary.is_empty() && spec.arity != 0, "{name}");
        // Valkey says nothing of XREAD's.
        assert_eq!(spec.complexity.is_empty(), name == "xread", "{name}");
        assert!(!(spec.flags.has(Flags::WRITE) && spec.flags.has(Flags::READONLY)), "{name}");
        let mut named = vec![false; spec.key_specs.len()];
        spec.arguments.iter().for_each(|argument| check_argument(&name, argument, &mut named));
        let is_named = |(at, named): (usize, &bool)| *named || spec.key_specs[at].find == Find::Unknown;
        assert!(named.iter().enumerate().all(is_named), "{name}: a key that no argument names");
        let changes = KeyFlags::RW.or(KeyFlags::OW).or(KeyFlags::RM);
        let writes = spec.key_specs.iter().any(|key_spec| key_spec.flags.has(changes));
        assert!(!writes || spec.flags.has(Flags::WRITE.or(Flags::MAY_REPLICATE)), "{name} changes keys");
        let variable = spec.key_specs.iter().any(|key_spec| key_spec.flags.has(KeyFlags::VARIABLE_FLAGS));
        assert_eq!(variable, spec.variable_key_flags.is_some(), "{name}");
        // A command that names no keys and works on them needs all partitions.
        let works_on_keys = spec.key_specs.is_empty() && spec.flags.has(Flags::WRITE.or(Flags::READONLY));
        let finds_more = spec.key_specs.iter().any(|key_spec| key_spec.find == Find::Unknown);
        assert_eq!(spec.reach == Reach::All, works_on_keys || finds_more, "{name}");
    }
}

fn check_argument(name: &str, argument: &Argument, named: &mut [bool]) {
    if let Some(index) = argument.key_spec_index {
        named[usize::from(index)] = true;
    }
    let nested = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
    assert_eq!(nested, argument.arguments.len() >= 2, "{name}: {}", argument.name);
    let is_key = argument.kind == ArgumentKind::Key;
    assert!(!is_key || argument.key_spec_index.is_some(), "{name}: {}", argument.name);
    argument.arguments.iter().for_each(|inner| check_argument(name, inner, named));
}

/// Their keys follow a word, which "1" is not.
const BEHIND_A_WORD: [&str; 2] = ["xread", "xreadgroup"];

/// With the fewest arguments allowed, the keys are all within them.
#[test]
fn keys_are_found_in_the_shortest_requests() {
    for (name, spec) in declarations() {
        let len = spec.arity.unsigned_abs() as usize;
        let args: ArgsBuf = (0..len).map(|_| &b"1"[..]).collect();
        let mut positions = Vec::new();
        let found = key_positions(spec, args.args(), &mut positions);
        if BEHIND_A_WORD.contains(&name.as_str()) {
            continue;
        }
        assert!(found.is_ok(), "{name}");
        assert_eq!(positions.is_empty(), spec.key_specs.is_empty(), "{name}");
        assert!(positions.iter().all(|(at, _)| (1..len).contains(at)), "{name}: {positions:?}");
    }
}
