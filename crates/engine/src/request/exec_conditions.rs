//! The conditions of EXEC: what has to be so at its moment, for its queue to run.
//!
//! ```text
//! EXEC [IFEQ key value | IFNE key value | NX key | XX key] ...      all of them, looked at under the locks of the queue
//! ```
//! A condition that does not hold ends the transaction as a watched key that has changed does. They leave no
//! trace: no hit or miss is counted, and no key is touched.

use isotherm_commands::call::is_word;
use isotherm_commands::spec::KeyFlags;
use isotherm_keyspace::{Db, Lookup, Txn, Type, Value};
use isotherm_resp::{Args, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};
use isotherm_stdx::steps;

#[derive(Clone, Copy)]
enum Wanted<'a> {
    Equal(&'a [u8]),
    Unlike(&'a [u8]),
    Absent,
    Present,
}

/// A condition's key is at `at`.
#[derive(Clone, Copy)]
struct Condition<'a> {
    at: usize,
    wanted: Wanted<'a>,
}

const SYNTAX: &str = "invalid check condition syntax";

/// The condition that begins at `at`, and where the next one does.
fn parse(args: Args<'_>, at: usize) -> Option<(Condition<'_>, usize)> {
    let word = args.get(at);
    let value = || args.try_get(at + 2);
    let (wanted, len) = match () {
        () if is_word(word, "IFEQ") => (Wanted::Equal(value()?), 3),
        () if is_word(word, "IFNE") => (Wanted::Unlike(value()?), 3),
        () if is_word(word, "NX") => (Wanted::Absent, 2),
        () if is_word(word, "XX") => (Wanted::Present, 2),
        () => return None,
    };
    args.try_get(at + 1)?;
    Some((Condition { at: at + 1, wanted }, at + len))
}

/// All of them; `None` if one is none.
fn parse_all(args: Args<'_>) -> Option<Vec<Condition<'_>>> {
    let (mut conditions, mut at) = (Vec::new(), 1);
    while at < args.len() {
        let (condition, next) = parse(args, at)?;
        conditions.push(condition);
        at = next;
    }
    Some(conditions)
}

/// Appends the positions of the conditions' keys; none if one of the arguments is no condition.
pub fn key_positions(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    let conditions = parse_all(args).unwrap_or_default();
    out.extend(conditions.iter().map(|condition| (condition.at, KeyFlags::RO.or(KeyFlags::ACCESS))));
}

/// Returns whether all conditions hold, or the error with which the transaction is aborted. The partitions of
/// their keys are held. Values that cannot be read are noted in `txn`.
pub fn hold(txn: &mut Txn<'_, '_>, db: Db, args: Args<'_>) -> Result<bool, &'static str> {
    let conditions = parse_all(args).ok_or(SYNTAX)?;
    for condition in conditions {
        steps::note(1);
        let key = txn.key(args.get(condition.at));
        let found = txn.find(db, &key, Lookup::Silent);
        let is_other = found.as_ref().is_some_and(|entry| entry.kind() != Type::String);
        let holds = match condition.wanted {
            Wanted::Absent => found.is_none(),
            Wanted::Present => found.is_some(),
            _ if is_other => return Err(errors::WRONG_TYPE),
            Wanted::Equal(value) => match found {
                Some(entry) => equals(entry.value, value)?,
                None => false,
            },
            Wanted::Unlike(value) => match found {
                Some(entry) => !equals(entry.value, value)?,
                None => true,
            },
        };
        if !holds {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equals(value: Value<'_>, expected: &[u8]) -> Result<bool, &'static str> {
    Ok(match value {
        Value::Int(int) => write_i64(int, &mut [0; I64_BYTES_MAX]) == expected,
        Value::Bytes(bytes) => bytes == expected,
        // EXEC had it read, and that has failed.
        Value::Cold(_) => return Err(errors::UNREADABLE),
        _ => unreachable!("its type was looked at"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::ArgsBuf;

    #[test]
    fn keys_of_conditions() {
        for (line, expected) in [
            ("EXEC", &[][..]),
            ("EXEC IFEQ a b", &[2]),
            ("EXEC ifeq a b NX c xx d IFNE NX XX", &[2, 5, 7, 9]),
            // Arguments that are no condition have no keys.
            ("EXEC IFEQ a", &[]),
            ("EXEC NX", &[]),
            ("EXEC NX a IFNE b", &[]),
            ("EXEC a", &[]),
        ] {
            let words: ArgsBuf = line.split(' ').map(str::as_bytes).collect();
            let mut found = Vec::new();
            key_positions(words.args(), &mut found);
            let found: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
            assert_eq!(found, expected, "{line}");
        }
    }
}
