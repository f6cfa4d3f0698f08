//! Part of the values of its keys that a command needs: nothing, their length, some elements, or all.
//!
//! ```text
//!                                       of a string      of a collection
//! OW, RM                  SET DEL       nothing          nothing
//! RO without ACCESS       STRLEN HLEN   nothing          length; elements if arguments name some (HEXISTS)
//! RO                      GET SMEMBERS  all              all; elements if arguments name some (HGET, LRANGE)
//! RW                      APPEND SADD   all              elements
//! ```
//! The need follows from the flags of a key, the group and the required arguments. A declaration states any
//! other: TTL "accesses" a value, and needs nothing of it. A value that is not in memory is fetched as
//! far as it is needed.

use super::{Argument, ArgumentKind, Group, KeyFlags, Spec};
use isotherm_resp::Args;

/// Each includes those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Need {
    /// No more than what stays in memory: the key, its existence, type, encoding, expiry and last access, and
    /// the length of a string.
    Nothing,
    /// Number of elements. For a large collection that is in memory.
    Length,
    /// Elements that are named, at an end, in a range, or drawn.
    Elements,
    All,
}

/// Source of the need in a declaration.
#[derive(Clone, Copy, Debug)]
pub enum NeedFrom {
    /// Flags of the keys, the group and the arguments of the command.
    KeyFlags,
    /// Stated need, for each key that is not merely overwritten.
    Stated(Need),
    /// Need for each key, derived from the arguments of the call.
    Arguments(fn(Args<'_>) -> Need),
}

impl Spec {
    /// Returns the need of a call for a key with these flags (those of the call, if they vary).
    pub fn need_of(&self, flags: KeyFlags, args: Args<'_>) -> Need {
        match self.need {
            NeedFrom::Arguments(need) => need(args),
            NeedFrom::Stated(need) if !flags.has(KeyFlags::OW) => need,
            NeedFrom::Stated(_) | NeedFrom::KeyFlags => self.derived_need(flags),
        }
    }

    /// The most that any call needs of any of its keys.
    pub fn need_max(&self) -> Need {
        match self.need {
            NeedFrom::Arguments(_) => Need::All,
            NeedFrom::Stated(need) => need,
            NeedFrom::KeyFlags => {
                let keys = self.key_specs.iter().filter(|keys| !keys.flags.has(KeyFlags::NOT_KEY));
                keys.map(|keys| self.derived_need(keys.flags)).max().unwrap_or(Need::Nothing)
            }
        }
    }

    fn derived_need(&self, flags: KeyFlags) -> Need {
        if !flags.has(KeyFlags::RO.or(KeyFlags::RW)) {
            return Need::Nothing;
        }
        use Group::{Geo, Hash, List, Set, SortedSet, Stream};
        let is_collection = matches!(self.group, List | Hash | Set | SortedSet | Stream | Geo);
        let names_part = self.arguments.iter().any(names_part);
        if flags.has(KeyFlags::RO) && !flags.has(KeyFlags::ACCESS) && !names_part {
            return if is_collection { Need::Length } else { Need::Nothing };
        }
        if is_collection && (flags.has(KeyFlags::RW) || names_part) { Need::Elements } else { Need::All }
    }
}

/// Returns whether an argument other than the keys says which elements are meant.
fn names_part(argument: &Argument) -> bool {
    !argument.optional
        && match argument.kind {
            ArgumentKind::Key | ArgumentKind::PureToken => false,
            ArgumentKind::Block => argument.arguments.iter().any(names_part),
            _ => argument.name != "numkeys",
        }
}
