//! Question about a command, and the answer.

use crate::key_patterns::Access;

/// A command that is to run.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    pub command: u16,
    /// Everyone may run it (AUTH, HELLO): only its databases and keys are asked about.
    pub is_free: bool,
    /// The argument after its name.
    pub first_argument: Option<&'a [u8]>,
    pub databases: AskedDatabases<'a>,
    pub keys: &'a [AskedKey<'a>],
    /// Each with its place.
    pub channels: &'a [(usize, &'a [u8])],
    pub channels_are_patterns: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct AskedKey<'a> {
    pub at: usize,
    pub name: &'a [u8],
    pub access: Access,
}

/// The databases that a command touches.
#[derive(Clone, Copy, Debug)]
pub enum AskedDatabases<'a> {
    None,
    /// Database of the session.
    Current(u32),
    /// All databases; the value is how many there are.
    All(u32),
    /// Databases that the command names, each with its place, and then that of its session.
    Named {
        named: &'a [(usize, u32)],
        current: Option<u32>,
    },
}

/// Reason of a denial, in rising order: of the denials of several selectors the highest is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reason {
    Database,
    Command,
    Key,
    Channel,
}

/// Why a command may not run: what was denied, and at which argument (0: none of them). Of two, the greater
/// is reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Denial {
    pub reason: Reason,
    pub at: usize,
}
