//! Resident memory of this process by owner, as the kernel reports it.
//!
//! ```text
//!   /proc/self/smaps      each mapping: addresses, file, resident bytes
//!     addresses of an arena  -> arenas            file, or [vdso] and the like -> files
//!     everything else without a file              -> the global allocator, and inside of it
//!   /proc/self/pagemap    a bit a page: which pages of a range are there. For stacks and for what shares a mapping with an
//!                         arena: the kernel merges neighbours that look alike
//! ```
//!
//! The sums come from one walk, so that no page is counted twice. Changes during the walk make them wrong by
//! a few pages. A walk takes some ten milliseconds for each gigabyte.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};

/// Bytes that are resident.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Resident {
    pub arenas: u64,
    /// Stacks of threads, the first one's too.
    pub stacks: u64,
    /// The program and its libraries, as far as they were needed.
    pub files: u64,
    /// Bytes of pages that have neither a file nor another owner: those of the global allocator.
    pub malloc: u64,
}

/// Memory that the kernel holds for this process, in addition to resident memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Kernel {
    pub page_tables: u64,
    /// Buffers of TCP sockets of the whole network namespace.
    pub sockets: u64,
}

/// Size of a thread's stack unless it is configured otherwise (the standard library's default).
const STACK_BYTES: usize = 2 << 20;
/// A frame of a thread's first function lies so far below the top of its stack at most.
const STACK_TOP_BYTES: usize = 16 << 10;

static STACKS: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Records where this thread's stack is: called once, near its top.
pub fn note_stack() {
    let here = 0u8;
    STACKS.lock().unwrap_or_else(PoisonError::into_inner).push(&raw const here as usize);
}

/// Asks the kernel. `arenas` are the addresses of the keyspace's. `None` where it does not say.
pub fn resident(arenas: &[Range<usize>]) -> Option<Resident> {
    let smaps = std::fs::read_to_string("/proc/self/smaps").ok()?;
    let pages = Pages::open()?;
    let stacks = STACKS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let mut sums = Resident::default();
    for mapping in mappings(&smaps) {
        sums.add(&mapping, arenas, &stacks, &pages);
    }
    Some(sums)
}

pub fn kernel() -> Kernel {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let page_tables = status.lines().find_map(|line| kilobytes(line.strip_prefix("VmPTE:")?));
    let sockets = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let pages = sockets.lines().find_map(|line| {
        line.strip_prefix("TCP:")?
            .split_ascii_whitespace()
            .skip_while(|word| *word != "mem")
            .nth(1)?
            .parse()
            .ok()
    });
    let page_bytes = rustix::param::page_size() as u64;
    Kernel { page_tables: page_tables.unwrap_or_default(), sockets: pages.unwrap_or(0u64) * page_bytes }
}

/// Mapping in smaps.
struct Mapping {
    addresses: Range<usize>,
    has_file: bool,
    is_first_stack: bool,
    resident_bytes: u64,
}

fn mappings(smaps: &str) -> impl Iterator<Item = Mapping> {
    let mut lines = smaps.lines();
    std::iter::from_fn(move || {
        let (addresses, name) = lines.by_ref().find_map(head)?;
        let resident = lines.by_ref().find_map(|line| kilobytes(line.strip_prefix("Rss:")?))?;
        Some(Mapping {
            addresses,
            has_file: name.starts_with('/') || (name.starts_with('[') && !is_anonymous(name)),
            is_first_stack: name == "[stack]",
            resident_bytes: resident,
        })
    })
}

/// `[heap]`, `[stack]`, and what a program has named itself.
fn is_anonymous(name: &str) -> bool {
    name == "[heap]" || name == "[stack]" || name.starts_with("[anon")
}

/// `7f12a000-7f12b000 rw-p 00000000 00:00 0   [name]`
fn head(line: &str) -> Option<(Range<usize>, &str)> {
    let mut words = line.splitn(2, ' ');
    let (from, to) = words.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let addresses = address(from)?..address(to)?;
    let rest = words.next()?;
    // Permissions, offset, device and inode, each followed by one blank; the name is what is left.
    let name = rest.splitn(5, ' ').nth(4).unwrap_or_default();
    Some((addresses, name.trim_start()))
}

/// ` 12 kB` in bytes.
fn kilobytes(text: &str) -> Option<u64> {
    Some(text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
}

impl Resident {
    fn add(&mut self, mapping: &Mapping, arenas: &[Range<usize>], stacks: &[usize], pages: &Pages) {
        let mut left = mapping.resident_bytes;
        // Reservations are large: which of their pages are there is asked only where some are.
        if left == 0 {
            return;
        }
        if mapping.has_file {
            self.files += left;
            return;
        }
        if mapping.is_first_stack {
            self.stacks += left;
            return;
        }
        for arena in arenas.iter().filter_map(|arena| common(arena, &mapping.addresses)) {
            let bytes = if arena == mapping.addresses { left } else { pages.resident_bytes(arena).min(left) };
            self.arenas += bytes;
            left -= bytes;
        }
        for &frame in stacks.iter().filter(|frame| mapping.addresses.contains(frame)) {
            let top = frame.next_multiple_of(rustix::param::page_size()) + STACK_TOP_BYTES;
            let stack = common(&(top - STACK_BYTES..top), &mapping.addresses).expect("the frame lies in it");
            let bytes = pages.resident_bytes(stack).min(left);
            self.stacks += bytes;
            left -= bytes;
        }
        self.malloc += left;
    }
}

fn common(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let both = one.start.max(other.start)..one.end.min(other.end);
    (!both.is_empty()).then_some(both)
}

/// File that says which pages are resident.
struct Pages(File);

const PRESENT: u64 = 1 << 63;
const WORDS_PER_READ: usize = 8192;

impl Pages {
    fn open() -> Option<Pages> {
        File::open("/proc/self/pagemap").ok().map(Pages)
    }

    fn resident_bytes(&self, addresses: Range<usize>) -> u64 {
        let page_bytes = rustix::param::page_size();
        let (mut at, end) = (addresses.start / page_bytes, addresses.end.div_ceil(page_bytes));
        let (mut buffer, mut pages) = (vec![0; WORDS_PER_READ * 8], 0);
        while at < end {
            let wanted = (end - at).min(WORDS_PER_READ) * 8;
            let Ok(read @ 8..) = self.0.read_at(&mut buffer[..wanted], at as u64 * 8) else { break };
            let words = buffer[..read].as_chunks::<8>().0;
            pages += words.iter().filter(|word| u64::from_le_bytes(**word) & PRESENT != 0).count();
            at += words.len();
        }
        (pages * page_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_smaps_are_understood() {
        let smaps = "55d0-55d4 r-xp 00000000 08:01 42                         /usr/bin/with blank\nSize: 4 kB\n\
                     Rss:                 12 kB\nPss: 1 kB\n\
                     7f00-7f10 rw-p 00000000 00:00 0 \nRss: 8 kB\nVmFlags: rd wr\n\
                     7ffc-7ffd rw-p 00000000 00:00 0                          [stack]\nRss: 4 kB\n\
                     7ffe-7fff r-xp 00000000 00:00 0                          [vdso]\nRss: 0 kB\n";
        let seen: Vec<_> = mappings(smaps)
            .map(|mapping| {
                (mapping.addresses, mapping.has_file, mapping.is_first_stack, mapping.resident_bytes)
            })
            .collect();
        assert_eq!(
            seen,
            [
                (0x55d0..0x55d4, true, false, 12 << 10),
                (0x7f00..0x7f10, false, false, 8 << 10),
                (0x7ffc..0x7ffd, false, true, 4 << 10),
                (0x7ffe..0x7fff, true, false, 0),
            ]
        );
    }

    #[test]
    fn what_is_touched_is_found_and_belongs_to_its_owner() {
        note_stack();
        let before = resident(&[]).expect("this kernel reports it");
        let block = vec![1u8; 32 << 20];
        let after = resident(&[]).expect("it still does");
        // Other tests give memory back meanwhile.
        assert!(after.malloc >= before.malloc + (24 << 20), "{before:?} {after:?}");
        assert!(after.files > 1 << 20 && after.stacks >= 4 << 10, "{after:?}");
        // A part of that block, taken for an arena's.
        let page = 4096;
        let first = (block.as_ptr() as usize).next_multiple_of(page);
        let half = first..first + (16 << 20);
        let arena = resident(&[half, 0..0]).expect("and again");
        assert!(arena.arenas == 16 << 20, "{arena:?}");
        let sum = |seen: &Resident| seen.arenas + seen.stacks + seen.files + seen.malloc;
        assert!(sum(&arena).abs_diff(sum(&after)) < 4 << 20, "{after:?} {arena:?}");
        drop(block);
        assert!(kernel().page_tables > 0);
    }
}
