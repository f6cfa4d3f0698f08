//! CLIENT and its subcommands.

mod filter;
pub mod maintenance;
mod others;
mod tracking;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_resp::errors;

use super::connection::{client_name, plain_word};
use super::{AdminCall, AdminHandler};
use isotherm_node::session::ReplyMode;
use isotherm_node::session::line;
use isotherm_node::session::line::Reader;

const CLIENT: Spec = Spec {
    name: "client",
    summary: "Shows and controls connections.",
    since: "2.4.0",
    group: Group::Connection,
    complexity: "That of the subcommand",
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
    summary: "Returns the ID of this connection, which no other gets while the server runs.",
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
    summary: "Returns the name of this connection; null when it has none.",
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
    summary: "Names this connection; an empty name removes it.",
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
    summary: "Sets the name or version of the library of this connection.",
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
    summary: "Returns the line of CLIENT LIST for this connection.",
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
    call.session.publish(call.now);
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
    summary: "Exempts this connection from client eviction, or ends that.",
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
    summary: "Says whether commands of this connection leave the access times and counters of keys alone.",
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
    summary: "Lets this connection see expired keys while the server is in import mode.",
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
    summary: "Announces abilities of the client, such as following redirects.",
    since: "8.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -3,
    flags: Flags::ALLOW_BUSY.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("capability").multiple()],
    ..Spec::BASE
};

/// Notes the capabilities of a client. Unknown ones are no error.
fn capa(call: &mut AdminCall<'_>) -> Outcome {
    call.session.redirects |= call.args.from(2).iter().any(|word| word.eq_ignore_ascii_case(b"redirect"));
    call.session.note_gates();
    call.reply.ok();
    Outcome::Done
}

const CLIENT_REPLY: Spec = Spec {
    name: "reply",
    summary: "Turns replies to this connection on or off, or skips the next one.",
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

const CLIENT_HELP: Spec =
    Spec { since: "5.0.0", group: Group::Connection, acl: AclCategories::CONNECTION, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(call.reply, call.args, HELP)
}

const HELP: &[&str] = &[
    "CACHING (YES|NO)",
    "    Say for the next command whether its keys are tracked: YES with OPTIN, NO with OPTOUT.",
    "CAPA <option> [options...]",
    "    Announce what this client can do. Options are:",
    "    * REDIRECT",
    "      It follows redirects from a replica without a cluster, also after a failover.",
    "GETREDIR",
    "    Return the ID of the connection that gets the invalidations of this one:",
    "    0 for itself, -1 without tracking.",
    "GETNAME",
    "    Return the name of this connection.",
    "ID",
    "    Return the ID of this connection.",
    "INFO",
    "    Return the line of LIST for this connection.",
    "KILL <ip:port>",
    "    Close the connection from this address.",
    "KILL <option> <value> [<option> <value> [...]]",
    "    Close the connections that fit every option. Return how many. Options are:",
    "    * ADDR (<ip:port>|<unixsocket>:0)",
    "      Those from this address.",
    "    * LADDR (<ip:port>|<unixsocket>:0)",
    "      Those to this address of the server.",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Those of this type.",
    "    * USER <username>",
    "      Those of this user.",
    "    * SKIPME (YES|NO)",
    "      YES leaves out the calling connection (default).",
    "    * ID <client-id> [<client-id>...]",
    "      Those with these IDs.",
    "    * MAXAGE <maxage>",
    "      Those open for at least <maxage> seconds.",
    "    * FLAGS <flags>",
    "      Those with all of these flags.",
    "    * NAME <client-name>",
    "      Those of this name.",
    "    * IDLE <idle>",
    "      Those without a command for at least <idle> seconds.",
    "    * LIB-NAME <library-name>",
    "      Those of this library.",
    "    * LIB-VER <library-version>",
    "      Those of this version of a library.",
    "    * DB <db-id>",
    "      Those that have selected this database.",
    "    * CAPA <capa>",
    "      Those that have announced this ability.",
    "    * IP <ip>",
    "      Those from any port of this address.",
    "LIST [options ...]",
    "    Return a line for each connection that fits every option. Options are:",
    "    * TYPE (NORMAL|PRIMARY|REPLICA|PUBSUB)",
    "      Those of this type.",
    "    * USER <username>",
    "      Those of this user.",
    "    * ADDR <ip:port>",
    "      Those from this address.",
    "    * LADDR <ip:port>",
    "      Those to this address of the server.",
    "    * ID <client-id> [<client-id>...]",
    "      Those with these IDs.",
    "    * SKIPME (YES|NO)",
    "      YES leaves out the calling connection (default: NO).",
    "    * MAXAGE <maxage>",
    "      Those open for at least <maxage> seconds.",
    "    * FLAGS <flags>",
    "      Those with all of these flags.",
    "    * NAME <client-name>",
    "      Those of this name.",
    "    * IDLE <idle>",
    "      Those without a command for at least <idle> seconds.",
    "    * LIB-NAME <lib-name>",
    "      Those of this library.",
    "    * LIB-VER <lib-version>",
    "      Those of this version of a library.",
    "    * DB <db-id>",
    "      Those that have selected this database.",
    "    * CAPA <capa>",
    "      Those that have announced this ability.",
    "    * IP <ip>",
    "      Those from any port of this address.",
    "UNPAUSE",
    "    End PAUSE: commands that were held back run.",
    "PAUSE <timeout> [WRITE|ALL]",
    "    Hold back all commands, or only writes, for <timeout> milliseconds.",
    "REPLY (ON|OFF|SKIP)",
    "    Send replies to this connection (ON), send none (OFF), or leave out the next one (SKIP).",
    "SETNAME <name>",
    "    Call this connection <name>.",
    "SETINFO <option> <value>",
    "    Set a fact about this client. Options are:",
    "    * LIB-NAME: name of its library.",
    "    * LIB-VER: version of its library.",
    "UNBLOCK <clientid> [TIMEOUT|ERROR]",
    "    Wake a connection that waits in a command, as by its timeout (default) or by an error.",
    "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
    "         [OPTIN] [OPTOUT] [NOLOOP]",
    "    Turn invalidations of keys that this client caches on or off.",
    "TRACKINGINFO",
    "    Return how tracking is set for this connection.",
    "NO-EVICT (ON|OFF)",
    "    Exempt this connection from client eviction (ON) or not.",
    "NO-TOUCH (ON|OFF)",
    "    Leave access times and counters of keys alone in this connection's commands (ON) or not.",
    "IMPORT-SOURCE (ON|OFF)",
    "    Say that this connection copies data into a server with import-mode:",
    "    it sees expired keys.",
];
