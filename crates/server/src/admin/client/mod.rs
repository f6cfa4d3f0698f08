//! CLIENT and its subcommands.

mod filter;
mod maintenance;
mod others;
mod tracking;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_resp::errors;

use super::connection::{client_name, plain_word};
use super::{AdminCall, AdminHandler};
use crate::session::ReplyMode;
use crate::session::line::{self, Reader};

const CLIENT: Spec = Spec {
    name: "client",
    summary: "A container for client connection commands.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "Depends on subcommand.",
    arity: -2,
    flags: Flags::KEEPS_CACHING,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    CLIENT,
    &[
        Command::new(tracking::CLIENT_CACHING, tracking::caching),
        Command::new(CLIENT_CAPA, capa),
        Command::new(CLIENT_GETNAME, get_name),
        Command::new(tracking::CLIENT_GETREDIR, tracking::get_redir),
        Command::new(CLIENT_HELP, help),
        Command::new(CLIENT_ID, id),
        Command::new(CLIENT_IMPORT_SOURCE, import_source),
        Command::new(CLIENT_INFO, info),
        Command::new(others::CLIENT_KILL, others::kill),
        Command::new(others::CLIENT_LIST, others::list),
        Command::new(maintenance::CLIENT_MAINT_NOTIFICATIONS, maintenance::maint_notifications),
        Command::new(CLIENT_NO_EVICT, no_evict),
        Command::new(CLIENT_NO_TOUCH, no_touch),
        Command::new(others::CLIENT_PAUSE, others::pause),
        Command::new(CLIENT_REPLY, reply),
        Command::new(CLIENT_SETINFO, set_info),
        Command::new(CLIENT_SETNAME, set_name),
        Command::new(tracking::CLIENT_TRACKING, tracking::tracking),
        Command::new(tracking::CLIENT_TRACKINGINFO, tracking::tracking_info),
        Command::new(others::CLIENT_UNBLOCK, others::unblock),
        Command::new(others::CLIENT_UNPAUSE, others::unpause),
    ],
)];

// ---- about itself ----

const CLIENT_ID: Spec = Spec {
    name: "id",
    summary: "Returns the unique client ID of the connection.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

fn id(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.session.id() as i64);
    Outcome::Done
}

const CLIENT_GETNAME: Spec = Spec {
    name: "getname",
    summary: "Returns the name of the connection.",
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

fn get_name(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.session.shared.names();
    if names.name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(names.name.as_bytes());
    }
    Outcome::Done
}

const CLIENT_SETNAME: Spec = Spec {
    name: "setname",
    summary: "Sets the connection name.",
    since: "2.6.9",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::string("connection-name")],
    ..Spec::BASE
};

fn set_name(call: &mut AdminCall<'_>) -> Outcome {
    match client_name(call.args.get(2)) {
        Ok(name) => {
            call.session.shared.names().name = name;
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

const CLIENT_SETINFO: Spec = Spec {
    name: "setinfo",
    summary: "Sets information specific to the client or connection.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 4,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    arguments: &[Argument::one_of(
        "attr",
        &[Argument::string("libname").token("LIB-NAME"), Argument::string("libver").token("LIB-VER")],
    )],
    ..Spec::BASE
};

fn set_info(call: &mut AdminCall<'_>) -> Outcome {
    let (attribute, value) = (call.args.get(2), plain_word(call.args.get(3)));
    let is_name = attribute.eq_ignore_ascii_case(b"lib-name");
    if !is_name && !attribute.eq_ignore_ascii_case(b"lib-ver") {
        call.reply.error(errors::with_bytes("ERR Unrecognized option '", attribute, "'"));
        return Outcome::Done;
    }
    let Some(value) = value else {
        let after = " cannot contain spaces, newlines or special characters.";
        call.reply.error(errors::with_bytes("ERR ", attribute, after));
        return Outcome::Done;
    };
    let mut names = call.session.shared.names();
    *(if is_name { &mut names.lib_name } else { &mut names.lib_ver }) = value;
    call.reply.ok();
    Outcome::Done
}

const CLIENT_INFO: Spec = Spec {
    name: "info",
    summary: "Returns information about the connection.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output"],
    ..Spec::BASE
};

fn info(call: &mut AdminCall<'_>) -> Outcome {
    call.session.publish(call.now.0);
    let mut text = Vec::new();
    let reader = Reader::Client(call.args.bytes_total() as u64);
    line::push(&mut text, call.node, &call.session.shared, call.now, reader);
    call.reply.verbatim("txt", &text);
    Outcome::Done
}

/// ON or OFF; the error is written if it is neither.
fn on_or_off(call: &mut AdminCall<'_>) -> Option<bool> {
    let word = call.args.get(2);
    let on = word.eq_ignore_ascii_case(b"on");
    if on || word.eq_ignore_ascii_case(b"off") {
        call.reply.ok();
        return Some(on);
    }
    call.reply.error(errors::SYNTAX);
    None
}

const CLIENT_NO_EVICT: Spec = Spec {
    name: "no-evict",
    summary: "Sets the client eviction mode of the connection.",
    since: "7.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

fn no_evict(call: &mut AdminCall<'_>) -> Outcome {
    if let Some(on) = on_or_off(call) {
        call.session.no_evict = on;
    }
    Outcome::Done
}

const CLIENT_NO_TOUCH: Spec = Spec {
    name: "no-touch",
    summary: "Controls whether commands sent by the client affect the LRU/LFU of accessed keys.",
    since: "7.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

fn no_touch(call: &mut AdminCall<'_>) -> Outcome {
    if let Some(on) = on_or_off(call) {
        call.session.no_touch = on;
    }
    Outcome::Done
}

const CLIENT_IMPORT_SOURCE: Spec = Spec {
    name: "import-source",
    summary: "Marks this client as an import source when the server is in import mode.",
    since: "8.1.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "enabled",
        &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")],
    )],
    ..Spec::BASE
};

fn import_source(call: &mut AdminCall<'_>) -> Outcome {
    if !call.node.config.import_mode() && !call.args.get(2).eq_ignore_ascii_case(b"off") {
        call.reply.error("ERR Server is not in import mode");
    } else if let Some(on) = on_or_off(call) {
        call.session.import_source = on;
    }
    Outcome::Done
}

const CLIENT_CAPA: Spec = Spec {
    name: "capa",
    summary: "A client claims its capability.",
    since: "8.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("capability").multiple()],
    ..Spec::BASE
};

/// What a client is capable of; unknown abilities are no mistake.
fn capa(call: &mut AdminCall<'_>) -> Outcome {
    call.session.redirects |= call.args.from(2).iter().any(|word| word.eq_ignore_ascii_case(b"redirect"));
    call.session.note_gates();
    call.reply.ok();
    Outcome::Done
}

const CLIENT_REPLY: Spec = Spec {
    name: "reply",
    summary: "Instructs the server whether to reply to commands.",
    since: "3.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::NO_MULTI).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::one_of(
        "action",
        &[
            Argument::pure_token("on", "ON"),
            Argument::pure_token("off", "OFF"),
            Argument::pure_token("skip", "SKIP"),
        ],
    )],
    ..Spec::BASE
};

fn reply(call: &mut AdminCall<'_>) -> Outcome {
    let word = call.args.get(2);
    if word.eq_ignore_ascii_case(b"on") {
        call.session.reply_mode = ReplyMode::On;
        call.reply.ok();
    } else if word.eq_ignore_ascii_case(b"off") {
        call.session.reply_mode = ReplyMode::Off;
    } else if word.eq_ignore_ascii_case(b"skip") {
        if call.session.reply_mode != ReplyMode::Off {
            call.session.reply_mode = ReplyMode::SkipNext;
        }
    } else {
        call.reply.error(errors::SYNTAX);
    }
    Outcome::Done
}

const CLIENT_HELP: Spec = Spec {
    name: "help",
    summary: "Returns helpful text about the different subcommands.",
    since: "5.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(call.reply, call.args, HELP);
    Outcome::Done
}

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
    "CAPA <option> [options...]",
    "    The client claims its some capability options. Options are:",
    "    * REDIRECT",
    "      The client can handle redirection during primary and replica failover in standalone mode.",
    "GETREDIR",
    "    Return the client ID we are redirecting to when tracking is enabled.",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "KILL <ip:port>",
    "    Kill connection made from <ip:port>.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Kill connections. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made from the specified address.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Kill connections made to the specified local address.",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Kill connections by type.",
    "    * USER <username>",
    "      Kill connections authenticated by <username>.",
    "    * SKIPME (YES|NO)",
    "      Skip killing current connection (default: yes).",
    "    * ID <client-id> [<client-id>...]",
    "      Kill connections by client IDs.",
    "    * MAXAGE <maxage>",
    "      Kill connections older than the specified age.",
    "    * FLAGS <flags>",
    "      Kill connections that include the specified flags.",
    "    * NAME <client-name>",
    "      Kill connections with the specified name.",
    "    * IDLE <idle>",
    "      Kill connections with idle time greater than or equal to <idle> seconds.",
    "    * LIB-NAME <library-name>",
    "      Kill connections with the specified library name.",
    "    * LIB-VER <library-version>",
    "      Kill connections with the specified library version.",
    "    * DB <db-id>",
    "      Kill connections currently operating on the specified database ID.",
    "    * CAPA <capa>",
    "      Kill connections currently with the specified capa.",
    "    * IP <ip>",
    "      Kill connections made from the specified ip.",
    "LIST [options ...]",
    "    Return information about client connections. Options:",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Return clients of specified type.",
    "    * USER <username>",
    "      Return clients authenticated by <username>.",
    "    * ADDR <ip:port>",
    "      Return clients connected from the specified address.",
    "    * LADDR <ip:port>",
    "      Return clients connected to the specified local address.",
    "    * ID <client-id> [<client-id>...]",
    "      Return clients with the specified IDs.",
    "    * SKIPME (YES|NO)",
    "      Exclude the current client from the list (default: no).",
    "    * MAXAGE <maxage>",
    "      List connections older than the specified age.",
    "    * FLAGS <flags>",
    "      Return clients with the specified flags.",
    "    * NAME <client-name>",
    "      Return clients with the specified name.",
    "    * IDLE <idle>",
    "      Return clients with idle time greater than or equal to <idle> seconds.",
    "    * LIB-NAME <lib-name>",
    "      Return clients with the specified lib name.",
    "    * LIB-VER <lib-version>",
    "      Return clients with the specified lib version.",
    "    * DB <db-id>",
    "      Return clients currently operating on the specified database ID.",
    "    * CAPA <capa>",
    "      Return connections currently with the specified capa.",
    "    * IP <ip>",
    "      Return connections made from the specified ip.",
    "UNPAUSE",
    "    Stop the current client pause, resuming traffic.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Suspend all, or just write, clients for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Control the replies sent to the current connection.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
    "SETINFO <option> <value>",
    "    Set client meta attr. Options are:",
    "    * LIB-NAME: the client lib name.",
    "    * LIB-VER: the client lib version.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Unblock the specified blocked client.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Control server assisted client side caching.",
    "TRACKINGINFO",
    "    Report tracking status for the current connection.",
    "NO-EVICT (ON|OFF)",
    "    Protect current client connection from eviction.",
    "NO-TOUCH (ON|OFF)",
    "    Will not touch LRU/LFU stats when this mode is on.",
    "IMPORT-SOURCE (ON|OFF)",
    "    Mark this connection as an import source if import-mode is enabled.",
    "    Sync tools can set their connections into 'import-source' state to visit",
    "    expired keys.",
];
