//! Elements leave anywhere: LREM LTRIM.

use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{EditError, End, EventClass, Lookup};
use isotherm_resp::errors;
use isotherm_stdx::parse_i64;

pub const LREM: Command<Handler> = Command::new(
    Spec {
        name: "lrem",
        summary: "Removes elements that equal a value, all or some from either end. Returns how many.",
        group: Group::List,
        complexity: "O(N+M), N the length of the list, M the elements removed",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::integer("count"), Argument::string("element")],
        ..Spec::BASE
    },
    lrem,
);

fn lrem(call: &mut Call<'_, '_, '_>) -> Outcome {
    let (key, text) = (call.key(1), call.args.get(3));
    let Some(count) = parse_i64(call.args.get(2)) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    if count == i64::MIN {
        return call.fail(errors::out_of_range_between(-i64::MAX, i64::MAX));
    }
    if call.txn.find(call.db, &key, Lookup::Write).is_none() {
        call.reply.integer(0);
        return Outcome::Done;
    }
    let from = if count < 0 { End::Back } else { End::Front };
    let count = if count == 0 { u64::MAX } else { count.unsigned_abs() };
    let edited =
        call.txn.edit_list(call.db, &key, &call.settings.limits, |list| list.remove_equal(from, count, text));
    let edited = match edited {
        Ok(edited) => edited,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    let Ok(removed) = edited.result else { return call.out_of_memory() };
    if removed > 0 {
        call.wrote(EventClass::List, "lrem", &key, removed);
    }
    call.reply.integer(removed as i64);
    Outcome::Done
}

pub const LTRIM: Command<Handler> = Command::new(
    Spec {
        name: "ltrim",
        summary: "Cuts a list down to the elements from one index to another, both included.",
        group: Group::List,
        complexity: "O(N), N the elements removed",
        arity: 4,
        flags: Flags::WRITE,
        acl: AclCategories::LIST,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::DELETE))],
        arguments: &[Argument::key("key", 0), Argument::integer("start"), Argument::integer("stop")],
        ..Spec::BASE
    },
    ltrim,
);

fn ltrim(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let (Some(start), Some(stop)) = (parse_i64(call.args.get(2)), parse_i64(call.args.get(3))) else {
        return call.fail(errors::NOT_AN_INTEGER);
    };
    if call.txn.find(call.db, &key, Lookup::Write).is_none() {
        call.reply.ok();
        return Outcome::Done;
    }
    let edited = call.txn.edit_list(call.db, &key, &call.settings.limits, |list| {
        let len = list.len();
        let kept = super::range(start, stop, len).unwrap_or(len..len);
        let trimmed = len - (kept.end - kept.start);
        if trimmed > 0 {
            list.trim(kept)?;
        }
        Ok::<u64, EditError>(trimmed)
    });
    let edited = match edited {
        Ok(edited) => edited,
        Err(EditError::WrongType) => return call.fail(errors::WRONG_TYPE),
        Err(EditError::Full) => return call.out_of_memory(),
    };
    let Ok(trimmed) = edited.result else { return call.out_of_memory() };
    call.wrote(EventClass::List, "ltrim", &key, trimmed);
    call.reply.ok();
    Outcome::Done
}
