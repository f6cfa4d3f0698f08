//! An inner node: up to 31 children with their counts.
//!
//! ```text
//!   0     13..16
//!   [head][     ][separator u64][child u32][members u32] x count          16 + 16 x 31 = 512 B
//!
//!   separator of child i > 0: not above the score (`score::order_of`) of any member below child i,
//!                             not below that of any member below child i - 1; that of child 0 says nothing
//!   child     the number of a leaf, or of an inner node (without its mark)
//!   members   how many lie below the child: their sums are ranks
//! ```

use super::node;

pub(super) const CHILDREN_MAX: usize = 31;
const ENTRIES: usize = 16;
const ENTRY_BYTES: usize = 16;
const CHILD: usize = 8;
const MEMBERS: usize = 12;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Child {
    pub separator: u64,
    pub number: u32,
    pub members: u32,
}

/// Bytes of a node with `children` children.
pub(super) fn size(children: usize) -> usize {
    ENTRIES + children * ENTRY_BYTES
}

fn at(index: usize) -> usize {
    ENTRIES + index * ENTRY_BYTES
}

#[inline]
pub(super) fn separator(node: &[u8], index: usize) -> u64 {
    u64::from_le_bytes(node[at(index)..at(index) + 8].try_into().expect("eight bytes"))
}
#[inline]
pub(super) fn number(node: &[u8], index: usize) -> u32 {
    node::word(node, at(index) + CHILD)
}
#[inline]
pub(super) fn members(node: &[u8], index: usize) -> u32 {
    node::word(node, at(index) + MEMBERS)
}
pub(super) fn child(node: &[u8], index: usize) -> Child {
    Child { separator: separator(node, index), number: number(node, index), members: members(node, index) }
}
pub(super) fn set_child(node: &mut [u8], index: usize, child: Child) {
    node[at(index)..at(index) + 8].copy_from_slice(&child.separator.to_le_bytes());
    node::set_word(node, at(index) + CHILD, child.number);
    node::set_word(node, at(index) + MEMBERS, child.members);
}
pub(super) fn set_members(node: &mut [u8], index: usize, members: u32) {
    node::set_word(node, at(index) + MEMBERS, members);
}
fn set_children(node: &mut [u8], children: usize) {
    node::set_count(node, children);
    node::set_used(node, size(children));
}

/// Puts a child in front of child `index`; the node has room.
pub(super) fn insert(node: &mut [u8], index: usize, child: Child) {
    let children = node::count(node);
    node.copy_within(at(index)..at(children), at(index + 1));
    set_child(node, index, child);
    set_children(node, children + 1);
}

pub(super) fn remove(node: &mut [u8], index: usize) {
    let children = node::count(node);
    node.copy_within(at(index + 1)..at(children), at(index));
    set_children(node, children - 1);
}

/// Appends the children of another node, copied out by `copy`.
pub(super) fn append(node: &mut [u8], children: &[Child]) {
    for &child in children {
        let end = node::count(node);
        set_child(node, end, child);
        set_children(node, end + 1);
    }
}

/// Keeps the first `children` only.
pub(super) fn truncate(node: &mut [u8], children: usize) {
    set_children(node, children);
}

pub(super) fn children(node: &[u8]) -> impl Iterator<Item = Child> + '_ {
    (0..node::count(node)).map(|index| child(node, index))
}
