//! A sorted set: members in the order of (score, member), each with one score.
//!
//! ```text
//!   small   packed: [member, score] x n in order           5 members of 8 B with whole scores: 1 + 10 + 40 + 5 = 56 B
//!   large   `tree`: leaves in order and a member index
//! ```
//!
//! Ranges are ranks: a boundary of any kind is turned into a count of the members in front of it, and a range
//! is read from one rank on. A set reports the encoding listpack as long as it has stayed within the limits
//! that the configuration gives for one, wherever it is stored.

mod edit;
mod packed_set;
mod tree;
mod view;

pub use edit::{ZsetEdit, ZsetUpdate};
pub use view::ZsetView;

pub(crate) use edit::tree_from;
pub(crate) use tree::{ZsetTree, read_payload};

/// Boundary of a range: its beginning or its end.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ZsetBound<'a> {
    /// Before the first member.
    Start,
    /// After the last member.
    End,
    BeforeScore(f64),
    AfterScore(f64),
    /// Among members of equal scores.
    BeforeMember(&'a [u8]),
    AfterMember(&'a [u8]),
}

impl ZsetBound<'_> {
    /// Returns whether the boundary lies after a member, by the member alone.
    fn is_behind(self, member: &[u8]) -> bool {
        match self {
            ZsetBound::Start => false,
            ZsetBound::End => true,
            ZsetBound::BeforeMember(bound) => member < bound,
            ZsetBound::AfterMember(bound) => member <= bound,
            ZsetBound::BeforeScore(_) | ZsetBound::AfterScore(_) => unreachable!("it is none by member"),
        }
    }
}
