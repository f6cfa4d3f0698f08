//! Elements in a row, in either direction.

use super::block::{Block, Cell};
use super::{End, List, Piece};
use crate::layout::chain::{At, Counted};
use crate::layout::packed::Element;
use crate::values::nodes::Reading;

pub struct Iter<'a> {
    list: &'a List,
    reading: Reading<'a>,
    forward: bool,
    at: Option<At>,
    /// The block at `at`, an element's index there and where it lies; `None`: a large element.
    inside: Option<(Block<'a>, usize, Cell)>,
}

impl<'a> Iter<'a> {
    pub(super) fn new(list: &'a List, reading: Reading<'a>, index: u64, from: End) -> Iter<'a> {
        let mut iter = Iter { list, reading, forward: from == End::Front, at: None, inside: None };
        if let Some((at, rest)) = list.chain.find(index) {
            iter.enter(at, rest as usize);
        }
        iter
    }

    fn enter(&mut self, at: At, index: usize) {
        self.at = Some(at);
        self.inside = match *self.list.chain.get(at) {
            Piece::Large { .. } => None,
            Piece::Block { node, .. } => {
                let block = self.list.block(self.reading, node);
                Some((block, index, block.get(index)))
            }
        };
    }

    fn leave(&mut self, at: At) {
        let chain = &self.list.chain;
        match if self.forward { chain.next(at) } else { chain.previous(at) } {
            Some(next) if self.forward => self.enter(next, 0),
            Some(next) => self.enter(next, chain.get(next).count() as usize - 1),
            None => self.at = None,
        }
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let at = self.at?;
        let Some((block, index, cell)) = self.inside else {
            let Piece::Large { number, .. } = *self.list.chain.get(at) else {
                unreachable!("it is no block")
            };
            self.leave(at);
            return Some(Element::Bytes(self.reading.large.get(number)));
        };
        let next = if self.forward { block.next(index, cell) } else { block.previous(index, cell) };
        match next {
            Some(cell) if self.forward => self.inside = Some((block, index + 1, cell)),
            Some(cell) => self.inside = Some((block, index - 1, cell)),
            None => self.leave(at),
        }
        Some(block.element(cell))
    }
}
