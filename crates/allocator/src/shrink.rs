//! Bytes in a block that is too large for them, and the memory for a smaller one cannot be had.
//!
//! `Vec::shrink_to_fit` ends the process then. An allocator shrinks most large blocks where they are, but not
//! each does, and none always: the rest is a new block and a copy, beside the old one. A caller that gives
//! memory back can go on with what it has.

use std::alloc::{Layout, realloc};
use std::mem::ManuallyDrop;

/// Gives back the room behind the bytes, except as much as `bytes_min` in all has. Returns whether that was
/// possible: if not, the block is the one that it was.
pub fn shrink(bytes: &mut Vec<u8>, bytes_min: usize) -> bool {
    // SAFETY: the pointer is that of a block of this layout, and the size is neither 0 nor more than the
    // layout's.
    let by = |pointer, layout, size| unsafe { realloc(pointer, layout, size) };
    // SAFETY: `realloc` returns a block of the new size with the first bytes of the old one, or leaves that.
    unsafe { shrink_by(bytes, bytes_min, by) }
}

/// # Safety
///
/// `realloc` is one that keeps the contract of `std::alloc::realloc`.
unsafe fn shrink_by(
    bytes: &mut Vec<u8>,
    bytes_min: usize,
    realloc: impl FnOnce(*mut u8, Layout, usize) -> *mut u8,
) -> bool {
    let wanted = bytes_min.max(bytes.len());
    if wanted >= bytes.capacity() {
        return true;
    }
    if wanted == 0 {
        *bytes = Vec::new();
        return true;
    }
    let mut old = ManuallyDrop::new(std::mem::take(bytes));
    let (pointer, len, capacity) = (old.as_mut_ptr(), old.len(), old.capacity());
    let layout = Layout::array::<u8>(capacity).expect("there is such a block");
    let moved = realloc(pointer, layout, wanted);
    let is_smaller = !moved.is_null();
    let (pointer, capacity) = if is_smaller { (moved, wanted) } else { (pointer, capacity) };
    // SAFETY: the block was a vector's of this allocator, `len` of its bytes are written, and `capacity` is
    // the size that it has now. The vector that it was is not dropped.
    *bytes = unsafe { Vec::from_raw_parts(pointer, len, capacity) };
    is_smaller
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_room(len: usize, capacity: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.extend((0..len).map(|at| at as u8));
        bytes
    }

    #[test]
    fn the_room_behind_the_bytes_is_given_back() {
        for (len, capacity, bytes_min, left) in [
            (0, 100, 0, 0),
            (3, 100, 0, 3),
            (3, 100, 40, 40),
            (50, 100, 40, 50),
            (100, 100, 0, 100),
            (0, 0, 0, 0),
            (3, 100, 200, 100),
            (1 << 20, 5 << 20, 0, 1 << 20),
        ] {
            let mut bytes = with_room(len, capacity);
            assert!(shrink(&mut bytes, bytes_min));
            assert_eq!((bytes.capacity(), &bytes), (left, &with_room(len, len)));
        }
    }

    #[test]
    fn without_memory_for_a_smaller_block_the_larger_one_stays() {
        let mut bytes = with_room(1000, 5000);
        let at = bytes.as_ptr();
        // SAFETY: nothing is moved.
        assert!(!unsafe { shrink_by(&mut bytes, 0, |_, _, _| std::ptr::null_mut()) });
        assert_eq!((bytes.as_ptr(), bytes.capacity(), &bytes), (at, 5000, &with_room(1000, 1000)));
        bytes.push(7);
        assert!(shrink(&mut bytes, 0) && bytes.capacity() == 1001);
    }
}
