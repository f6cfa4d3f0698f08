//! Small tools that every floor above may use: checksums, globs, numbers as text, random numbers, units.
//!
//! **Architecture invariant:** `stdx` knows nothing of ours - no key, no command, no reply. It depends on no
//! other crate, reads no clock, opens no file, and contains no `unsafe`.

pub mod crc16;
pub mod crc64;
pub mod sha1;
pub mod siphash;
pub mod slot;
mod slot_tag;

pub mod glob;

pub mod float;
mod grisu;
pub mod long_double;
pub mod number;

pub mod args_split;
pub mod format;
pub mod prng;
pub mod quoted;
pub mod steady;
pub mod steps;
pub mod units;

pub use float::{format_f64, parse_f64, parse_f64_rounded, push_f64};
pub use glob::glob_match;
pub use long_double::LongDouble;
pub use number::{parse_i64, parse_u64, push_i64, push_u64, write_i64};
pub use prng::Prng;
pub use siphash::SipHash13;
pub use slot::{Slot, hash_tag};
pub use steady::SteadyMs;
pub use steps::Steps;
pub use units::UnixMs;
