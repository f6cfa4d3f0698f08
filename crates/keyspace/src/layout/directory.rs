//! Directory of a slot's pages: a radix tree of nodes with up to 1024 children, in the arena.
//!
//! ```text
//!   node      [child u32][bound u32] x cap          8 B a page, 0.47 B a key
//!   levels    1 page: none (the record's root is the page)     <= 1024 pages: 1     <= 1 M: 2     <= 1 G: 3
//! ```
//!
//! A child is a page's handle (0: a page without entries has no bytes) or, above the lowest level, a node.
//! Its bound is a lower bound of every expiry below it. Pages come and go only at the end, so only the nodes
//! on the right edge change their size: cap grows by an eighth, never a doubling and never a copy of more
//! than 8 KB. The number of a node's children follows from the number of pages, so it is stored nowhere.
//!
//! Bounds of inner nodes are lower bounds and may be stale; a search makes them exact where they led nowhere.

use crate::layout::heap::Heap;
use crate::layout::kind::Full;
use crate::layout::record::{NEVER, Record};
use isotherm_arena::{Handle, Kind};
use isotherm_stdx::Steps;

const FAN_OUT_BITS: u32 = 10;
const FAN_OUT: u32 = 1 << FAN_OUT_BITS;
/// Steps of a page that is looked at, without the entries that leave: its place in the directory and its
/// bound.
pub(crate) const PAGE_STEPS: u64 = 2;
pub(crate) const CHILD_BYTES: usize = 8;

const _: () = assert!(FAN_OUT as usize * CHILD_BYTES <= isotherm_arena::OBJECT_BYTES_MAX);

/// Levels of nodes above `pages` pages.
#[inline]
pub(crate) fn levels(pages: u32) -> u32 {
    match pages {
        0 | 1 => 0,
        // Bits of the largest index, in tens.
        _ => (32 - (pages - 1).leading_zeros()).div_ceil(FAN_OUT_BITS),
    }
}

/// The position of page `index` in its node of `level`.
#[inline]
pub(crate) fn digit(index: u32, level: u32) -> usize {
    (index >> (FAN_OUT_BITS * level) & (FAN_OUT - 1)) as usize
}

/// Room of a node with `count` children: steps of an eighth, at least 4.
fn cap(count: u32) -> u32 {
    if count <= 4 {
        return 4;
    }
    let step = (1 << (31 - count.leading_zeros())) / 8;
    count.next_multiple_of(step.max(2)).min(FAN_OUT)
}

fn node_bytes(cap: u32) -> usize {
    cap as usize * CHILD_BYTES
}

#[inline]
fn read(heap: &Heap, node: Handle, at: usize) -> (u32, u32) {
    let bytes = &heap.bytes(node, (at + 1) * CHILD_BYTES)[at * CHILD_BYTES..];
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
    (word(0), word(4))
}

#[inline]
fn write(heap: &mut Heap, node: Handle, at: usize, child: u32, bound: u32) {
    let bytes = &mut heap.bytes_mut(node, (at + 1) * CHILD_BYTES)[at * CHILD_BYTES..];
    bytes[..4].copy_from_slice(&child.to_le_bytes());
    bytes[4..8].copy_from_slice(&bound.to_le_bytes());
}

fn node(raw: u32) -> Handle {
    Handle::from_raw(raw).expect("a directory's nodes are there")
}

/// The page's handle, if it has bytes, and its bound.
#[inline(always)]
pub(crate) fn get(heap: &Heap, record: &Record, index: u32) -> (Option<Handle>, u32) {
    debug_assert!(index < record.pages);
    if record.pages == 1 {
        return (Handle::from_raw(record.root), record.bound);
    }
    let mut at = node(record.root);
    for level in (1..levels(record.pages)).rev() {
        at = node(read(heap, at, digit(index, level)).0);
    }
    let (page, bound) = read(heap, at, digit(index, 0));
    (Handle::from_raw(page), bound)
}

/// Asks for the line that `get` will read the page's handle from.
#[inline]
pub(crate) fn prefetch(heap: &Heap, record: &Record, index: u32) {
    let mut at = record.root;
    for level in (1..levels(record.pages)).rev() {
        at = read(heap, node(at), digit(index, level)).0;
    }
    heap.arena().prefetch(at, digit(index, 0) * CHILD_BYTES);
}

/// Puts a page where another was (or none).
#[inline]
pub(crate) fn set_page(heap: &mut Heap, record: &mut Record, index: u32, page: Option<Handle>) {
    let raw = page.map_or(0, Handle::raw);
    if record.pages == 1 {
        record.root = raw;
        return;
    }
    let mut at = node(record.root);
    for level in (1..levels(record.pages)).rev() {
        at = node(read(heap, at, digit(index, level)).0);
    }
    let bound = read(heap, at, digit(index, 0)).1;
    write(heap, at, digit(index, 0), raw, bound);
}

/// Something in the page expires at `bound` or later.
pub(crate) fn lower_bound(heap: &mut Heap, record: &mut Record, index: u32, bound: u32) {
    record.bound = record.bound.min(bound);
    let levels = levels(record.pages);
    if levels == 0 {
        return;
    }
    let mut at = node(record.root);
    for level in (0..levels).rev() {
        let digit = digit(index, level);
        let (child, old) = read(heap, at, digit);
        if bound < old {
            write(heap, at, digit, child, bound);
        }
        if level > 0 {
            at = node(child);
        }
    }
}

/// The exact bound of a page, just counted; the bounds above it are made exact too.
pub(crate) fn set_bound(heap: &mut Heap, record: &mut Record, index: u32, bound: u32) {
    let levels = levels(record.pages);
    if levels == 0 {
        record.bound = bound;
        return;
    }
    let mut path = [node(record.root); 4];
    for level in (1..levels as usize).rev() {
        path[level - 1] = node(read(heap, path[level], digit(index, level as u32)).0);
    }
    let mut bound = bound;
    for level in 0..levels {
        let at = path[level as usize];
        let (child, _) = read(heap, at, digit(index, level));
        write(heap, at, digit(index, level), child, bound);
        let children = children(record.pages, index, level);
        bound = (0..children).map(|at_child| read(heap, at, at_child as usize).1).min().unwrap_or(NEVER);
    }
    record.bound = bound;
}

/// Clears the bound of a page in which nothing expires. The bounds above it stay as they are: lower bounds.
pub(crate) fn forget_bound(heap: &mut Heap, record: &Record, index: u32) {
    let levels = levels(record.pages);
    if levels > 0 {
        let at = edge_node(heap, record, index, levels, 0);
        let (child, _) = read(heap, at, digit(index, 0));
        write(heap, at, digit(index, 0), child, NEVER);
    }
}

/// Children of the node of `level` on the way to page `index`.
fn children(pages: u32, index: u32, level: u32) -> u32 {
    let shift = FAN_OUT_BITS * (level + 1);
    let (last, mine) = (u64::from(pages - 1), u64::from(index));
    if mine >> shift < last >> shift { FAN_OUT } else { digit(pages - 1, level) as u32 + 1 }
}

/// Adds page number `record.pages` at the end. On an error nothing has changed but room that is not used.
pub(crate) fn push(
    heap: &mut Heap,
    record: &mut Record,
    page: Option<Handle>,
    bound: u32,
) -> Result<(), Full> {
    let index = record.pages;
    let raw = page.map_or(0, Handle::raw);
    if index == 0 {
        record.root = raw;
        record.pages = 1;
        record.bound = record.bound.min(bound);
        return Ok(());
    }
    let (old_levels, new_levels) = (levels(index), levels(index + 1));
    // New nodes to the right, from the lowest up, so that an error leaves the tree as it was.
    let mut added: [Option<Handle>; 4] = [None; 4];
    let result = make_nodes(heap, record, index, old_levels, new_levels, &mut added);
    if result.is_err() {
        added.into_iter().flatten().for_each(|node| heap.release(node));
        return result;
    }
    let mut child = (raw, bound);
    for level in 0..new_levels {
        let digit = digit(index, level);
        match added[level as usize] {
            Some(new) if level == old_levels => {
                // A new root: what was the root (or the only page) becomes its first child.
                write(heap, new, 0, record.root, record.bound);
                write(heap, new, digit, child.0, child.1);
                record.root = new.raw();
            }
            Some(new) => {
                debug_assert_eq!(digit, 0);
                write(heap, new, 0, child.0, child.1);
                child = (new.raw(), child.1);
                continue;
            }
            None => {
                let at = edge_node(heap, record, index - 1, old_levels, level);
                write(heap, at, digit, child.0, child.1);
                lower_edge(heap, record, index - 1, old_levels, level, child.1);
            }
        }
        break;
    }
    record.pages += 1;
    record.bound = record.bound.min(bound);
    Ok(())
}

/// Allocates the nodes that page `index` needs, and widens the one that takes another child.
fn make_nodes(
    heap: &mut Heap,
    record: &mut Record,
    index: u32,
    old_levels: u32,
    new_levels: u32,
    added: &mut [Option<Handle>; 4],
) -> Result<(), Full> {
    for level in 0..new_levels {
        if level == old_levels {
            added[level as usize] = Some(heap.allocate(Kind::Index, node_bytes(cap(2)))?.0);
            return Ok(());
        }
        let digit = digit(index, level) as u32;
        if digit > 0 {
            return widen(heap, record, index - 1, old_levels, level, digit);
        }
        added[level as usize] = Some(heap.allocate(Kind::Index, node_bytes(cap(1)))?.0);
    }
    unreachable!("a page hangs at a node that was there, or at a new root")
}

/// Gives the right-edge node of `level` (with `count` children) room for one more.
fn widen(
    heap: &mut Heap,
    record: &mut Record,
    last: u32,
    levels: u32,
    level: u32,
    count: u32,
) -> Result<(), Full> {
    if cap(count + 1) == cap(count) {
        return Ok(());
    }
    resize(heap, record, last, levels, level, count, cap(count + 1))
}

fn resize(
    heap: &mut Heap,
    record: &mut Record,
    last: u32,
    levels: u32,
    level: u32,
    count: u32,
    cap: u32,
) -> Result<(), Full> {
    let old = edge_node(heap, record, last, levels, level);
    let (new, _) = heap.reallocate(old, node_bytes(count), node_bytes(cap))?;
    if level + 1 == levels {
        record.root = new.raw();
    } else {
        let parent = edge_node(heap, record, last, levels, level + 1);
        let at = digit(last, level + 1);
        let bound = read(heap, parent, at).1;
        write(heap, parent, at, new.raw(), bound);
    }
    Ok(())
}

/// The node of `level` above page `last`.
fn edge_node(heap: &Heap, record: &Record, last: u32, levels: u32, level: u32) -> Handle {
    let mut at = node(record.root);
    for upper in (level + 1..levels).rev() {
        at = node(read(heap, at, digit(last, upper)).0);
    }
    at
}

/// Lowers the bounds above the node of `level`.
fn lower_edge(heap: &mut Heap, record: &Record, last: u32, levels: u32, level: u32, bound: u32) {
    for upper in level + 1..levels {
        let at = edge_node(heap, record, last, levels, upper);
        let digit = digit(last, upper);
        let (child, old) = read(heap, at, digit);
        write(heap, at, digit, child, old.min(bound));
    }
}

/// Takes the last page away; the caller has moved its entries and freed it.
pub(crate) fn pop(heap: &mut Heap, record: &mut Record) {
    let last = record.pages - 1;
    let old_levels = levels(record.pages);
    if last == 0 {
        record.root = 0;
        record.pages = 0;
        return;
    }
    // Nodes that held only this page go; the first that keeps children is where it ends.
    for level in 0..old_levels {
        let at = edge_node(heap, record, last, old_levels, level);
        let count = digit(last, level) as u32;
        if count == 0 {
            heap.release(at);
            continue;
        }
        if count == 1 && level + 1 == old_levels && old_levels > levels(last) {
            // The root has one child left, which becomes the root.
            record.root = read(heap, at, 0).0;
            heap.release(at);
        } else if cap(count) < cap(count + 1) {
            // Shrinking never needs new chunks when it fails: the node just stays larger than it need be.
            let _ = resize(heap, record, last, old_levels, level, count, cap(count));
        }
        break;
    }
    record.pages = last;
}

/// Frees all nodes, not the pages.
pub(crate) fn free(heap: &mut Heap, record: &Record) {
    if record.pages > 1 {
        free_below(heap, record.pages, node(record.root), 0, levels(record.pages) - 1);
    }
}

fn free_below(heap: &mut Heap, pages: u32, at: Handle, first: u32, level: u32) {
    if level > 0 {
        for child in 0..children(pages, first, level) {
            let below = node(read(heap, at, child as usize).0);
            free_below(heap, pages, below, first + (child << (FAN_OUT_BITS * level)), level - 1);
        }
    }
    heap.release(at);
}

/// Outcome of a search for a page with a wanted bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bounded {
    Page(u32),
    /// No page from the first on has such a bound.
    None,
    /// The budget ended before it is known.
    OutOfBudget,
}

/// Bounds that count as one step: 64 x 8 B are eight cache lines in a row.
const BOUNDS_A_STEP: u64 = 64;

/// The first page from `from` on whose bound satisfies `wanted`; whole nodes whose bound does not are
/// skipped.
///
/// The bounds of inner nodes may be too low: a page that left took its time with it (`pop`), or
/// `forget_bound` raised one below. A node that was searched from its first child on, without a find, gets
/// the exact bound of its children, and so does the record: a bound that leads nowhere does so once, and
/// every search gets at least that far, however small its budget. `wanted` holds for every bound below one
/// for which it holds.
pub(crate) fn next_bounded(
    heap: &mut Heap,
    record: &mut Record,
    from: u32,
    wanted: &dyn Fn(u32) -> bool,
    steps: &mut Steps,
) -> Bounded {
    if from >= record.pages || !wanted(record.bound) {
        return Bounded::None;
    }
    if record.pages == 1 {
        return Bounded::Page(0);
    }
    let top = levels(record.pages) - 1;
    let mut search = Search { pages: record.pages, from, wanted, steps };
    let (found, bound) = search.below(heap, node(record.root), 0, top);
    if found == Bounded::None && from == 0 {
        record.bound = bound;
    }
    found
}

struct Search<'a> {
    pages: u32,
    from: u32,
    wanted: &'a dyn Fn(u32) -> bool,
    steps: &'a mut Steps,
}

impl Search<'_> {
    /// Searches the node of `level` whose first page is `first`. Returns the result, and after `None` the
    /// exact bound of the children that were looked at.
    fn below(&mut self, heap: &mut Heap, at: Handle, first: u32, level: u32) -> (Bounded, u32) {
        let span = 1u32 << (FAN_OUT_BITS * level);
        let skip = self.from.saturating_sub(first) / span;
        let count = children(self.pages, first, level);
        self.steps.look(1 + u64::from(count - skip) / BOUNDS_A_STEP);
        let mut least = NEVER;
        for child in skip..count {
            let (below, bound) = read(heap, at, child as usize);
            if !(self.wanted)(bound) {
                least = least.min(bound);
                continue;
            }
            let first = first + child * span;
            if level == 0 {
                return (Bounded::Page(first), NEVER);
            }
            let (found, exact) = self.below(heap, node(below), first, level - 1);
            if found != Bounded::None {
                return (found, NEVER);
            }
            if self.from <= first {
                write(heap, at, child as usize, below, exact);
                least = least.min(exact);
            } else {
                least = least.min(bound);
            }
            // Only after a node that is exact now: the next walk gets further.
            if self.steps.is_spent() {
                return (Bounded::OutOfBudget, NEVER);
            }
        }
        (Bounded::None, least)
    }
}

/// Asserts that bounds are lower bounds of those below, and returns the number of nodes.
pub(crate) fn check_invariants(heap: &Heap, record: &Record) -> usize {
    if record.pages <= 1 {
        return 0;
    }
    check_below(heap, record.pages, node(record.root), 0, levels(record.pages) - 1, record.bound)
}

fn check_below(heap: &Heap, pages: u32, at: Handle, first: u32, level: u32, limit: u32) -> usize {
    let mut nodes = 1;
    for child in 0..children(pages, first, level) {
        let (below, bound) = read(heap, at, child as usize);
        assert!(bound >= limit, "a node's bound is a lower bound");
        if level > 0 {
            let first = first + (child << (FAN_OUT_BITS * level));
            nodes += check_below(heap, pages, node(below), first, level - 1, bound);
        }
    }
    nodes
}
