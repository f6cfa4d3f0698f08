//! A replica that takes writes expires the keys of its own clients: the keys that their commands have left
//! with a TTL are noted (`OwnKeys`), and when one is due the cron looks at the key itself. Changes to it by
//! the stream of the primary meanwhile hold.

use isotherm_commands::Flags;
use isotherm_commands::spec::{Spec, key_positions};
use isotherm_keyspace::{Conditions, Db, ExpiryMode, Held, Lookup, Txn, UnixMs, Want};
use isotherm_resp::Args;

use isotherm_node::Node;
use isotherm_node::effects::pump::Pump;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::replication::own_keys::OwnKeys;

/// Expired in one round of the cron: each takes a lock for some microseconds.
const EXPIRED_MAX: usize = 200;

/// A client's command has run on a replica; its keys are held.
#[cold]
pub fn note(
    own_keys: &OwnKeys,
    (held, pump): (&mut Held<'static>, &mut Pump),
    spec: &Spec,
    args: Args<'_>,
    (db, now): (Db, UnixMs),
) {
    if spec.flags.has(Flags::ALL_DBS) {
        // FLUSHALL and its like: what is looked at later is not there.
        return;
    }
    let mut positions = Vec::new();
    if key_positions(spec, args, &mut positions).is_err() {
        return;
    }
    let conditions = Conditions { now, expiry_mode: ExpiryMode::Keep, no_touch: true };
    let mut txn = Txn::new(held, conditions, pump);
    for (at, _) in positions {
        let key = txn.key(args.get(at));
        let due = txn.find(db, &key, Lookup::Silent).and_then(|entry| entry.expiry);
        own_keys.set(db, key.bytes, due);
    }
    txn.finish();
}

/// Expires what is due, if the node is a replica still. Returns how many keys.
pub fn expire(node: &'static Node, pump: &mut Pump, now: UnixMs) -> u64 {
    let own_keys = &node.replication.own_keys;
    let mut expired = 0;
    for _ in 0..EXPIRED_MAX {
        let Some((db, key)) = own_keys.take_due(now) else { break };
        let mut held = Held::new(&node.keyspace);
        let key = node.keyspace.key(&key);
        held.acquire(Want::One(node.keyspace.partition_of(key.slot)));
        if !node.mail.tasks().has(Tasks::REPLICA) {
            break;
        }
        let conditions = Conditions { now, expiry_mode: ExpiryMode::Delete, no_touch: true };
        let mut txn = Txn::new(&mut held, conditions, pump);
        let due = txn.find(db, &key, Lookup::Silent).and_then(|entry| entry.expiry);
        expired += txn.finish().expired;
        own_keys.set(db, key.bytes, due);
    }
    expired
}
