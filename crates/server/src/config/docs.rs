//! docs/config.md: every parameter and what it does here; isotherm.conf: those that do something, with their defaults.
//! The test writes them again when they are stale, and fails once.

use super::params::{Effect, Kind, Param};
use super::{PARAMS, value};

const HEAD: &str = "\
# Configuration parameters

Generated from the declarations in `crates/server/src/config/table.rs`; a test refreshes this file.

Every parameter of Valkey 9.1 is known by its name and its older names, and is read, checked and shown as Valkey does.
What it *does* is said here, one of:

* a sentence: it takes effect;
* *no effect*: it can be set and is shown again, but changes nothing, because ...;
* *fixed*: only its default is accepted, because ... (anything else ends the start with an error, or CONFIG SET).

*at start*: only in a file or on the command line. *protected*: CONFIG SET needs `enable-protected-configs`.

| parameter | default | may be changed | effect |
|---|---|---|---|
";

fn page() -> String {
    HEAD.to_owned() + &PARAMS.iter().map(row).collect::<String>()
}

fn row(param: &Param) -> String {
    let Param { name, alias, flags, .. } = param;
    let name = match alias {
        Some(alias) => format!("`{name}` (`{alias}`)"),
        None => format!("`{name}`"),
    };
    let changed = match (flags.immutable, flags.protected) {
        (true, _) => "at start",
        (_, true) => "protected",
        _ => "any time",
    };
    let effect = match param.effect {
        Effect::Works(what) => what.to_owned(),
        Effect::None(because) => format!("*no effect*: {because}"),
        Effect::Fixed(because) => format!("*fixed*: {because}"),
    };
    format!("| {name} | {} | {changed} | {effect} |\n", default(param))
}

fn default(param: &Param) -> String {
    match param.name {
        // What the machine says is no default of the program.
        "dir" => return "where it was started".into(),
        "io-threads" => return "the CPUs".into(),
        _ => {}
    }
    let shown = String::from_utf8(value::show(param, &param.default_value())).expect("defaults are text");
    match (shown.is_empty(), param.kind) {
        (true, Kind::Text { .. } | Kind::Special(_)) => "\"\"".into(),
        _ => format!("`{shown}`"),
    }
}

const SAMPLE_HEAD: &str = "\
# A configuration file of Isotherm, with every parameter that does something and its default.
#
# Generated from the declarations in crates/server/src/config/table.rs; a test refreshes this file.
#
#     isotherm-server /path/to/isotherm.conf
#
# Sizes may be written as 1k (1000 bytes), 1kb (1024), 1m, 1mb, 1g, 1gb, in any case. A value with blanks is quoted. Other
# files can be included: \"include /path/to/other.conf\". Of several lines about a parameter the last one counts.
# CONFIG REWRITE keeps comments and includes.
";

fn sample() -> String {
    let works = PARAMS.iter().filter(|param| !param.flags.hidden && matches!(param.effect, Effect::Works(_)));
    SAMPLE_HEAD.to_owned() + &works.map(sample_lines).collect::<String>()
}

fn sample_lines(param: &Param) -> String {
    let Effect::Works(what) = param.effect else { unreachable!("the others are not shown") };
    let at_start = if param.flags.immutable { " (At start only.)" } else { "" };
    let shown = String::from_utf8(value::show(param, &param.default_value())).expect("defaults are text");
    let value = match (param.name, param.kind) {
        ("dir", _) => "./".into(),
        // One worker a CPU is no number.
        ("io-threads", _) => "4".into(),
        (_, _) if shown.is_empty() => "\"\"".to_owned(),
        _ => shown,
    };
    format!("\n# {what}{at_start}\n# {} {value}\n", param.name)
}

#[track_caller]
pub fn check_fresh(name: &str, text: &str) {
    let path = format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"));
    if std::fs::read_to_string(&path).is_ok_and(|before| before == text) {
        return;
    }
    std::fs::write(&path, text).expect("the file can be written");
    panic!("{name} was stale and has been written again");
}

#[test]
fn the_page_is_fresh() {
    check_fresh("docs/config.md", &page());
}

#[test]
fn the_sample_is_fresh() {
    check_fresh("isotherm.conf", &sample());
}

/// Without their comment signs the lines are a configuration file.
#[test]
fn the_sample_is_a_configuration() {
    use isotherm_stdx::args_split::{Dialect, args_split};
    let config = super::Config::default();
    for param in sample().lines().filter_map(|line| line.strip_prefix("# ")) {
        let Ok(words) = args_split(param.as_bytes(), Dialect::File) else { continue };
        let Some((id, name)) = words.first().and_then(|name| super::find(name)) else { continue };
        // Sentences may begin with such a word, but not in lower case.
        if name.as_bytes() != words[0] {
            continue;
        }
        let arguments: Vec<&[u8]> = words[1..].iter().map(Vec::as_slice).collect();
        let changed = config.set_arguments(id, &arguments).unwrap_or_else(|why| panic!("{param}: {why}"));
        assert!(!changed || ["dir", "io-threads"].contains(&name), "{param} is not the default");
    }
}

#[test]
fn every_parameter_says_what_it_does() {
    for param in PARAMS {
        let (Effect::Works(text) | Effect::None(text) | Effect::Fixed(text)) = param.effect;
        assert!(!text.is_empty(), "{}", param.name);
        let sentence = matches!(param.effect, Effect::Works(_));
        assert_eq!(sentence, text.ends_with('.'), "{}: {text}", param.name);
    }
}
