//! Changes of a list. Whatever can fail for want of memory comes before the first change.

use super::block::{self, BLOCK_BYTES_MAX, BLOCK_ELEMENTS_MAX, Block, DATA_BYTES_MAX, Draft, HEAD_BYTES};
use super::view::NO_TIME;
use super::{End, List, Piece};
use crate::layout::chain::{At, Counted};
use crate::layout::kind::Full;
use crate::layout::last_used::stamp;
use crate::layout::listpack::entry_bytes;
use crate::layout::packed::{Coded, Element, LONG_TAG};
use crate::values::blocks::room_of;
use crate::values::nodes::{NODE_HEAD_BYTES, NodeId, Reading, Room, node_bytes};
use crate::values::object::Object;
use crate::values::store::Store;

/// A block up to this size is written anew where it has no room at the end that is asked for.
const REWRITTEN_BYTES_MAX: usize = 512;
/// First size of a block that has others next to it, because it is about to grow.
const BLOCK_BYTES_AT_FIRST: usize = 512;
/// A block below this size looks for a neighbour,
const LONELY_BYTES_MAX: usize = BLOCK_BYTES_MAX / 4;
/// with which it has no more than this.
const JOINED_BYTES_MAX: usize = BLOCK_BYTES_MAX / 4 * 3;
/// Pieces of debris that are freed with the command that made them, and with each one after it.
const DEBRIS_AT_ONCE: usize = 256;
const DEBRIS_LATER: usize = 16;

impl List {
    pub fn push(&mut self, room: &mut Room<'_>, end: End, element: Element<'_>) -> Result<(), Full> {
        self.sweep(room, DEBRIS_LATER);
        let coded = Coded::element(element);
        let piece = if block::data_bytes(&coded) > DATA_BYTES_MAX {
            self.new_large(room, element)?
        } else if self.push_to_block(room, end, element, &coded)? {
            return Ok(());
        } else {
            let least = if self.chain.is_empty() { 0 } else { BLOCK_BYTES_AT_FIRST };
            let need = HEAD_BYTES + block::data_bytes(&coded) + 1;
            let (node, size) = self.nodes.allocate(room, least.max(need))?;
            let bytes = room.heap.bytes_mut(self.nodes.handle(node), size);
            block::init(bytes, end == End::Front, stamp(room.now));
            block::append(bytes, &coded);
            Piece::Block { node, count: 1, listpack: entry_bytes(element) as u32 }
        };
        self.listpack_bytes += piece.listpack();
        match end {
            End::Front => self.chain.push_front(piece),
            End::Back => self.chain.push_back(piece),
        }
        Ok(())
    }

    /// Pushes an element to the block at that end. Returns whether the block took it.
    fn push_to_block(
        &mut self,
        room: &mut Room<'_>,
        end: End,
        element: Element<'_>,
        coded: &Coded<'_>,
    ) -> Result<bool, Full> {
        let Some(at) = self.end_at(end) else { return Ok(false) };
        let Piece::Block { node, count, .. } = *self.chain.get(at) else { return Ok(false) };
        if usize::from(count) == BLOCK_ELEMENTS_MAX || self.nodes.reference_at(room.heap, node).is_some() {
            return Ok(false);
        }
        self.before_change(room, node);
        let view = self.block(room.reading(), node);
        let appends = view.is_reversed() == (end == End::Front);
        let need = view.bytes_with(coded);
        if appends && (view.has_gap_for(coded) || need <= BLOCK_BYTES_MAX) {
            if !view.has_gap_for(coded) {
                self.resize(room, node, (need + need / 4).min(BLOCK_BYTES_MAX))?;
            }
            block::append(self.block_mut(room, node), coded);
        } else if !appends && view.has_front_for(coded) {
            block::prepend(self.block_mut(room, node), coded);
        } else if !appends && need <= REWRITTEN_BYTES_MAX {
            let index = if end == End::Front { 0 } else { usize::from(count) };
            let draft = draft_with(view, index, 0, Some(coded));
            self.replace_block(room, at, &draft)?;
            return Ok(true);
        } else {
            return Ok(false);
        }
        self.count_in(at, 1, entry_bytes(element) as i64);
        Ok(true)
    }

    /// Puts an element before element `index`, or after the last one.
    pub fn insert(&mut self, room: &mut Room<'_>, index: u64, element: Element<'_>) -> Result<(), Full> {
        if index == 0 {
            return self.push(room, End::Front, element);
        }
        self.want_at(room.reading(), index)?;
        let Some((at, rest)) = self.chain.find(index) else {
            assert_eq!(index, self.len(), "an element is put among the others");
            return self.push(room, End::Back, element);
        };
        self.splice(room, at, rest as usize, 0, Some(element))
    }

    /// Puts an element in the place of element `index`.
    pub fn set(&mut self, room: &mut Room<'_>, index: u64, element: Element<'_>) -> Result<(), Full> {
        self.want_at(room.reading(), index)?;
        let (at, rest) = self.chain.find(index).expect("the element is there");
        let coded = Coded::element(element);
        if let Piece::Block { node, .. } = *self.chain.get(at) {
            let view = self.block(room.reading(), node);
            let cell = view.get(rest as usize);
            if cell.tag == coded.tag() && cell.tag != LONG_TAG {
                let change = entry_bytes(element) as i64 - entry_bytes(view.element(cell)) as i64;
                self.before_change(room, node);
                block::overwrite(self.block_mut(room, node), cell, &coded);
                self.count_in(at, 0, change);
                return Ok(());
            }
        }
        self.splice(room, at, rest as usize, 1, Some(element))
    }

    /// Takes out `count` elements from `index` on; they are there.
    pub fn remove(&mut self, room: &mut Room<'_>, index: u64, count: u64) -> Result<(), Full> {
        assert!(index + count <= self.len(), "the elements are there");
        self.want_edges(room.reading(), [index, index + count])?;
        self.sweep(room, DEBRIS_LATER);
        if count == 0 {
            return Ok(());
        }
        let (from, skipped) = self.chain.find(index).expect("the elements are there");
        if self.chain.get(from).count() >= skipped + count {
            return self.remove_within(room, from, skipped as usize, count as usize);
        }
        // Blocks at the edges shrink, those between them leave the chain.
        let kept_last = self.chain.find(index + count);
        if let Some((last, taken)) = kept_last.filter(|(_, taken)| *taken > 0) {
            self.drop_end(room, last, End::Front, taken as usize);
        }
        let mut from = from;
        if skipped > 0 {
            let len = self.chain.get(from).count();
            self.drop_end(room, from, End::Back, (len - skipped) as usize);
            from = self.chain.next(from).expect("more than one piece is concerned");
        }
        let to = kept_last.map(|(last, _)| last);
        if to != Some(from) {
            let taken = self.chain.remove_range(from, to);
            self.listpack_bytes -= taken.iter().map(Piece::listpack).sum::<u64>();
            self.debris.append(taken);
            self.sweep(room, DEBRIS_AT_ONCE);
        }
        if let Some((at, _)) = self.chain.find(index.min(self.len().saturating_sub(1))) {
            self.join(room, at);
        }
        Ok(())
    }

    fn remove_within(&mut self, room: &mut Room<'_>, at: At, index: usize, count: usize) -> Result<(), Full> {
        let len = self.chain.get(at).count() as usize;
        if count == len {
            let piece = self.chain.remove(at);
            self.listpack_bytes -= piece.listpack();
            self.free_piece(room, piece);
            return Ok(());
        }
        if index > 0 && index + count < len {
            return self.splice(room, at, index, count, None);
        }
        self.drop_end(room, at, if index == 0 { End::Front } else { End::Back }, count);
        // An end that shrinks meets its neighbour sooner or later.
        if Some(at) != self.chain.first() && Some(at) != self.chain.last() {
            self.join(room, at);
        }
        Ok(())
    }

    /// Takes out elements equal to this one, up to `count` of them, beginning at an end. Returns how many
    /// there were.
    pub fn remove_equal(
        &mut self,
        room: &mut Room<'_>,
        from: End,
        count: u64,
        element: Element<'_>,
    ) -> Result<u64, Full> {
        self.want_equal(room.reading(), from, count, element)?;
        let coded = Coded::element(element);
        let (mut removed, mut passed) = (0, 0);
        while removed < count && passed < self.len() {
            let position = if from == End::Front { passed } else { self.len() - 1 - passed };
            let (at, rest) = self.chain.find(position).expect("it is not past the end");
            let piece = *self.chain.get(at);
            let gone = match piece {
                Piece::Large { number, .. } if Element::Bytes(room.large.get(number)) == element => {
                    self.remove_within(room, at, 0, 1)?;
                    1
                }
                Piece::Large { .. } => 0,
                Piece::Block { node, .. } => {
                    self.remove_equal_in(room, at, node, from, count - removed, &coded)?
                }
            };
            passed = match from {
                End::Front => position - rest + piece.count() - gone,
                End::Back => self.len() - (position - rest),
            };
            removed += gone;
        }
        Ok(removed)
    }

    fn remove_equal_in(
        &mut self,
        room: &mut Room<'_>,
        at: At,
        node: NodeId,
        from: End,
        count_max: u64,
        coded: &Coded<'_>,
    ) -> Result<u64, Full> {
        let view = self.block(room.reading(), node);
        let equal = view.cells().filter(|cell| view.is(*cell, coded)).count() as u64;
        if equal == 0 {
            return Ok(0);
        }
        let gone = equal.min(count_max);
        // Of those that are equal, the first ones stay when it is the last ones that go.
        let mut stay = if from == End::Front { 0 } else { equal - gone };
        let mut go = gone;
        let mut draft = Draft::default();
        for cell in view.cells() {
            if !view.is(cell, coded) || stay > 0 || go == 0 {
                stay -= u64::from(stay > 0 && view.is(cell, coded));
                draft.push_cell(view, cell);
            } else {
                go -= 1;
            }
        }
        if self.replace_block(room, at, &draft).is_err() {
            self.rewrite_block(room, at, node, &draft);
        }
        Ok(gone)
    }

    /// Frees what was cut off, up to `pieces_max` pieces. Returns true when there is nothing left of it.
    pub fn sweep(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        for _ in 0..pieces_max {
            if let Some(piece) = self.cut.as_mut().and_then(|cut| cut.take_waste()) {
                self.release(room, piece);
                continue;
            }
            let Some(at) = self.debris.last() else { return true };
            let piece = self.debris.remove(at);
            self.free_piece(room, piece);
        }
        self.debris.is_empty()
    }

    /// Frees everything in steps of `pieces_max` pieces. Returns true when it is done.
    pub fn free_pieces(&mut self, room: &mut Room<'_>, pieces_max: usize) -> bool {
        self.debris.append(std::mem::replace(&mut self.chain, crate::layout::chain::Chain::new()));
        self.listpack_bytes = 0;
        self.sweep(room, pieces_max)
    }

    /// Makes the same list again in `store`. `from`: where this one lies, if that is another store.
    pub(super) fn copied(
        &self,
        from: Option<Reading<'_>>,
        store: &mut Store,
        number: u32,
    ) -> Result<Object, Full> {
        let mut copy = List::new(number);
        copy.quick = self.quick;
        let mut room = room_of(store, NO_TIME);
        match copy.copy_pieces(&mut room, self, from) {
            Ok(()) => Ok(Object::List(copy)),
            Err(full) => {
                while !copy.free_pieces(&mut room, usize::MAX) {}
                Err(full)
            }
        }
    }

    /// Fills this empty list with copies of another one's blocks; large elements are shared. `from`: where
    /// that one lies, if it is in another store.
    fn copy_pieces(
        &mut self,
        room: &mut Room<'_>,
        other: &List,
        from: Option<Reading<'_>>,
    ) -> Result<(), Full> {
        for piece in other.chain.iter() {
            let copy = match *piece {
                Piece::Large { number, listpack } => {
                    let body = from.map_or(&*room.large, |from| from.large).share(number);
                    (self.large, self.large_bytes) = (self.large + 1, self.large_bytes + body.len() as u64);
                    Piece::Large { number: room.large.adopt(body), listpack }
                }
                Piece::Block { node, count, listpack } => {
                    let size = other.block(from.unwrap_or(room.reading()), node).room();
                    let (copy, _) = self.nodes.allocate(room, size)?;
                    let (source, target) = (other.nodes.handle(node), self.nodes.handle(copy));
                    let (source, target) = match from {
                        Some(from) => (from.heap.bytes(source, size), room.heap.bytes_mut(target, size)),
                        None => room.heap.bytes_pair((source, size), (target, size)),
                    };
                    target[NODE_HEAD_BYTES..].copy_from_slice(&source[NODE_HEAD_BYTES..]);
                    Piece::Block { node: copy, count, listpack }
                }
            };
            self.listpack_bytes += copy.listpack();
            self.chain.push_back(copy);
        }
        Ok(())
    }

    // ---- pieces ----

    pub(super) fn block_mut<'r>(&self, room: &'r mut Room<'_>, node: NodeId) -> &'r mut [u8] {
        let handle = self.nodes.handle(node);
        let size = Block(room.heap.bytes(handle, HEAD_BYTES)).room();
        room.heap.bytes_mut(handle, size)
    }

    /// Notes what has changed in the piece at `at`.
    #[inline]
    fn count_in(&mut self, at: At, elements: i32, bytes: i64) {
        self.listpack_bytes = self.listpack_bytes.wrapping_add_signed(bytes);
        self.chain.update(at, |piece| {
            let Piece::Block { count, listpack, .. } = piece else { unreachable!("only blocks change") };
            *count = (i32::from(*count) + elements) as u16;
            *listpack = (i64::from(*listpack) + bytes) as u32;
        });
    }

    fn resize(&mut self, room: &mut Room<'_>, node: NodeId, bytes: usize) -> Result<(), Full> {
        let old = self.block(room.reading(), node).room();
        self.nodes.replace(room, node, old, bytes, block::lay_out)
    }

    fn new_large(&mut self, room: &mut Room<'_>, element: Element<'_>) -> Result<Piece, Full> {
        let Element::Bytes(bytes) = element else { unreachable!("a number is small") };
        let number = room.large.insert(bytes.len())?;
        room.large.grow(number, 0).expect("nothing grows").copy_from_slice(bytes);
        (self.large, self.large_bytes) = (self.large + 1, self.large_bytes + bytes.len() as u64);
        Ok(Piece::Large { number, listpack: entry_bytes(element) as u32 })
    }

    fn free_piece(&mut self, room: &mut Room<'_>, piece: Piece) {
        if !self.is_kept(room, piece) {
            self.release(room, piece);
        }
    }

    fn release(&mut self, room: &mut Room<'_>, piece: Piece) {
        match piece {
            Piece::Block { node, .. } => {
                let size = self.block(room.reading(), node).room();
                self.nodes.release(room, node, size);
            }
            Piece::Large { number, .. } => {
                let bytes = room.large.get(number).len() as u64;
                (self.large, self.large_bytes) = (self.large - 1, self.large_bytes - bytes);
                room.large.remove(number);
            }
        }
    }

    /// Takes `count` elements, not all, from an end of a block.
    fn drop_end(&mut self, room: &mut Room<'_>, at: At, end: End, count: usize) {
        let Piece::Block { node, count: len, .. } = *self.chain.get(at) else {
            unreachable!("part of one element is not taken")
        };
        self.before_change(room, node);
        let view = self.block(room.reading(), node);
        let from = if end == End::Front { 0 } else { usize::from(len) - count };
        let bytes: u64 = cells_from(view, from).take(count).map(|cell| entry_bytes(view.element(cell))).sum();
        block::drop_end(self.block_mut(room, node), end == End::Front, count);
        self.count_in(at, -(count as i32), -(bytes as i64));
        let view = self.block(room.reading(), node);
        if view.bytes() * 2 < view.room() && node_bytes(view.bytes()) < view.room() {
            // Without memory for a smaller block the larger one stays.
            let _ = self.resize(room, node, view.bytes());
        }
    }

    /// Replaces `old` elements from `index` on by `new`, if there is one, in the block (or large element) at
    /// `at`.
    fn splice(
        &mut self,
        room: &mut Room<'_>,
        at: At,
        index: usize,
        old: usize,
        new: Option<Element<'_>>,
    ) -> Result<(), Full> {
        let mut pieces = Vec::new();
        match self.new_pieces(room, at, index, old, new, &mut pieces) {
            Ok(()) => self.put_pieces(room, at, &pieces),
            Err(full) => {
                pieces.into_iter().for_each(|piece| self.free_piece(room, piece));
                let (Piece::Block { node, .. }, None) = (*self.chain.get(at), new) else { return Err(full) };
                let draft = draft_with(self.block(room.reading(), node), index, old, None);
                self.rewrite_block(room, at, node, &draft);
            }
        }
        Ok(())
    }

    /// Writes what is left of the elements of a block over all of them: without memory for a smaller block it
    /// stays.
    #[cold]
    fn rewrite_block(&mut self, room: &mut Room<'_>, at: At, node: NodeId, draft: &Draft) {
        self.before_change(room, node);
        let stamp = stamp(room.now);
        draft.write(self.block_mut(room, node), stamp);
        let view = self.block(room.reading(), node);
        let bytes: u64 = view.cells().map(|cell| entry_bytes(view.element(cell))).sum();
        let old = *self.chain.get(at);
        self.count_in(at, draft.len() as i32 - old.count() as i32, bytes as i64 - old.listpack() as i64);
    }

    /// Makes the pieces that a splice puts in the place of a piece. A large element that stays is not among
    /// them.
    fn new_pieces(
        &mut self,
        room: &mut Room<'_>,
        at: At,
        index: usize,
        old: usize,
        new: Option<Element<'_>>,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Full> {
        let coded = new.map(Coded::element);
        let large = coded.as_ref().is_some_and(|coded| block::data_bytes(coded) > DATA_BYTES_MAX);
        let mut parts: [Draft; 2] = Default::default();
        if let Piece::Block { node, .. } = *self.chain.get(at) {
            let view = self.block(room.reading(), node);
            if large {
                cells_from(view, 0).take(index).for_each(|cell| parts[0].push_cell(view, cell));
                cells_from(view, index + old).for_each(|cell| parts[1].push_cell(view, cell));
            } else {
                parts[0] = draft_with(view, index, old, coded.as_ref());
            }
        } else if let (Some(coded), false) = (&coded, large) {
            parts[0].push(coded);
        }
        self.new_blocks(room, &parts[0], pieces)?;
        if let (Some(element), true) = (new, large) {
            pieces.push(self.new_large(room, element)?);
        }
        self.new_blocks(room, &parts[1], pieces)?;
        // A large element before which another one is put stays where it is.
        if old == 0
            && let piece @ Piece::Large { .. } = *self.chain.get(at)
        {
            pieces.push(piece);
        }
        Ok(())
    }

    /// Blocks of the elements of a draft.
    fn new_blocks(
        &mut self,
        room: &mut Room<'_>,
        draft: &Draft,
        pieces: &mut Vec<Piece>,
    ) -> Result<(), Full> {
        if draft.len() == 0 {
            return Ok(());
        }
        if draft.bytes() > BLOCK_BYTES_MAX || draft.len() > BLOCK_ELEMENTS_MAX {
            let [first, second] = draft.split();
            self.new_blocks(room, &first, pieces)?;
            return self.new_blocks(room, &second, pieces);
        }
        let (node, size) = self.nodes.allocate(room, draft.bytes())?;
        let bytes = room.heap.bytes_mut(self.nodes.handle(node), size);
        draft.write(bytes, stamp(room.now));
        let view = Block(bytes);
        let listpack: u64 = view.cells().map(|cell| entry_bytes(view.element(cell))).sum();
        pieces.push(Piece::Block { node, count: draft.len() as u16, listpack: listpack as u32 });
        Ok(())
    }

    /// Puts pieces in the place of the one at `at`, and frees that, unless it is among them.
    fn put_pieces(&mut self, room: &mut Room<'_>, at: At, pieces: &[Piece]) {
        let old = *self.chain.get(at);
        self.listpack_bytes += pieces.iter().map(Piece::listpack).sum::<u64>();
        self.listpack_bytes -= old.listpack();
        if !pieces.contains(&old) {
            self.free_piece(room, old);
        }
        let Some((first, others)) = pieces.split_first() else {
            self.chain.remove(at);
            return;
        };
        self.chain.update(at, |piece| *piece = *first);
        let mut last = at;
        for piece in others {
            last = self.chain.insert_after(last, *piece);
        }
        self.join(room, last);
    }

    /// Puts a block of these elements in the place of the one at `at`: none if there are none.
    fn replace_block(&mut self, room: &mut Room<'_>, at: At, draft: &Draft) -> Result<(), Full> {
        let mut pieces = Vec::new();
        let made = self.new_blocks(room, draft, &mut pieces);
        match made {
            Ok(()) => self.put_pieces(room, at, &pieces),
            Err(_) => pieces.into_iter().for_each(|piece| self.free_piece(room, piece)),
        }
        made
    }

    /// Joins a block that has become small with a neighbour, if that has room.
    fn join(&mut self, room: &mut Room<'_>, at: At) {
        let Piece::Block { node, .. } = *self.chain.get(at) else { return };
        let is_away = |node| self.nodes.reference_at(room.heap, node).is_some();
        if is_away(node) || self.block(room.reading(), node).bytes() > LONELY_BYTES_MAX {
            return;
        }
        let neighbours =
            [self.chain.previous(at).map(|left| (left, at)), self.chain.next(at).map(|right| (at, right))];
        for (left, right) in neighbours.into_iter().flatten() {
            let (Piece::Block { node: first, .. }, Piece::Block { node: second, .. }) =
                (*self.chain.get(left), *self.chain.get(right))
            else {
                continue;
            };
            // Blocks that are not in memory stay as they are.
            if is_away(first) || is_away(second) {
                continue;
            }
            let (first, second) = (self.block(room.reading(), first), self.block(room.reading(), second));
            let mut draft = Draft::default();
            // Columns may have to be opened: a byte an element.
            let bytes = first.bytes() + second.bytes() + first.count() + second.count();
            if bytes > JOINED_BYTES_MAX || first.count() + second.count() > BLOCK_ELEMENTS_MAX {
                continue;
            }
            for view in [first, second] {
                view.cells().for_each(|cell| draft.push_cell(view, cell));
            }
            let mut pieces = Vec::new();
            // Without memory for a block of both they stay two.
            if self.new_blocks(room, &draft, &mut pieces).is_ok() {
                let gone = [*self.chain.get(left), *self.chain.get(right)];
                self.chain.update(left, |piece| *piece = pieces[0]);
                self.chain.remove(right);
                gone.into_iter().for_each(|piece| self.free_piece(room, piece));
            }
            return;
        }
    }
}

/// The cells of a block from element `index` on.
fn cells_from(view: Block<'_>, index: usize) -> impl Iterator<Item = block::Cell> {
    let mut next = (index < view.count()).then(|| (index, view.get(index)));
    std::iter::from_fn(move || {
        let (index, cell) = next?;
        next = view.next(index, cell).map(|cell| (index + 1, cell));
        Some(cell)
    })
}

/// The elements of a block; `old` of them from `index` on become `new`, if there is one.
fn draft_with(view: Block<'_>, index: usize, old: usize, new: Option<&Coded<'_>>) -> Draft {
    let mut draft = Draft::default();
    cells_from(view, 0).take(index).for_each(|cell| draft.push_cell(view, cell));
    if let Some(coded) = new {
        draft.push(coded);
    }
    cells_from(view, index + old).for_each(|cell| draft.push_cell(view, cell));
    draft
}
