//! CLIENT commands about other connections: they are listed, closed, paused, and no longer wait.
//!
//! A command that reaches into other connections (KILL, PAUSE) has taken effect when its reply leaves: no
//! command that it should have stopped is running any more. PAUSE holds the gate for it. KILL looks for its
//! clients while nothing is locked, and then waits until every command that was running has released its
//! partitions. A command that was admitted and waits for its locks asks again when it has them
//! (`Dispatcher::run_timed`).

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::filter::{Filter, Known};
use crate::admin::AdminCall;
use isotherm_engine::request::blocking;
use isotherm_node::mail::message::Without;
use isotherm_node::request::pause::Cause;
use isotherm_node::session::Attention;
use isotherm_node::session::line;
use isotherm_node::session::line::Reader;

pub const CLIENT_LIST: Spec = Spec {
    name: "list",
    summary: "Returns a line of attributes for each connection that fits the filters.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N), N all connections",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output"],
    history: &[
        ("2.8.12", "New field `id`."),
        ("5.0.0", "New filter `TYPE`."),
        ("6.0.0", "New field `user`."),
        ("6.2.0", "New fields `argv-mem`, `tot-mem`, `laddr` and `redir`; new filter `ID`."),
        ("7.0.0", "New fields `resp`, `multi-mem`, `rbs` and `rbp`."),
        ("7.0.3", "New field `ssub`."),
        ("8.0.0", "The option `TYPE` takes `primary`, which is the same as `master`."),
        ("8.1.0", "New filters `USER`, `ADDR`, `LADDR`, `SKIPME` and `MAXAGE`."),
        (
            "9.0.0",
            "New filters `NAME`, `IDLE`, `FLAGS`, `LIB-NAME`, `LIB-VER`, `DB`, `CAPA` and `IP`, and the opposites of filters: `NOT-ID`, `NOT-TYPE`, `NOT-ADDR`, `NOT-LADDR`, `NOT-USER`, `NOT-FLAGS`, `NOT-NAME`, `NOT-LIB-NAME`, `NOT-LIB-VER`, `NOT-DB`, `NOT-CAPA` and `NOT-IP`.",
        ),
    ],
    arguments: &[
        Argument::one_of(
            "client-type",
            &[
                Argument::pure_token("normal", "NORMAL"),
                Argument::pure_token("master", "MASTER"),
                Argument::pure_token("replica", "REPLICA"),
                Argument::pure_token("pubsub", "PUBSUB"),
            ],
        )
        .token("TYPE")
        .since("5.0.0")
        .optional(),
        Argument::integer("client-id").token("ID").since("6.2.0").optional().multiple(),
        Argument::string("username").token("USER").since("8.1.0").optional(),
        Argument::string("addr").token("ADDR").since("8.1.0").optional().display("ip:port"),
        Argument::string("laddr").token("LADDR").since("8.1.0").optional().display("ip:port"),
        Argument::one_of("skipme", &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")])
            .token("SKIPME")
            .since("8.1.0")
            .optional(),
        Argument::integer("maxage").token("MAXAGE").since("8.1.0").optional(),
        Argument::string("name").token("NAME").since("9.0.0").optional(),
        Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
        Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
        Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
        Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
        Argument::integer("db").token("DB").since("9.0.0").optional(),
        Argument::string("capa").token("CAPA").since("9.0.0").optional(),
        Argument::string("ip").token("IP").since("9.0.0").optional(),
        Argument::one_of(
            "not-client-type",
            &[
                Argument::pure_token("normal", "NORMAL"),
                Argument::pure_token("master", "MASTER"),
                Argument::pure_token("replica", "REPLICA"),
                Argument::pure_token("pubsub", "PUBSUB"),
            ],
        )
        .token("NOT-TYPE")
        .since("9.0.0")
        .optional(),
        Argument::integer("not-client-id").token("NOT-ID").since("9.0.0").optional().multiple(),
        Argument::string("not-username").token("NOT-USER").since("9.0.0").optional(),
        Argument::string("not-addr").token("NOT-ADDR").since("9.0.0").optional().display("ip:port"),
        Argument::string("not-laddr").token("NOT-LADDR").since("9.0.0").optional().display("ip:port"),
        Argument::string("not-name").token("NOT-NAME").since("9.0.0").optional(),
        Argument::string("not-flags").token("NOT-FLAGS").since("9.0.0").optional(),
        Argument::string("not-lib-name").token("NOT-LIB-NAME").since("9.0.0").optional(),
        Argument::string("not-lib-ver").token("NOT-LIB-VER").since("9.0.0").optional(),
        Argument::integer("not-db").token("NOT-DB").since("9.0.0").optional(),
        Argument::string("not-capa").token("NOT-CAPA").since("9.0.0").optional(),
        Argument::string("not-ip").token("NOT-IP").since("9.0.0").optional(),
    ],
    ..Spec::BASE
};

/// The options of the request.
fn read_filter<'c>(call: &AdminCall<'c>, skip_me: bool) -> Result<Filter<'c>, Vec<u8>> {
    let has_user = |name: &[u8]| call.node.users.get(name).is_some();
    let known = Known { databases: call.node.config.databases(), has_user: &has_user };
    Filter::read(call.args.from(2), &known, skip_me)
}

pub fn list(call: &mut AdminCall<'_>) -> Outcome {
    call.session.publish(call.now);
    let filter = match call.args.len() {
        2 => Ok(Filter::default()),
        3 => Err(errors::SYNTAX.into()),
        _ => read_filter(call, false),
    };
    let filter = match filter {
        Ok(filter) => filter,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    let mut text = Vec::new();
    for client in call.node.clients.all().iter().filter(|client| !client.is_asked(Attention::KILL)) {
        if filter.matches(client, call.session.id(), call.now) {
            let is_asking = client.id == call.session.id();
            let reader = Reader::Client(if is_asking { call.args.bytes_total() as u64 } else { 0 });
            line::push(&mut text, call.node, client, call.now, reader);
        }
    }
    call.reply.verbatim("txt", &text);
    Outcome::Done
}

pub const CLIENT_KILL: Spec = Spec {
    name: "kill",
    summary: "Closes the connections that fit an address or filters.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "O(N), N all connections",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    history: &[
        ("2.8.12", "Filters in the form of options with values."),
        ("2.8.12", "New option `ID`."),
        ("3.2.0", "The option `TYPE` takes `master`."),
        ("5.0.0", "The option `TYPE` takes `replica`, which is the same as `slave`."),
        ("6.2.0", "New option `LADDR`."),
        ("8.0.0", "New option `MAXAGE`."),
        ("8.0.0", "The option `TYPE` takes `primary`, which is the same as `master`."),
        ("8.1.0", "The option `ID` takes several IDs."),
        (
            "9.0.0",
            "New filters `NAME`, `IDLE`, `FLAGS`, `LIB-NAME`, `LIB-VER`, `DB`, `CAPA` and `IP`, and the opposites of filters: `NOT-ID`, `NOT-TYPE`, `NOT-ADDR`, `NOT-LADDR`, `NOT-USER`, `NOT-FLAGS`, `NOT-NAME`, `NOT-LIB-NAME`, `NOT-LIB-VER`, `NOT-DB`, `NOT-CAPA` and `NOT-IP`.",
        ),
    ],
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::string("old-format").deprecated_since("2.8.12").display("ip:port"),
            Argument::one_of(
                "new-format",
                &[
                    Argument::integer("client-id").token("ID").since("2.8.12").optional().multiple(),
                    Argument::one_of(
                        "client-type",
                        &[
                            Argument::pure_token("normal", "NORMAL"),
                            Argument::pure_token("master", "MASTER").since("3.2.0"),
                            Argument::pure_token("primary", "PRIMARY").since("8.0.0"),
                            Argument::pure_token("slave", "SLAVE"),
                            Argument::pure_token("replica", "REPLICA").since("5.0.0"),
                            Argument::pure_token("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("TYPE")
                    .since("2.8.12")
                    .optional(),
                    Argument::string("username").token("USER").optional(),
                    Argument::string("addr").token("ADDR").optional().display("ip:port"),
                    Argument::string("laddr").token("LADDR").since("6.2.0").optional().display("ip:port"),
                    Argument::one_of(
                        "skipme",
                        &[Argument::pure_token("yes", "YES"), Argument::pure_token("no", "NO")],
                    )
                    .token("SKIPME")
                    .optional(),
                    Argument::integer("maxage").token("MAXAGE").since("8.0.0").optional(),
                    Argument::string("name").token("NAME").since("9.0.0").optional(),
                    Argument::integer("idle").token("IDLE").since("9.0.0").optional(),
                    Argument::string("flags").token("FLAGS").since("9.0.0").optional(),
                    Argument::string("lib-name").token("LIB-NAME").since("9.0.0").optional(),
                    Argument::string("lib-ver").token("LIB-VER").since("9.0.0").optional(),
                    Argument::integer("db").token("DB").since("9.0.0").optional(),
                    Argument::string("capa").token("CAPA").since("9.0.0").optional(),
                    Argument::string("ip").token("IP").since("9.0.0").optional(),
                    Argument::one_of(
                        "not-client-type",
                        &[
                            Argument::pure_token("normal", "NORMAL"),
                            Argument::pure_token("master", "MASTER"),
                            Argument::pure_token("primary", "PRIMARY"),
                            Argument::pure_token("slave", "SLAVE"),
                            Argument::pure_token("replica", "REPLICA"),
                            Argument::pure_token("pubsub", "PUBSUB"),
                        ],
                    )
                    .token("NOT-TYPE")
                    .since("9.0.0")
                    .optional(),
                    Argument::integer("not-client-id").token("NOT-ID").since("9.0.0").optional().multiple(),
                    Argument::string("not-username").token("NOT-USER").since("9.0.0").optional(),
                    Argument::string("not-addr")
                        .token("NOT-ADDR")
                        .since("9.0.0")
                        .optional()
                        .display("ip:port"),
                    Argument::string("not-laddr")
                        .token("NOT-LADDR")
                        .since("9.0.0")
                        .optional()
                        .display("ip:port"),
                    Argument::string("not-name").token("NOT-NAME").since("9.0.0").optional(),
                    Argument::string("not-flags").token("NOT-FLAGS").since("9.0.0").optional(),
                    Argument::string("not-lib-name").token("NOT-LIB-NAME").since("9.0.0").optional(),
                    Argument::string("not-lib-ver").token("NOT-LIB-VER").since("9.0.0").optional(),
                    Argument::integer("not-db").token("NOT-DB").since("9.0.0").optional(),
                    Argument::string("not-capa").token("NOT-CAPA").since("9.0.0").optional(),
                    Argument::string("not-ip").token("NOT-IP").since("9.0.0").optional(),
                ],
            )
            .multiple(),
        ],
    )],
    reach: Reach::Each,
    ..Spec::BASE
};

pub fn kill(call: &mut AdminCall<'_>) -> Outcome {
    call.session.publish(call.now);
    let by_address = call.args.len() == 3;
    let filter = if by_address { Ok(Filter::of_address(call.args.get(2))) } else { read_filter(call, true) };
    let filter = match filter {
        Ok(filter) => filter,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    let mut killed = 0;
    for client in call.node.clients.all() {
        let is_leaving = client.is_asked(Attention::KILL);
        if is_leaving || !filter.matches(&client, call.session.id(), call.now) {
            continue;
        }
        killed += 1;
        // COMPAT(protocol): CLIENT KILL of its own client, and QUIT, close it also after CLIENT REPLY OFF;
        // Valkey closes it with the next reply, so not before CLIENT REPLY ON. Why: nothing else says that it
        // is over.
        if client.id == call.session.id() {
            call.session.close_after_reply = true;
        } else {
            call.node.clients.kill(&call.node.mail, &client);
        }
    }
    if killed > 0 {
        call.survey().pass();
    }
    match (by_address, killed) {
        (true, 0) => call.reply.error(errors::NO_SUCH_CLIENT),
        (true, _) => call.reply.ok(),
        (false, killed) => call.reply.integer(killed),
    }
    Outcome::Done
}

pub const CLIENT_PAUSE: Spec = Spec {
    name: "pause",
    summary: "Holds back commands of all clients, or only writes, for some milliseconds.",
    since: "3.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    history: &[("6.2.0", "New argument `mode`: `WRITE` pauses only writes.")],
    arguments: &[
        Argument::integer("timeout"),
        Argument::one_of(
            "mode",
            &[Argument::pure_token("write", "WRITE"), Argument::pure_token("all", "ALL")],
        )
        .since("6.2.0")
        .optional(),
    ],
    reach: Reach::All,
    ..Spec::BASE
};

pub fn pause(call: &mut AdminCall<'_>) -> Outcome {
    // With more arguments Valkey looks at none of them.
    let mode = if call.args.len() == 4 { call.args.get(3) } else { b"all" };
    let writes_only = mode.eq_ignore_ascii_case(b"write");
    if !writes_only && !mode.eq_ignore_ascii_case(b"all") {
        call.reply.error("ERR CLIENT PAUSE mode must be WRITE or ALL");
        return Outcome::Done;
    }
    let end_ms = match parse_i64(call.args.get(2)) {
        None => Err("ERR timeout is not an integer or out of range"),
        Some(..0) => Err(errors::TIMEOUT_NEGATIVE),
        Some(timeout_ms) => call.now.0.checked_add(timeout_ms).ok_or("ERR timeout is out of range"),
    };
    match end_ms {
        Ok(end_ms) => {
            call.node.pause.begin(&call.node.mail, Cause::Client, end_ms, writes_only);
            // One of no time at all is over before the next command.
            call.node.pause.end_if_over(&call.node.mail, call.now);
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

pub const CLIENT_UNPAUSE: Spec = Spec {
    name: "unpause",
    summary: "Ends CLIENT PAUSE.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(N), N the paused connections",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

pub fn unpause(call: &mut AdminCall<'_>) -> Outcome {
    call.node.pause.end(&call.node.mail, Cause::Client);
    call.reply.ok();
    Outcome::Done
}

pub const CLIENT_UNBLOCK: Spec = Spec {
    name: "unblock",
    summary: "Wakes another connection from a blocking command, as by a timeout or with an error.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(log N), N all connections",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[
        Argument::integer("client-id"),
        Argument::one_of(
            "unblock-type",
            &[Argument::pure_token("timeout", "TIMEOUT"), Argument::pure_token("error", "ERROR")],
        )
        .optional(),
    ],
    ..Spec::BASE
};

pub fn unblock(call: &mut AdminCall<'_>) -> Outcome {
    // Of more words than that none is looked at.
    let reason = call.args.try_get(3).filter(|_| call.args.len() == 4);
    if let Some(reason) = reason
        && !reason.eq_ignore_ascii_case(b"timeout")
        && !reason.eq_ignore_ascii_case(b"error")
    {
        call.reply.error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return Outcome::Done;
    }
    let Some(id) = parse_i64(call.args.get(2)) else {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    };
    let is_error = reason.is_some_and(|reason| reason.eq_ignore_ascii_case(b"error"));
    let how = if is_error { Without::Error } else { Without::TimedOut };
    let client = u64::try_from(id).ok().and_then(|id| call.node.clients.get(id));
    let unblocked = client.is_some_and(|client| blocking::unblock(&client, how));
    call.reply.integer(i64::from(unblocked));
    Outcome::Done
}
