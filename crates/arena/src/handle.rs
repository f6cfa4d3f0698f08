//! A handle names an object in an arena by its address: the byte offset in the reservation, in units of 16 B.
//!
//! ```text
//!   2^32 handles x 16 B = 64 GB of address space per arena; a pointer would take twice the bytes
//!   handle 0 would be the first unit of chunk 0, which is never given out, so Option<Handle> is 4 B too
//! ```

use std::num::NonZeroU32;

/// The grain of addresses: every object starts on a multiple of it, every class is a multiple of it.
pub const UNIT_BYTES: usize = 16;

#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Handle(NonZeroU32);

const _: () = assert!(size_of::<Handle>() == 4);
const _: () = assert!(size_of::<Option<Handle>>() == 4);

impl Handle {
    /// The handle with this number, or `None` for 0, the number that means "no object" wherever handles are
    /// stored.
    pub const fn from_raw(raw: u32) -> Option<Handle> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(Handle(raw)),
            None => None,
        }
    }

    pub const fn raw(self) -> u32 {
        self.0.get()
    }
}
