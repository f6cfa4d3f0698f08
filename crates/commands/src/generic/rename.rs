//! A key gets another name: RENAME RENAMENX.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EventClass, Lookup};
use isotherm_resp::errors;

pub const RENAME: Command<Handler> = Command::new(
    Spec {
        name: "rename",
        summary: "Gives a key another name and overwrites a key of that name. An error for an absent key.",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE,
        acl: AclCategories::KEYSPACE,
        // On disk a value is stored under its key's name.
        need: NeedFrom::Stated(Need::All),
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::OW.or(KeyFlags::UPDATE)),
        ],
        arguments: &[Argument::key("key", 0), Argument::key("newkey", 1)],
        ..Spec::BASE
    },
    rename,
);

fn rename(call: &mut Call<'_, '_, '_>) -> Outcome {
    match move_name(call, true) {
        Ok(_) => call.reply.ok(),
        Err(error) => return call.fail(error),
    }
    Outcome::Done
}

pub const RENAMENX: Command<Handler> = Command::new(
    Spec {
        name: "renamenx",
        summary: "Gives a key another name that is free. Returns 0 for a taken one; an error for an absent key.",
        complexity: "O(1)",
        arity: 3,
        flags: Flags::WRITE.or(Flags::FAST),
        acl: AclCategories::KEYSPACE,
        // On disk a value is stored under its key's name.
        need: NeedFrom::Stated(Need::All),
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE)),
            KeySpec::one(2, KeyFlags::OW.or(KeyFlags::INSERT)),
        ],
        history: &[("3.2.0", "The two names may be the same.")],
        arguments: &[Argument::key("key", 0), Argument::key("newkey", 1)],
        ..Spec::BASE
    },
    renamenx,
);

fn renamenx(call: &mut Call<'_, '_, '_>) -> Outcome {
    match move_name(call, false) {
        Ok(moved) => call.reply.integer(i64::from(moved)),
        Err(error) => return call.fail(error),
    }
    Outcome::Done
}

/// Returns whether the key has moved: not onto itself, nor, unless `replace`, onto another.
fn move_name(call: &mut Call<'_, '_, '_>, replace: bool) -> Result<bool, &'static str> {
    let (from, to) = (call.key(1), call.key(2));
    if call.txn.find(call.db, &from, Lookup::Write).is_none() {
        return Err(errors::NO_SUCH_KEY);
    }
    if from.bytes == to.bytes {
        return Ok(false);
    }
    // A value that cannot be read is there all the same.
    let occupied = call.txn.has(call.db, &to, Lookup::Write);
    if occupied && !replace {
        return Ok(false);
    }
    call.txn.rename((call.db, &from), (call.db, &to)).map_err(|_| errors::NO_MEMORY_FOR_KEY)?;
    call.event(EventClass::Generic, "rename_from", &from);
    call.wrote(EventClass::Generic, "rename_to", &to, 1);
    Ok(true)
}
