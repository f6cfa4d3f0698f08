//! MONITOR.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;

use super::{AdminCall, AdminHandler};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::new(MONITOR, monitor)];

const MONITOR: Spec = Spec {
    name: "monitor",
    summary: "Sends every command that the server runs to this connection.",
    group: Group::Server,
    arity: 1,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    ..Spec::BASE
};

/// A session that monitors already gets no reply, as in Valkey.
fn monitor(call: &mut AdminCall<'_>) -> Outcome {
    if call.session.in_exec {
        call.reply.error("ERR MONITOR isn't allowed for DENY BLOCKING client");
    } else if !call.session.monitors() {
        call.session.monitor(call.node, call.audience);
        call.reply.ok();
    }
    Outcome::Done
}
