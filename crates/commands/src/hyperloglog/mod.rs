//! The group `hyperloglog`: how many different elements were added, within 0.81 %, in at most 12 KB.
//!
//! An element's hash chooses one of 16384 registers and offers it a number: where, in the other bits, the
//! first one stands. A register keeps the largest number it was offered, and the registers together estimate
//! how many different hashes there were. The registers lie in a string, whose bytes are those of Valkey, so
//! that GET and DUMP agree:
//!
//! ```text
//! "HYLL" | encoding 1 | zeros 3 | estimate 8 | registers              16 B and the registers
//! dense    16384 registers of 6 bits                                   12288 B
//! sparse   runs of equal registers (`sparse`)                          2 B when new, to hll-sparse-max-bytes
//! ```
//! The estimate is that of the last PFCOUNT; the highest bit of its last byte says that it is out of date.

mod hash;

mod dense;
mod sparse;

mod estimate;

mod sketch;

mod commands;
mod debug;
mod selftest;

use crate::Handler;
use crate::spec::Command;

pub const COMMANDS: &[Command<Handler>] =
    &[commands::PFADD, commands::PFCOUNT, debug::PFDEBUG, commands::PFMERGE, selftest::PFSELFTEST];

/// Number of registers: 14 bits of the hash choose one.
const REGISTERS: usize = 1 << INDEX_BITS;
const INDEX_BITS: u32 = 14;
/// The other 50 bits of the hash, and so the largest number that a register is offered is 51.
const VALUE_BITS: u32 = 64 - INDEX_BITS;

/// All registers, a byte each: what several sketches are merged in.
type Registers = [u8; REGISTERS];
/// Number of registers for each register value.
type Histogram = [u32; 64];
