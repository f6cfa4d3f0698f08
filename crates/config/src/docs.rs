//! docs/config.md: every parameter and what it does here; isotherm.conf: those that do something, with their
//! defaults. The test writes them again when they are stale, and fails once.

use super::params::{Kind, Param, Support};
use super::{PARAMS, value};

const HEAD: &str = "\
# Configuration parameters

Generated from the declarations in `crates/config/src/table.rs`; a test refreshes this file.

Isotherm accepts every parameter of Valkey 9.1 under its current and former names, and validates and shows it as Valkey does.
The column *effect* says what it does here:

* a sentence: the parameter takes effect;
* *no effect*: it can be set and read, but changes nothing, for the reason given;
* *fixed*: only the default is accepted, for the reason given. Another value stops the start, or is refused by CONFIG SET.

The column *may be changed*: *any time* by CONFIG SET; *protected*: CONFIG SET also needs `enable-protected-configs`;
*at start*: only in the configuration file or on the command line. Parameters marked *Isotherm only* do not exist in Valkey.

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
    let effect = match param.support {
        Support::Works(what) => what.to_owned(),
        Support::None(because) => format!("*no effect*: {because}"),
        Support::Fixed(because) => format!("*fixed*: {because}"),
    };
    format!("| {name} | {} | {changed} | {effect} |\n", default(param))
}

fn default(param: &Param) -> String {
    match param.name {
        // Values that depend on the machine are no defaults of the program.
        "dir" => return "the directory of the start".into(),
        "io-threads" => return "number of CPUs".into(),
        _ => {}
    }
    let shown = String::from_utf8(value::show(param, &param.default_value())).expect("defaults are text");
    match (shown.is_empty(), param.kind) {
        (true, Kind::Text { .. } | Kind::Special(_)) => "\"\"".into(),
        _ => format!("`{shown}`"),
    }
}

const SAMPLE_HEAD: &str = "\
# Configuration file of Isotherm: every parameter that has an effect, with its default.
#
# Generated from the declarations in crates/config/src/table.rs; a test refreshes this file.
#
#     isotherm-server /path/to/isotherm.conf
#
# Units: 1k is 1000 bytes, 1kb is 1024 bytes, also 1m, 1mb, 1g and 1gb, in upper or lower case. Values with spaces need quotes.
# Other files can be included: \"include /path/to/other.conf\". If a parameter is set more than once, the last line wins.
# CONFIG REWRITE keeps comments and includes.
";

fn sample() -> String {
    let works =
        PARAMS.iter().filter(|param| !param.flags.hidden && matches!(param.support, Support::Works(_)));
    SAMPLE_HEAD.to_owned() + &works.map(sample_lines).collect::<String>()
}

fn sample_lines(param: &Param) -> String {
    let Support::Works(what) = param.support else { unreachable!("the others are not shown") };
    let at_start = if param.flags.immutable { " (At start only.)" } else { "" };
    let shown = String::from_utf8(value::show(param, &param.default_value())).expect("defaults are text");
    let value = match (param.name, param.kind) {
        ("dir", _) => "./".into(),
        // One worker a CPU is no number.
        ("io-threads", _) => "4".into(),
        // Nothing is two words here.
        ("replicaof", _) => "no one".into(),
        (_, _) if shown.is_empty() => "\"\"".to_owned(),
        _ => shown,
    };
    format!("\n# {what}{at_start}\n# {} {value}\n", param.name)
}

#[test]
fn the_page_is_fresh() {
    isotherm_probe::check_fresh("docs/config.md", &page());
}

#[test]
fn the_sample_is_fresh() {
    isotherm_probe::check_fresh("isotherm.conf", &sample());
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
        config.set_arguments(id, &arguments).unwrap_or_else(|why| panic!("{param}: {why}"));
        assert!(config.is_default(id) || ["dir", "io-threads"].contains(&name), "{param} is not the default");
    }
}

#[test]
fn every_parameter_says_what_it_does() {
    for param in PARAMS {
        let (Support::Works(text) | Support::None(text) | Support::Fixed(text)) = param.support;
        assert!(!text.is_empty(), "{}", param.name);
        let sentence = matches!(param.support, Support::Works(_));
        assert_eq!(sentence, text.ends_with('.'), "{}: {text}", param.name);
    }
}
