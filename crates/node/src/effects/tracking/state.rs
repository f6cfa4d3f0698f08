//! Tracking of one session: its mode, the session that is notified, and the prefixes.

use std::collections::BTreeSet;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Every key that it reads.
    #[default]
    Reads,
    /// Keys of the command after CLIENT CACHING YES.
    OptIn,
    /// All but those of the command after CLIENT CACHING NO.
    OptOut,
    /// Every key with one of its prefixes that any client changes.
    Broadcast,
}

#[derive(Default, Debug)]
pub struct Tracking {
    pub mode: Mode,
    /// True if the session gets no notice of its own changes.
    pub noloop: bool,
    /// The session that is notified in its place; 0 for none.
    pub redirect: u64,
    /// True if the session that is notified instead is gone.
    pub is_broken: bool,
    /// CLIENT CACHING was said: it holds for the next command or transaction.
    pub caching: bool,
    pub prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracking {
    /// Returns the bytes that tracking takes, without the names themselves, as Valkey counts them. Nodes of
    /// the tree are two thirds full.
    pub fn bytes(&self) -> usize {
        const PLACE_BYTES: usize = size_of::<Box<[u8]>>() * 3 / 2;
        size_of::<Tracking>() + self.prefixes.len() * PLACE_BYTES
    }

    pub fn notes_reads(&self) -> bool {
        match self.mode {
            Mode::Reads => true,
            Mode::OptIn => self.caching,
            Mode::OptOut => !self.caching,
            Mode::Broadcast => false,
        }
    }
}
