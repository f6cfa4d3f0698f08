//! The keys of a slot that are deleted: which, and when.

use isotherm_cluster::Slot;
use isotherm_keyspace::{Held, LeaseId, Want};
use std::num::NonZeroU64;

use super::member::{IMPORTING, MIGRATING, Member};
use isotherm_membership::cluster::changes::is_anothers;
use isotherm_node::cluster::words::{Owner, SlotState};
use isotherm_node::mail::tasks::Tasks;

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

/// Keys that are left of a slot that was lost are deleted, unless they are of use again.
#[test]
fn a_replica_deletes_no_keys_of_a_slot() {
    let mut member = Member::start(&[]);
    let (node, slot) = (member.process.node, Slot::of_key(b"a"));
    member.lose("a");
    assert!(is_anothers(node, slot));
    node.mail.set_tasks(Tasks::REPLICA, Tasks::REPLICA);
    assert!(!is_anothers(node, slot));
    node.mail.set_tasks(Tasks::REPLICA, Tasks::NONE);
    for state in [SlotState::MINE, MIGRATING, IMPORTING, SlotState::of(Owner::MyPrimary)] {
        member.set("a", state);
        assert!(!is_anothers(node, slot), "{state:?}");
    }
}
