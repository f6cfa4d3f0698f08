//! Views in parts: what a snapshot emits of a collection, made of the view that a command has of it.
//!
//! The order and the nodes are those of a server that saves the value itself: lists in Valkey's nodes, sorted
//! sets of many members from the greatest score down (which is the end where a skip list is entered), so DUMP
//! is equal to the byte.

use isotherm_keyspace::{
    ConsumerGroup, Encoding, End, HashView, ListView, Outline, Part, StreamBlock, StreamId, StreamPart,
    StreamView, TextRoom, Type, Value,
};
use isotherm_persist::rdb::{ListShape, Place};

/// Returns what is known of a collection before its parts; `None` for a string.
pub fn outline(value: &Value<'_>, list_size: i32) -> Option<Outline> {
    let of = |encoding, len| Outline { kind: value.kind(), encoding, len, nodes: 0, is_volatile: false };
    Some(match value {
        Value::Int(_) | Value::Bytes(_) => return None,
        Value::Cold(cold) => cold.not_fetched(),
        Value::Hash(view) => {
            Outline { is_volatile: view.has_volatile(), ..of(view.encoding(), visible(view)) }
        }
        Value::Set(view) => of(view.encoding(), view.len()),
        Value::Zset(view) => of(view.encoding(), view.len()),
        Value::List(view) => {
            let nodes = list_nodes(view, shape_of(view, list_size));
            Outline { nodes, ..of(view.encoding(), view.len()) }
        }
        Value::Stream(view) => {
            Outline { nodes: view.whole_blocks().count() as u64, ..of(Encoding::Stream, view.len()) }
        }
    })
}

/// Returns the number of fields that a walk finds: a field whose time has come may still be in its page.
fn visible(hash: &HashView<'_>) -> u64 {
    if !hash.has_volatile() {
        return hash.len();
    }
    let mut count = 0;
    hash.for_each(|_, _| count += 1);
    count
}

pub(crate) fn shape_of(list: &ListView<'_>, list_size: i32) -> ListShape {
    ListShape::new(list_size, list.encoding() == Encoding::Listpack)
}

/// Goes over all elements, because their lengths decide.
fn list_nodes(list: &ListView<'_>, mut shape: ListShape) -> u64 {
    if list.encoding() == Encoding::Listpack {
        return 1;
    }
    let mut room = TextRoom::default();
    let places = list.iter(0, End::Front).map(|element| shape.place(element.text(&mut room)));
    places.map(|place| u64::from(place != Place::Joins)).sum()
}

/// The parts of a collection, in the order that `outline` announces.
pub fn for_each_part(value: &Value<'_>, list_size: i32, mut visit: impl FnMut(Part<'_>)) {
    match value {
        Value::Int(_) | Value::Bytes(_) => {}
        Value::Cold(cold) => cold.not_fetched(),
        Value::Hash(view) => {
            view.for_each_with_expiry(|field, value, at| visit(Part::Field(field, value, at)));
        }
        Value::Set(view) => view.for_each(|member| visit(Part::Member(member))),
        Value::Zset(view) => {
            let rising = view.encoding() == Encoding::Listpack;
            view.for_each(0, view.len(), rising, |member, score| visit(Part::Scored(member, score)));
        }
        Value::List(view) => {
            let mut shape = shape_of(view, list_size);
            let mut room = TextRoom::default();
            for element in view.iter(0, End::Front) {
                match shape.place(element.text(&mut room)) {
                    Place::Joins => {}
                    place => visit(Part::Node { alone: place == Place::Alone }),
                }
                visit(Part::Item(element));
            }
        }
        Value::Stream(view) => stream_parts(*view, &mut |part| visit(Part::Stream(part))),
    }
}

fn stream_parts(stream: StreamView<'_>, visit: &mut dyn FnMut(StreamPart<'_>)) {
    stream.whole_blocks().for_each(|block| block_parts(block, visit));
    rest_parts(stream, visit);
}

pub(crate) fn block_parts(block: StreamBlock<'_>, visit: &mut dyn FnMut(StreamPart<'_>)) {
    visit(StreamPart::Block(block));
    block.entries().for_each(|entry| visit(StreamPart::Entry(entry)));
}

/// Visits the parts after the blocks.
pub(crate) fn rest_parts(stream: StreamView<'_>, visit: &mut dyn FnMut(StreamPart<'_>)) {
    let groups = stream.groups();
    visit(StreamPart::State { state: stream.state(), groups: groups.len() });
    groups.iter().for_each(|(name, group)| group_parts(name, group, visit));
}

fn group_parts(name: &[u8], group: &ConsumerGroup, visit: &mut dyn FnMut(StreamPart<'_>)) {
    visit(StreamPart::Group {
        name,
        last_id: group.last_id,
        entries_read: group.entries_read,
        pending: group.pending_len(),
        consumers: group.consumers().len(),
    });
    group.pending_from(StreamId::MIN).for_each(|pending| visit(StreamPart::Pending(pending)));
    for (name, consumer) in group.consumers() {
        let (seen_ms, active_ms) = (consumer.seen_ms, consumer.active_ms);
        visit(StreamPart::Consumer { name, seen_ms, active_ms, pending: consumer.pending_len() });
        consumer.pending_from(StreamId::MIN).for_each(|id| visit(StreamPart::Owned(id)));
    }
}

/// Returns whether there is nothing to write: a hash whose last field has just expired.
pub fn is_empty(value: &Value<'_>) -> bool {
    matches!(value, Value::Hash(hash) if hash.has_volatile() && visible(hash) == 0)
}

const _: () = assert!(Type::COUNT == 6, "a new type has parts");
