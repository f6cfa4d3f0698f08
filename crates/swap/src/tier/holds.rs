//! Work that the thread that writes does under one lock, so that commands do not wait long.

/// Entries and pages that are looked at under one lock.
pub const LOOKS_PER_HOLD: u64 = 200;
/// Bytes of values that are copied under one lock, and one more value: some 300 us. The others wait for the
/// next round.
pub const BYTES_PER_HOLD: u64 = 1 << 20;
/// Bytes for which an element that is gathered counts: it takes as long as to copy them.
pub const BYTES_PER_ELEMENT: u64 = 256;
/// Entries that are flipped under one lock,
const FLIPS_PER_HOLD: usize = 32;
/// and the bytes of their values, which are compared, and one more value.
const FLIPPED_BYTES_PER_HOLD: usize = 128 << 10;

/// Returns how many values are flipped in one hold, of those whose lengths these are; none: no value is left.
pub fn flips_per_hold(lengths: impl Iterator<Item = usize>) -> Option<usize> {
    let mut bytes = 0;
    let is_within = |length: &usize| {
        let is_within = bytes < FLIPPED_BYTES_PER_HOLD;
        bytes += length;
        is_within
    };
    Some(lengths.take(FLIPS_PER_HOLD).take_while(is_within).count()).filter(|count| *count > 0)
}
