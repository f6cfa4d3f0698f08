//! LZF, the compression of strings in RDB files: quick, small, and fixed for ever by the files that exist.
//!
//! ```text
//! 000LLLLL <L+1 bytes>             L+1 = 1..=32 literal bytes
//! LLLooooo oooooooo                L+2 = 3..=8 bytes again, from o+1 = 1..=8192 bytes before
//! 111ooooo LLLLLLLL oooooooo       L+9 = 9..=264 bytes again
//! ```
//!
//! The compressor makes the same choices as Valkey's: which of the earlier places a hash slot remembers,
//! where a match ends, and when it gives up because the result would hardly be smaller. So a DUMP is equal to
//! the byte.

const LITERAL_BYTES_MAX: usize = 32;
const OFFSET_MAX: usize = 8192;
const MATCH_BYTES_MAX: usize = 264;
const SLOTS: usize = 1 << 16;

/// Shorter inputs have nothing to look back to.
const INPUT_BYTES_MIN: usize = 4;

/// Three bytes can stand for 264: what is claimed to unfold into more than this per byte is a lie.
pub const EXPANSION_MAX: usize = 88;
const _: () = assert!(EXPANSION_MAX * 3 == MATCH_BYTES_MAX);

/// Remembers where each hash of three bytes was seen last.
///
/// `slots` holds `base + position`; `base` moves past the input after each one, so what earlier inputs left
/// is below it and the 256 KB need not be cleared.
pub struct Compressor {
    slots: Box<[u32]>,
    base: u32,
}

impl Default for Compressor {
    fn default() -> Self {
        Compressor::new()
    }
}

impl Compressor {
    pub fn new() -> Compressor {
        Compressor { slots: vec![0; SLOTS].into_boxed_slice(), base: 0 }
    }

    /// Appends the compressed form to `out` if it takes at most `bytes_max`; else `out` is as it was.
    pub fn compress(&mut self, input: &[u8], out: &mut Vec<u8>, bytes_max: usize) -> bool {
        let start = out.len();
        if input.len() < INPUT_BYTES_MIN || input.len() > u32::MAX as usize / 2 || bytes_max == 0 {
            return false;
        }
        if self.base.checked_add(input.len() as u32).is_none() {
            self.slots.fill(0);
            self.base = 0;
        }
        let fitted = Run { input, out, start, bytes_max, literals: 0 }.compress(&mut self.slots, self.base);
        self.base += input.len() as u32;
        if !fitted {
            out.truncate(start);
        }
        fitted
    }
}

/// Compression of an input in progress. The byte before the pending literals is kept free for their count.
struct Run<'a> {
    input: &'a [u8],
    out: &'a mut Vec<u8>,
    start: usize,
    bytes_max: usize,
    literals: usize,
}

impl Run<'_> {
    /// False if the result would not fit. The checks are a little early, as Valkey's are.
    fn compress(mut self, slots: &mut [u32], base: u32) -> bool {
        let input = self.input;
        let last = input.len() - 2;
        let mut at = 0;
        let mut hash = first_two(input, 0);
        self.out.push(0);
        while at < last {
            hash = next_byte(hash, input, at);
            let seen = std::mem::replace(&mut slots[slot_of(hash)], base + at as u32);
            // Place 0 is never matched: there `seen` is `base`, as if nothing were known.
            let earlier = seen.checked_sub(base).map_or(0, |place| place as usize);
            if earlier == 0 || at - earlier > OFFSET_MAX || input[earlier..earlier + 3] != input[at..at + 3] {
                if self.written() >= self.bytes_max {
                    return false;
                }
                self.literal(input[at]);
                at += 1;
                continue;
            }
            if self.written() + 4 >= self.bytes_max
                && self.written() + 4 - usize::from(self.literals == 0) >= self.bytes_max
            {
                return false;
            }
            let len = match_bytes(input, earlier, at);
            self.reference(at - earlier - 1, len);
            at += len;
            if at >= last {
                break;
            }
            // Of the places inside the match, the last two are remembered.
            hash = first_two(input, at - 2);
            for place in [at - 2, at - 1] {
                hash = next_byte(hash, input, place);
                slots[slot_of(hash)] = base + place as u32;
            }
        }
        if self.written() + 3 > self.bytes_max {
            return false;
        }
        for &byte in &input[at..] {
            self.literal(byte);
        }
        self.end_literals();
        true
    }

    fn written(&self) -> usize {
        self.out.len() - self.start
    }

    fn literal(&mut self, byte: u8) {
        self.out.push(byte);
        self.literals += 1;
        if self.literals == LITERAL_BYTES_MAX {
            self.end_literals();
            self.out.push(0);
        }
    }

    /// Fills in the count, or takes its byte back if there is nothing to count.
    fn end_literals(&mut self) {
        let count_at = self.out.len() - self.literals - 1;
        if self.literals == 0 {
            self.out.truncate(count_at);
        } else {
            self.out[count_at] = (self.literals - 1) as u8;
        }
        self.literals = 0;
    }

    fn reference(&mut self, offset: usize, len: usize) {
        self.end_literals();
        let high = (offset >> 8) as u8;
        match len - 2 {
            short @ ..7 => self.out.push(high | (short as u8) << 5),
            long => self.out.extend_from_slice(&[high | 7 << 5, (long - 7) as u8]),
        }
        self.out.push(offset as u8);
        self.out.push(0);
    }
}

fn first_two(input: &[u8], at: usize) -> u32 {
    u32::from(input[at]) << 8 | u32::from(input[at + 1])
}

fn next_byte(hash: u32, input: &[u8], at: usize) -> u32 {
    hash << 8 | u32::from(input[at + 2])
}

fn slot_of(hash: u32) -> usize {
    ((hash >> 8).wrapping_sub(hash.wrapping_mul(5)) & (SLOTS as u32 - 1)) as usize
}

/// Returns the number of bytes in which the two places agree, by Valkey's way of counting. Three bytes are
/// known to agree. The first sixteen after the second are compared without a check of the limit when it is
/// far. The byte at the limit is taken unseen. That never passes the input's end: the limit is two before it,
/// and the sixteen begin only if the limit is above sixteen.
fn match_bytes(input: &[u8], earlier: usize, at: usize) -> usize {
    let limit = (input.len() - at - 2).min(MATCH_BYTES_MAX);
    let differs = |len: usize| input[earlier + len] != input[at + len];
    let mut len = 2;
    if limit > 16 {
        for _ in 0..16 {
            len += 1;
            if differs(len) {
                return len;
            }
        }
    }
    loop {
        len += 1;
        if len >= limit || differs(len) {
            return len;
        }
    }
}

/// Appends exactly `len` unfolded bytes to `out`, or gives up with `out` as it was. The caller has capped
/// `len`.
pub fn decompress(input: &[u8], out: &mut Vec<u8>, len: usize) -> bool {
    let start = out.len();
    if len > input.len().saturating_mul(EXPANSION_MAX) {
        return false;
    }
    out.reserve(len);
    let unfolded = unfold(input, out, start, len).is_some() && out.len() - start == len;
    if !unfolded {
        out.truncate(start);
    }
    unfolded
}

fn unfold(mut input: &[u8], out: &mut Vec<u8>, start: usize, len: usize) -> Option<()> {
    while let Some(control) = take(&mut input) {
        let left = len - (out.len() - start);
        if control < 32 {
            let (literals, rest) = input.split_at_checked(usize::from(control) + 1)?;
            if literals.len() > left {
                return None;
            }
            out.extend_from_slice(literals);
            input = rest;
            continue;
        }
        let mut again = usize::from(control >> 5) + 2;
        if again == 9 {
            again += usize::from(take(&mut input)?);
        }
        let offset = usize::from(control & 31) << 8 | usize::from(take(&mut input)?);
        let from = (out.len() - start).checked_sub(offset + 1)? + start;
        if again > left {
            return None;
        }
        if from + again <= out.len() {
            out.extend_from_within(from..from + again);
        } else {
            // The two overlap: what was just written is repeated.
            for at in from..from + again {
                out.push(out[at]);
            }
        }
    }
    Some(())
}

fn take(input: &mut &[u8]) -> Option<u8> {
    let (&byte, rest) = input.split_first()?;
    *input = rest;
    Some(byte)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    fn round_trip(compressor: &mut Compressor, input: &[u8]) {
        let mut packed = b"before".to_vec();
        if !compressor.compress(input, &mut packed, input.len()) {
            assert_eq!(packed, b"before");
            return;
        }
        let packed = &packed[6..];
        assert!(packed.len() <= input.len());
        let mut unpacked = b"other".to_vec();
        assert!(decompress(packed, &mut unpacked, input.len()));
        assert_eq!(&unpacked[5..], input);
        assert!(!decompress(packed, &mut unpacked, input.len() + 1));
        assert!(!decompress(packed, &mut unpacked, input.len() - 1));
        assert_eq!(unpacked.len(), 5 + input.len());
    }

    #[test]
    fn what_is_compressed_unfolds() {
        let mut prng = Prng::new(3);
        let mut compressor = Compressor::new();
        for round in 0..2_000 {
            let characters = 1 + prng.below(6);
            let len = prng.below(if round % 50 == 0 { 40_000 } else { 400 });
            let input: Vec<u8> = (0..len).map(|_| prng.below(characters) as u8).collect();
            round_trip(&mut compressor, &input);
        }
        for len in 0..700 {
            round_trip(&mut compressor, &vec![b'a'; len]);
        }
    }

    #[test]
    fn positions_of_earlier_inputs_are_forgotten_when_numbers_run_out() {
        let mut compressor = Compressor::new();
        compressor.base = u32::MAX - 100;
        let input = b"abcdefgh".repeat(20);
        for _ in 0..5 {
            round_trip(&mut compressor, &input);
        }
        assert!(compressor.base < 1_000);
    }

    #[test]
    fn lies_take_no_memory() {
        let mut out = Vec::new();
        assert!(!decompress(b"\x00a", &mut out, 1 << 40));
        assert!(!decompress(b"\xe0\xff\xff", &mut out, 264), "a reference to before the beginning");
        assert!(!decompress(b"\x05ab", &mut out, 6), "literals that are not there");
        assert!(!decompress(b"\x00a\xe0", &mut out, 10), "a reference cut short");
        assert!(out.capacity() < 2_000);
        assert!(decompress(b"", &mut out, 0));
    }
}
