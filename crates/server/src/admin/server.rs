//! Commands about the server as a whole: TIME, INFO, SHUTDOWN, ROLE, LOLWUT.

use isotherm_commands::Outcome;
use isotherm_commands::spec::{Command, Reach, Spec};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler, specs};
use crate::mail::letter::ControlLetter;
use crate::observe::info;
use crate::process::logo;
use crate::process::shutdown::{Options, may_end};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(specs::TIME, time),
    // The keyspace section counts keys.
    Command::new(Spec { reach: Reach::Each, ..specs::INFO }, info),
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
    let mut snapshot = call.snapshot();
    info::look_up(&mut snapshot, &asked, || call.survey());
    call.reply.verbatim("txt", info::text(&snapshot, &asked).as_bytes());
    Outcome::Done
}

fn shutdown(call: &mut AdminCall<'_>) -> Outcome {
    let (mut options, mut abort) = (Options::default(), false);
    for word in call.args.from(1).iter() {
        options = options.or(match word.to_ascii_lowercase().as_slice() {
            b"save" => Options::SAVE,
            b"nosave" => Options::NOSAVE,
            b"now" => Options::NOW,
            b"force" => Options::FORCE,
            b"safe" => Options::SAFE,
            b"failover" => Options::FAILOVER,
            b"abort" => {
                abort = true;
                continue;
            }
            _ => {
                call.reply.error(errors::SYNTAX);
                return Outcome::Done;
            }
        });
    }
    let client = super::client_name_line(call.node, &call.session.shared);
    let asked_by = format!(" (user request from '{client}')");
    match () {
        _ if abort && options != Options::default() => call.reply.error(errors::SYNTAX),
        _ if options.has(Options::SAVE) && options.has(Options::NOSAVE) => call.reply.error(errors::SYNTAX),
        _ if options.has(Options::FAILOVER) => {
            call.reply.error("ERR SHUTDOWN FAILOVER is only supported in cluster mode.");
        }
        _ if abort && call.node.process.pending_end.abort() => call.reply.ok(),
        _ if abort => call.reply.error("ERR No shutdown in progress."),
        _ if may_end(options, &asked_by) => {
            // Success has no reply: the connection ends.
            call.session.close_after_reply = true;
            call.node.mail.post_control(ControlLetter::ShutDown);
        }
        _ => call.reply.error("ERR Errors trying to SHUTDOWN. Check logs."),
    }
    Outcome::Done
}
