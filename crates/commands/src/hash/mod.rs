//! The group `hash`.

mod change;
mod expiry;
mod read;
mod scan;
mod timed;

use crate::spec::Command;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, Edited, Entry, EventClass, Full, HashView, Key, Value};
use isotherm_resp::{Args, errors};
use isotherm_stdx::parse_i64;

pub const COMMANDS: &[Command<Handler>] = &[
    change::HDEL,
    change::HGETDEL,
    change::HINCRBY,
    change::HINCRBYFLOAT,
    change::HMSET,
    change::HSET,
    change::HSETNX,
    expiry::HEXPIRE,
    expiry::HEXPIREAT,
    expiry::HEXPIRETIME,
    expiry::HPERSIST,
    expiry::HPEXPIRE,
    expiry::HPEXPIREAT,
    expiry::HPEXPIRETIME,
    expiry::HPTTL,
    expiry::HTTL,
    read::HEXISTS,
    read::HGET,
    read::HGETALL,
    read::HKEYS,
    read::HLEN,
    read::HMGET,
    read::HSTRLEN,
    read::HVALS,
    scan::HRANDFIELD,
    scan::HSCAN,
    timed::HGETEX,
    timed::HSETEX,
];

const NUM_FIELDS: &str = "ERR numfields should be greater than 0 and match the provided number of fields";

/// The hash that was found, if it is one.
#[inline]
fn hash(found: Option<Entry<'_>>) -> Result<Option<HashView<'_>>, &'static str> {
    match found.map(|entry| entry.value) {
        None => Ok(None),
        Some(Value::Hash(view)) => Ok(Some(view)),
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

impl Call<'_, '_, '_> {
    fn hash_event(&mut self, name: &'static str, key: &Key<'_>) {
        self.event(EventClass::Hash, name, key);
    }
}

/// Checks `numfields` at `at` and the fields after it, and returns where the fields begin.
fn fields_at(args: Args<'_>, at: usize, step: usize, mismatch: &'static str) -> Result<usize, &'static str> {
    let count = args.try_get(at).and_then(parse_i64).ok_or(errors::NOT_AN_INTEGER)?;
    let given = args.len() - at - 1;
    // COMPAT(hashes): HSETEX refuses a `numfields` near -2^63; in Valkey twice that number overflows and may
    // match the arguments. Why: a negative count matches nothing.
    let matches = usize::try_from(count).is_ok_and(|n| n > 0 && n.checked_mul(step) == Some(given));
    if matches { Ok(at + 1) } else { Err(mismatch) }
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
