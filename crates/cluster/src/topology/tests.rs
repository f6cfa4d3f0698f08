//! Ready-made replies compared with those that are written directly, over a history of changes.

use super::ready::{self, SlotTexts, Slots};
use super::replies::{self, Asker, Endpoint};
use super::{Address, Node, NodeIndex, State, Topology};
use crate::{Flags, NodeId, Slot, SlotRanges};
use isotherm_resp::{Protocol, Reply, SharedAccount, SharedBytes};
use isotherm_stdx::Prng;
use std::sync::Arc;

const NODES: usize = 12;
const PRIMARIES: u64 = 8;

/// Eight primaries, four replicas; slots without an owner.
fn topology() -> Topology {
    let node = |at: usize| Node {
        id: NodeId::new([at as u8 + 1; 20]),
        shard: NodeId::new([(at % PRIMARIES as usize) as u8 + 1; 20]),
        flags: if at < PRIMARIES as usize { Flags::PRIMARY } else { Flags::REPLICA },
        primary: (at >= PRIMARIES as usize).then(|| NodeIndex((at % PRIMARIES as usize) as u16)),
        address: Arc::new(Address {
            ip: format!("10.0.0.{at}"),
            tcp_port: 7000 + at as u16,
            bus_port: 17000,
            ..Address::default()
        }),
        config_epoch: at as u64,
        ping_sent_ms: 0,
        pong_received_ms: 1000,
        is_connected: true,
        offset: at as u64 % 2,
        slots: SlotRanges::default(),
    };
    let mut nodes: Vec<Node> = (0..NODES).map(node).collect();
    nodes[0].flags = Flags::PRIMARY | Flags::MYSELF;
    Topology {
        generation: 0,
        nodes,
        myself: NodeIndex(0),
        owners: Arc::new([None; Slot::COUNT]),
        migrating: Vec::new(),
        importing: Vec::new(),
        state: State::Ok,
        current_epoch: 9,
        last_vote_epoch: 0,
        size: PRIMARIES as usize,
    }
}

fn own(topology: &mut Topology, slots: impl Iterator<Item = u16>, mut owner: impl FnMut(u16) -> Option<u64>) {
    let owners = Arc::make_mut(&mut topology.owners);
    for slot in slots {
        owners[usize::from(slot)] = owner(slot).map(|owner| NodeIndex(owner as u16));
    }
    let owner = |slot: Slot| owners[slot.index()].map(|index| usize::from(index.0));
    let owned = SlotRanges::by_owner(topology.nodes.len(), owner);
    // Those that stay the same stay shared.
    for (node, slots) in topology.nodes.iter_mut().zip(owned).filter(|(node, slots)| node.slots != *slots) {
        node.slots = slots;
    }
}

fn change(topology: &mut Topology, prng: &mut Prng) {
    let start = prng.below(Slot::COUNT as u64) as u16;
    let end = (start + [1, 7, 600][prng.below(3) as usize]).min(Slot::COUNT as u16);
    let at = prng.below(NODES as u64) as usize;
    let node = &mut topology.nodes[at];
    match prng.below(12) {
        0 => node.offset = prng.below(3),
        1 => Arc::make_mut(&mut node.address).hostname = ["", "host", "a.b"][prng.below(3) as usize].into(),
        2 => Arc::make_mut(&mut node.address).client_ipv6 = ["", "fe80::1"][prng.below(2) as usize].into(),
        3 => Arc::make_mut(&mut node.address).client_tls_port = prng.below(2) as u16,
        4 => node.flags.set(Flags::FAIL),
        5 => node.flags.clear(Flags::FAIL),
        6 => own(topology, start..end, |_| None),
        7 => own(topology, start..end, |slot| Some(u64::from(slot) % PRIMARIES)),
        8 => topology.migrating = vec![(Slot::new(start), NodeId::new([5; 20]))],
        9 => node.pong_received_ms += 1,
        _ => {
            let owner = prng.below(PRIMARIES);
            own(topology, start..end, |_| Some(owner));
        }
    }
}

fn askers() -> Vec<(Asker, Protocol)> {
    let endpoints = [Endpoint::Ip, Endpoint::Hostname, Endpoint::Unknown];
    let ways = [(false, false), (false, true), (true, false), (true, true)];
    let asker = |endpoint, (is_ipv6, is_tls)| Asker { is_ipv6, is_tls, endpoint };
    let askers = endpoints.into_iter().flat_map(|endpoint| ways.map(|way| asker(endpoint, way)));
    askers.flat_map(|asker| [(asker, Protocol::Resp2), (asker, Protocol::Resp3)]).collect()
}

fn direct(proto: Protocol, write: impl FnOnce(&mut Reply)) -> Vec<u8> {
    let mut reply = Reply::new(proto);
    write(&mut reply);
    reply.out
}

#[track_caller]
fn check(parts: &[Arc<SharedBytes>], expected: &[u8], what: &str) {
    let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
    assert!(!parts[0].is_empty() && bytes == expected, "{what}: {}", String::from_utf8_lossy(&bytes));
}

#[test]
fn ready_made_replies_are_those_that_are_written() {
    let (mut prng, account) = (Prng::new(16), SharedAccount::default());
    let mut topology = topology();
    let mut slots: Vec<Option<Slots>> = askers().iter().map(|_| None).collect();
    let mut texts: Option<SlotTexts> = None;
    for step in 0..80 {
        (0..prng.below(4)).for_each(|_| change(&mut topology, &mut prng));
        let now = Arc::new(topology.clone());
        let new_texts = SlotTexts::new(&now, texts.as_ref());
        for ((asker, proto), slots) in askers().into_iter().zip(&mut slots) {
            // Not each of them is asked for each time.
            if prng.below(3) > 0 {
                continue;
            }
            let what = format!("step {step}, {asker:?}, {proto:?}");
            let made = Slots::new(&now, asker, proto, slots.as_ref(), &account);
            check(made.parts(), &direct(proto, |reply| replies::slots(&now, asker, reply)), &what);
            *slots = Some(made);
            let made = ready::shards(&now, &new_texts, asker, proto, &account);
            check(&made, &direct(proto, |reply| replies::shards(&now, asker, reply)), &what);
            let made = ready::nodes(&now, &new_texts, asker, proto, &account);
            let lines = replies::nodes(&now, asker);
            check(&made, &direct(proto, |reply| reply.verbatim("txt", lines.as_bytes())), &what);
        }
        texts = Some(new_texts);
    }
    drop(slots);
    assert_eq!(account.bytes(), 0);
}

/// A reply that is carried over from an earlier topology equals one that is made anew.
#[test]
fn what_shows_the_same_is_the_same() {
    let mut prng = Prng::new(17);
    let mut topology = topology();
    let (mut kept_slots, mut kept_shards) = (0, 0);
    for _ in 0..400 {
        let before = topology.clone();
        change(&mut topology, &mut prng);
        for (asker, proto) in [askers()[0], askers()[7], askers()[12]] {
            if ready::show_the_same_slots(&before, &topology) {
                kept_slots += 1;
                let slots = |topology| direct(proto, |reply| replies::slots(topology, asker, reply));
                assert!(slots(&before) == slots(&topology));
            }
            if ready::show_the_same_shards(&before, &topology) {
                kept_shards += 1;
                let shards = |topology| direct(proto, |reply| replies::shards(topology, asker, reply));
                assert!(shards(&before) == shards(&topology));
            }
        }
    }
    assert!(kept_slots > 100 && kept_shards > 100, "{kept_slots} {kept_shards}");
}

#[test]
fn a_slot_that_moves_makes_one_block_anew() {
    let account = SharedAccount::default();
    let mut topology = topology();
    own(&mut topology, 0..Slot::COUNT as u16, |slot| Some(u64::from(slot) % PRIMARIES));
    let asker = Asker::default();
    let before = Slots::new(&Arc::new(topology.clone()), asker, Protocol::Resp2, None, &account);
    for (slot, anew) in [(700, 1), (0, 1), (16383, 1), (511, 2)] {
        let mut moved = topology.clone();
        own(&mut moved, slot..slot + 1, |_| Some(u64::from(slot + 1) % PRIMARIES));
        let after = Slots::new(&Arc::new(moved), asker, Protocol::Resp2, Some(&before), &account);
        let is_kept = |(a, b): &(&Arc<SharedBytes>, &Arc<SharedBytes>)| Arc::ptr_eq(a, b);
        let parts = before.parts()[1..].iter().zip(&after.parts()[1..]);
        assert_eq!(parts.filter(|parts| !is_kept(parts)).count(), anew, "slot {slot}");
    }
}
