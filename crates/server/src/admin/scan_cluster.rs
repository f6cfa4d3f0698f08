//! CLUSTERSCAN: all keys of a cluster in many small steps, from node to node.
//!
//! ```text
//!   cursor    [fingerprint]-{[tag of a slot]}-[place in the slot, slot]
//!             0-{06S}-0       the beginning of slot 0, for any node
//!             0               the beginning; the end
//! ```
//! The tag leads a client to the node that has the slot, as that of any key does. The place is known to the
//! node that has given the cursor alone, which its fingerprint shows: another one begins the slot anew.

use isotherm_commands::Outcome;
use isotherm_commands::generic::ScanOptions;
use isotherm_commands::spec::*;
use isotherm_keyspace::{Conditions, Entry, ExpiryMode, OnCold, Slot, SlotKeys, Txn, Want};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::number::{I64_BYTES_MAX, write_u64};
use std::cell::Cell;
use std::str;
use std::sync::Arc;

use super::{AdminCall, AdminHandler};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::new(CLUSTERSCAN, scan)];

const CLUSTERSCAN: Spec = Spec {
    name: "clusterscan",
    summary: "Returns some keys of the cluster and the cursor of the next call.",
    since: "9.1.0",
    group: Group::Cluster,
    complexity: "O(N), N the elements returned",
    arity: -2,
    flags: Flags::READONLY.or(Flags::TOUCHES_ARBITRARY_KEYS),
    acl: AclCategories::KEYSPACE,
    key_specs: &[KeySpec::one(1, KeyFlags::NOT_KEY)],
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    arguments: &[
        Argument::string("cursor"),
        Argument::pattern("match-pattern").token("MATCH").optional(),
        Argument::integer("count").token("COUNT").optional(),
        Argument::string("type").token("TYPE").optional(),
        Argument::integer("slot").token("SLOT").optional(),
    ],
    // Slots are looked at one after the other.
    reach: Reach::Each,
    ..Spec::BASE
};

const SLOT_BITS: u32 = Slot::COUNT.trailing_zeros();
const FINGERPRINT_BYTES: usize = 6;

type Fingerprint = [u8; FINGERPRINT_BYTES];

/// Place at which the scan continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cursor {
    End,
    /// At the beginning of a slot, which may be another node's.
    Begin(Slot),
    /// Here only.
    Place(Slot, u32),
}

impl Cursor {
    fn write(self, reply: &mut Reply, fingerprint: &Fingerprint) {
        let (mark, slot, place) = match self {
            Cursor::End => return reply.bulk(b"0"),
            Cursor::Begin(slot) => (&b"0"[..], slot, 0),
            Cursor::Place(slot, position) => {
                (&fingerprint[..], slot, u64::from(position) << SLOT_BITS | u64::from(slot.get()))
            }
        };
        let mut room = [0; I64_BYTES_MAX];
        reply.bulk(&[mark, b"-{", slot.tag(), b"}-", write_u64(place, &mut room)].concat());
    }

    /// The slot and the place in it; `None` if it is no cursor.
    fn parse(text: &[u8], fingerprint: &Fingerprint) -> Option<(Slot, u32)> {
        let mut parts = text.splitn(3, |byte| *byte == b'-');
        let (mark, tag, place) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = place.strip_prefix(b"+").unwrap_or(place);
        let all = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
        let place: u64 = str::from_utf8(digits).ok().filter(|_| all)?.parse().ok()?;
        let position = if mark == fingerprint { (place >> SLOT_BITS) as u32 } else { 0 };
        Some((Slot::of_key(tag), position))
    }
}

/// Six bits a character, from `0` on: never `-`, `{` or `}`.
fn fingerprint(seed: u64) -> Fingerprint {
    // The seed cannot be found out from it.
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 31) as u32 | 1;
    std::array::from_fn(|at| b'0' + (mixed >> (6 * (FINGERPRINT_BYTES - 1 - at)) & 63) as u8)
}

fn scan(call: &mut AdminCall<'_>) -> Outcome {
    if call.exec.route.member.is_none() {
        call.reply.error(errors::CLUSTER_DISABLED);
        return Outcome::Done;
    }
    let fingerprint = fingerprint(call.node.process.seed);
    let mut keys = Reply::new(call.reply.proto);
    match run(call, &fingerprint, &mut keys) {
        Ok(_) if call.exec.held.walk.is_wanting() => return call.exec.fetch_for_walk(call.reply),
        Ok((next, found)) => {
            call.reply.array(2);
            next.write(call.reply, &fingerprint);
            call.reply.array(found);
            call.reply.raw(&keys.out);
        }
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

fn run(
    call: &mut AdminCall<'_>,
    fingerprint: &Fingerprint,
    keys: &mut Reply,
) -> Result<(Cursor, usize), Vec<u8>> {
    let args = call.args;
    let options = ScanOptions::parse(args, true)?;
    let of_pattern = options.slot_of_pattern();
    let only = options.slot.or(of_pattern);
    // What matches lies in another slot than what is asked for.
    let is_void = options.slot.is_some() && of_pattern.is_some() && options.slot != of_pattern;
    if args.get(1) == b"0" {
        let first = only.unwrap_or(Slot::new(0));
        return Ok((if is_void { Cursor::End } else { Cursor::Begin(first) }, 0));
    }
    let Some((slot, position)) = Cursor::parse(args.get(1), fingerprint) else {
        return Err(b"ERR Invalid cursor".to_vec());
    };
    if options.slot.is_some_and(|wanted| wanted != slot) {
        return Err(b"ERR Cursor slot mismatch with SLOT argument".to_vec());
    }
    if let Some(wanted) = of_pattern.filter(|wanted| *wanted != slot) {
        let is_ahead = !is_void && wanted > slot;
        return Ok((if is_ahead { Cursor::Begin(wanted) } else { Cursor::End }, 0));
    }
    Ok(walk(call, (slot, position), &options, only.is_none(), keys))
}

/// Continues from a place, with `goes_on` through all slots in a row that one node has. The next cursor, and
/// how many keys were found.
fn walk(
    call: &mut AdminCall<'_>,
    (first, position): (Slot, u32),
    options: &ScanOptions<'_>,
    goes_on: bool,
    keys: &mut Reply,
) -> (Cursor, usize) {
    let (keyspace, db) = (call.exec.held.keyspace(), call.session.db);
    let member = call.exec.route.member.expect("it was asked before");
    let topology = Arc::clone(call.exec.route.topology());
    let owner = topology.owners[first.index()];
    let (seen, mut found) = (Cell::new(0), 0);
    let conditions = Conditions { expiry_mode: ExpiryMode::Hide, ..call.conditions };
    let mut owner_here = None;
    for slot in Slot::all().skip(first.index()) {
        if slot != first && (!goes_on || topology.owners[slot.index()] != owner) {
            return (if goes_on { Cursor::Begin(slot) } else { Cursor::End }, found);
        }
        call.exec.held.acquire(Want::One(keyspace.partition_of(slot)));
        // One that has left since is the next node's, as its first cursor says.
        let here = member.words.get(slot).state().owner;
        if *owner_here.get_or_insert(here) != here {
            return (Cursor::Begin(slot), found);
        }
        if SlotKeys::of(&call.exec.held, slot).len_in(db) > 0 {
            if seen.get() >= options.count {
                return (Cursor::Place(slot, 0), found);
            }
            let mark = (keys.len(), found);
            let mut txn = Txn::new(&mut call.exec.held, conditions, &mut call.exec.pump);
            // Nothing is read under the lock.
            txn.on_cold = OnCold::Collect;
            let left = options.count - seen.get();
            let takes = |key: &[u8], entry: &Entry<'_>| {
                seen.set(seen.get() + 1);
                options.takes(key, entry)
            };
            let position = if slot == first { position } else { 0 };
            let next = txn.scan_slot(db, (slot, position), left, takes, |key, _| {
                keys.bulk(key);
                found += 1;
            });
            let counts = txn.finish();
            call.exec.stats.count_txn(counts);
            if call.exec.held.walk.is_wanting() && slot != first {
                // The keys found before are answered first.
                call.exec.end_walk();
                keys.truncate(mark.0);
                return (Cursor::Place(slot, 0), mark.1);
            }
            if next != 0 {
                return (Cursor::Place(slot, next), found);
            }
        }
    }
    (Cursor::End, found)
}
