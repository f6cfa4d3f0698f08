//! Entries and gates of the real commands.

use crate::admin::COMMANDS;
use isotherm_node::request::gate_bits::Gates;
use isotherm_node::request::registry::{Commands, NAME_IS_TAKEN, NO_SUCH_COMMAND};

/// The commands whose documentation bounds their time are known. INFO locks shows the longest time for
/// which these hold a lock as `longest_cpu_us`.
#[test]
fn bounded_commands() {
    let commands = Commands::build(COMMANDS);
    let mut names: Vec<&str> =
        commands.all().iter().filter(|e| e.spec.is_constant_time()).map(|e| &*e.name).collect();
    names.sort_unstable();
    for (name, bounded) in [("get", true), ("zadd", true), ("lpush", true), ("scan", true), ("info", true)] {
        assert_eq!(names.contains(&name), bounded, "{name}");
    }
    for name in ["del", "lrange", "exec", "flushall", "keys", "client|kill", "debug", "zrange", "dump"] {
        assert!(!names.contains(&name), "{name}");
    }
    isotherm_probe::check_fresh("crates/server/src/request/bounded_commands.txt", &(names.join("\n") + "\n"));
}

/// The clock is read for a hold only where it is not over in a moment.
#[test]
fn holds_are_measured_where_they_may_be_long() {
    let commands = Commands::build(COMMANDS);
    let check = |name: &str, expected: bool| {
        let entry = commands.find_full(name.as_bytes()).expect(name);
        assert_eq!(entry.is_measured, expected, "{name}");
    };
    for name in ["get", "set", "mget", "lpush", "hset", "zadd", "setex", "ping", "info", "watch"] {
        check(name, false);
    }
    for name in ["lrange", "mset", "del", "sort", "exec", "dbsize", "flushall", "debug", "client|pause"] {
        check(name, true);
    }
}

#[test]
fn every_command_is_found_by_its_name_only() {
    let commands = Commands::build(COMMANDS);
    for entry in commands.top() {
        assert!(std::ptr::eq(commands.find(entry.name.as_bytes()).unwrap(), entry));
        assert!(std::ptr::eq(commands.find(entry.name.to_uppercase().as_bytes()).unwrap(), entry));
        let longer = format!("{}x", entry.name);
        assert!(commands.find(longer.as_bytes()).is_none_or(|other| *other.name == longer));
    }
    for (at, entry) in commands.all().iter().enumerate() {
        assert_eq!(usize::from(entry.index), at);
    }
    for unknown in [&b""[..], b"nonsense", b"get\0", b"config|get", &[0xff; 12], &[b'x'; 1000]] {
        assert!(commands.find(unknown).is_none());
    }
}
#[test]
fn renamed_commands_are_found_by_their_new_names_only() {
    let mut commands = Commands::build(COMMANDS);
    let long = [b'X'; 100];
    let (count, set) = (commands.top().count(), commands.find(b"set").expect("a command"));
    commands.rename(b"SET", &long).expect("a free name");
    commands.rename(b"flushall", b"").expect("it is there");
    commands.rename(b"config", b"a\xff").expect("a free name");
    commands.rename(b"INCR", b"aside").expect("a free name");
    commands.rename(b"decr", b"incr").expect("a free name");
    commands.rename(b"aside", b"DECR").expect("a free name");
    for (name, expected) in [
        (&b"set"[..], None),
        (&long[..], Some("set")),
        (&[b'x'; 101][..], None),
        (b"FLUSHALL", None),
        (b"", None),
        (b"A\xff", Some("config")),
        (b"incr", Some("decr")),
        (b"decr", Some("incr")),
        (b"get", Some("get")),
    ] {
        assert_eq!(commands.find(name).map(|entry| &*entry.name), expected, "{}", name.escape_ascii());
    }
    assert!(commands.find_full(b"a\xff|get").is_some() && commands.find_full(b"config|get").is_none());
    // A log knows both names, and handlers find their own commands.
    assert!(std::ptr::eq(commands.find_logged(b"SET").expect("a name"), set));
    assert!(std::ptr::eq(commands.find_logged(&long).expect("a name"), set));
    assert_eq!(commands.find_logged(b"incr").map(|entry| &*entry.name), Some("decr"));
    for name in ["incr", "decr", "set", "flushall", "get", "config"] {
        assert_eq!(commands.find_original(name.as_bytes()).map(|entry| &*entry.name), Some(name));
    }
    assert_eq!(commands.top().count(), count - 1);
    commands.table(COMMANDS);
    // What cannot be.
    assert_eq!(commands.rename(b"set", b"y"), Err(NO_SUCH_COMMAND));
    assert_eq!(commands.rename(b"client|list", b"y"), Err(NO_SUCH_COMMAND));
    assert_eq!(commands.rename(b"get", b"MGET"), Err(NAME_IS_TAKEN));
}

/// A limit on memory sets the memory gate only for commands that may take memory, and the queue gate
/// leaves out EXEC, DISCARD and QUIT. A usual command of a usual session costs one test, which finds no
/// gate.
#[test]
fn a_limit_on_memory_concerns_what_takes_some() {
    let commands = Commands::build(COMMANDS);
    let gates = |name: &str| commands.find_full(name.as_bytes()).expect(name).gates;
    for (name, is_open) in [("get", false), ("del", false), ("set", true), ("append", true), ("exec", true)] {
        assert_eq!(gates(name).has(Gates::GROWTH), is_open, "{name}");
    }
    for (name, is_open) in [("get", true), ("exec", false), ("discard", false), ("quit", false)] {
        assert_eq!(gates(name).has(Gates::QUEUE), is_open, "{name}");
    }
    for (name, is_open) in [("get", true), ("ping", false), ("sunsubscribe", false), ("reset", false)] {
        assert_eq!(gates(name).has(Gates::SUBSCRIBER), is_open, "{name}");
    }
    for (name, is_open) in [("get", true), ("auth", false), ("hello", false), ("quit", false)] {
        assert_eq!(gates(name).has(Gates::AUTHENTICATION), is_open, "{name}");
    }
    assert!(gates("debug").has(Gates::PROTECTION) && !gates("config|set").has(Gates::PROTECTION));
    assert!(gates("exec").has(Gates::REPLICAS) && !gates("get").has(Gates::REPLICAS));
}
