//! A hash whose fields have times, as one string of bytes: it has this form where it is not in memory.
//!
//! ```text
//!   [fields u16][time i64] x fields [field, value, field, value, ... packed (see `packed`)]        no time: the lowest number
//! ```
//! The entry of such a hash says when its first field is due (`due_of`): its bytes are not looked at before.

use crate::layout::bound::{NEVER, bound_of};
use crate::layout::kind::Form;
use crate::layout::packed::PackedBuf;
use isotherm_stdx::UnixMs;

const TIME_BYTES: usize = 8;
const COUNT_BYTES: usize = 2;
const NO_TIME: i64 = i64::MIN;

#[derive(Clone, Copy)]
pub(crate) struct Timed<'a> {
    times: &'a [u8],
    /// Fields and values, without times.
    pub packed: &'a [u8],
}

impl<'a> Timed<'a> {
    pub fn new(bytes: &'a [u8]) -> Timed<'a> {
        let (count, rest) = bytes.split_at(COUNT_BYTES);
        let count = usize::from(u16::from_le_bytes([count[0], count[1]]));
        let (times, packed) = rest.split_at(count * TIME_BYTES);
        Timed { times, packed }
    }

    /// Returns the time of each field, in the order of the pairs.
    pub fn times(&self) -> impl ExactSizeIterator<Item = Option<UnixMs>> + use<'a> {
        self.times.chunks_exact(TIME_BYTES).map(time_of)
    }

    pub fn time(&self, field: usize) -> Option<UnixMs> {
        time_of(&self.times[field * TIME_BYTES..][..TIME_BYTES])
    }
}

fn time_of(bytes: &[u8]) -> Option<UnixMs> {
    let ms = i64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    (ms != NO_TIME).then_some(UnixMs(ms))
}

/// Writes the fields of `packed` and their times.
pub(crate) fn write(times: &[Option<UnixMs>], packed: &PackedBuf, room: &mut Vec<u8>, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&(times.len() as u16).to_le_bytes());
    for time in times {
        out.extend_from_slice(&time.map_or(NO_TIME, |at| at.0).to_le_bytes());
    }
    packed.encode(room);
    out.extend_from_slice(room);
}

/// The bound of the first field that is due, of a value in this form.
pub(crate) fn due_of(form: Form, bytes: &[u8]) -> u32 {
    match form {
        Form::TimedHash => Timed::new(bytes).times().flatten().map(bound_of).min().unwrap_or(NEVER),
        _ => NEVER,
    }
}

/// The part of a collection's bytes that is packed.
#[inline]
pub(crate) fn packed_part(form: Form, bytes: &[u8]) -> &[u8] {
    if form == Form::TimedHash { Timed::new(bytes).packed } else { bytes }
}
