//! Replies that show a topology, ready-made: in parts that are sent as they are, to any number of clients.
//!
//! ```text
//!   SLOTS    [*runs] [block 0] [block 1] ... [block 63]    a block: the runs that begin in 256 slots
//!   SHARDS   [*shards] [all of them]                       the ranges of a node come from `SlotTexts`
//!   NODES    [=bytes] [all lines]                          so do they here
//! ```
//! A slot that moves makes one block anew, or two, and the ranges of two nodes; the rest is taken from what
//! was made before. The bytes are those that `replies` writes.

use super::replies::{self, Asker};
use super::{Node, NodeIndex, Topology};
use crate::conf::write_slots;
use crate::{Flags, Slot, SlotRanges};
use isotherm_resp::{Protocol, Reply, SharedAccount, SharedBytes};
use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};

const BLOCK_SLOTS: usize = 256;
const BLOCKS: usize = Slot::COUNT / BLOCK_SLOTS;

// ---- SLOTS ----

/// CLUSTER SLOTS.
pub struct Slots {
    topology: Arc<Topology>,
    /// The header, then the blocks.
    parts: Vec<Arc<SharedBytes>>,
    blocks: Vec<Block>,
    entries: Arc<Entries>,
}

/// Encoded node lists of CLUSTER SLOTS, one for each owner. Topologies share them until their nodes show
/// something else.
struct Entries(Box<[OnceLock<Entry>]>);

/// Part of a run in CLUSTER SLOTS that follows its two slots.
struct Entry {
    /// Number of elements of the run's array, its two slots included.
    members: usize,
    bytes: Vec<u8>,
}

impl Entries {
    fn new(nodes: usize) -> Arc<Entries> {
        Arc::new(Entries((0..nodes).map(|_| OnceLock::new()).collect()))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Block {
    runs: usize,
    /// The last slot of its last run, which may be one of another block.
    last: Option<Slot>,
}

impl Slots {
    /// `before`: what was made in the same way of an earlier topology.
    pub fn new(
        topology: &Arc<Topology>,
        asker: Asker,
        proto: Protocol,
        before: Option<&Slots>,
        account: &SharedAccount,
    ) -> Slots {
        let before = before.filter(|before| show_the_same_nodes(&before.topology, topology));
        let entries =
            before.map_or_else(|| Entries::new(topology.nodes.len()), |old| Arc::clone(&old.entries));
        let shown = Shown { topology, asker, proto, replicas: OnceCell::new(), entries: &entries };
        let mut parts = vec![SharedBytes::new([], account)];
        let mut blocks = Vec::with_capacity(BLOCKS);
        for number in 0..BLOCKS {
            let kept = before.filter(|before| is_same_block(before, topology, number));
            let (block, bytes) = match kept {
                Some(before) => (before.blocks[number], Arc::clone(&before.parts[number + 1])),
                None => {
                    let (block, bytes) = shown.block(number);
                    (block, SharedBytes::new(bytes, account))
                }
            };
            blocks.push(block);
            parts.push(bytes);
        }
        let mut header = Reply::new(proto);
        header.array(blocks.iter().map(|block| block.runs).sum());
        parts[0] = SharedBytes::new(header.out, account);
        Slots { topology: Arc::clone(topology), parts, blocks, entries }
    }

    pub fn parts(&self) -> &[Arc<SharedBytes>] {
        &self.parts
    }
}

/// Returns whether CLUSTER SLOTS shows the same for both topologies.
pub fn show_the_same_slots(a: &Topology, b: &Topology) -> bool {
    show_the_same_nodes(a, b)
        && (Arc::ptr_eq(&a.owners, &b.owners) || are_same_owners(&*a.owners, &*b.owners))
}

fn show_the_same_nodes(a: &Topology, b: &Topology) -> bool {
    let same = |(a, b): (&Node, &Node)| {
        let is_shown = |node: &Node| (node.flags.has(Flags::FAIL), node.offset != 0);
        a.id == b.id && a.primary == b.primary && a.address == b.address && is_shown(a) == is_shown(b)
    };
    a.nodes.len() == b.nodes.len() && a.nodes.iter().zip(&b.nodes).all(same)
}

/// Looks at all of them, without a branch for each.
fn are_same_owners(a: &[Option<NodeIndex>], b: &[Option<NodeIndex>]) -> bool {
    let number = |owner: &Option<NodeIndex>| owner.map_or(u32::MAX, |index| u32::from(index.0));
    a.iter().zip(b).fold(0, |differs, (a, b)| differs | (number(a) ^ number(b))) == 0
}

/// Returns whether the same runs begin in a block, and end at the same slots.
fn is_same_block(before: &Slots, topology: &Topology, number: usize) -> bool {
    let (old, new) = (&before.topology.owners, &topology.owners);
    if Arc::ptr_eq(old, new) {
        return true;
    }
    let start = number * BLOCK_SLOTS;
    // The slot in front of it decides whether a run begins with its first.
    let slots = start.saturating_sub(1)..start + BLOCK_SLOTS;
    let last_run = before.blocks[number].last;
    are_same_owners(&old[slots.clone()], &new[slots.clone()])
        && last_run.is_none_or(|last| {
            last.index() < slots.end - 1 || run_end(topology, Slot::new(slots.end as u16 - 1)) == last
        })
}

/// The last slot of the run that this one is in.
fn run_end(topology: &Topology, slot: Slot) -> Slot {
    let owner = topology.owners[slot.index()];
    let rest = topology.owners[slot.index()..].iter().take_while(|next| **next == owner).count();
    Slot::new(slot.get() + rest as u16 - 1)
}

/// A topology, and what was written of it already.
struct Shown<'t> {
    topology: &'t Topology,
    asker: Asker,
    proto: Protocol,
    replicas: OnceCell<Vec<Vec<NodeIndex>>>,
    entries: &'t Entries,
}

impl Shown<'_> {
    fn block(&self, number: usize) -> (Block, Vec<u8>) {
        let (start, topology) = (number * BLOCK_SLOTS, self.topology);
        let mut reply = Reply::new(self.proto);
        let mut block = Block { runs: 0, last: None };
        let mut at = start;
        while at < start + BLOCK_SLOTS {
            let first = Slot::new(at as u16);
            let last = run_end(topology, first);
            let is_begun = at == start && at > 0 && topology.owners[at - 1] == topology.owners[at];
            if let Some(owner) = topology.owners[at]
                && !is_begun
            {
                let entry = self.entry_of(owner);
                reply.array(entry.members);
                reply.integer(i64::from(first.get()));
                reply.integer(i64::from(last.get()));
                reply.raw(&entry.bytes);
                block = Block { runs: block.runs + 1, last: Some(last) };
            }
            at = last.index() + 1;
        }
        (block, reply.out)
    }

    fn entry_of(&self, owner: NodeIndex) -> &Entry {
        self.entries.0[usize::from(owner.0)].get_or_init(|| {
            let replicas = self.replicas.get_or_init(|| self.topology.replicas());
            let mut reply = Reply::new(self.proto);
            let count = replies::slots_nodes(self.topology, owner, replicas, self.asker, &mut reply);
            Entry { members: 2 + count, bytes: reply.out }
        })
    }
}

// ---- the ranges of a node ----

/// The slots of each node of a topology as text. Each is made when it is asked for.
pub struct SlotTexts(Vec<Arc<SlotText>>);

struct SlotText {
    slots: SlotRanges,
    /// Slots as an array, for SHARDS.
    array: OnceLock<Vec<u8>>,
    /// Slots as part of a line, for NODES.
    line: OnceLock<String>,
}

impl SlotTexts {
    /// `before`: those of an earlier topology.
    pub fn new(topology: &Topology, before: Option<&SlotTexts>) -> SlotTexts {
        let before = before.map_or(&[][..], |before| &before.0);
        let text =
            |(at, node): (usize, &Node)| match before.get(at).filter(|text| text.may_be_of(&node.slots)) {
                Some(text) => Arc::clone(text),
                None => Arc::new(SlotText {
                    slots: node.slots.clone(),
                    array: OnceLock::new(),
                    line: OnceLock::new(),
                }),
            };
        SlotTexts(topology.nodes.iter().enumerate().map(text).collect())
    }

    fn array(&self, index: NodeIndex) -> &[u8] {
        let text = &self.0[usize::from(index.0)];
        text.array.get_or_init(|| {
            let mut reply = Reply::default();
            replies::slot_ranges(&text.slots, &mut reply);
            reply.out
        })
    }

    fn line(&self, index: NodeIndex) -> &str {
        let text = &self.0[usize::from(index.0)];
        text.line.get_or_init(|| {
            let mut line = String::new();
            write_slots(&text.slots, &mut line);
            line
        })
    }
}

impl SlotText {
    /// Returns whether the texts can be used for these slots. Texts that were not made yet are not worth the
    /// comparison.
    fn may_be_of(&self, slots: &SlotRanges) -> bool {
        let is_made = self.array.get().is_some() || self.line.get().is_some();
        self.slots.is_shared_with(slots) || is_made && self.slots == *slots
    }
}

// ---- SHARDS, NODES ----

/// CLUSTER SHARDS.
pub fn shards(
    topology: &Topology,
    texts: &SlotTexts,
    asker: Asker,
    proto: Protocol,
    account: &SharedAccount,
) -> Vec<Arc<SharedBytes>> {
    let shards = replies::by_shard(topology);
    let (mut header, mut all) = (Reply::new(proto), Reply::new(proto));
    header.array(shards.len());
    for (id, nodes) in shards {
        replies::shard(topology, &id, &nodes, asker, &mut all, |owner, reply| match owner {
            Some(owner) => reply.raw(texts.array(owner)),
            None => reply.array(0),
        });
    }
    [header.out, all.out].map(|part| SharedBytes::new(part, account)).to_vec()
}

/// Returns whether CLUSTER SHARDS shows the same for both topologies.
pub fn show_the_same_shards(a: &Topology, b: &Topology) -> bool {
    const SHOWN: [Flags; 3] = [Flags::FAIL, Flags::REPLICA, Flags::HANDSHAKE];
    let same = |(a, b): (&Node, &Node)| {
        a.id == b.id
            && a.shard == b.shard
            && a.offset == b.offset
            && SHOWN.iter().all(|flag| a.flags.has(*flag) == b.flags.has(*flag))
            && a.address == b.address
            && (a.slots.is_shared_with(&b.slots) || a.slots == b.slots)
    };
    a.nodes.len() == b.nodes.len() && a.nodes.iter().zip(&b.nodes).all(same)
}

/// CLUSTER NODES.
pub fn nodes(
    topology: &Topology,
    texts: &SlotTexts,
    asker: Asker,
    proto: Protocol,
    account: &SharedAccount,
) -> Vec<Arc<SharedBytes>> {
    let mut lines = String::with_capacity(topology.nodes.len() * 150);
    for at in 0..topology.nodes.len() {
        let index = NodeIndex(at as u16);
        replies::line_with(topology, index, crate::conf::Slots::Text(texts.line(index)), asker, &mut lines);
    }
    let mut reply = Reply::new(proto);
    reply.verbatim("txt", lines.as_bytes());
    let header = reply.out.len() - lines.len() - b"\r\n".len();
    let rest = reply.out.split_off(header);
    [reply.out, rest].map(|part| SharedBytes::new(part, account)).to_vec()
}
