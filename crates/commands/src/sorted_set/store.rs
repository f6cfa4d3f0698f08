//! A key becomes a sorted set that was computed, whatever it was before.

use crate::{Call, Outcome};
use isotherm_keyspace::{EventClass, Key};

pub(crate) type Scored = (Vec<u8>, f64);

/// Stores the members under `key`, or removes it if there are none, and replies how many there are. A store
/// counts as `changes`. Sources were read after `Txn::read_first`: if not all could be shown, the command
/// runs again.
pub(crate) fn store_members(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    members: &[Scored],
    event: &'static str,
    changes: u64,
) -> Outcome {
    if !call.txn.begin_changes() {
        return call.out_of_memory();
    }
    let existed = call.txn.clear(call.db, key);
    if members.is_empty() {
        call.result_is_empty(key, existed);
        call.reply.integer(0);
        return Outcome::Done;
    }
    let stored = call.txn.edit_zset(call.db, key, &call.settings.limits, |edit| {
        // In a tree from the first member on, if it comes to that: the packed form knows no score of -0.
        let longest = members.iter().map(|(member, _)| member.len()).max().unwrap_or(0);
        edit.expect(members.len(), longest)?;
        members.iter().try_for_each(|(member, score)| edit.set(member, *score).map(|_| ()))
    });
    if !matches!(&stored, Ok(edited) if edited.result == Ok(())) {
        return call.result_is_cut_short(key, existed);
    }
    call.wrote(EventClass::Zset, event, key, changes);
    call.reply.integer(members.len() as i64);
    Outcome::Done
}
