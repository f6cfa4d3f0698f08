//! SWAP: what is on disk is verified and cleaned when an operator wants it. And SWAPDB's words for where a
//! key is.
//!
//! SWAPDB (a fork of Redis 4.0) keeps values of cold keys in SSDB, another process. Here that is the files of
//! `swap-dir`, and a key whose value is there is "in ssdb" for these commands.

use isotherm_commands::Outcome;
use isotherm_commands::call::{ColdKey, ColdKeys, is_word};
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::{
    BundleAt, BundleName, ByNodes, Forgotten, LastRead, Lookup, LostRecords, OnCold, SinkLimits, Sinkable,
    Slot, SlotKeys, WalkRecord, Want, Whereabouts,
};
use isotherm_resp::errors::with_bytes;
use isotherm_resp::{Args, errors};
use isotherm_stdx::{glob_match, parse_u64};
use isotherm_tier::PAYLOAD_BYTES_MAX;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{AdminCall, AdminHandler};
use crate::admin;
use crate::observe::info;
use isotherm_node::tier::{State, Tier};
use isotherm_runtime::log;

const NO_SWAP: &str = "ERR there are no values on disk: start with swap-mode yes";

// COMPAT(server): SWAP VERIFY, CLEAN, FORGET and STATUS are Isotherm's, about values that are not in memory.
// Why: operators of `swap-mode` need them.
const SWAP: Spec = Spec {
    name: "swap",
    summary: "Shows and repairs the files of values that are not in memory.",
    since: "9.1.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

/// Properties of the subcommands that inspect the tier or act on it.
const SUBCOMMAND: Spec = Spec {
    since: "9.1.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Spec::BASE
};

// COMPAT(keys): LOCATEKEY, STORETOSSDB, DUMPFROMSSDB, REDISKEYS and SSDBKEYS are commands of SWAPDB, with its
// replies; "ssdb" are the files of `swap-dir`. STORETOSSDB and DUMPFROMSSDB answer before the value has
// moved, as there. Why: programs for SWAPDB run here.
pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::container(
        SWAP,
        &[
            Command::new(Spec { name: "clean", summary: "Frees space on disk now.", ..SUBCOMMAND }, clean),
            Command::new(SWAP_FORGET, forget),
            Command::new(SWAP_HELP, help),
            Command::new(SWAP_STATUS, status),
            Command::new(
                Spec {
                    name: "verify",
                    summary: "Reads all values on disk and checks them, in the background.",
                    ..SUBCOMMAND
                },
                verify,
            ),
        ],
    ),
    Command::new(
        Spec {
            name: "locatekey",
            summary: "Returns where the value of a key is.",
            flags: Flags::READONLY,
            ..OF_KEY
        },
        locate,
    ),
    Command::new(Spec { name: "storetossdb", summary: "Moves the value of a key to disk.", ..OF_KEY }, store),
    Command::new(
        Spec { name: "dumpfromssdb", summary: "Moves the value of a key back to memory.", ..OF_KEY },
        fetch,
    ),
    Command::new(
        Spec {
            name: "rediskeys",
            summary: "Returns all key names that match a pattern and whose values are in memory.",
            ..OF_PATTERN
        },
        keys_in_memory,
    ),
    Command::new(
        Spec {
            name: "ssdbkeys",
            summary: "Returns all key names that match a pattern and whose values are on disk.",
            ..OF_PATTERN
        },
        keys_on_disk,
    ),
];

const OF_KEY: Spec = Spec {
    since: "9.1.0",
    group: Group::Generic,
    complexity: "O(1)",
    arity: 2,
    acl: AclCategories::KEYSPACE,
    key_specs: &[KeySpec::one(1, KeyFlags::RO)],
    need: NeedFrom::Stated(Need::Nothing),
    arguments: &[Argument::key("key", 0)],
    ..Spec::BASE
};

const OF_PATTERN: Spec = Spec {
    since: "9.1.0",
    group: Group::Generic,
    complexity: "O(N) with N being the number of keys in the database.",
    arity: 2,
    flags: Flags::READONLY,
    acl: AclCategories::DANGEROUS.or(AclCategories::KEYSPACE),
    reach: Reach::All,
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    arguments: &[Argument::pattern("pattern")],
    ..Spec::BASE
};

/// Answers if there is no tier.
fn tier(call: &mut AdminCall<'_>) -> Option<Arc<Tier>> {
    let tier = call.node.tier().cloned();
    if tier.is_none() {
        call.reply.error(NO_SWAP);
    }
    tier
}

fn verify(call: &mut AdminCall<'_>) -> Outcome {
    let Some(tier) = tier(call) else { return Outcome::Done };
    match tier.verify.is_wanted.swap(true, Relaxed) {
        true => call.reply.error("ERR it is under way: see SWAP STATUS"),
        false => call.reply.simple("Verification started"),
    }
    Outcome::Done
}

fn clean(call: &mut AdminCall<'_>) -> Outcome {
    let Some(tier) = tier(call) else { return Outcome::Done };
    let segments = tier.segments_max();
    if tier.cleanings_wanted.swap(segments, Relaxed) == 0 {
        call.reply.simple("Cleaning started");
    } else {
        call.reply.error("ERR it is under way: see SWAP STATUS");
    }
    tier.wake();
    Outcome::Done
}

const SWAP_FORGET: Spec = Spec {
    name: "forget",
    summary: "Gives up the keys of a record on disk that cannot be read.",
    complexity: "O(N) with N being the number of keys in the record.",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::NO_MULTI),
    acl: AclCategories::DANGEROUS,
    key_positions: Some(forgotten_key),
    need: NeedFrom::Stated(Need::Nothing),
    // The partition of the key, or of the record.
    reach: Reach::Each,
    arguments: &[Argument::one_of(
        "what",
        &[
            Argument::string("key"),
            Argument::block(
                "record",
                &[Argument::integer("slot"), Argument::integer("address").token("RECORD")],
            )
            .token("SLOT"),
        ],
    )],
    tips: &[],
    ..SUBCOMMAND
};

/// Finds the key of FORGET. Of a record none is known.
fn forgotten_key(args: Args<'_>, out: &mut Vec<(usize, KeyFlags)>) {
    if args.len() == 3 {
        out.push((2, KeyFlags::RW.or(KeyFlags::DELETE)));
    }
}

/// A disk that is away for a moment is no reason to give up what lies there.
const AWAY: &str =
    "ERR the disk does not answer: what cannot be read is not given up before it does (see INFO swap)";

fn forget(call: &mut AdminCall<'_>) -> Outcome {
    let Some(tier) = tier(call) else { return Outcome::Done };
    if tier.state() == State::Failed {
        call.reply.error(AWAY);
        return Outcome::Done;
    }
    if call.args.len() > 3 {
        return forget_record(call);
    }
    let (db, key) = (call.session.db, call.node.keyspace.key(call.args.get(2)));
    call.exec.held.acquire(Want::One(call.node.keyspace.partition_of(key.slot)));
    // Records are read while nothing is held.
    let mut walk = std::mem::take(&mut call.exec.held.walk);
    let mut read = |reference, name: &[u8]| match walk.get(reference) {
        Some(WalkRecord::Payload(payload)) => LastRead::Value(payload.clone()),
        Some(WalkRecord::Lost) => LastRead::Lost,
        None => {
            let name = BundleName::of_bytes(name).expect("it is the name of a bundle");
            walk.want(BundleAt { db, slot: key.slot, name, reference });
            LastRead::Unknown
        }
    };
    let mut lost = LostRecords::of(&mut call.exec.held, key.slot);
    let Forgotten { keys, is_unknown } = lost.forget_those_of(db, &key, call.now, &mut read);
    if keys > 0 {
        log::warning(format!("swap: {keys} keys of records that cannot be read were given up (SWAP FORGET)"));
    }
    let mut progress = walk.take_progress();
    progress.count += keys as usize;
    let count = progress.count;
    if is_unknown && !call.exec.has_waited {
        walk.keep_progress(progress, false);
        call.exec.held.walk = walk;
        return call.exec.fetch_for_walk(call.reply);
    }
    if is_unknown {
        call.reply.error(AWAY);
    } else {
        call.reply.integer(count as i64);
    }
    Outcome::Done
}

/// Gives up a record by what the server's log says of it. It is read once more, while nothing is held: what
/// can be read is not given up.
fn forget_record(call: &mut AdminCall<'_>) -> Outcome {
    let (slot, address) = match record_of(call.args) {
        Ok(named) => named,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    call.exec.held.acquire(Want::One(call.node.keyspace.partition_of(slot)));
    let mut found = None;
    SlotKeys::of(&call.exec.held, slot).bundles(&mut |db, name, reference| {
        if reference.raw() == address {
            found = Some(BundleAt { db, slot, name, reference });
        }
    });
    let Some(bundle) = found else {
        call.reply.integer(0);
        return Outcome::Done;
    };
    match call.exec.held.walk.take(bundle.reference) {
        None if call.exec.has_waited => call.reply.error(AWAY),
        None => return Outcome::Cold(Box::new(ColdKeys { keys: vec![ColdKey::of_bundle(bundle)] })),
        Some(WalkRecord::Payload(_)) => call.reply.error("ERR this record can be read"),
        Some(WalkRecord::Lost) => {
            let keys = LostRecords::of(&mut call.exec.held, bundle.slot).forget(&bundle);
            let (db, slot) = (bundle.db.0, slot.get());
            log::warning(format!("swap: {keys} keys of slot {slot} in DB {db} were given up (SWAP FORGET)"));
            call.reply.integer(keys as i64);
        }
    }
    Outcome::Done
}

/// `SWAP FORGET SLOT slot RECORD address`
fn record_of(args: Args<'_>) -> Result<(Slot, u64), &'static str> {
    let is_this = args.len() == 6 && is_word(args.get(2), "SLOT") && is_word(args.get(4), "RECORD");
    let slot = parse_u64(args.get(3)).and_then(|slot| u16::try_from(slot).ok());
    let slot = slot.filter(|slot| usize::from(*slot) < Slot::COUNT).map(Slot::new);
    match is_this {
        true => slot.zip(parse_u64(args.get(5))).ok_or(errors::NOT_AN_INTEGER),
        false => Err(errors::SYNTAX),
    }
}

const SWAP_STATUS: Spec =
    Spec { name: "status", summary: "Returns the figures of INFO swap.", reach: Reach::Each, ..SUBCOMMAND };

fn status(call: &mut AdminCall<'_>) -> Outcome {
    if tier(call).is_some() {
        let mut snapshot = admin::snapshot(call);
        snapshot.cold = call.survey().cold();
        // Without the mode, which is known.
        call.reply.verbatim("txt", info::lines(&snapshot, &info::SWAP[1..]).as_bytes());
    }
    Outcome::Done
}

const SWAP_HELP: Spec = Spec { since: "9.1.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "CLEAN",
            "    Free space on disk now: segments are cleaned until a twentieth of the files at most is dead.",
            "FORGET <key>",
            "    Give up the record that may have this key and cannot be read, with all its keys. Return how many they are.",
            "FORGET SLOT <slot> RECORD <address>",
            "    The same of a record that the server's log names. It is read once more, and stays if it can be.",
            "STATUS",
            "    Return the figures of INFO swap, with the progress of CLEAN and VERIFY.",
            "VERIFY",
            "    Read all values on disk and check each against its key, in the background; change nothing.",
        ],
    )
}

// ---- SWAPDB's words ----

/// Returns the tier; without one it answers with SWAPDB's error.
fn refuse_without_swap(call: &mut AdminCall<'_>) -> Option<Arc<Tier>> {
    let tier = call.node.tier().cloned();
    if tier.is_none() {
        let before = "ERR Command only supported in swap-mode '";
        call.reply.error(with_bytes(before, call.args.get(0), "'"));
    }
    tier
}

/// Returns whether the key's value is on disk; `None` if there is no such key.
fn find(call: &mut AdminCall<'_>) -> Option<bool> {
    let (db, name) = (call.session.db, call.args.get(1));
    let key = call.node.keyspace.key(name);
    // It would come to memory by being looked up.
    if call.exec.held.may_be_frozen(db, &key) {
        return Some(true);
    }
    call.txn().find(db, &key, Lookup::Silent)?;
    Some(is_on_disk(call, name))
}

/// A value that is lent is on disk too.
fn is_on_disk(call: &mut AdminCall<'_>, name: &[u8]) -> bool {
    let (db, key) = (call.session.db, call.node.keyspace.key(name));
    call.exec.held.whereabouts(db, &key, true) != Whereabouts::Here
}

fn locate(call: &mut AdminCall<'_>) -> Outcome {
    if refuse_without_swap(call).is_some() {
        let place = match find(call) {
            Some(true) => "ssdb",
            Some(false) => "redis",
            None => "none",
        };
        call.reply.bulk(place.as_bytes());
    }
    Outcome::Done
}

fn store(call: &mut AdminCall<'_>) -> Outcome {
    let Some(tier) = refuse_without_swap(call) else { return Outcome::Done };
    if find(call) != Some(false) {
        call.reply.null();
        return Outcome::Done;
    }
    let (db, name) = (call.session.db, call.args.get(1));
    let value_bytes_min = call.node.config.swap_min_value_bytes();
    let limits = SinkLimits { value_bytes_min, value_bytes_max: PAYLOAD_BYTES_MAX, by_nodes: ByNodes::Large };
    let key = call.node.keyspace.key(name);
    let can_leave = Sinkable::of(&mut call.exec.held, db, &key, limits, call.now).is_some();
    if !can_leave || !tier.state().can_sink() {
        call.reply.error("ERR this value cannot leave memory now: see swap-min-value and INFO swap");
    } else if tier.ask_to_leave(db, name) {
        call.reply.ok();
    } else {
        call.reply.error("ERR too many values are about to leave memory: try again");
    }
    Outcome::Done
}

fn fetch(call: &mut AdminCall<'_>) -> Outcome {
    if refuse_without_swap(call).is_none() {
        return Outcome::Done;
    }
    let (db, name) = (call.session.db, call.args.get(1));
    let key = call.node.keyspace.key(name);
    if find(call) != Some(true) {
        call.reply.null();
        return Outcome::Done;
    }
    if let Whereabouts::Away(_) | Whereabouts::Frozen(..) = call.exec.held.whereabouts(db, &key, true) {
        let cold = ColdKey::of(db, name, Need::All, true);
        // No connection waits for the ticket.
        call.exec.fetch(ColdKeys { keys: vec![cold] });
    }
    call.reply.ok();
    Outcome::Done
}

fn keys_in_memory(call: &mut AdminCall<'_>) -> Outcome {
    keys(call, false)
}

fn keys_on_disk(call: &mut AdminCall<'_>) -> Outcome {
    keys(call, true)
}

/// Each collected name follows its length.
const LENGTH_BYTES: usize = size_of::<u32>();

fn keys(call: &mut AdminCall<'_>, on_disk: bool) -> Outcome {
    if refuse_without_swap(call).is_none() {
        return Outcome::Done;
    }
    let (db, pattern) = (call.session.db, call.args.get(1));
    let mut txn = call.txn();
    txn.on_cold = OnCold::Collect;
    let collected = txn.walk(db, None, usize::MAX, |found, key| {
        let is_wanted = pattern == b"*" || glob_match(pattern, key, false);
        if is_wanted {
            found.extend_from_slice(&(key.len() as u32).to_le_bytes());
            found.extend_from_slice(key);
        }
        is_wanted
    });
    let counts = txn.finish();
    call.exec.stats.count_expired(counts);
    // Without an end it runs again.
    let Some(collected) = collected else { return call.exec.fetch_for_walk(call.reply) };
    let (mut found, mut rest) = (Vec::with_capacity(collected.count), &collected.found[..]);
    while let Some((length, names)) = rest.split_first_chunk::<LENGTH_BYTES>() {
        let (name, behind) = names.split_at(u32::from_le_bytes(*length) as usize);
        found.push(name);
        rest = behind;
    }
    found.retain(|key| is_on_disk(call, key) == on_disk);
    call.reply.array(found.len());
    found.iter().for_each(|key| call.reply.bulk(key));
    Outcome::Done
}
