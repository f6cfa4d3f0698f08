//! SLOWLOG and COMMANDLOG: reading the logs of commands.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler};
use isotherm_node::observe::command_log::Kind;

const SLOWLOG: Spec = Spec {
    name: "slowlog",
    summary: "Shows the log of slow commands.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

const COMMANDLOG: Spec = Spec {
    name: "commandlog",
    summary: "Shows the logs of slow commands, large requests and large replies.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::container(
        SLOWLOG,
        &[
            Command::new(SLOWLOG_GET, slow_get),
            Command::new(SLOWLOG_HELP, slow_help),
            Command::new(SLOWLOG_LEN, slow_len),
            Command::new(SLOWLOG_RESET, slow_reset),
        ],
    ),
    Command::container(
        COMMANDLOG,
        &[
            Command::new(COMMANDLOG_GET, get),
            Command::new(COMMANDLOG_HELP, help),
            Command::new(COMMANDLOG_LEN, len),
            Command::new(COMMANDLOG_RESET, reset),
        ],
    ),
];

const SLOW_ENTRIES_DEFAULT: usize = 10;

const SLOWLOG_GET: Spec = Spec {
    name: "get",
    summary: "Returns the latest slow commands, newest first.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(N), N the entries returned",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    history: &[("4.0.0", "Each entry has the address and the name of the client.")],
    arguments: &[Argument::integer("count").optional()],
    ..Spec::BASE
};

fn slow_get(call: &mut AdminCall<'_>) -> Outcome {
    if call.args.len() > 3 {
        call.reply.error(errors::subcommand_syntax(call.args));
        return Outcome::Done;
    }
    let count = match call.args.try_get(2) {
        Some(count) => read_count(count),
        None => Ok(SLOW_ENTRIES_DEFAULT),
    };
    write_entries(call, Ok(Kind::Slow), count)
}

const SLOWLOG_LEN: Spec = Spec {
    name: "len",
    summary: "Returns how many entries the log of slow commands has.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    ..Spec::BASE
};

fn slow_len(call: &mut AdminCall<'_>) -> Outcome {
    write_len(call, Kind::Slow)
}

const SLOWLOG_RESET: Spec = Spec {
    name: "reset",
    summary: "Empties the log of slow commands.",
    since: "2.2.12",
    group: Group::Server,
    complexity: "O(N), N the entries of the log",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

fn slow_reset(call: &mut AdminCall<'_>) -> Outcome {
    forget(call, Kind::Slow)
}

const COMMANDLOG_GET: Spec = Spec {
    name: "get",
    summary: "Returns the latest entries of a log, newest first.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(N), N the entries returned",
    arity: 4,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "nondeterministic_output"],
    arguments: &[
        Argument::integer("count"),
        Argument::one_of(
            "type",
            &[
                Argument::pure_token("slow", "SLOW"),
                Argument::pure_token("large-request", "LARGE-REQUEST"),
                Argument::pure_token("large-reply", "LARGE-REPLY"),
            ],
        ),
    ],
    ..Spec::BASE
};

fn get(call: &mut AdminCall<'_>) -> Outcome {
    let (count, kind) = (read_count(call.args.get(2)), read_kind(call.args.get(3)));
    write_entries(call, kind, count)
}

const COMMANDLOG_LEN: Spec = Spec {
    name: "len",
    summary: "Returns how many entries a log has.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum", "nondeterministic_output"],
    arguments: &[Argument::one_of(
        "type",
        &[
            Argument::pure_token("slow", "SLOW"),
            Argument::pure_token("large-request", "LARGE-REQUEST"),
            Argument::pure_token("large-reply", "LARGE-REPLY"),
        ],
    )],
    ..Spec::BASE
};

fn len(call: &mut AdminCall<'_>) -> Outcome {
    match read_kind(call.args.get(2)) {
        Ok(kind) => write_len(call, kind),
        Err(text) => refuse(call, text),
    }
}

const COMMANDLOG_RESET: Spec = Spec {
    name: "reset",
    summary: "Empties a log.",
    since: "8.1.0",
    group: Group::Server,
    complexity: "O(N), N the entries of the log",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "type",
        &[
            Argument::pure_token("slow", "SLOW"),
            Argument::pure_token("large-request", "LARGE-REQUEST"),
            Argument::pure_token("large-reply", "LARGE-REPLY"),
        ],
    )],
    ..Spec::BASE
};

fn reset(call: &mut AdminCall<'_>) -> Outcome {
    match read_kind(call.args.get(2)) {
        Ok(kind) => forget(call, kind),
        Err(text) => refuse(call, text),
    }
}

fn refuse(call: &mut AdminCall<'_>, text: &str) -> Outcome {
    call.reply.error(text);
    Outcome::Done
}

fn read_kind(word: &[u8]) -> Result<Kind, &'static str> {
    Kind::named(word).ok_or("ERR type should be one of the following: slow, large-request, large-reply")
}

/// -1 is as many as there are.
fn read_count(word: &[u8]) -> Result<usize, &'static str> {
    match parse_i64(word) {
        Some(-1) => Ok(usize::MAX),
        Some(count @ 0..) => Ok(count as usize),
        _ => Err("ERR count should be greater than or equal to -1"),
    }
}

fn write_entries(
    call: &mut AdminCall<'_>,
    kind: Result<Kind, &'static str>,
    count: Result<usize, &'static str>,
) -> Outcome {
    let (count, kind) = match (count, kind) {
        (Ok(count), Ok(kind)) => (count, kind),
        (Err(text), _) | (_, Err(text)) => return refuse(call, text),
    };
    let entries = call.node.command_log.newest(&call.node.config, kind, count);
    call.reply.array(entries.len());
    for entry in &entries {
        call.reply.array(6);
        call.reply.integer(entry.id as i64);
        call.reply.integer(entry.unix_seconds);
        call.reply.integer(entry.value as i64);
        call.reply.array(entry.arguments.len());
        entry.arguments.iter().for_each(|argument| call.reply.bulk(argument));
        call.reply.bulk(entry.addr.as_bytes());
        call.reply.bulk(entry.name.as_bytes());
    }
    Outcome::Done
}

fn write_len(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    call.reply.integer(call.node.command_log.len(&call.node.config, kind) as i64);
    Outcome::Done
}

fn forget(call: &mut AdminCall<'_>, kind: Kind) -> Outcome {
    call.node.command_log.reset(kind);
    call.reply.ok();
    Outcome::Done
}

const SLOWLOG_HELP: Spec = Spec { since: "6.2.0", group: Group::Server, ..Spec::HELP };

fn slow_help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "GET [<count>]",
            "    Return the latest <count> slow commands, newest first (default: 10; -1: all of them).",
            "    Each is a list: number of the entry, Unix time in seconds, microseconds that it took,",
            "    its arguments, address of the client, name of the client.",
            "LEN",
            "    Return how many slow commands the log holds.",
            "RESET",
            "    Empty the log.",
        ],
    )
}

const COMMANDLOG_HELP: Spec = Spec { since: "8.1.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "GET <count> <type>",
            "    Return the latest <count> entries of the log of this <type>, newest first (-1: all of them).",
            "    Each is a list: number of the entry, Unix time in seconds, cost of the command,",
            "    its arguments, address of the client, name of the client. The cost is",
            "    * in microseconds for slow,",
            "    * in bytes for large-request and large-reply.",
            "LEN <type>",
            "    Return how many entries the log of this <type> holds.",
            "RESET <type>",
            "    Empty the log of this <type>.",
        ],
    )
}
