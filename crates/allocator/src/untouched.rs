//! Memory that was asked for and never written to: the kernel has given nothing for it yet.
//!
//! A large block comes from the kernel, which gives a page when it is first written to. A part that its owner
//! knows to be untouched is not counted as allocated, so a length that was only announced costs nothing.

use super::count;

/// Bytes of a block that were never written to: not counted while this says so.
#[derive(Debug, Default)]
pub struct Untouched {
    bytes: usize,
}

impl Untouched {
    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// States how many there are now.
    pub fn set(&mut self, bytes: usize) {
        count(self.bytes as isize - bytes as isize);
        self.bytes = bytes;
    }
}

impl Drop for Untouched {
    #[inline]
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.set(0);
        }
    }
}
