//! Slots that a script may reach in a member of a cluster.
//!
//! The slots of the keys that a script is called with are checked before it begins. Those of each of its
//! commands are checked again, while its keys are held: a script may name other keys, and a slot may leave
//! while a script takes long. All commands of a script have one slot, unless the script may cross slots.

use isotherm_cluster::topology::State;
use isotherm_resp::Args;

use super::host::ScriptHost;
use isotherm_engine::request::slots::refusal::Refusal;
use isotherm_engine::request::slots::route;
use isotherm_engine::request::slots::route::{Asked, Desk, Who};
use isotherm_engine::scripting::run::Kept;
use isotherm_node::cluster::words::Word;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::gate_bits::Gates;

const NOT_LOCAL: &str = "ERR Attempted to access a non local key in a cluster node";
const OTHER_SLOT: &str = "ERR Script attempted to access keys that do not hash to the same slot";
pub const NO_CLUSTER: &str = "ERR Can not run script on cluster, 'no-cluster' flag is set.";

/// Why a command, whose keys are held, does not run here.
pub fn refusal(host: &mut ScriptHost<'_, '_>, command: &Entry, words: Args<'_>) -> Option<Vec<u8>> {
    let member = host.call.exec.route.member?;
    if !command.gates.has(Gates::SLOT) {
        return None;
    }
    let exec = &mut *host.call.exec;
    exec.route.refresh();
    let slot = match route::slot_of(&mut exec.desk(), command, words) {
        Ok(slot) => slot?,
        Err(_) => return let_go(host, NOT_LOCAL.into()),
    };
    let is_usual = member.words.get(slot) == Word::MINE && exec.route.topology().state == State::Ok;
    let who = Who::of(host.call.session, command);
    let asked = Asked { command, args: words, flags: command.spec.flags, slot, who };
    if !is_usual && let Err(refusal) = route::judge(&mut Desk { reads_now: true, ..exec.desk() }, asked) {
        return let_go(host, text_of(refusal, command));
    }
    let state = &mut *host.state;
    let is_other = *state.slot.get_or_insert(slot) != slot;
    if is_other && !state.allowed.crossing { let_go(host, OTHER_SLOT.into()) } else { None }
}

fn text_of(refusal: Refusal, command: &Entry) -> String {
    let name = &command.name;
    match refusal {
        Refusal::DownReadOnly => {
            format!("ERR Can not execute a write command '{name}' while the cluster is down and readonly")
        }
        Refusal::Down => format!("ERR Can not execute a command '{name}' while the cluster is down"),
        _ => NOT_LOCAL.into(),
    }
}

/// Releases the locks that were taken for this command alone, and returns the error.
fn let_go(host: &mut ScriptHost<'_, '_>, text: String) -> Option<Vec<u8>> {
    if host.state.kept == Kept::Leases {
        host.call.exec.release();
    }
    Some(text.into_bytes())
}
