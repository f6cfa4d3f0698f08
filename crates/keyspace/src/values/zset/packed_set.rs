//! Operations of a sorted set on its packed form.

use super::ZsetBound;
use crate::layout::packed::{Cell, Element, Packed, TextRoom};

/// A packed sorted set to read: rows of (member, score).
#[derive(Clone, Copy)]
pub(super) struct PackedSet<'a>(pub Packed<'a>);

impl<'a> PackedSet<'a> {
    pub fn len(self) -> usize {
        self.0.len() / 2
    }

    /// (member, score) in order.
    pub fn rows(self) -> impl Iterator<Item = (Element<'a>, f64)> + use<'a> {
        let mut cells = self.0.cells();
        std::iter::from_fn(move || {
            let member = cells.next()?.element();
            Some((member, cells.next().expect("a score follows each member").score()))
        })
    }

    /// The row of a member, and its score.
    pub fn find(self, member: &[u8]) -> Option<(usize, f64)> {
        let (index, score) = self.0.find_row(0, Element::of(member))?;
        Some((index / 2, score.map(Cell::score).expect("a score follows each member")))
    }

    /// Rows in front of a boundary.
    pub fn rank_of(self, bound: ZsetBound<'_>) -> usize {
        let mut room = TextRoom::default();
        let is_before = |(member, score): &(Element<'a>, f64)| match bound {
            ZsetBound::Start => false,
            ZsetBound::End => true,
            ZsetBound::BeforeScore(bound) => *score < bound,
            ZsetBound::AfterScore(bound) => *score <= bound,
            ZsetBound::BeforeMember(bound) => text(*member, &mut room) < bound,
            ZsetBound::AfterMember(bound) => text(*member, &mut room) <= bound,
        };
        self.rows().take_while(is_before).count()
    }

    /// Returns the row at which a member with a score belongs.
    pub fn place_of(self, member: &[u8], score: f64) -> usize {
        let mut room = TextRoom::default();
        let mut cells = self.0.cells();
        let mut row = 0;
        while let (Some(other), Some(other_score)) = (cells.next(), cells.next().map(Cell::score)) {
            let is_before =
                other_score < score || other_score == score && text(other.element(), &mut room) < member;
            if !is_before {
                break;
            }
            row += 1;
        }
        row
    }
}

/// An element's text, in a room that is used again.
fn text<'r>(element: Element<'r>, room: &'r mut TextRoom) -> &'r [u8] {
    element.text(room)
}
