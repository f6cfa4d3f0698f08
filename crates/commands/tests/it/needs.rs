//! Table of what each command needs of the values of its keys: a new command, or a new flag, shows there.

use isotherm_commands::COMMANDS;
use isotherm_commands::spec::{KeyFlags, Need, NeedFrom, Spec};
use isotherm_resp::ArgsBuf;

const NEEDS: &str = include_str!("needs.tsv");

/// `set: by arguments`, `lmove: elements, elements`: a word for each key specification.
fn row(name: &str, spec: &Spec) -> Option<String> {
    let keys: Vec<KeyFlags> = spec
        .key_specs
        .iter()
        .filter(|keys| !keys.flags.has(KeyFlags::NOT_KEY))
        .map(|keys| keys.flags)
        .collect();
    let args = ArgsBuf::from_slices(&[]);
    let words: Vec<&str> = keys
        .iter()
        .map(|flags| match (spec.need, spec.need_of(*flags, args.args())) {
            (NeedFrom::Arguments(_), _) => "by arguments",
            (_, Need::Nothing) => "nothing",
            (_, Need::Length) => "length",
            (_, Need::Elements) => "elements",
            (_, Need::All) => "all",
        })
        .collect();
    (!words.is_empty()).then(|| format!("{name}\t{}", words.join("\t")))
}

#[test]
fn commands_need_what_the_table_says() {
    let mut rows = Vec::new();
    for command in COMMANDS.iter().copied().flatten() {
        rows.extend(row(command.spec.name, &command.spec));
        for sub in command.subcommands {
            rows.extend(row(&format!("{} {}", command.spec.name, sub.spec.name), &sub.spec));
        }
    }
    rows.sort();
    let expected: Vec<&str> = NEEDS.lines().collect();
    assert!(rows == expected, "needs.tsv should be:\n{}\n", rows.join("\n"));
}

#[test]
fn the_most_that_is_needed_covers_every_key() {
    let args = ArgsBuf::from_slices(&[]);
    for command in COMMANDS.iter().copied().flatten() {
        let specs = std::iter::once(&command.spec).chain(command.subcommands.iter().map(|sub| &sub.spec));
        for spec in specs.filter(|spec| !matches!(spec.need, NeedFrom::Arguments(_))) {
            for keys in spec.key_specs {
                assert!(spec.need_of(keys.flags, args.args()) <= spec.need_max(), "{}", spec.name);
            }
        }
    }
}
