//! CLIENT and its subcommands.
//!
//! What reaches into other connections (KILL, PAUSE) has happened when its reply leaves: no command that it should have stopped
//! is running any more. PAUSE holds the gate for it. KILL looks for its clients while nothing is locked, and then waits
//! until whatever was running has let go its partitions. What was admitted and waits for its locks asks again when it has
//! them (`Dispatcher::run_timed`).

mod filter;
mod line;
mod tracking;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::{Command, Reach, Spec};
use isotherm_resp::errors;
use isotherm_stdx::{UnixMs, parse_i64};

use super::connection::{client_name, plain_word};
use super::{AdminCall, AdminHandler, specs};
use crate::mail::letter::Without;
use crate::node::Node;
use crate::request::blocking;
use crate::session::{Attention, ClientShared, ReplyMode};
use filter::Filter;
use line::Reader;
pub use line::short as client_name_line;

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    specs::CLIENT,
    &[
        Command::new(specs::CLIENT_CACHING, tracking::caching),
        Command::new(specs::CLIENT_CAPA, capa),
        Command::new(specs::CLIENT_GETNAME, get_name),
        Command::new(specs::CLIENT_GETREDIR, tracking::get_redir),
        Command::new(specs::CLIENT_HELP, help),
        Command::new(specs::CLIENT_ID, id),
        Command::new(specs::CLIENT_IMPORT_SOURCE, import_source),
        Command::new(specs::CLIENT_INFO, info),
        Command::new(Spec { reach: Reach::Each, ..specs::CLIENT_KILL }, kill),
        Command::new(specs::CLIENT_LIST, list),
        Command::new(specs::CLIENT_NO_EVICT, no_evict),
        Command::new(specs::CLIENT_NO_TOUCH, no_touch),
        Command::new(Spec { reach: Reach::All, ..specs::CLIENT_PAUSE }, pause),
        Command::new(specs::CLIENT_REPLY, reply),
        Command::new(specs::CLIENT_SETINFO, set_info),
        Command::new(specs::CLIENT_SETNAME, set_name),
        Command::new(Spec { reach: Reach::Each, ..specs::CLIENT_TRACKING }, tracking::tracking),
        Command::new(specs::CLIENT_TRACKINGINFO, tracking::tracking_info),
        Command::new(specs::CLIENT_UNBLOCK, unblock),
        Command::new(specs::CLIENT_UNPAUSE, unpause),
    ],
)];

/// The line of one client, for the log.
pub fn client_line(node: &Node, client: &ClientShared, now: UnixMs) -> String {
    let mut line = Vec::new();
    line::push(&mut line, node, client, now, Reader::Log);
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

// ---- about itself ----

fn id(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.session.id() as i64);
    Outcome::Done
}

fn get_name(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.session.shared.names();
    if names.name.is_empty() {
        call.reply.null();
    } else {
        call.reply.bulk(names.name.as_bytes());
    }
    Outcome::Done
}

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

fn no_evict(call: &mut AdminCall<'_>) -> Outcome {
    if let Some(on) = on_or_off(call) {
        call.session.no_evict = on;
    }
    Outcome::Done
}

fn no_touch(call: &mut AdminCall<'_>) -> Outcome {
    if let Some(on) = on_or_off(call) {
        call.session.no_touch = on;
    }
    Outcome::Done
}

fn import_source(call: &mut AdminCall<'_>) -> Outcome {
    if !call.node.config.import_mode() && !call.args.get(2).eq_ignore_ascii_case(b"off") {
        call.reply.error("ERR Server is not in import mode");
    } else if let Some(on) = on_or_off(call) {
        call.session.import_source = on;
    }
    Outcome::Done
}

/// What a client is capable of; unknown abilities are no mistake.
fn capa(call: &mut AdminCall<'_>) -> Outcome {
    call.session.redirects |= call.args.from(2).iter().any(|word| word.eq_ignore_ascii_case(b"redirect"));
    call.reply.ok();
    Outcome::Done
}

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

// ---- about all ----

fn list(call: &mut AdminCall<'_>) -> Outcome {
    call.session.publish(call.now.0);
    let filter = match call.args.len() {
        2 => Ok(Filter::default()),
        3 => Err(errors::SYNTAX.into()),
        _ => Filter::read(call.args.from(2), call.node.config.databases(), false),
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

fn kill(call: &mut AdminCall<'_>) -> Outcome {
    call.session.publish(call.now.0);
    let by_address = call.args.len() == 3;
    let filter = if by_address {
        Ok(Filter::of_address(call.args.get(2)))
    } else {
        Filter::read(call.args.from(2), call.node.config.databases(), true)
    };
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
        // Its own end waits until it has been told.
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

fn pause(call: &mut AdminCall<'_>) -> Outcome {
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
            call.node.pause.begin(&call.node.mail, end_ms, writes_only);
            // One of no time at all is over before the next command.
            call.node.pause.end_if_over(&call.node.mail, call.now);
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

fn unpause(call: &mut AdminCall<'_>) -> Outcome {
    call.node.pause.end(&call.node.mail);
    call.reply.ok();
    Outcome::Done
}

fn unblock(call: &mut AdminCall<'_>) -> Outcome {
    // With more words than that nobody looks at them.
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

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(call.reply, "CLIENT", HELP);
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
