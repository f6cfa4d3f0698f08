//! The group `bitmap`: a string seen as a row of bits. The first bit is the highest one of the first byte.
//!
//! ```text
//! byte      0               1
//! bit       0 1 2 3 4 5 6 7 8 9 ...
//! value   128 64 ...    2 1
//! ```

mod place;

mod bit;
mod count;
mod position;

mod combine;

mod field;
mod integer;

use crate::Handler;
use crate::spec::Command;

pub const COMMANDS: &[Command<Handler>] = &[
    count::BITCOUNT,
    field::BITFIELD,
    field::BITFIELD_RO,
    combine::BITOP,
    position::BITPOS,
    bit::GETBIT,
    bit::SETBIT,
];
