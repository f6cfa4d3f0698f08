//! Commands about the server as a whole: TIME, INFO, SHUTDOWN, ROLE, LOLWUT.

use isotherm_commands::Outcome;
use isotherm_commands::spec::{Command, Reach, Spec};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler, specs};
use crate::info::{self, Snapshot};
use crate::logo;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(specs::TIME, time),
    // The keyspace section counts keys, for which all must stand still.
    Command::new(Spec { reach: Reach::All, ..specs::INFO }, info),
    Command::new(specs::SHUTDOWN, shutdown),
    Command::new(specs::ROLE, role),
    Command::new(specs::LOLWUT, lolwut),
];

/// A primary, what it has sent, and its replicas.
fn role(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.array(3);
    call.reply.bulk(b"master");
    call.reply.integer(0);
    call.reply.array(0);
    Outcome::Done
}

/// A picture. `VERSION n` would choose one of several.
fn lolwut(call: &mut AdminCall<'_>) -> Outcome {
    let asks_version = call.args.len() >= 3 && call.args.get(1).eq_ignore_ascii_case(b"version");
    if asks_version && parse_i64(call.args.get(2)).is_none() {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    }
    call.reply.verbatim("txt", logo::lolwut(&call.node.config).as_bytes());
    Outcome::Done
}

fn time(call: &mut AdminCall<'_>) -> Outcome {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    call.reply.array(2);
    call.reply.bulk_i64(since.as_secs() as i64);
    call.reply.bulk_i64(since.subsec_micros().into());
    Outcome::Done
}

fn info(call: &mut AdminCall<'_>) -> Outcome {
    let asked: Vec<&[u8]> = call.args.from(1).iter().collect();
    let mut snapshot = Snapshot::new(call.node, call.now);
    if info::wants_keyspace(&asked) {
        snapshot.databases = info::database_sizes(call.node, &mut call.txn());
    }
    call.reply.verbatim("txt", info::text(&snapshot, &asked).as_bytes());
    Outcome::Done
}

/// Nothing is ever saved, so every way of ending is the same; SAVE asks for what does not exist.
fn shutdown(call: &mut AdminCall<'_>) -> Outcome {
    let (mut save, mut nosave, mut abort, mut others) = (false, false, false, false);
    for word in call.args.from(1).iter() {
        match word.to_ascii_lowercase().as_slice() {
            b"save" => save = true,
            b"nosave" => nosave = true,
            b"abort" => abort = true,
            b"now" | b"force" | b"safe" | b"failover" => others = true,
            _ => {
                call.reply.error(errors::SYNTAX);
                return Outcome::Done;
            }
        }
    }
    match () {
        _ if (save && nosave) || (abort && (save || nosave || others)) => call.reply.error(errors::SYNTAX),
        _ if abort => call.reply.error("ERR No shutdown in progress."),
        _ if save => call.reply.error("ERR Errors trying to SHUTDOWN. Check logs."),
        // Success has no reply: the connection ends.
        _ => {
            call.session.close_after_reply = true;
            call.node.shut_down();
        }
    }
    Outcome::Done
}
