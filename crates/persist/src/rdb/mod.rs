//! Values of an RDB file, versions 1 to 12 of the old line and Valkey's 80: read in every encoding, written
//! in those of 11.
//!
//! ```text
//! [type u8][value]                      the type is an encoding, not only a kind: nine of them are hashes
//!
//! string    [length][bytes] | [11 int width][int] | [11 000011][length][length][lzf]
//! list      [nodes][1 = plain][string] or [2 = packed][listpack as string] ...
//! set       [members][string] ...       or one intset or listpack as a string
//! zset      [members][string][f64] ...  or one listpack as a string
//! hash      [fields][string][string][expiry i64, type 22] ...   or one listpack as a string
//! stream    [nodes][id as string][listpack as string] ... [counters][groups]
//! ```
//!
//! Reading gives an owned [`RdbValue`], whose texts lie in one buffer ([`Texts`]): two allocations a value,
//! not one an element. Writing takes elements one after the other ([`Writer`] and the builders) with their
//! numbers first, so nothing is held but the current node.

mod kind;
mod read;

mod intset;
mod listpack;
mod ziplist;
mod zipmap;

mod value;

mod decode;
mod decode_stream;

pub mod record;

mod write;

mod encode;
mod encode_list;
mod encode_stream;

pub mod file;

pub mod functions;

pub use decode::decode;
pub use encode::{HashWriter, ScoreListpack, Shape, encode, intset};
pub use encode_list::{ListShape, ListWriter, Place};
pub use encode_stream::{
    StreamWriter, group as stream_group_whole, stream_consumer, stream_group, stream_owned, stream_pending,
};
pub use kind::{RdbType, VERSION_FIELD_EXPIRY, VERSION_PLAIN, is_foreign, is_object_type, is_readable};
pub use listpack::{Element, ListpackBuilder};
pub use read::{Limits, RdbError};
pub use value::{
    Consumer, Encoding, Group, Pending, RdbStream, RdbValue, StreamCounters, StreamEntry, StreamId,
    StreamNode, Texts, ZsetMembers,
};
pub use write::Writer;
