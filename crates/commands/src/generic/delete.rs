//! Keys leave: DEL UNLINK. Memory is given back at once in both: no value is so large that freeing it takes
//! long.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::EventClass;

pub const DEL: Command<Handler> = Command::new(
    Spec {
        name: "del",
        summary: "Removes keys. Returns how many existed.",
        complexity: "O(N), N the keys and the elements of their collections",
        arity: -2,
        flags: Flags::WRITE,
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RM.or(KeyFlags::DELETE))],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    delete,
);

pub const UNLINK: Command<Handler> = Command::new(
    Spec {
        name: "unlink",
        summary: "Removes keys and frees large values in the background. Returns how many existed.",
        since: "4.0.0",
        complexity: "O(1) for each key of any size, then O(N) in the background to free N allocations",
        arity: -2,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RM.or(KeyFlags::DELETE))],
        tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    delete,
);

/// Keys that another server has taken over leave, as by DEL. The command that this is a part of is counted by
/// its caller, and replies later.
pub fn remove_moved(call: &mut Call<'_, '_, '_>) -> Outcome {
    delete(call);
    Outcome::Later
}

fn delete(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut removed = 0;
    for at in 1..call.args.len() {
        let key = call.key(at);
        if call.txn.remove(call.db, &key) {
            call.wrote(EventClass::Generic, "del", &key, 1);
            removed += 1;
        }
    }
    call.reply.integer(removed as i64);
    Outcome::Done
}
