//! SLOWLOG and COMMANDLOG keep of a command what its declaration says.

use crate::admin::COMMANDS;
use isotherm_config::Config;
use isotherm_node::observe::command_log::{CommandLog, Kind, Ran, kept_arguments};
use isotherm_node::request::registry::Commands;
use isotherm_resp::ArgsBuf;
use std::time::Duration;

fn kept(request: &[&str]) -> Vec<String> {
    let commands = Commands::build(COMMANDS);
    let command = commands.find(request[0].as_bytes()).expect("a command");
    let sub = request.get(1).and_then(|word| command.subcommand(word.as_bytes()));
    let words: Vec<&[u8]> = request.iter().map(|word| word.as_bytes()).collect();
    let args = ArgsBuf::from_slices(&words);
    let kept = kept_arguments(sub.unwrap_or(command), args.args());
    kept.into_iter().map(|word| String::from_utf8(word.into()).expect("text")).collect()
}

#[test]
fn arguments_are_cut() {
    let long = "a".repeat(130);
    assert_eq!(kept(&["set", "k", &long])[2], format!("{}... (2 more bytes)", "a".repeat(128)));
    assert_eq!(kept(&["set", "k", &long[..128]])[2], "a".repeat(128));
    let many: Vec<&str> = std::iter::repeat_n("del", 33).collect();
    let kept_many = kept(&many);
    assert_eq!((kept_many.len(), &*kept_many[31]), (32, "... (2 more arguments)"));
    assert_eq!(kept(&many[..32])[31], "del");
}

#[test]
fn secrets_are_not_kept() {
    let check = |request: &str, expected: &str| {
        let words: Vec<&str> = request.split(' ').collect();
        assert_eq!(kept(&words).join(" "), expected);
    };
    check("auth a", "auth (redacted)");
    check("AUTH a b", "AUTH (redacted) (redacted)");
    check("hello 3 AUTH a b SETNAME c", "hello 3 AUTH (redacted) (redacted) SETNAME c");
    check("config set requirepass x hz 10", "config set requirepass (redacted) hz 10");
    check("config set hz 10 masterauth x", "config set hz 10 masterauth (redacted)");
    check("get auth", "get auth");
    check("hello 3 auth user", "hello 3 auth user");
    check("hello 3 setname me", "hello 3 setname me");
    check("set auth secret x", "set auth secret x");
}

#[test]
fn the_newest_stay() {
    let (config, log) = (Config::default(), CommandLog::default());
    let set = |name: &[u8], value: &[u8]| {
        config
            .set(&config.begin_writing(Duration::ZERO).unwrap(), &[(name, value)], false, &mut |_| Ok(()))
            .unwrap()
    };
    let commands = Commands::build(COMMANDS);
    let args = ArgsBuf::from_slices(&[b"ping"]);
    let note = |value| {
        let command = commands.find(b"ping").expect("a command");
        let ran = Ran { command, args: args.args(), addr: "a", name: "n", unix_seconds: 7 };
        log.note(&config, Kind::Slow, value, &ran);
    };
    let ids = || log.newest(&config, Kind::Slow, 9).iter().map(|logged| logged.id).collect::<Vec<_>>();
    set(b"slowlog-log-slower-than", b"5");
    set(b"slowlog-max-len", b"2");
    [4, 5, 6, 7].into_iter().for_each(note);
    assert_eq!(ids(), [2, 1]);
    log.reset(Kind::Slow);
    note(8);
    assert_eq!(ids(), [3]);
    set(b"slowlog-max-len", b"0");
    note(9);
    assert_eq!((ids(), log.len(&config, Kind::LargeReply)), (vec![3], 0));
}
