//! Huge pages under what is full: 2 MB of the arena whose pages the kernel has all given already become one
//! page of it.
//!
//! A look-up among 10 M keys misses the translation of an address as often as the cache, and a prefetch that
//! does waits in its place in the row: with huge pages a GET costs a sixth less CPU. But a huge page is taken
//! whole, so one under a half-empty range would hold memory for nothing. Hence no range may have one by
//! itself (`reserve` says so to the kernel); ranges are looked at one by one, from cron, and only those
//! without a hole are collapsed, which leaves RSS as it is.
//!
//! ```text
//!   base      |<- 2 MB ->|<- 2 MB ->|<- 2 MB ->|        ranges begin at multiples of 2 MB of the address
//!   |  before |  done    |   full   |  a hole  |
//!             |  one page| collapse | left as it is: 512 pages, some of them not there
//! ```
//!
//! Giving back a chunk splits its huge page again, and the range is looked at anew. Memory that was given
//! back leaves RSS at once; the kernel has it for others as soon as memory runs short. While a range is
//! copied (some 0.2 ms) a thread that touches it waits; everything else continues.

use crate::reserve::{Collapsed, HUGE_BYTES, Region};

/// Ranges that are looked at in one step.
const LOOKS_PER_STEP_MAX: usize = 8;
/// Steps that are left out after the kernel had no huge page available; twice as many after each further
/// time.
const PAUSE_STEPS_MIN: u32 = 16;
const PAUSE_STEPS_MAX: u32 = 4096;

#[derive(Default)]
pub(crate) struct Huge {
    /// A bit per range that lies on a huge page.
    done: Vec<u64>,
    /// The range that is looked at next.
    next: usize,
    pause: u32,
    next_pause: u32,
    /// Collapsing has succeeded once: from then on a refusal is about one range.
    works: bool,
    /// The kernel never collapses ranges.
    refused: bool,
}

impl Huge {
    /// Looks at some ranges and collapses those that are full. How many were.
    pub fn step(&mut self, memory: &Region) -> usize {
        let ranges = memory.huge_ranges();
        if self.refused || ranges == 0 {
            return 0;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return 0;
        }
        self.done.resize(ranges.div_ceil(64), 0);
        let (mut looks, mut collapsed) = (0, 0);
        for _ in 0..ranges {
            if looks == LOOKS_PER_STEP_MAX {
                break;
            }
            let range = self.next % ranges;
            self.next = (range + 1) % ranges;
            if self.done[range / 64] >> (range % 64) & 1 != 0 {
                continue;
            }
            looks += 1;
            match memory.collapse(range) {
                Collapsed::Done => {
                    self.done[range / 64] |= 1 << (range % 64);
                    (self.works, self.next_pause) = (true, 0);
                    collapsed += 1;
                }
                Collapsed::HasHoles => {}
                Collapsed::NotNow => {
                    self.next_pause = (self.next_pause * 2).clamp(PAUSE_STEPS_MIN, PAUSE_STEPS_MAX);
                    self.pause = self.next_pause;
                    break;
                }
                Collapsed::Refused if self.works => {}
                Collapsed::Refused => {
                    self.refused = true;
                    break;
                }
            }
        }
        collapsed
    }

    /// Pages of these bytes were given back: their ranges are no longer whole.
    pub fn forget(&mut self, memory: &Region, offset: usize, bytes: usize) {
        for range in memory.huge_ranges_of(offset, bytes) {
            if let Some(word) = self.done.get_mut(range / 64) {
                *word &= !(1 << (range % 64));
            }
        }
    }
}

const _: () = assert!(HUGE_BYTES == 2 << 20);
