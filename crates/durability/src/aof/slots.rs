//! Commands about slots that come from a primary: CLUSTER SETSLOT, which its replicas know before it obeys,
//! and FLUSHSLOT.

use isotherm_cluster::machine::{Request, SlotAction};
use isotherm_cluster::{NodeId, Slot};
use isotherm_keyspace::{Held, Walk};
use isotherm_resp::Args;
use isotherm_stdx::parse_i64;

use isotherm_engine::request::slots::deleting::{self, Rest};
use isotherm_node::Node;
use isotherm_node::effects::pump::Pump;
use isotherm_runtime::time::unix_now;

pub enum Words {
    SetSlot(Request),
    FlushSlot(Slot),
    /// Subcommand that has no effect on a replica.
    Other,
}

/// `CLUSTER` stands at 0.
pub fn read(args: Args<'_>) -> Words {
    let word = |at: usize| args.try_get(at).unwrap_or_default().to_ascii_lowercase();
    let slot = args.try_get(2).and_then(parse_i64).and_then(|number| u16::try_from(number).ok());
    let Some(slot) = slot.filter(|number| usize::from(*number) < Slot::COUNT).map(Slot::new) else {
        return Words::Other;
    };
    match word(1).as_slice() {
        b"flushslot" => Words::FlushSlot(slot),
        b"setslot" => {
            let node = args.try_get(4).and_then(NodeId::parse);
            let action = match (word(3).as_slice(), node) {
                (b"migrating", Some(node)) => SlotAction::Migrating(node),
                (b"importing", Some(node)) => SlotAction::Importing(node),
                // The primary has looked for keys.
                (b"node", Some(node)) => SlotAction::Node { node, holds_keys: false },
                (b"stable", _) => SlotAction::Stable,
                _ => return Words::Other,
            };
            Words::SetSlot(Request::SetSlot { slot, action, is_replicated: true })
        }
        _ => Words::Other,
    }
}

/// Reads what the next of them needs. Nothing is held.
pub fn read_records(node: &'static Node, walk: &mut Walk) {
    deleting::read_records(node, walk);
}

/// Deletes some keys of the slot, whose partition is held.
pub fn flush_some(node: &Node, held: &mut Held<'static>, pump: &mut Pump, slot: Slot) -> Rest {
    let step = deleting::delete_some(held, pump, slot, node.config.databases(), unix_now(), true);
    held.exempt(step.deleted as u64);
    step.rest
}
