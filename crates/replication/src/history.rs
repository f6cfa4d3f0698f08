//! The sequence of changes that this node has, and the places at which others may continue to read it.
//!
//! ```text
//!   id        A A A A A A A A|B B B B B B B ...        this node was promoted at |: it goes on under a name of its own
//!   offset    0              ^                         a replica that has only bytes of A, up to ^ at most, may continue
//!                  second: (A, ^)
//! ```
//! A name and an offset stand for a state: two nodes with equal names and offsets have the same data. So a
//! node that begins to write changes of its own takes a new name, and keeps the one before, with its end, for
//! nodes that followed the same primary (PSYNC2). Offsets here are counts of bytes; PSYNC asks for the first
//! byte that is wanted, which is one more.
//!
//! Invariant: the second name is not the first.

use crate::ReplId;
use isotherm_log::LogOffset;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    id: ReplId,
    /// The name before, and where it ends.
    second: Option<(ReplId, LogOffset)>,
}

/// Continuation of a replica without a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Continuation {
    pub from: LogOffset,
    /// Current name of the history, which the replica may not know yet.
    pub id: ReplId,
}

/// Why a replica has to begin with a snapshot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Request for a history that this node does not have.
    OtherHistory,
    /// Request for more of the previous history than this node took over.
    BeyondSecond { end: LogOffset },
    /// Request for a part of the log that is no longer here, or never was.
    Gone { first: LogOffset, end: LogOffset },
}

impl History {
    pub fn new(id: ReplId) -> History {
        History { id, second: None }
    }

    pub fn id(&self) -> ReplId {
        self.id
    }

    /// The name before, and where it ends.
    pub fn second(&self) -> Option<(ReplId, LogOffset)> {
        self.second
    }

    /// Begins a new history named `id`, because this node writes changes of its own from `end` on. `id` was
    /// never used before.
    pub fn promote(&mut self, id: ReplId, end: LogOffset) {
        assert!(id != self.id, "a name is used once");
        self.second = Some((self.id, end));
        self.id = id;
    }

    /// The node follows a primary that sends all its data.
    pub fn replace(&mut self, id: ReplId) {
        *self = History::new(id);
    }

    /// Takes over the name of the primary's history. With that primary this node continues at `end`.
    pub fn rename(&mut self, id: ReplId, end: LogOffset) {
        if id != self.id {
            self.promote(id, end);
        }
    }

    /// Decides whether a replica that has all of `id` before `from` may continue there. `first..=end` is the
    /// part of the log that can be read.
    pub fn resume(
        &self,
        id: ReplId,
        from: LogOffset,
        first: LogOffset,
        end: LogOffset,
    ) -> Result<Continuation, Refusal> {
        match self.second {
            _ if id == self.id => {}
            Some((second, second_end)) if id == second => {
                if from > second_end {
                    return Err(Refusal::BeyondSecond { end: second_end });
                }
            }
            _ => return Err(Refusal::OtherHistory),
        }
        match first <= from && from <= end {
            true => Ok(Continuation { from, id: self.id }),
            false => Err(Refusal::Gone { first, end }),
        }
    }

    pub fn check_invariants(&self) {
        assert!(self.second.is_none_or(|(id, _)| id != self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u8 = 1;
    const B: u8 = 2;
    const C: u8 = 3;

    fn id(name_byte: u8) -> ReplId {
        ReplId::new([name_byte; 20])
    }

    /// A node that followed A to 100 and writes as B since.
    fn promoted() -> History {
        let mut history = History::new(id(A));
        history.promote(id(B), LogOffset(100));
        history.check_invariants();
        history
    }

    fn resume(history: &History, name_byte: u8, from: u64) -> Result<Continuation, Refusal> {
        history.resume(id(name_byte), LogOffset(from), LogOffset(50), LogOffset(200))
    }

    #[test]
    fn siblings_continue_up_to_the_promotion() {
        let history = promoted();
        let continues = |from| Ok(Continuation { from: LogOffset(from), id: id(B) });
        assert_eq!(resume(&history, A, 100), continues(100));
        assert_eq!(resume(&history, A, 101), Err(Refusal::BeyondSecond { end: LogOffset(100) }));
        assert_eq!(resume(&history, B, 200), continues(200));
        let gone = Err(Refusal::Gone { first: LogOffset(50), end: LogOffset(200) });
        assert_eq!(resume(&history, B, 201), gone);
        assert_eq!(resume(&history, A, 49), gone);
        assert_eq!(resume(&history, C, 100), Err(Refusal::OtherHistory));
    }

    #[test]
    fn a_new_name_of_the_same_primary_keeps_the_one_before() {
        let mut history = promoted();
        history.rename(id(B), LogOffset(150));
        assert_eq!(history, promoted(), "nothing new");
        history.rename(id(C), LogOffset(150));
        assert_eq!(history.second(), Some((id(B), LogOffset(150))));
        assert_eq!(resume(&history, A, 80), Err(Refusal::OtherHistory), "two names are kept");
        history.replace(id(A));
        assert_eq!(history.second(), None);
    }
}
