//! The memory that a batch will touch, asked for ahead, so that the waits of different commands overlap.
//!
//! What is seen here is a hint only: every command looks again under its lock. At 10 M keys a lookup that waits alone
//! costs twice one that waits in company.

use crate::dispatch::{Found, Request};
use crate::registry::Locks;
use arrayvec::ArrayVec;
use isotherm_keyspace::{Db, Key, Keyspace, PREFETCH_STAGES, Prefetch};

/// Keys that go through the stages together.
const KEYS_MAX: usize = 32;
/// Commands that could take a row of keys but came with one (DEL k, MSET k v) are as any other.
const SINGLE_ARGS_MAX: usize = 3;
/// Keys of one command that are fetched ahead: five lines each, 160 KB.
const COMMAND_KEYS_MAX: usize = 512;

/// Walks the keys of a batch through the stages together. Commands of several keys fetch theirs when they run
/// (`prefetch_keys`): a batch of them would be too many lines at once.
#[inline]
pub fn prefetch(keyspace: &Keyspace, db: Db, requests: &[Request<'_>]) {
    let mut keys: ArrayVec<(Key<'_>, Prefetch), KEYS_MAX> = ArrayVec::new();
    for request in requests {
        if let (Some(key), Found::Command(command)) = (request.key, request.found)
            && (command.locks == Locks::One || request.args.len() <= SINGLE_ARGS_MAX)
            && !keys.is_full()
        {
            keys.push((key, Prefetch::default()));
        }
    }
    if keys.len() > 1 {
        stages(keyspace, db, &mut keys);
    }
}

/// The keys of one command of several (MSET, MGET, DEL), as far as the near caches hold what they lead to.
#[inline]
pub fn prefetch_keys<'b>(keyspace: &Keyspace, db: Db, names: impl Iterator<Item = &'b [u8]>) {
    let mut names = names.take(COMMAND_KEYS_MAX);
    loop {
        let mut keys: ArrayVec<(Key<'_>, Prefetch), KEYS_MAX> = ArrayVec::new();
        keys.extend(names.by_ref().take(KEYS_MAX).map(|name| (keyspace.key(name), Prefetch::default())));
        if keys.len() < 2 {
            return;
        }
        stages(keyspace, db, &mut keys);
    }
}

#[inline]
fn stages(keyspace: &Keyspace, db: Db, keys: &mut [(Key<'_>, Prefetch)]) {
    for stage in 0..PREFETCH_STAGES {
        for (key, state) in keys.iter_mut() {
            keyspace.prefetch(stage, db, key, state);
        }
    }
}
