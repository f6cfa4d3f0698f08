//! Waiting: what a blocking command says when there is nothing for it yet.
//!
//! Such a command is one handler. If there is something, it is the command without `B`; if not, it returns
//! `call.wait_for(...)`, and is run again, from the start, when one of its keys was changed:
//!
//! ```text
//! BLPOP a b 5     nothing -> Block { list, a b, in 5 s } ...  LPUSH b x  -> BLPOP a b 5 -> b x
//! ```
//! Then it sees the keys that the pushing client has locked (`Call::reaches`); the others are as good as
//! absent. A command that needs two of them (BLMOVE) is run with both or not at all.

use crate::{Call, Outcome};
use isotherm_keyspace::{Key, Type, UnixMs};
use isotherm_resp::{ArgsBuf, errors};
use isotherm_stdx::{LongDouble, parse_i64};
use std::ops::Range;

/// Conditions that end the wait of a command.
#[derive(Debug)]
pub struct Wait {
    /// Only a key of this type is worth a try.
    pub kind: Type,
    /// The arguments that are the keys.
    pub keys: Range<usize>,
    /// Moment at which the wait ends; `None` for no limit.
    pub deadline: Option<UnixMs>,
    /// The absence of a key is worth a try too.
    pub on_removal: bool,
    /// Request that is run after the wait, if not this one: for XREAD, with the id that `$` meant.
    pub instead: Option<ArgsBuf>,
}

const OUT_OF_RANGE: &str = "ERR timeout is out of range";

impl<'c> Call<'c, '_, '_> {
    /// Lets the client wait, since no result is available. Allowed only if `may_wait`; otherwise the command
    /// answers as if its time were over.
    #[cold]
    pub fn wait_for(&self, wait: Wait) -> Outcome {
        assert!(self.may_wait, "a client that may not wait is answered");
        Outcome::Block(Box::new(wait))
    }

    /// Returns whether the key may be looked at. Only the keys of a command that is run again may be out of
    /// reach.
    pub fn reaches(&self, key: &Key<'_>) -> bool {
        self.txn.holds(key)
    }

    /// The moment that a timeout in seconds means; `None` for 0, which is for ever.
    pub fn deadline_of_seconds(&self, at: usize) -> Result<Option<UnixMs>, &'static str> {
        let seconds =
            LongDouble::parse(self.args.get(at)).ok_or("ERR timeout is not a float or out of range")?;
        self.deadline_in(seconds.ceil_thousandfold().ok_or(OUT_OF_RANGE)?)
    }

    /// Returns the moment that a timeout in milliseconds means; `None` for 0, which is no limit.
    pub fn deadline_of_milliseconds(&self, at: usize) -> Result<Option<UnixMs>, &'static str> {
        let ms = parse_i64(self.args.get(at)).ok_or("ERR timeout is not an integer or out of range")?;
        self.deadline_in(ms)
    }

    fn deadline_in(&self, ms: i64) -> Result<Option<UnixMs>, &'static str> {
        match ms {
            ..0 => Err(errors::TIMEOUT_NEGATIVE),
            0 => Ok(None),
            _ => self.txn.now().get().checked_add(ms).map(|at| Some(UnixMs(at))).ok_or(OUT_OF_RANGE),
        }
    }
}
