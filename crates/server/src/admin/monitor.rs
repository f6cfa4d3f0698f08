//! MONITOR.

use isotherm_commands::Outcome;
use isotherm_commands::spec::Command;

use super::{AdminCall, AdminHandler, specs};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::new(specs::MONITOR, monitor)];

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
