//! Commands on a single bit: SETBIT GETBIT.

use super::place::{OFFSET_ERROR, bit_at, bit_offset, set_bit};
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, EventClass, Lookup};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub const SETBIT: Command<Handler> = Command::new(
    Spec {
        name: "setbit",
        summary: "Sets a bit of a string, which grows as needed. Returns the previous bit.",
        since: "2.2.0",
        group: Group::Bitmap,
        complexity: "O(1)",
        arity: 4,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE))],
        arguments: &[Argument::key("key", 0), Argument::integer("offset"), Argument::integer("value")],
        ..Spec::BASE
    },
    setbit,
);

fn setbit(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(offset) = bit_offset(call, 2, None) else {
        return call.fail(OFFSET_ERROR);
    };
    let Some(on) = parse_i64(call.args.get(3)).filter(|bit| matches!(bit, 0 | 1)) else {
        return call.fail("ERR bit is not an integer or out of range");
    };
    let (key, on) = (call.key(1), on == 1);
    let found = match call.txn.find(call.db, &key, Lookup::Write) {
        None => None,
        Some(entry) => {
            let mut room = text::NO_TEXT;
            let Some(text) = text::text(entry.value, &mut room) else {
                return call.fail(errors::WRONG_TYPE);
            };
            Some((text.len(), bit_at(text, offset), entry.encoding() == Encoding::Raw))
        }
    };
    let len_min = (offset >> 3) as usize + 1;
    let (old_len, was_on, is_raw) = found.unwrap_or((0, false, false));
    let len = old_len.max(len_min);
    let changes = old_len < len || was_on != on;
    if changes || !is_raw {
        match call.txn.room(call.db, &key, len) {
            Ok(bytes) => set_bit(bytes, offset, on),
            Err(_) => return call.out_of_memory(),
        }
    }
    if changes {
        call.txn.touch(call.db, &key);
        call.wrote(EventClass::String, "setbit", &key, 1);
    }
    call.reply.integer(i64::from(was_on));
    Outcome::Done
}

pub const GETBIT: Command<Handler> = Command::new(
    Spec {
        name: "getbit",
        summary: "Returns the bit at an offset; 0 beyond the end and for an absent key.",
        since: "2.2.0",
        group: Group::Bitmap,
        complexity: "O(1)",
        arity: 3,
        flags: Flags::READONLY.or(Flags::FAST),
        acl: AclCategories::BITMAP,
        key_specs: &[KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS))],
        arguments: &[Argument::key("key", 0), Argument::integer("offset")],
        ..Spec::BASE
    },
    getbit,
);

fn getbit(call: &mut Call<'_, '_, '_>) -> Outcome {
    let Some(offset) = bit_offset(call, 2, None) else {
        return call.fail(OFFSET_ERROR);
    };
    let key = call.key(1);
    let found = call.txn.find(call.db, &key, Lookup::Read).map(|entry| {
        let mut room = text::NO_TEXT;
        text::text(entry.value, &mut room).map(|text| bit_at(text, offset))
    });
    let on = match found {
        None => false,
        Some(Some(on)) => on,
        Some(None) => return call.fail(errors::WRONG_TYPE),
    };
    call.reply.integer(i64::from(on));
    Outcome::Done
}
