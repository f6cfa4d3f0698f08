//! Receiver of the parts of a collection that a snapshot emits: short ones under the lock, long ones after it
//! was released.
//!
//! ```text
//!   part    handed on at once; what it weighs is taken from the step
//!   long    above 4 KB, shared, so that it stays as it is: the step ends, and it is handed on when the lock is gone
//! ```
//!
//! To copy or to compress a string of 100 MB takes longer than any other thread may wait for a lock.

use crate::layout::cold::ColdRef;
use crate::layout::large::Shared;
use crate::layout::node_name::NodeName;
#[cfg(test)]
use crate::layout::packed::Element;
use crate::values::parts::Part;
use crate::values::saved::SavedField;
use std::sync::Arc;

/// Bytes that weigh as much as an item.
pub(crate) const ITEM_BYTES: usize = 64;
/// Weight up to which a page is emitted at once, whatever is left of a step. A heavier one is copied aside,
/// and emitted one entry after the other.
pub(crate) const PAGE_WEIGHT_MAX: u64 = 250;
/// Longer strings are handed on after the lock is released.
pub(crate) const SHORT_BYTES_MAX: usize = 4096;

/// Returns the cost of handing on an item of `bytes` bytes.
pub(crate) fn weight_of(bytes: usize) -> u64 {
    1 + (bytes / ITEM_BYTES) as u64
}

pub(crate) trait Receiver {
    fn part(&mut self, part: Part<'_>);
    fn long(&mut self, part: LongPart);
    /// Returns whether nothing more should come in this step.
    fn is_full(&self) -> bool;
}

/// Tests hold no lock that others wait for.
#[cfg(test)]
impl<F: FnMut(Part<'_>)> Receiver for F {
    fn part(&mut self, part: Part<'_>) {
        self(part);
    }

    fn long(&mut self, part: LongPart) {
        match part {
            LongPart::Scored(member, score) => self(Part::Scored(Element::Bytes(&member), score)),
            LongPart::Item(body) => self(Part::Item(Element::Bytes(&body))),
            _ => unreachable!("they are tested with all that is around them"),
        }
    }

    fn is_full(&self) -> bool {
        false
    }
}

/// The fields or members of a node that is not in memory: the receiver reads the node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodePart {
    pub name: NodeName,
    pub reference: ColdRef,
    pub of: NodeOf,
}

/// Type of the collection that a node is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeOf {
    Hash,
    Set,
    Zset,
    List,
    Stream,
}

/// A part, or parts in a row, whose bytes are shared.
pub(crate) enum LongPart {
    Node(NodePart),
    Field(SavedField),
    Member(SavedField),
    Scored(Arc<[u8]>, f64),
    /// An element of a list, alone in its node.
    Item(Shared),
    /// Block of a stream.
    Block(Shared),
}
