//! SUNIONSTORE with a large set among its sources: that one is taken over as it is, and the members of the
//! others are added.

use super::{finished, set};
use crate::Call;
use crate::texts::Texts;
use isotherm_keyspace::{Encoding, Full, Key, Lookup, SetView};
use std::ops::Range;

/// Members that are copied out of one set before they are added to another: some 100 KB.
const MEMBERS_AT_ONCE: u64 = 4096;

/// A union with too many members for a small form.
pub(super) struct Large {
    /// The argument that names the largest set.
    largest: usize,
    sources: Range<usize>,
}

/// Finds out whether a union of these sets, which the arguments `sources` name, is large. Then the parts of
/// them that are not in memory are noted.
pub(super) fn large(
    call: &mut Call<'_, '_, '_>,
    sets: &[(Option<u64>, usize)],
    sources: Range<usize>,
) -> Option<Large> {
    let &(len, largest) = sets.iter().max_by_key(|(len, _)| *len)?;
    let limits = &call.settings.limits;
    let small_max = limits.set_max_listpack_entries.max(limits.set_max_intset_entries) as u64;
    let key = call.key(largest);
    if len? <= small_max || view(call, &key)?.encoding() != Encoding::Hashtable {
        return None;
    }
    for at in sources.clone() {
        let key = call.key(at);
        view(call, &key).into_iter().for_each(|view| view.note_away());
    }
    Some(Large { largest, sources })
}

fn view<'c>(call: &'c mut Call<'_, '_, '_>, key: &Key<'_>) -> Option<SetView<'c>> {
    set(call.txn.find(call.db, key, Lookup::Silent)).ok().flatten()
}

/// Stores the union under the first key. Returns whether that was there, and how many members it has now.
pub(super) fn make(call: &mut Call<'_, '_, '_>, union: Large) -> (bool, Result<u64, Full>) {
    let Large { largest, sources } = union;
    let target = call.key(1);
    let is_largest = call.key(largest).bytes == target.bytes;
    // The target may be one of the smaller sources, and goes now.
    let mut own = Texts::default();
    if !is_largest && sources.clone().any(|at| call.key(at).bytes == target.bytes) {
        copy_members(call, &target, 0, u64::MAX, &mut own);
    }
    let existed = is_largest || call.txn.clear(call.db, &target);
    let others = sources.filter(|at| *at != largest);
    let done = unite(call, largest, others, &own);
    (existed, done.map(|()| view(call, &target).map_or(0, |view| view.len())))
}

/// Makes the target what `largest` is, and adds the members of the `others`, and those that the target had.
fn unite(
    call: &mut Call<'_, '_, '_>,
    largest: usize,
    others: impl Iterator<Item = usize>,
    own: &Texts,
) -> Result<(), Full> {
    let (db, target, source) = (call.db, call.key(1), call.key(largest));
    if source.bytes == target.bytes {
        call.txn.set_expiry(db, &target, None)?;
    } else if !call.txn.take_over(db, &source, &target)? {
        add_set(call, &source, &target)?;
    }
    add(call, &target, own)?;
    for at in others {
        let key = call.key(at);
        if key.bytes != target.bytes && key.bytes != source.bytes {
            add_set(call, &key, &target)?;
        }
    }
    Ok(())
}

fn add_set(call: &mut Call<'_, '_, '_>, from: &Key<'_>, target: &Key<'_>) -> Result<(), Full> {
    let (mut names, mut cursor) = (Texts::default(), 0);
    loop {
        names.clear();
        cursor = copy_members(call, from, cursor, MEMBERS_AT_ONCE, &mut names);
        add(call, target, &names)?;
        if cursor == 0 {
            return Ok(());
        }
    }
}

/// Copies about `count` members, from `cursor` on. Returns the next cursor, 0 at the end.
fn copy_members(
    call: &mut Call<'_, '_, '_>,
    from: &Key<'_>,
    cursor: u64,
    count: u64,
    names: &mut Texts,
) -> u64 {
    let Some(view) = view(call, from) else { return 0 };
    view.scan(cursor, count, |member| {
        let mut room = Default::default();
        names.push(member.text(&mut room));
    })
}

fn add(call: &mut Call<'_, '_, '_>, target: &Key<'_>, names: &Texts) -> Result<(), Full> {
    if names.is_empty() {
        return Ok(());
    }
    let edited = call.txn.edit_set(call.db, target, &call.settings.limits, |edit| {
        for name in names.iter() {
            edit.add(name)?;
        }
        Ok::<_, Full>(())
    });
    finished(edited).map_err(|_| Full)
}
