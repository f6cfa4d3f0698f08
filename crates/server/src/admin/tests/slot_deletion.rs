//! The keys of a slot that are deleted: which, and when.

use isotherm_keyspace::{Held, LeaseId, Want};
use std::num::NonZeroU64;

use super::member::Member;

/// Leases a key as a long script does, or frees it.
fn set_leased(member: &Member, key: &[u8], is_leased: bool) {
    let (node, lease) = (member.process.node, LeaseId(NonZeroU64::MAX));
    let place = node.keyspace.lease_place(&node.keyspace.key(key));
    let mut held = Held::new(&node.keyspace);
    held.acquire(Want::One(place.partition));
    match is_leased {
        true => {
            node.runs.begin_leases(&node.keyspace, &node.mail);
            held.lease(place, lease);
        }
        false => {
            held.free_leases(lease);
            node.runs.end_leases(&node.keyspace, &node.mail);
        }
    }
}

#[test]
fn keys_that_a_script_has_leased_are_deleted_when_it_has_ended() {
    let mut member = Member::start(&["--cluster-databases", "2"]);
    member.give(&["a"]);
    (0..500).for_each(|at| member.check(&format!("SET {{a}}{at} x"), "+OK"));
    set_leased(&member, b"{a}7", true);
    member.check("CLUSTER FLUSHSLOT 15495", "parked");
    member.check("CLUSTER GETKEYSINSLOT 15495 10", "*1 $4 {a}7");
    set_leased(&member, b"{a}7", false);
    member.check("CLUSTER FLUSHSLOT 15495", "+OK");
    member.check("CLUSTER COUNTKEYSINSLOT 15495", ":0");
    member.process.node.keyspace.check_invariants();
}
