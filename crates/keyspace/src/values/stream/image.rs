//! A stream as one string of bytes: how it leaves memory, and is read where there is no arena to put it.
//!
//! ```text
//!   [blocks][block] ...                          a block as it lies in its node, its head's first 12 bytes zeros: nothing is decoded
//!   [last id][max deleted id][entries added]     the first id is that of the first entry
//!   [groups] and of each
//!     [name][last id][0, or 1 and the entries read]
//!     [consumers] and of each  [name][seen ms][active ms]
//!     [pending]   and of each  [ms][number][delivered ms][deliveries][consumer: its place among those before]
//!
//!   counts and numbers are 7 bits a byte, as in a block; an id is two of them, a name is [length][bytes]
//! ```
//! Blocks keep their bytes, deleted entries included, so what Valkey would have made of them (XINFO STREAM,
//! XTRIM ~) stays what it was. Entries that are pending with consumers that are gone are swept before: a
//! stream with garbage has no image.

use super::block::{Block, HEAD_BYTES, SHARED_HEAD_BYTES, push_number, read_number};
use super::group::{Consumer, ConsumerGroup, ConsumerGroups, Pending};
use super::id::StreamId;
use super::shown::{Bodies, Piece, Shown, StreamState};
use crate::layout::chain::Chain;
use crate::layout::kind::Form;
use crate::values::lent::LentImage;
use std::any::Any;
use std::sync::Arc;

/// Index of an image, which leads to its parts. Their bytes lie elsewhere.
pub(crate) struct StreamImage {
    /// The number of a piece is where it begins.
    chain: Chain<Piece>,
    state: StreamState,
    groups: ConsumerGroups,
}

/// Writes the image of a stream after the bytes in `out`.
pub(super) fn write(stream: &Shown<'_>, out: &mut Vec<u8>) {
    push_number(out, stream.chain.items());
    for piece in stream.chain.iter() {
        let block = stream.bodies.block(piece);
        out.extend_from_slice(&[0; SHARED_HEAD_BYTES]);
        out.extend_from_slice(&block.0[SHARED_HEAD_BYTES..block.used()]);
    }
    let StreamState { first_id: _, last_id, max_deleted_id, entries_added } = *stream.state;
    push_id(out, last_id);
    push_id(out, max_deleted_id);
    push_number(out, entries_added);
    push_number(out, stream.groups.len() as u64);
    stream.groups.iter().for_each(|(name, group)| push_group(out, name, group));
}

/// Makes the index of a value of this form, to be kept with its bytes, if it is a stream.
pub(crate) fn of_form(form: Form, value: Option<&[u8]>) -> Option<Box<dyn LentImage>> {
    let bytes = value.filter(|_| form == Form::Stream)?;
    Some(Box::new(StreamImage::open(bytes)))
}

impl LentImage for StreamImage {
    fn memory_bytes(&self) -> usize {
        StreamImage::memory_bytes(self)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl StreamImage {
    pub fn open(bytes: &[u8]) -> StreamImage {
        let mut at = 0;
        let mut chain = Chain::new();
        for _ in 0..read_number(bytes, &mut at) {
            let block = Block(&bytes[at..at + HEAD_BYTES]);
            let (first, number, live) = (block.first(), at as u32, block.live());
            chain.push_back(Piece { first, number, large: false, live });
            at += block.used();
        }
        let last_id = read_id(bytes, &mut at);
        let max_deleted_id = read_id(bytes, &mut at);
        let entries_added = read_number(bytes, &mut at);
        let state = StreamState { first_id: StreamId::MIN, last_id, max_deleted_id, entries_added };
        let groups = (0..read_number(bytes, &mut at)).map(|_| read_group(bytes, &mut at));
        let mut image = StreamImage { groups: ConsumerGroups::of(groups), chain, state };
        assert_eq!(at, bytes.len(), "an image is as long as what is in it");
        let first = image.shown(bytes).range(StreamId::MIN, StreamId::MAX).next();
        image.state.first_id = first.map_or(StreamId::MIN, |entry| entry.id);
        image
    }

    pub(super) fn into_groups(self) -> ConsumerGroups {
        self.groups
    }

    pub(super) fn shown<'a>(&'a self, bytes: &'a [u8]) -> Shown<'a> {
        Shown { chain: &self.chain, state: &self.state, groups: &self.groups, bodies: Bodies::Image(bytes) }
    }

    /// Bytes in the global allocator, about; those of the image not included.
    pub fn memory_bytes(&self) -> usize {
        size_of::<StreamImage>() + self.chain.memory_bytes() + self.groups.memory_bytes()
    }
}

fn push_id(out: &mut Vec<u8>, id: StreamId) {
    push_number(out, id.ms);
    push_number(out, id.seq);
}

fn read_id(bytes: &[u8], at: &mut usize) -> StreamId {
    let ms = read_number(bytes, at);
    StreamId { ms, seq: read_number(bytes, at) }
}

fn push_name(out: &mut Vec<u8>, name: &[u8]) {
    push_number(out, name.len() as u64);
    out.extend_from_slice(name);
}

fn read_name<'a>(bytes: &'a [u8], at: &mut usize) -> &'a [u8] {
    let len = read_number(bytes, at) as usize;
    let name = &bytes[*at..*at + len];
    *at += len;
    name
}

fn push_group(out: &mut Vec<u8>, name: &[u8], group: &ConsumerGroup) {
    push_name(out, name);
    push_id(out, group.last_id);
    match group.entries_read {
        None => out.push(0),
        Some(count) => {
            out.push(1);
            push_number(out, count);
        }
    }
    push_number(out, group.consumers().len() as u64);
    for (name, consumer) in group.consumers() {
        push_name(out, name);
        push_number(out, consumer.seen_ms as u64);
        push_number(out, consumer.active_ms as u64);
    }
    let names: Vec<&[u8]> = group.consumers().keys().map(|name| &**name).collect();
    push_number(out, group.pending_len());
    for pending in group.pending_from(StreamId::MIN) {
        push_id(out, pending.id);
        push_number(out, pending.delivered_ms as u64);
        push_number(out, pending.deliveries);
        let owner = names.binary_search(&&*pending.consumer).expect("entries are pending with consumers");
        push_number(out, owner as u64);
    }
}

fn read_group(bytes: &[u8], at: &mut usize) -> (Box<[u8]>, ConsumerGroup) {
    let name = read_name(bytes, at).into();
    let last_id = read_id(bytes, at);
    let is_read_known = read_number(bytes, at) == 1;
    let entries_read = is_read_known.then(|| read_number(bytes, at));
    let mut group = ConsumerGroup::new(last_id, entries_read);
    let consumers = read_number(bytes, at) as usize;
    let mut names: Vec<Arc<[u8]>> = Vec::with_capacity(consumers);
    for _ in 0..consumers {
        let name = read_name(bytes, at);
        let mut consumer = Consumer::new(read_number(bytes, at) as i64);
        consumer.active_ms = read_number(bytes, at) as i64;
        group.add_consumer(name, consumer);
        names.push(name.into());
    }
    for _ in 0..read_number(bytes, at) {
        let id = read_id(bytes, at);
        let delivered_ms = read_number(bytes, at) as i64;
        let deliveries = read_number(bytes, at);
        let consumer = Arc::clone(&names[read_number(bytes, at) as usize]);
        group.deliver(Pending { id, delivered_ms, deliveries, consumer });
    }
    (name, group)
}
