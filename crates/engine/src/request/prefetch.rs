//! The memory that a batch will touch, asked for ahead, so that the waits of different commands overlap.
//!
//! A lookup here is a hint only: every command looks again under its lock. At 10 M keys a lookup that waits
//! alone costs twice one that waits in company.

use crate::request::resolve::{Found, Request};
use arrayvec::ArrayVec;
use isotherm_commands::spec::Group;
use isotherm_keyspace::{Db, Held, Intent, Key, Keyspace, PREFETCH_KEYS_MAX};
use isotherm_node::request::entry::{Entry, Locks};

/// Keys of one command that are fetched ahead: five lines each, 160 KB.
const COMMAND_KEYS_MAX: usize = 512;

/// Prefetches for the keys of a batch together. Commands of several keys fetch theirs when they run
/// (`prefetch_keys`): a batch of them would be too many lines at once. Of a script it is the first key that
/// it is called with.
#[inline]
pub fn prefetch(keyspace: &Keyspace, db: Db, requests: &[Request<'_>]) {
    let mut keys: ArrayVec<(&Key<'_>, Intent), PREFETCH_KEYS_MAX> = ArrayVec::new();
    for request in requests {
        if let (Some(key), Found::Command(command)) = (&request.key, request.found)
            && (command.has_one_key(request.args.len()) || command.locks == Locks::Script)
            && !keys.is_full()
        {
            keys.push((key, command.intent));
        }
    }
    if keys.len() > 1 {
        keyspace.prefetch(db, &keys);
    }
}

/// The keys of one command of several (MSET, MGET, DEL), as far as the near caches hold what they lead to.
#[inline]
pub fn prefetch_keys(keyspace: &Keyspace, db: Db, keys: &[Key<'_>], intent: Intent) {
    for some in keys[..keys.len().min(COMMAND_KEYS_MAX)].chunks(PREFETCH_KEYS_MAX) {
        let some: ArrayVec<(&Key<'_>, Intent), PREFETCH_KEYS_MAX> =
            some.iter().map(|key| (key, intent)).collect();
        keyspace.prefetch(db, &some);
    }
}

/// Prefetches the keys of a command that are not hashed yet.
#[inline]
pub fn prefetch_names<'b>(
    keyspace: &Keyspace,
    db: Db,
    names: impl Iterator<Item = &'b [u8]>,
    intent: Intent,
) {
    let mut names = names.take(COMMAND_KEYS_MAX);
    loop {
        let keys: ArrayVec<Key<'_>, PREFETCH_KEYS_MAX> =
            names.by_ref().take(PREFETCH_KEYS_MAX).map(|name| keyspace.key(name)).collect();
        if keys.len() < 2 {
            return;
        }
        prefetch_keys(keyspace, db, &keys, intent);
    }
}

/// Prefetches the collections of the keys of a batch. The first command of the batch has run: its partition
/// is held.
#[inline]
pub fn prefetch_collections(held: &mut Held<'_>, db: Db, requests: &[Request<'_>]) {
    match requests[0].found {
        Found::Command(first) if first.element > 0 => prefetch_elements(held, db, requests),
        Found::Command(first) if first.spec.group == Group::Stream => {
            let [first, rest @ ..] = requests else { return };
            let others = rest.iter().filter_map(|request| request.key.as_ref());
            let is_other = |key: &&Key<'_>| first.key.is_none_or(|first| first.bytes != key.bytes);
            isotherm_keyspace::prefetch_streams(held, db, others.filter(is_other));
        }
        _ => {}
    }
}

/// Prefetches the elements that the commands of a batch name, if the batch goes to one collection.
#[inline]
fn prefetch_elements(held: &mut Held<'_>, db: Db, requests: &[Request<'_>]) {
    let Some((key, first)) = names_elements(&requests[0]).filter(|(key, _)| held.holds(key)) else { return };
    let elements = requests[1..].iter().map_while(|request| {
        let (other, command) = names_elements(request)?;
        (other.bytes == key.bytes).then(|| request.args.try_get(usize::from(command.element)))?
    });
    isotherm_keyspace::prefetch_elements(held, db, &key, elements, first.intent);
}

/// A command that names fields or members of its key's collection.
#[inline]
fn names_elements<'b>(request: &Request<'b>) -> Option<(Key<'b>, &'static Entry)> {
    match request.found {
        Found::Command(command) if command.element > 0 => Some((request.key?, command)),
        _ => None,
    }
}
