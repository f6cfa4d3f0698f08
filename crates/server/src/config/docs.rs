//! docs/config.md: every parameter and what it does here. The test writes it again when it is stale, and fails once.

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

#[test]
fn the_page_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/config.md");
    let page = page();
    if std::fs::read_to_string(path).is_ok_and(|before| before == page) {
        return;
    }
    std::fs::write(path, page).expect("docs/config.md can be written");
    panic!("docs/config.md was stale and has been written again");
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
