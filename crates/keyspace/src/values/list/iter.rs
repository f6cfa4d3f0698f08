//! Elements in a row, in either direction, and those that equal one.

use super::block::{Block, Cell};
use super::{ABSENT, End, List, Piece};
use crate::layout::chain::{At, Counted};
use crate::layout::packed::Element;
use crate::values::nodes::Reading;
use isotherm_stdx::steps;

pub struct Iter<'a> {
    list: &'a List,
    reading: Reading<'a>,
    forward: bool,
    /// The next element's piece.
    at: Option<At>,
    inside: Inside<'a>,
}

/// Position of the next element in a piece.
enum Inside<'a> {
    /// At the piece's edge; it was not looked at yet.
    Edge,
    /// A block, the element's index in it, and the element's cell.
    Block(Block<'a>, usize, Cell),
    /// A block that is not in memory: the number of its elements that are still to come.
    Away(u64),
    /// A large element, alone in its piece.
    Large(&'a [u8]),
}

impl<'a> Iter<'a> {
    pub(super) fn new(list: &'a List, reading: Reading<'a>, index: u64, from: End) -> Iter<'a> {
        let mut iter = Iter { list, reading, forward: from == End::Front, at: None, inside: Inside::Edge };
        if let Some((at, rest)) = list.chain.find(index) {
            (iter.at, iter.inside) = (Some(at), iter.enter(at, rest as usize));
        }
        iter
    }

    fn enter(&self, at: At, index: usize) -> Inside<'a> {
        match *self.list.chain.get(at) {
            Piece::Large { number, .. } => Inside::Large(self.reading.large.get(number)),
            Piece::Block { node, .. } if self.list.nodes.is_shown(self.reading, node) => {
                let block = self.list.block(self.reading, node);
                Inside::Block(block, index, block.get(index))
            }
            Piece::Block { count, .. } if self.forward => Inside::Away(u64::from(count) - index as u64),
            Piece::Block { .. } => Inside::Away(index as u64 + 1),
        }
    }

    /// Goes to the edge of the next piece, which was not looked at yet.
    fn leave(&mut self, at: At) {
        let chain = &self.list.chain;
        self.at = if self.forward { chain.next(at) } else { chain.previous(at) };
        self.inside = Inside::Edge;
    }

    #[inline]
    fn enter_edge(&mut self, at: At) {
        if matches!(self.inside, Inside::Edge) {
            let last = self.list.chain.get(at).count() as usize - 1;
            self.inside = self.enter(at, if self.forward { 0 } else { last });
        }
    }

    /// Passes one element of a block that is not in memory. The elements are passed one by one, so that a
    /// caller that counts them comes as far as it will.
    #[cold]
    fn pass_one(&mut self, at: At, left: u64) -> Element<'a> {
        match left {
            1 => self.leave(at),
            _ => self.inside = Inside::Away(left - 1),
        }
        ABSENT
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let at = self.at?;
        self.enter_edge(at);
        let (block, index, cell) = match self.inside {
            Inside::Block(block, index, cell) => (block, index, cell),
            Inside::Large(bytes) => {
                self.leave(at);
                return Some(Element::Bytes(bytes));
            }
            Inside::Away(left) => return Some(self.pass_one(at, left)),
            Inside::Edge => unreachable!("it was entered"),
        };
        let next = if self.forward { block.next(index, cell) } else { block.previous(index, cell) };
        match next {
            Some(cell) if self.forward => self.inside = Inside::Block(block, index + 1, cell),
            Some(cell) => self.inside = Inside::Block(block, index - 1, cell),
            None => self.leave(at),
        }
        Some(block.element(cell))
    }
}

/// Blocks outside memory at which a search ends, if they are also half of all that it has met; it begins
/// again when these were read.
const UNSEEN_MAX: u64 = 64;

/// Positions of the elements that equal `wanted`, among the next `left` ones: for each, the number of
/// elements before it. No element is met in blocks that are not in memory, so that one may be found before
/// all of them were read.
pub struct Search<'a, 'w> {
    elements: Iter<'a>,
    wanted: Element<'w>,
    left: u64,
    passed: u64,
    /// Pieces that were met, and blocks among them that are not in memory.
    pieces: u64,
    unseen: u64,
}

impl<'a> Iter<'a> {
    pub fn search<'w>(self, wanted: Element<'w>, left: u64) -> Search<'a, 'w> {
        Search { elements: self, wanted, left, passed: 0, pieces: 0, unseen: 0 }
    }
}

impl Search<'_, '_> {
    /// Passes a block that is not in memory.
    #[cold]
    fn pass(&mut self, at: At, count: u64) {
        let count = count.min(self.left);
        (self.passed, self.left) = (self.passed + count, self.left - count);
        self.unseen += 1;
        self.elements.leave(at);
        if self.unseen >= UNSEEN_MAX.max(self.pieces / 2) {
            self.left = 0;
        }
    }
}

impl Iterator for Search<'_, '_> {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        while self.left > 0 {
            let at = self.elements.at?;
            self.pieces += u64::from(matches!(self.elements.inside, Inside::Edge));
            self.elements.enter_edge(at);
            if let Inside::Away(count) = self.elements.inside {
                self.pass(at, count);
                continue;
            }
            steps::note(1);
            let element = self.elements.next()?;
            (self.passed, self.left) = (self.passed + 1, self.left - 1);
            if element == self.wanted {
                return Some(self.passed - 1);
            }
        }
        None
    }
}
