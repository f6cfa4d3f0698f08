//! DEBUG words about values that are not in memory.

use isotherm_disk::Trouble;
use isotherm_stdx::parse_i64;
use std::sync::atomic::Ordering::Relaxed;

use super::{AdminCall, is_on};
use isotherm_resp::errors;

/// `SWAP-CHAOS <0 | 1 | 2>`: with 2 some collections go by nodes that would leave as a whole.
pub fn chaos(call: &mut AdminCall<'_>) {
    let level = call.args.get(2);
    call.node.debug.swap_chaos.set(is_on(level) || level == b"2");
    call.node.debug.swap_chaos_nodes.set(level == b"2");
    if let Some(tier) = call.node.tier() {
        tier.wake();
    }
    call.reply.ok();
}

/// `SWAP-MACHINE <bytes>`: as if the machine had `bytes` of memory (`swap-mode` without `maxmemory`).
pub fn machine(call: &mut AdminCall<'_>) {
    let Some(bytes @ 1..) = parse_i64(call.args.get(2)) else {
        return call.reply.error(errors::NOT_AN_INTEGER);
    };
    call.node.config.note_machine_memory(bytes as u64);
    call.node.config.touch();
    call.reply.ok();
}

/// `SWAP-FAULT <READ | WRITE | SYNC> <NONE | IO | SHORT | FULL | HANG | SLOW> [calls]`: what the next `calls`
/// calls meet, or all. A call that hangs continues when the fault is set again. `SWAP-FAULT FREE <bytes>`:
/// the file system has no more left; 0: as it is.
pub fn fault(call: &mut AdminCall<'_>) {
    let troubles = &call.node.debug.swap_troubles;
    if call.args.get(2).eq_ignore_ascii_case(b"free") {
        let Some(bytes @ 0..) = parse_i64(call.args.get(3)) else {
            return call.reply.error(errors::NOT_AN_INTEGER);
        };
        troubles.free_bytes.store(bytes as u64, Relaxed);
        return call.reply.ok();
    }
    let switch = match call.args.get(2).to_ascii_lowercase().as_slice() {
        b"read" => &troubles.reads,
        b"write" => &troubles.writes,
        b"sync" => &troubles.syncs,
        _ => return call.reply.error(errors::SYNTAX),
    };
    let trouble = match call.args.get(3).to_ascii_lowercase().as_slice() {
        b"none" => None,
        b"io" => Some(Trouble::Io),
        b"short" => Some(Trouble::Short),
        b"full" => Some(Trouble::NoSpace),
        b"hang" => Some(Trouble::Hang),
        b"slow" => Some(Trouble::Slow),
        _ => return call.reply.error(errors::SYNTAX),
    };
    let calls = match call.args.try_get(4).map(parse_i64) {
        None => u64::MAX,
        Some(Some(calls @ 1..)) => calls as u64,
        Some(_) => return call.reply.error(errors::NOT_AN_INTEGER),
    };
    switch.set(trouble.map(|trouble| (trouble, calls)));
    call.reply.ok();
}
