//! Code of the four commands that pop from the first of several keys: LMPOP BLMPOP ZMPOP BZMPOP.
//!
//! ```text
//! [timeout] numkeys key [key ...] LEFT|RIGHT|MIN|MAX [COUNT count]
//! ```

use crate::call::is_word;
use crate::spec::{Begin, Find, KeyFlags, KeySpec};
use crate::wait::Wait;
use crate::{Call, Outcome};
use isotherm_keyspace::{Type, UnixMs};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;
use std::ops::Range;

/// The keys after `numkeys`, which stands at argument `at`.
pub const fn keys_behind(at: i32) -> KeySpec {
    KeySpec {
        notes: "",
        flags: KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
        begin: Begin::Index(at),
        find: Find::KeyNum { at: 0, first: 1, step: 1 },
    }
}

pub struct Several<E> {
    /// The arguments that are keys.
    pub keys: Range<usize>,
    pub end: E,
    pub count: u64,
}

impl<E> Several<E> {
    /// `numkeys` stands at argument `at`; `end_of` knows the words for the ends.
    pub fn parse(
        call: &Call<'_, '_, '_>,
        at: usize,
        end_of: impl Fn(&[u8]) -> Option<E>,
    ) -> Result<Several<E>, &'static str> {
        let args = call.args;
        let numkeys = parse_i64(args.get(at)).filter(|numkeys| *numkeys > 0);
        let numkeys = numkeys.ok_or("ERR numkeys should be greater than 0")?;
        let end_at = usize::try_from(numkeys).ok().and_then(|numkeys| numkeys.checked_add(at + 1));
        let end_at = end_at.ok_or(errors::SYNTAX)?;
        let end = args.try_get(end_at).and_then(end_of).ok_or(errors::SYNTAX)?;
        let mut count = None;
        let mut at_option = end_at + 1;
        while let Some(word) = args.try_get(at_option) {
            let value = args.try_get(at_option + 1).filter(|_| is_word(word, "COUNT") && count.is_none());
            let number = parse_i64(value.ok_or(errors::SYNTAX)?).filter(|number| *number > 0);
            count = Some(number.ok_or("ERR count should be greater than 0")? as u64);
            at_option += 2;
        }
        Ok(Several { keys: at + 1..end_at, end, count: count.unwrap_or(1) })
    }
}

impl Call<'_, '_, '_> {
    /// Waits for a value of this type at one of the keys, which are all absent. Replies null if waiting is
    /// not allowed.
    pub fn wait_for_one_of(&mut self, kind: Type, keys: Range<usize>, deadline: Option<UnixMs>) -> Outcome {
        if !self.may_wait {
            self.reply.null_array();
            return Outcome::Done;
        }
        self.wait_for(Wait { kind, keys, deadline, on_removal: false, instead: None })
    }
}
