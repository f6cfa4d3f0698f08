//! Collections in parts: how a value leaves the keyspace when it is written somewhere else.
//!
//! ```text
//!   Outline   what is known before the first part: the type, how many elements, how many nodes
//!   Part ...  of a hash     Field ...
//!             of a set      Member ...
//!             of a zset     Scored ...
//!             of a list     Node, Item ..., Node, Item ...                in their order
//!             of a stream   Block, Entry ..., Block, Entry ..., State, for each group: Group, Pending ..., and for each
//!                           of its consumers: Consumer, Owned ...         in their order
//! ```
//!
//! Every number comes before what it counts, so that a writer needs no more memory than for one node.

use crate::layout::kind::{Encoding, Type};
use crate::layout::packed::Element;
use crate::values::stream::StreamPart;
use isotherm_stdx::UnixMs;

/// Data of a collection that is known before its first part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outline {
    pub kind: Type,
    pub encoding: Encoding,
    /// Fields, members, elements, entries: as many of their parts follow.
    pub len: u64,
    /// Nodes of a list, blocks of a stream; 0 of others.
    pub nodes: u64,
    /// True if fields of a hash have times.
    pub is_volatile: bool,
}

/// A part of a collection.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Field of a hash, its value, and the field's time.
    Field(Element<'a>, Element<'a>, Option<UnixMs>),
    /// Member of a set.
    Member(Element<'a>),
    /// Member of a sorted set, and its score.
    Scored(Element<'a>, f64),
    /// A node of a list begins. `alone`: its one element is too large to lie with others.
    Node { alone: bool },
    /// Element of a list, in its node.
    Item(Element<'a>),
    /// Part of a stream, which has several kinds.
    Stream(StreamPart<'a>),
}
