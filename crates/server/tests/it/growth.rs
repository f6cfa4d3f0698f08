//! Growth is measured, of the server's own commands: one that takes many channels, patterns, keys, ids or
//! names, or waits for them, looks at 17 times as much for 16 times as many, at most. As
//! `crates/commands/tests/it/growth.rs` does it for data commands, over a socket: DEBUG STEPS shows what the
//! one worker has looked at.
//!
//! A scene that counts less than one look an item would not notice a loop that grows: it fails, and its loop
//! needs a `steps::note`.
//!
//! Which commands these are COMMAND DOCS says, of all that are not data commands.
#![cfg(debug_assertions)]

use crate::common::{Client, Server, encode, wait_until};
use std::collections::BTreeSet;

const FEW: usize = 1000;
/// Where each of them is a connection: 640 of these, with both ends, are within what a process may have open.
const FEW_CLIENTS: usize = 40;
const TIMES: usize = 16;
const GROWTH_MAX: u64 = 17;
/// Looks at an item that are no growth, as there: of few keys most slots are empty.
const LOOKS: u64 = 1;
const DEBUG: &[&str] = &["--enable-debug-command", "yes"];

/// Requests of a new client; then the line that is measured, and the requests of another client. The part in
/// brackets is repeated, with `#` for its number; a line that ends with `*` is sent for each number.
struct Scene {
    name: &'static str,
    /// How many there are of them at first; then 16 times as many.
    few: usize,
    before: &'static [&'static str],
    line: &'static str,
    replies: Replies,
    then: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq)]
enum Replies {
    None,
    One,
    /// One for each number.
    Each,
}

const fn scene(name: &'static str, before: &'static [&'static str], line: &'static str) -> Scene {
    Scene { name, few: FEW, before, line, replies: Replies::One, then: &[] }
}

const fn each(name: &'static str, before: &'static [&'static str], line: &'static str) -> Scene {
    Scene { replies: Replies::Each, ..scene(name, before, line) }
}

const fn waits(name: &'static str, line: &'static str, then: &'static [&'static str]) -> Scene {
    Scene { replies: Replies::None, then, ..scene(name, &[], line) }
}

/// A scene with other clients connected, this many of them; `[I#]` are their ids.
const fn among_clients(name: &'static str, line: &'static str) -> Scene {
    Scene { few: FEW_CLIENTS, ..scene(name, &[], line) }
}

const PREFIXES: &str = "CLIENT TRACKING ON BCAST [PREFIX p#:]";

const SCENES: &[Scene] = &[
    each("subscribe", &[], "SUBSCRIBE [c#]"),
    each("psubscribe", &[], "PSUBSCRIBE [c#*x]"),
    each("ssubscribe", &[], "SSUBSCRIBE [{t}c#]"),
    each("unsubscribe", &["SUBSCRIBE [c#]"], "UNSUBSCRIBE [c#]"),
    each("punsubscribe", &["PSUBSCRIBE [c#]"], "PUNSUBSCRIBE [c#]"),
    each("sunsubscribe", &["SSUBSCRIBE [{t}c#]"], "SUNSUBSCRIBE [{t}c#]"),
    scene("script|exists", &[], "SCRIPT EXISTS [s#]"),
    scene("pubsub|numsub", &[], "PUBSUB NUMSUB [c#]"),
    scene("pubsub|shardnumsub", &[], "PUBSUB SHARDNUMSUB [c#]"),
    scene("client|tracking", &["HELLO 3"], PREFIXES),
    scene("mset beside prefixes", &["HELLO 3", PREFIXES], "MSET [k# v]"),
    scene("client|tracking off", &["HELLO 3", PREFIXES], "CLIENT TRACKING OFF"),
    scene("client|list", &[], "CLIENT LIST ID [9#]"),
    scene("client|kill", &[], "CLIENT KILL ID [9#]"),
    among_clients("client|list of clients", "CLIENT LIST ID [I#]"),
    among_clients("client|list without clients", "CLIENT LIST NOT-ID [I#]"),
    among_clients("client|kill of clients", "CLIENT KILL ID [I#]"),
    scene("config|get", &[], "CONFIG GET [p#]"),
    scene("config|get of names", &[], "CONFIG GET [maxmemory]"),
    scene("command|docs", &[], "COMMAND DOCS [c#]"),
    scene("command|info", &[], "COMMAND INFO [c#]"),
    scene("command|getkeys", &[], "COMMAND GETKEYS MSET [k# v]"),
    scene("command|getkeysandflags", &[], "COMMAND GETKEYSANDFLAGS MSET [k# v]"),
    scene("latency|histogram", &[], "LATENCY HISTOGRAM [c#]"),
    scene("latency|reset", &[], "LATENCY RESET [e#]"),
    scene("info", &[], "INFO [s#]"),
    scene("watch", &[], "WATCH [k#]"),
    scene("unwatch", &["WATCH [k#]"], "UNWATCH"),
    scene("exec", &["MULTI", "SET k# v *"], "EXEC"),
    scene("exec of conditions", &["MULTI", "PING"], "EXEC [NX c#]"),
    scene("exec of watched keys", &["WATCH [k#]", "MULTI", "SET k# v *"], "EXEC"),
    scene("discard", &["WATCH [k#]", "MULTI", "SET k# v *"], "DISCARD"),
    scene("mget of a reader who tracks", &["HELLO 3", "CLIENT TRACKING ON"], "MGET [k#]"),
    waits("blpop", "BLPOP [b#] 0", &["RPUSH b7 a"]),
    waits("blpop, swapped", "BLPOP [b#] 0", &["SWAPDB 0 1", "SWAPDB 0 1"]),
    Scene {
        before: &["SELECT 1", "RPUSH b# x *", "SELECT 0"],
        ..waits("blpop of keys that come all at once", "BLPOP [b#] 0", &["SWAPDB 0 1"])
    },
    waits("blpop, flushed", "BLPOP [b#] 0", &["FLUSHALL"]),
    waits("blpop, unblocked", "BLPOP [b#] 0", &["CLIENT UNBLOCK #me"]),
    waits("blpop, killed", "BLPOP [b#] 0", &["CLIENT KILL ID #me"]),
    waits("brpop", "BRPOP [b#] 0", &["RPUSH b7 a"]),
    waits("bzpopmin", "BZPOPMIN [b#] 0", &["ZADD b7 1 a"]),
    waits("bzmpop", "BZMPOP 0 #n [b#] MIN", &["ZADD b7 1 a"]),
    waits("blmpop", "BLMPOP 0 #n [b#] LEFT", &["RPUSH b7 a"]),
    waits("xread", "XREAD BLOCK 0 STREAMS [b#] [$]", &["XADD b7 * f v"]),
];

/// Commands that say they take many, and why no scene stands here.
const LEFT_OUT: &[(&str, &str)] = &[
    ("module|load", "there are no modules: what would be theirs is not looked at"),
    ("module|loadex", "the same"),
    ("config|set", "a parameter that is named twice is an error, so there are no more than parameters"),
    ("client|capa", "one test a word; unknown words are passed over"),
    ("eval", "what a script does with its keys is its own"),
    ("eval_ro", "the same"),
    ("evalsha", "the same"),
    ("evalsha_ro", "the same"),
    ("fcall", "the same"),
    ("fcall_ro", "the same"),
    ("cluster|addslots", "a lone server refuses it; there are 16384 slots, and the bus thread holds no lock"),
    ("cluster|addslotsrange", "the same"),
    ("cluster|delslots", "the same"),
    ("cluster|delslotsrange", "the same"),
    ("cluster|migrateslots", "it is refused"),
    ("acl|setuser", "rules are read without a lock"),
    ("acl|deluser", "each name is looked up, without a lock; clients are gone through once"),
    ("acl|dryrun", "it asks about one command, which does not run"),
    ("migrate", "it dumps in portions and lets go of its locks between them (`it migrate`)"),
];

/// Words of a line, for this count. `ids` are those of other clients.
fn words(line: &str, count: usize, ids: &[String]) -> Vec<String> {
    let mut words = Vec::new();
    for (at, part) in line.split(['[', ']']).enumerate() {
        if at % 2 == 1 {
            let of = |number: usize| {
                part.split(' ').map(move |word| match word {
                    "I#" => ids[number - 1].clone(),
                    _ => word.replace('#', &number.to_string()),
                })
            };
            words.extend((1..=count).flat_map(of));
        } else {
            words.extend(part.split_whitespace().map(|word| word.replace("#n", &count.to_string())));
        }
    }
    words
}

fn is_each(line: &str) -> bool {
    ["SUB", "PSUB", "SSUB"].iter().any(|start| line.starts_with(start))
}

/// Runs the scene with this count. Returns the number of items that its worker looked at from the measured
/// line on.
fn looked(scene: &Scene, count: usize) -> u64 {
    let server = Server::start(DEBUG);
    let (mut client, mut other) = (server.client(), server.client());
    let me = client.id().to_string();
    let mut clients: Vec<Client> = Vec::new();
    if scene.line.contains("I#") {
        clients.extend((0..count).map(|_| server.client()));
    }
    let ids: Vec<String> = clients.iter_mut().map(|client| client.id().to_string()).collect();
    let steps = |other: &mut Client| other.ask_number("DEBUG STEPS") as u64;
    let read = |client: &mut Client, replies: usize, line: &str| {
        for _ in 0..replies {
            let reply = client.read_reply();
            assert_ne!(reply[0], b'-', "{line}: {}", String::from_utf8_lossy(&reply));
        }
    };
    for line in scene.before {
        if let Some(each) = line.strip_suffix(" *") {
            let requests = (1..=count).flat_map(|number| {
                encode(
                    &each.split(' ').map(|word| word.replace('#', &number.to_string())).collect::<Vec<_>>(),
                )
            });
            client.send(requests.collect::<Vec<u8>>());
            read(&mut client, count, line);
        } else {
            client.send(encode(&words(line, count, &ids)));
            read(&mut client, if is_each(line) { count } else { 1 }, line);
        }
    }
    let before = steps(&mut other);
    client.send(encode(&words(scene.line, count, &ids)));
    match scene.replies {
        Replies::None => {
            wait_until("it waits", || other.blocked_count() == 1);
        }
        Replies::One => read(&mut client, 1, scene.line),
        Replies::Each => read(&mut client, count, scene.line),
    }
    for line in scene.then {
        other.ask(&line.replace("#me", &me));
        if line.ends_with("#me") {
            // Its own worker does the rest.
            wait_until("it waits no longer", || other.blocked_count() == 0);
        }
    }
    steps(&mut other) - before
}

/// Names of commands and subcommands with an argument that repeats, without those that are tested next to
/// their code.
fn that_take_many(client: &mut Client) -> BTreeSet<String> {
    let data: BTreeSet<&str> = isotherm_commands::COMMANDS
        .iter()
        .flat_map(|group| group.iter())
        .map(|command| command.spec.name)
        .collect();
    let docs = client.ask("COMMAND DOCS");
    let names: BTreeSet<String> = client.ask("COMMAND LIST").split("\r\n").map(str::to_string).collect();
    let (mut many, mut name) = (BTreeSet::new(), String::new());
    let lines: Vec<&str> = docs.split("\r\n").collect();
    for (at, line) in lines.iter().enumerate() {
        // A name stands in front of its facts. The summary is the first of them.
        let begins = lines.get(at + 3).is_some_and(|first| *first == "summary");
        let head = line.split('|').next().expect("a name");
        if begins && names.contains(head) {
            name = line.to_string();
        } else if *line == "+multiple" {
            many.insert(name.clone());
        }
    }
    many.retain(|name| !data.contains(name.split('|').next().expect("a name")));
    many
}

#[test]
fn every_command_that_takes_many_is_measured() {
    let server = Server::start(DEBUG);
    let declared = that_take_many(&mut server.client());
    let missing: Vec<&String> = declared
        .iter()
        .filter(|name| !SCENES.iter().any(|scene| scene.name == **name))
        .filter(|name| !LEFT_OUT.iter().any(|(left_out, _)| left_out == *name))
        .collect();
    assert!(missing.is_empty(), "no scene for {missing:?}");
    assert!(declared.len() > 10, "{declared:?}");
}

#[test]
fn work_grows_with_the_request() {
    let (mut worse, mut blind) = (Vec::new(), Vec::new());
    for scene in SCENES {
        let (few_items, many_items) = (scene.few, TIMES * scene.few);
        let (few, many) = (looked(scene, few_items), looked(scene, many_items));
        println!("{}: {few}, {many}", scene.name);
        if many > GROWTH_MAX * few + LOOKS * many_items as u64 {
            worse.push(format!("{}: {few} for {few_items}, {many} for {many_items}", scene.name));
        }
        if few < few_items as u64 || many < many_items as u64 {
            blind.push(format!("{}: {few} for {few_items}, {many} for {many_items}", scene.name));
        }
    }
    assert!(blind.is_empty(), "these count less than one look an item, so they cannot fail: {blind:#?}");
    assert!(worse.is_empty(), "{worse:#?}");
}
