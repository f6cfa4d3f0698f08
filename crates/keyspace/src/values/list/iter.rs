//! Elements in a row, in either direction.

use super::block::{Block, Cell};
use super::{ABSENT, End, List, Piece};
use crate::layout::chain::{At, Counted};
use crate::layout::packed::Element;
use crate::values::nodes::Reading;

pub struct Iter<'a> {
    list: &'a List,
    reading: Reading<'a>,
    forward: bool,
    at: Option<At>,
    /// The block at `at`, an element's index there and where it lies; `None`: a large element, or a block that is not in memory.
    inside: Option<(Block<'a>, usize, Cell)>,
    /// Of a block that is not in memory, how many elements of it are still to come.
    away: u64,
    /// Blocks that were met, and those of them that are not in memory.
    blocks: u64,
    unseen: u64,
    searches: bool,
}

/// Of a search: it ends, and begins again when these were read, once it has met so many blocks that are not in memory beside as many as are.
const UNSEEN_MAX: u64 = 64;

impl<'a> Iter<'a> {
    pub(super) fn new(list: &'a List, reading: Reading<'a>, index: u64, from: End) -> Iter<'a> {
        let forward = from == End::Front;
        let mut iter = Iter {
            list,
            reading,
            forward,
            at: None,
            inside: None,
            away: 0,
            blocks: 0,
            unseen: 0,
            searches: false,
        };
        if let Some((at, rest)) = list.chain.find(index) {
            iter.enter(at, rest as usize);
        }
        iter
    }

    /// The same for one that looks for an element: it may be found before all others were read that are not in memory.
    pub fn searching(mut self) -> Iter<'a> {
        self.searches = true;
        self
    }

    fn enter(&mut self, at: At, index: usize) {
        (self.at, self.inside) = (Some(at), None);
        let Piece::Block { node, count, .. } = *self.list.chain.get(at) else { return };
        self.blocks += 1;
        if self.list.nodes.is_shown(self.reading, node) {
            let block = self.list.block(self.reading, node);
            self.inside = Some((block, index, block.get(index)));
        } else {
            self.pass(u64::from(count), index as u64);
        }
    }

    /// Elements of a block that is not in memory are passed one by one, so that who counts them comes as far as it will.
    #[cold]
    fn pass(&mut self, count: u64, index: u64) {
        self.unseen += 1;
        self.away = if self.forward { count - index } else { index + 1 };
        if self.searches && self.unseen >= UNSEEN_MAX.max(self.blocks / 2) {
            self.at = None;
        }
    }

    /// One of them.
    #[cold]
    fn pass_one(&mut self, at: At) -> Element<'a> {
        self.away -= 1;
        if self.away == 0 {
            self.leave(at);
        }
        ABSENT
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
            if self.away > 0 {
                return Some(self.pass_one(at));
            }
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
