//! Parts of large collections that leave memory one by one: what the thread that writes does with them.
//!
//! ```text
//!   gather    a partition, under its lock:  a page or a leaf  -->  a record  -->  the open group
//!   flip      the group is on disk:         pages that are still these bytes leave
//!   clean     a record lives while a stub refers to it, or the page has come back and was not changed since
//! ```
//! ```text
//!   gather    a page that was only read since it came back leaves at once: its record is still there
//! ```

use isotherm_keyspace::{
    ByNodes, ColdRef, Held, HeldNode, Keyspace, NodeAt, NodeHand, NodeName, SinkableNode, Slot, Want,
};
use isotherm_tier::{Full, Log, Place, Record, Stream};

use isotherm_runtime::time::unix_now;

pub const FORM: u8 = SinkableNode::FORM_NUMBER;

/// Limits of what is gathered in one hold.
#[derive(Clone, Copy)]
pub struct Limits {
    pub by_nodes: ByNodes,
    pub idle_seconds_min: u32,
    pub looks_max: u64,
    pub bytes_max: u64,
}

/// Bytes of what was shown, and of what was taken.
#[derive(Clone, Copy, Default)]
pub struct Gathered {
    pub shown_bytes: u64,
    pub taken_bytes: u64,
    /// Some can leave in a moment.
    pub has_awaited: bool,
    /// Number of nodes that have left without being written.
    pub clean: u64,
}

/// Writes what may leave to the log, in one hold of the hand's partition.
pub fn gather(
    (keyspace, log): (&Keyspace, &mut Log),
    hand: &mut NodeHand,
    limits: Limits,
    room: &mut Vec<u8>,
) -> (Gathered, Result<(), Full>) {
    let (mut gathered, mut result, mut clean) = (Gathered::default(), Ok(()), Vec::new());
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(hand.partition()));
    hand.show_sinkable(&mut held, limits.by_nodes, limits.looks_max, unix_now(), &mut |node| {
        gathered.shown_bytes += node.bytes as u64;
        gathered.has_awaited |= node.is_awaited;
        let is_recent = node.is_awaited || node.idle_seconds < limits.idle_seconds_min;
        if is_recent || result.is_err() || gathered.taken_bytes >= limits.bytes_max {
            return;
        }
        if node.is_clean {
            gathered.taken_bytes += node.bytes as u64;
            return clean.push(node.at);
        }
        node.write_payload(room);
        let record = Record {
            form: FORM,
            expiry: None,
            database: 0,
            slot: node.at.slot,
            key: node.at.name.as_bytes(),
            payload: room,
        };
        match log.append(Stream::Fresh, &record, None) {
            Ok(_) => gathered.taken_bytes += node.bytes as u64,
            Err(full) => result = Err(full),
        }
    });
    clean.retain(|node| HeldNode::of(&mut held, *node).chill_clean(unix_now()));
    gathered.clean = clean.len() as u64;
    (gathered, result)
}

/// A record is on disk: the node leaves memory, or if the record was moved its stub refers to it. Whether a
/// node left. The partition of the record's slot is held.
pub fn flip(held: &mut Held<'_>, record: &Record<'_>, before: Option<Place>, to: Place) -> bool {
    let (mut node, to) = (HeldNode::of(held, at_of(record)), ColdRef::new(to.raw()));
    match before {
        None => node.chill(record.payload, to, unix_now()),
        Some(before) => {
            node.move_to(ColdRef::new(before.raw()), to);
            false
        }
    }
}

/// Returns whether anything refers to a record.
pub fn lives(keyspace: &Keyspace, place: Place, record: &Record<'_>) -> bool {
    let mut held = Held::new(keyspace);
    held.acquire(Want::One(keyspace.partition_of(record.slot)));
    HeldNode::of(&mut held, at_of(record)).refers_to(ColdRef::new(place.raw()))
}

/// Checked by the record's own sum.
fn at_of(record: &Record<'_>) -> NodeAt {
    let slot: Slot = record.slot;
    let name = NodeName::of_bytes(record.key).expect("a record of this form has the name of a node");
    NodeAt { slot, name }
}
