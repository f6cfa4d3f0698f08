//! The group `list`.

mod pop;
mod push;
mod read;
mod remove;
mod transfer;

use crate::Handler;
use crate::call::is_word;
use crate::spec::Command;
use isotherm_keyspace::End;
use std::ops::Range;

pub const COMMANDS: &[Command<Handler>] = &[
    transfer::BLMOVE,
    pop::BLMPOP,
    pop::BLPOP,
    pop::BRPOP,
    transfer::BRPOPLPUSH,
    read::LINDEX,
    push::LINSERT,
    read::LLEN,
    transfer::LMOVE,
    pop::LMPOP,
    pop::LPOP,
    read::LPOS,
    push::LPUSH,
    push::LPUSHX,
    read::LRANGE,
    remove::LREM,
    push::LSET,
    remove::LTRIM,
    pop::RPOP,
    transfer::RPOPLPUSH,
    push::RPUSH,
    push::RPUSHX,
];

/// LEFT or RIGHT.
fn end(word: &[u8]) -> Option<End> {
    if is_word(word, "LEFT") {
        Some(End::Front)
    } else if is_word(word, "RIGHT") {
        Some(End::Back)
    } else {
        None
    }
}

/// An index, counted from the end if it is negative. `None` if there is no such element.
fn absolute(index: i64, len: u64) -> Option<u64> {
    let index = if index < 0 { len.checked_sub(index.unsigned_abs())? } else { index as u64 };
    (index < len).then_some(index)
}

/// Returns the range from `start` to `stop` inclusive, cut to the length; negative numbers count from the
/// end. `None` if the range is empty.
fn range(start: i64, stop: i64, len: u64) -> Option<Range<u64>> {
    let start = if start < 0 { len.saturating_sub(start.unsigned_abs()) } else { start as u64 };
    let stop =
        if stop < 0 { len.checked_sub(stop.unsigned_abs())? } else { (stop as u64).min(len.checked_sub(1)?) };
    (start <= stop && start < len).then(|| start..stop + 1)
}
