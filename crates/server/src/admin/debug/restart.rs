//! DEBUG RESTART: the process ends as with SHUTDOWN NOW, and the program starts again in its place, with the
//! same number, arguments and files.

use isotherm_commands::Outcome;
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

use super::super::{AdminCall, config, server};
use super::let_go;
use isotherm_node::process::asked_end::Options;

const FAILED: &str = "ERR failed to restart the server. Check server logs.";

// COMPAT(debug): DEBUG RESTART is refused in a transaction. Why: what the transaction holds is needed for the
// last file.
pub fn restart(call: &mut AdminCall<'_>) -> Outcome {
    let Some(delay_ms) = call.args.try_get(2).map_or(Some(0), parse_i64) else {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    };
    let_go(call);
    if call.session.in_exec || !rewrites_config(call) {
        call.reply.error(FAILED);
        return Outcome::Done;
    }
    let restart = &call.node.process.restart;
    restart.want(delay_ms.max(0));
    server::leave(call, Options::NOW, |node| node.process.restart.call_off())
}

/// Writes the parameters that were set at run time to the configuration file, so that they hold for the next
/// start. Returns false if there is a file and it cannot be written.
fn rewrites_config(call: &mut AdminCall<'_>) -> bool {
    if call.node.process.config_file.is_none() {
        return true;
    }
    let (mark, errors_before) = (call.reply.len(), call.reply.error_count());
    config::rewrite_here(call, false);
    call.reply.truncate(mark);
    call.reply.error_count() == errors_before
}
