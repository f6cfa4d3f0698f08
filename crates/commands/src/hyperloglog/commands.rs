//! Adding, counting, merging: PFADD PFCOUNT PFMERGE.

use super::sketch::{self, Form};
use super::sparse::Corrupted;
use super::{REGISTERS, Registers, estimate};
use crate::spec::*;
use crate::text;
use crate::{Call, Handler, Outcome};
use isotherm_keyspace::{Encoding, Entry, EventClass, Expiry, Full, Key, Lookup, NewValue};
use isotherm_resp::errors;
use isotherm_stdx::steps;

/// Why a sketch cannot be worked on.
pub(super) enum Wrong {
    Type,
    /// A string, but no sketch.
    NoSketch,
    Corrupted,
    Full,
}

impl Wrong {
    pub fn text(&self) -> &'static str {
        match self {
            Wrong::Type => errors::WRONG_TYPE,
            Wrong::NoSketch => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            Wrong::Corrupted => "INVALIDOBJ Corrupted HLL object detected",
            Wrong::Full => errors::NO_MEMORY_FOR_KEY,
        }
    }
}

impl From<Corrupted> for Wrong {
    fn from(_: Corrupted) -> Wrong {
        Wrong::Corrupted
    }
}

impl From<Full> for Wrong {
    fn from(_: Full) -> Wrong {
        Wrong::Full
    }
}

fn end(call: &mut Call<'_, '_, '_>, done: Result<(), Wrong>) -> Outcome {
    match done {
        Ok(()) => Outcome::Done,
        Err(wrong) => call.fail(wrong.text()),
    }
}

/// The bytes of the sketch that an entry holds.
pub(super) fn sketch_of<'a>(
    entry: &Entry<'a>,
    room: &'a mut text::NumberText,
) -> Result<(&'a [u8], Form), Wrong> {
    let bytes = text::text(entry.value, room).ok_or(Wrong::Type)?;
    let form = sketch::form_of(bytes).ok_or(Wrong::NoSketch)?;
    Ok((bytes, form))
}

pub const PFADD: Command<Handler> = Command::new(
    Spec {
        name: "pfadd",
        summary: "Counts elements in a HyperLogLog. Returns 1 when its estimate may have changed, otherwise 0.",
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "O(1) for each element",
        arity: -2,
        flags: Flags::WRITE.or(Flags::DENYOOM).or(Flags::FAST),
        acl: AclCategories::HYPERLOGLOG,
        key_specs: &[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::INSERT))],
        arguments: &[Argument::key("key", 0), Argument::string("element").optional().multiple()],
        ..Spec::BASE
    },
    pfadd,
);

fn pfadd(call: &mut Call<'_, '_, '_>) -> Outcome {
    let key = call.key(1);
    let added = match call.txn.find(call.db, &key, Lookup::Write) {
        None => add_to_new(call, &key),
        Some(entry) => match sketch_of(&entry, &mut text::NO_TEXT.clone()) {
            Err(wrong) => Err(wrong),
            Ok((bytes, Form::Dense)) => {
                let len = bytes.len();
                add_in_place(call, &key, len)
            }
            Ok((bytes, Form::Sparse)) => {
                let (bytes, is_raw) = (bytes.to_vec(), entry.encoding() == Encoding::Raw);
                add_to_copy(call, &key, bytes, is_raw)
            }
        },
    };
    let changes = match added {
        Ok(changes) => changes,
        Err(wrong) => return call.fail(wrong.text()),
    };
    if changes > 0 {
        call.wrote(EventClass::String, "pfadd", &key, changes);
    }
    call.reply.integer(i64::from(changes > 0));
    Outcome::Done
}

/// Elements that changed a register, and one more for the key.
fn add_to_new(call: &mut Call<'_, '_, '_>, key: &Key<'_>) -> Result<u64, Wrong> {
    let mut bytes = sketch::new();
    let changes = 1 + add_all(call, &mut bytes).expect("a new sketch is sound");
    sketch::outdate(&mut bytes);
    call.txn.set(call.db, key, NewValue::Raw(&bytes), Expiry::Clear)?;
    Ok(changes)
}

/// A dense sketch is 12 KB, and an element changes two bytes of it.
fn add_in_place(call: &mut Call<'_, '_, '_>, key: &Key<'_>, len: usize) -> Result<u64, Wrong> {
    let elements = call.args.from(2);
    let bytes = call.txn.room(call.db, key, len)?;
    let changes = elements.iter().filter(|element| sketch::add_dense(bytes, element)).count() as u64;
    if changes > 0 {
        sketch::outdate(bytes);
        call.txn.touch(call.db, key);
    }
    Ok(changes)
}

fn add_to_copy(
    call: &mut Call<'_, '_, '_>,
    key: &Key<'_>,
    mut bytes: Vec<u8>,
    is_raw: bool,
) -> Result<u64, Wrong> {
    let changes = match add_all(call, &mut bytes) {
        Ok(changes) => changes,
        // Elements that were added before the damage was met stay; no event is emitted.
        Err(corrupted) => {
            call.txn.set(call.db, key, NewValue::Raw(&bytes), Expiry::Keep)?;
            return Err(corrupted.into());
        }
    };
    if changes > 0 {
        sketch::outdate(&mut bytes);
        call.txn.set(call.db, key, NewValue::Raw(&bytes), Expiry::Keep)?;
    } else if !is_raw {
        call.txn.room(call.db, key, bytes.len())?;
    }
    Ok(changes)
}

fn add_all(call: &Call<'_, '_, '_>, bytes: &mut Vec<u8>) -> Result<u64, Corrupted> {
    let mut changes = 0;
    for element in call.args.from(2).iter() {
        steps::note(1);
        changes += u64::from(sketch::add(bytes, element, call.settings.hll_sparse_bytes_max)?);
    }
    Ok(changes)
}

pub const PFCOUNT: Command<Handler> = Command::new(
    Spec {
        name: "pfcount",
        summary: "Estimates how many different elements the HyperLogLogs counted together; 0 for absent keys.",
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "O(1) for a single key, mostly from a cached number; O(N) for N keys, whose registers are merged",
        arity: -2,
        flags: Flags::READONLY.or(Flags::MAY_REPLICATE),
        acl: AclCategories::HYPERLOGLOG,
        key_specs: &[KeySpec::range(1, -1, 1, KeyFlags::RW.or(KeyFlags::ACCESS))
            .notes("RW: the cached count may be written, and replicated")],
        arguments: &[Argument::key("key", 0).multiple()],
        ..Spec::BASE
    },
    pfcount,
);

fn pfcount(call: &mut Call<'_, '_, '_>) -> Outcome {
    let done = if call.args.len() == 2 { count_one(call) } else { count_union(call) };
    end(call, done)
}

/// The estimate of one sketch is stored in it, which is a change like any other.
fn count_one(call: &mut Call<'_, '_, '_>) -> Result<(), Wrong> {
    let key = call.key(1);
    let Some(entry) = call.txn.find(call.db, &key, Lookup::Read) else {
        call.reply.integer(0);
        return Ok(());
    };
    let is_raw = entry.encoding() == Encoding::Raw;
    let mut room = text::NO_TEXT;
    let (bytes, form) = sketch_of(&entry, &mut room)?;
    let len = bytes.len();
    let number = match sketch::stored_estimate(bytes) {
        Some(number) if is_raw => number,
        Some(number) => {
            call.txn.room(call.db, &key, len)?;
            number
        }
        None => {
            let counted = sketch::histogram(bytes, form);
            // It is raw from now on, damaged or not.
            let room = call.txn.room(call.db, &key, len)?;
            let number = estimate::estimate(&counted?);
            sketch::store_estimate(room, number);
            call.txn.touch(call.db, &key);
            call.count(1);
            number
        }
    };
    call.reply.integer(number as i64);
    Ok(())
}

fn count_union(call: &mut Call<'_, '_, '_>) -> Result<(), Wrong> {
    let mut registers = [0; REGISTERS];
    merge_all(call, &mut registers)?;
    let number = estimate::estimate(&estimate::histogram(&registers));
    call.reply.integer(number as i64);
    Ok(())
}

/// Merges the sketches of all keys. Says whether one of them is dense.
fn merge_all(call: &mut Call<'_, '_, '_>, registers: &mut Registers) -> Result<bool, Wrong> {
    let mut any_dense = false;
    for at in 1..call.args.len() {
        let key = call.key(at);
        let Some(entry) = call.txn.find(call.db, &key, Lookup::Read) else {
            continue;
        };
        let mut room = text::NO_TEXT;
        let (bytes, form) = sketch_of(&entry, &mut room)?;
        any_dense |= form == Form::Dense;
        sketch::merge(bytes, form, registers)?;
    }
    Ok(any_dense)
}

pub const PFMERGE: Command<Handler> = Command::new(
    Spec {
        name: "pfmerge",
        summary: "Stores the union of HyperLogLogs under a key.",
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "O(N), N the given keys, with a large constant",
        arity: -2,
        flags: Flags::WRITE.or(Flags::DENYOOM),
        acl: AclCategories::HYPERLOGLOG,
        key_specs: &[
            KeySpec::one(1, KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::INSERT)),
            KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        ],
        arguments: &[Argument::key("destkey", 0), Argument::key("sourcekey", 1).optional().multiple()],
        ..Spec::BASE
    },
    pfmerge,
);

fn pfmerge(call: &mut Call<'_, '_, '_>) -> Outcome {
    let mut registers = [0; REGISTERS];
    let done = merge_all(call, &mut registers).and_then(|any_dense| store(call, &registers, any_dense));
    end(call, done)
}

fn store(call: &mut Call<'_, '_, '_>, registers: &Registers, dense: bool) -> Result<(), Wrong> {
    let key = call.key(1);
    let mut room = text::NO_TEXT;
    let found = match call.txn.find(call.db, &key, Lookup::Write) {
        Some(entry) => Some(sketch_of(&entry, &mut room)?.0.to_vec()),
        None => None,
    };
    let mut bytes = found.unwrap_or_else(sketch::new);
    if dense {
        if sketch::form_of(&bytes) == Some(Form::Sparse) {
            sketch::make_dense(&mut bytes)?;
        }
        sketch::pack(&mut bytes, registers);
    } else {
        for (index, value) in registers.iter().enumerate().filter(|(_, value)| **value > 0) {
            sketch::raise(&mut bytes, index, *value, call.settings.hll_sparse_bytes_max)?;
        }
    }
    sketch::outdate(&mut bytes);
    call.txn.set(call.db, &key, NewValue::Raw(&bytes), Expiry::Keep)?;
    call.wrote(EventClass::String, "pfadd", &key, 1);
    call.reply.ok();
    Ok(())
}
