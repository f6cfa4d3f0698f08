//! HRANDFIELD and RANDOMKEY where nearly everything is past its time and not collected yet: what is visible
//! is found, each as likely as another, and what is looked at has a bound.

use crate::common::Server;
use isotherm_keyspace::{ExpiryMode, NoEffects};
use isotherm_resp::ArgsBuf;
use isotherm_resp::reply::Protocol;
use isotherm_stdx::steps;
use std::collections::BTreeMap;

/// The bulk strings of a reply.
fn ask(server: &mut Server, words: &[&str]) -> Vec<String> {
    let args: ArgsBuf = words.iter().map(|word| word.as_bytes()).collect();
    let out = server.run(args.args(), &mut NoEffects).out;
    let text = String::from_utf8(out).expect("characters");
    assert!(!text.starts_with('-'), "{words:?}: {text}");
    let mut found = Vec::new();
    let mut lines = text.split("\r\n");
    while let Some(line) = lines.next() {
        if line.starts_with('$') && line != "$-1" {
            found.push(lines.next().expect("a text").to_string());
        }
    }
    found
}

/// A hash `h` of `fields` fields f0 ..., each its own value. The first `visible` of them are left.
fn hash(fields: usize, visible: usize) -> Server {
    let mut server = Server::new(Protocol::Resp2, 1);
    let names: Vec<String> = (0..fields).map(|number| format!("f{number}")).collect();
    let pairs: Vec<&str> = names.iter().flat_map(|name| [name.as_str(), name.as_str()]).collect();
    ask(&mut server, &[&["HSET", "h"], pairs.as_slice()].concat());
    let (count, gone): (_, Vec<&str>) =
        ((fields - visible).to_string(), names[visible..].iter().map(String::as_str).collect());
    if !gone.is_empty() {
        ask(&mut server, &[&["HPEXPIRE", "h", "10", "FIELDS", count.as_str()], gone.as_slice()].concat());
    }
    server.conditions.now.0 += 20;
    server
}

fn counted(names: impl IntoIterator<Item = String>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    names.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
    counts
}

#[track_caller]
fn check_even(names: impl IntoIterator<Item = String>, different: usize) {
    let counts = counted(names);
    assert_eq!(counts.len(), different, "{counts:?}");
    let mean = counts.values().sum::<u32>() as f64 / different as f64;
    // Some nine standard deviations of a count.
    let apart = 9.0 * mean.sqrt();
    assert!(counts.values().all(|&count| (f64::from(count) - mean).abs() < apart), "{counts:?}");
}

#[test]
fn few_fields_are_visible() {
    for (fields, visible) in [(600, 3), (600, 1), (600, 100), (5000, 20), (300, 200)] {
        let mut server = hash(fields, visible);
        let most = fields.to_string();
        check_even((0..60 * visible.max(20)).flat_map(|_| ask(&mut server, &["HRANDFIELD", "h"])), visible);
        check_even(ask(&mut server, &["HRANDFIELD", "h", "-20000"]), visible);
        // As many different ones as there are, or as are wanted, each with its value.
        for wanted in [1, 2, visible / 2, visible - 1, visible, visible + 5, fields / 2, fields - 1, fields] {
            let pairs = ask(&mut server, &["HRANDFIELD", "h", &wanted.to_string(), "WITHVALUES"]);
            assert!(pairs.chunks(2).all(|pair| pair[0] == pair[1]), "{pairs:?}");
            let counts = counted(pairs);
            assert!(counts.values().all(|&count| count == 2), "{counts:?}");
            assert_eq!(counts.len(), wanted.min(visible), "{wanted} of {visible} of {fields}");
        }
        assert_eq!(ask(&mut server, &["HRANDFIELD", "h", &most]).len(), visible);
        let drawn = (0..3000).flat_map(|_| ask(&mut server, &["HRANDFIELD", "h", "2"]));
        check_even(drawn, visible);
        server.check_invariants();
    }
}

#[test]
fn no_field_is_visible() {
    let mut server = hash(600, 0);
    for form in
        [vec!["HRANDFIELD", "h"], vec!["HRANDFIELD", "h", "-5"], vec!["HRANDFIELD", "h", "5", "WITHVALUES"]]
    {
        assert!(ask(&mut server, &form).is_empty(), "{form:?}");
    }
}

/// The only live field of a hundred thousand is found once. The steps are those for a sixteenth of the hash,
/// for the hash once or (for different fields) twice, and some for each field that is drawn.
#[test]
fn one_field_of_a_hundred_thousand_is_found_once() {
    let fields = 100_000;
    let mut server = hash(fields, 1);
    for (form, wanted) in [("1", 1), ("-1", 1), ("-1000", 1000), ("1000", 1), ("60000", 1)] {
        let before = steps::looked();
        let found = ask(&mut server, &["HRANDFIELD", "h", form]);
        assert_eq!(found, vec!["f0"; wanted], "{form}");
        let looked = steps::looked() - before;
        assert!(looked <= fields as u64 * 5 / 2 + 17 * wanted as u64, "{form}: {looked}");
    }
    assert_eq!(ask(&mut server, &["HRANDFIELD", "h"]), ["f0"]);
}

/// Returns a server with `keys` keys. The first `live` of them are live.
fn keys(keys: usize, live: usize, tag: &str, mode: ExpiryMode) -> Server {
    let mut server = Server::new(Protocol::Resp2, 4);
    for number in 0..keys {
        let (name, times) = (format!("{tag}{number}"), if number < live { "100000" } else { "10" });
        ask(&mut server, &["SET", &name, "", "PX", times]);
    }
    server.conditions.now.0 += 20;
    server.conditions.expiry_mode = mode;
    server
}

#[test]
fn few_keys_are_live() {
    for tag in ["", "{t}"] {
        for mode in [ExpiryMode::Delete, ExpiryMode::Hide] {
            for live in [1, 3] {
                let mut server = keys(1000, live, tag, mode);
                let names: Vec<String> = (0..40).flat_map(|_| ask(&mut server, &["RANDOMKEY"])).collect();
                assert_eq!(names.len(), 40, "{live} {mode:?}");
                let counts = counted(names);
                assert!(
                    counts.keys().all(|name| name[tag.len()..].parse::<usize>().unwrap() < live),
                    "{counts:?}"
                );
                assert_eq!(counts.len(), live, "{counts:?}");
                server.check_invariants();
            }
        }
    }
}

#[test]
fn no_key_is_live() {
    let mut server = keys(3000, 0, "", ExpiryMode::Delete);
    assert!(ask(&mut server, &["RANDOMKEY"]).is_empty(), "a key that is gone is no answer");
    // Where nothing may leave an expired one is reported, as Valkey does.
    let mut server = keys(3000, 0, "", ExpiryMode::Hide);
    assert_eq!(ask(&mut server, &["RANDOMKEY"]).len(), 1);
}
