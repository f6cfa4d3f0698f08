//! The group `set`.

mod algebra;
mod member;
mod random;
mod union;

use crate::spec::Command;
use crate::{Handler, Outcome};
use isotherm_keyspace::{EditError, Edited, Entry, Full, SetView, Value};
use isotherm_resp::errors;

pub const COMMANDS: &[Command<Handler>] = &[
    member::SADD,
    member::SCARD,
    algebra::SDIFF,
    algebra::SDIFFSTORE,
    algebra::SINTER,
    algebra::SINTERCARD,
    algebra::SINTERSTORE,
    member::SISMEMBER,
    member::SMEMBERS,
    member::SMISMEMBER,
    member::SMOVE,
    random::SPOP,
    random::SRANDMEMBER,
    member::SREM,
    random::SSCAN,
    algebra::SUNION,
    algebra::SUNIONSTORE,
];

/// The set that was found, if it is one.
#[inline]
fn set(found: Option<Entry<'_>>) -> Result<Option<SetView<'_>>, &'static str> {
    match found.map(|entry| entry.value) {
        None => Ok(None),
        Some(Value::Set(view)) => Ok(Some(view)),
        Some(_) => Err(errors::WRONG_TYPE),
    }
}

/// Returns the result of an edit whose closure may run out of memory, or the error to reply.
fn finished<R>(edited: Result<Edited<Result<R, Full>>, EditError>) -> Result<R, &'static str> {
    let edited = edited.map_err(|error| match error {
        EditError::WrongType => errors::WRONG_TYPE,
        EditError::Full => errors::NO_MEMORY_FOR_KEY,
    })?;
    edited.result.map_err(|_| errors::NO_MEMORY_FOR_KEY)
}

/// Ends with the error.
macro_rules! or_fail {
    ($call:expr, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(error) => return $call.fail(error),
        }
    };
}
use or_fail;

fn done() -> Outcome {
    Outcome::Done
}
