//! `cmsgpack`: MessagePack and back.
//!
//! ```text
//! 00..7f  e0..ff   small integers     80..8f de df   map      c0      nil           ca cb          float, double
//! cc cd ce cf      unsigned           90..9f dc dd   array    c2 c3   false, true   a0..bf d9 da db  string
//! d0 d1 d2 d3      signed             all others (bin, ext, timestamps) are not known: "Bad data format in input."
//! ```

mod pack;
mod unpack;

pub use pack::{NESTING_MAX, Room as PackRoom, pack};
pub use unpack::{Room as UnpackRoom, unpack, unpack_limit, unpack_one};
