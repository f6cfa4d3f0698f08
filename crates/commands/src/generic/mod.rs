//! The group `generic`: commands that work on keys whatever they hold.

mod delete;
mod exists;

mod expire;
mod ttl;

mod copy;
mod dump;
mod rename;
mod restore;

mod keys;
mod scan;
mod sort;

mod object;

pub use delete::remove_moved;
pub use scan::ScanOptions;

use crate::Handler;
use crate::spec::Command;

pub const COMMANDS: &[Command<Handler>] = &[
    copy::COPY,
    delete::DEL,
    dump::DUMP,
    exists::EXISTS,
    expire::EXPIRE,
    expire::EXPIREAT,
    ttl::EXPIRETIME,
    keys::KEYS,
    copy::MOVE,
    object::OBJECT,
    ttl::PERSIST,
    expire::PEXPIRE,
    expire::PEXPIREAT,
    ttl::PEXPIRETIME,
    ttl::PTTL,
    keys::RANDOMKEY,
    rename::RENAME,
    rename::RENAMENX,
    restore::RESTORE,
    restore::RESTORE_ASKING,
    scan::SCAN,
    sort::SORT,
    sort::SORT_RO,
    exists::TOUCH,
    ttl::TTL,
    exists::TYPE,
    delete::UNLINK,
];
