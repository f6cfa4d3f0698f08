//! Random operations on a keyspace, and what each means for a plain map.
//!
//! An [`Op`] is a value: it can be run on a keyspace, run on the map next to it, and replayed. Tests draw ops
//! from seeds, the fuzz target from bytes. A state is compared without the entries that are past their time:
//! when those leave is the keyspace's own business.

// Every test program compiles all of this and uses some of it.
#![allow(dead_code)]

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::BTreeMap;

/// Runs when it is dropped, also by a failed check: threads of a scope that are not stopped would hang the
/// test.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

pub type Name = (u16, Vec<u8>);
pub type State = BTreeMap<Name, (Stored, Option<i64>)>;

/// The time that tests begin at.
pub const START: i64 = 1_800_000_000_000;

#[derive(Clone, PartialEq, Debug)]
pub enum Stored {
    Int(i64),
    Bytes(Vec<u8>),
    /// Only to store: what is stored is compared as `Bytes`.
    Raw(Vec<u8>),
}

impl Stored {
    pub fn text(&self) -> Vec<u8> {
        match self {
            Stored::Int(int) => int.to_string().into_bytes(),
            Stored::Bytes(bytes) | Stored::Raw(bytes) => bytes.clone(),
        }
    }

    pub fn of(value: Value<'_>) -> Stored {
        match value {
            Value::Int(int) => Stored::Int(int),
            Value::Bytes(bytes) => Stored::Bytes(bytes.to_vec()),
            other => panic!("these tests store strings only, not {other:?}"),
        }
    }
}

#[derive(Clone, Debug)]
pub enum Op {
    Set {
        name: Name,
        value: Stored,
        expiry: Expiry,
    },
    Remove {
        name: Name,
    },
    SetExpiry {
        name: Name,
        at: Option<i64>,
    },
    /// Grows the value by `more` and writes `mark` to its last byte.
    Edit {
        name: Name,
        more: usize,
        mark: u8,
    },
    Copy {
        from: Name,
        to: Name,
    },
    Rename {
        from: Name,
        to: Name,
    },
    Flush {
        db: Option<u16>,
    },
    Swap {
        a: u16,
        b: u16,
    },
}

/// Shape of names and values.
#[derive(Clone, Copy)]
pub struct Shape {
    pub keys: u64,
    /// True if keys and values of all sizes come, not only small ones.
    pub long: bool,
    /// The databases `first_db .. first_db + databases` are used.
    pub first_db: u16,
    pub databases: u16,
    /// FLUSHDB and SWAPDB come too.
    pub whole: bool,
}

impl Op {
    /// `below(n)` is a number below n, from a seed or from a fuzzer.
    pub fn draw(below: &mut dyn FnMut(u64) -> u64, shape: &Shape, now: i64) -> Op {
        let name = draw_name(below, shape);
        match below(100) {
            0..45 => {
                let value = draw_value(below, shape);
                let expiry = match below(4) {
                    0 | 1 => Expiry::Clear,
                    2 => Expiry::Keep,
                    _ => draw_expiry(below, now).map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at))),
                };
                Op::Set { name, value, expiry }
            }
            45..68 => Op::Remove { name },
            68..78 => Op::SetExpiry { name, at: draw_expiry(below, now) },
            78..89 => {
                let more = below(if shape.long { 900 } else { 20 }) as usize;
                Op::Edit { name, more, mark: below(256) as u8 }
            }
            89..93 => Op::Copy { from: name, to: draw_name(below, shape) },
            93..98 => Op::Rename { from: name, to: draw_name(below, shape) },
            _ if !shape.whole || below(4) != 0 => Op::Remove { name },
            _ if below(3) == 0 => Op::Flush { db: Some(name.0) },
            _ => Op::Swap { a: name.0, b: draw_db(below, shape) },
        }
    }

    pub fn random(prng: &mut Prng, shape: &Shape, now: i64) -> Op {
        Op::draw(&mut |n| prng.below(n), shape, now)
    }

    /// Runs it; what it answered. The transaction holds what the op needs.
    pub fn run(&self, txn: &mut Txn<'_, '_>) -> Result<bool, Full> {
        match self {
            Op::Set { name, value, expiry } => {
                let value = match value {
                    Stored::Int(int) => NewValue::Int(*int),
                    Stored::Bytes(bytes) => NewValue::Bytes(bytes),
                    Stored::Raw(bytes) => NewValue::Raw(bytes),
                };
                txn.set(Db(name.0), &txn.key(&name.1), value, *expiry)
            }
            Op::Remove { name } => Ok(txn.remove(Db(name.0), &txn.key(&name.1))),
            Op::SetExpiry { name, at } => txn.set_expiry(Db(name.0), &txn.key(&name.1), at.map(UnixMs)),
            Op::Edit { name, more, mark } => {
                let (db, key) = (Db(name.0), txn.key(&name.1));
                let old = txn.find(db, &key, Lookup::Silent).map(|entry| match entry.value {
                    Value::Int(int) => int.to_string().len(),
                    Value::Bytes(bytes) => bytes.len(),
                    other => panic!("these tests store strings only, not {other:?}"),
                });
                let len = old.unwrap_or(0) + more;
                let bytes = txn.edit(db, &key, len)?;
                assert_eq!(bytes.len(), len);
                bytes.iter_mut().last().into_iter().for_each(|last| *last = *mark);
                Ok(old.is_some())
            }
            Op::Copy { from, to } | Op::Rename { from, to } => {
                let (from_key, to_key) = (txn.key(&from.1), txn.key(&to.1));
                if from == to || !txn.contains(Db(from.0), &from_key) {
                    return Ok(false);
                }
                let (source, target) = ((Db(from.0), &from_key), (Db(to.0), &to_key));
                let is_copy = matches!(self, Op::Copy { .. });
                if is_copy {
                    txn.copy(source, target)?
                } else {
                    txn.rename(source, target)?
                }
                Ok(true)
            }
            Op::Flush { db } => {
                txn.flush(db.map(Db));
                Ok(true)
            }
            Op::Swap { a, b } => {
                txn.swap(Db(*a), Db(*b));
                Ok(true)
            }
        }
    }

    /// The partitions that `run` needs, ascending; `None` for all.
    pub fn partitions(&self, keyspace: &Keyspace) -> Option<Vec<u16>> {
        let of = |name: &Name| keyspace.partition_of(keyspace.key(&name.1).slot);
        let mut wanted = match self {
            Op::Set { name, .. }
            | Op::Remove { name }
            | Op::SetExpiry { name, .. }
            | Op::Edit { name, .. } => {
                vec![of(name)]
            }
            Op::Copy { from, to } | Op::Rename { from, to } => vec![of(from), of(to)],
            Op::Flush { .. } | Op::Swap { .. } => return None,
        };
        wanted.sort_unstable();
        wanted.dedup();
        Some(wanted)
    }

    /// Does the same to the map; what it must have answered.
    pub fn run_on(&self, state: &mut State, now: i64) -> bool {
        match self {
            Op::Set { name, value, expiry } => {
                let old = alive(state, name, now);
                let at = match expiry {
                    Expiry::Clear => None,
                    Expiry::Keep => old.as_ref().and_then(|(_, at)| *at),
                    Expiry::At(at) => Some(at.0),
                };
                let value = match value {
                    Stored::Raw(bytes) => Stored::Bytes(bytes.clone()),
                    other => other.clone(),
                };
                state.insert(name.clone(), (value, at));
                old.is_some()
            }
            Op::Remove { name } => alive(state, name, now).is_some_and(|_| state.remove(name).is_some()),
            Op::SetExpiry { name, at } => {
                let found = alive(state, name, now).is_some();
                state.get_mut(name).into_iter().for_each(|entry| entry.1 = *at);
                found
            }
            Op::Edit { name, more, mark } => {
                let old = alive(state, name, now);
                let mut bytes = old.as_ref().map_or(vec![], |(value, _)| value.text());
                bytes.resize(bytes.len() + more, 0);
                bytes.iter_mut().last().into_iter().for_each(|last| *last = *mark);
                state.insert(name.clone(), (Stored::Bytes(bytes), old.as_ref().and_then(|(_, at)| *at)));
                old.is_some()
            }
            Op::Copy { from, to } | Op::Rename { from, to } => {
                let Some(entry) = alive(state, from, now).filter(|_| from != to) else { return false };
                if matches!(self, Op::Rename { .. }) {
                    state.remove(from);
                }
                state.insert(to.clone(), entry);
                true
            }
            Op::Flush { db } => {
                state.retain(|name, _| db.is_some_and(|db| db != name.0));
                true
            }
            Op::Swap { a, b } => {
                let other = |db: u16| {
                    if db == *a {
                        *b
                    } else if db == *b {
                        *a
                    } else {
                        db
                    }
                };
                *state = std::mem::take(state)
                    .into_iter()
                    .map(|((db, key), entry)| ((other(db), key), entry))
                    .collect();
                true
            }
        }
    }
}

/// The entry of a key, after one that is past its time has left.
pub fn alive(state: &mut State, name: &Name, now: i64) -> Option<(Stored, Option<i64>)> {
    if state.get(name).is_some_and(|(_, at)| at.is_some_and(|at| at < now)) {
        state.remove(name);
    }
    state.get(name).cloned()
}

/// Without the entries that are past their time.
pub fn at_time(mut state: State, now: i64) -> State {
    state.retain(|_, (_, at)| at.is_none_or(|at| at >= now));
    state
}

fn draw_db(below: &mut dyn FnMut(u64) -> u64, shape: &Shape) -> u16 {
    shape.first_db + below(u64::from(shape.databases)) as u16
}

pub fn draw_name(below: &mut dyn FnMut(u64) -> u64, shape: &Shape) -> Name {
    let number = below(shape.keys);
    let mut key = format!("key:{number}").into_bytes();
    match number % 7 {
        // A hash tag: many keys in one slot.
        0 | 1 => key = format!("{{tag}}:{number}").into_bytes(),
        2 if shape.long => key.resize(180 + number as usize % 40, b'x'),
        3 if shape.long => key.resize(1000 + number as usize % 5000, b'y'),
        _ => {}
    }
    (draw_db(below, shape), key)
}

pub fn draw_value(below: &mut dyn FnMut(u64) -> u64, shape: &Shape) -> Stored {
    let len = match below(if shape.long { 12 } else { 2 }) {
        0 | 1 => below(40),
        2..=5 => below(260),
        6..=9 => below(4200),
        _ => below(20_000),
    };
    let salt = below(256);
    let bytes = || (0..len).map(|at| (at * 7 + salt) as u8).collect();
    match below(5) {
        // Integers of every width.
        0 => Stored::Int(((below(1 << 32) << 32 | below(1 << 32)) as i64) >> below(64)),
        1 => Stored::Raw(bytes()),
        _ => Stored::Bytes(bytes()),
    }
}

fn draw_expiry(below: &mut dyn FnMut(u64) -> u64, now: i64) -> Option<i64> {
    match below(6) {
        0 => None,
        // Far enough for the long form.
        1 => Some(now + 1 + below(1 << 50) as i64),
        _ => Some(now + 1 + below(4000) as i64),
    }
}

// ---- keyspaces ----

pub fn keyspace(partitions: usize, arenas: usize, reserve_bytes: u64, seed: u8) -> Keyspace {
    let config = Config {
        partitions,
        arenas,
        databases: 16,
        reserve_bytes,
        hash_secret: [seed; 16],
        class_bytes: |bytes| bytes,
    };
    let keyspace = Keyspace::new(config).expect("so many addresses are to be had");
    let pinned = vec![(*b"key:1").into(), (*b"{tag}").into()];
    keyspace.plan_prefixes(PrefixSettings { separator: b':', pinned }).expect("there are no keys");
    keyspace
}

pub fn conditions(now: i64) -> Conditions {
    Conditions { now: UnixMs(now), expiry_mode: ExpiryMode::Delete, no_touch: false }
}

/// Runs `work` in a transaction that holds everything.
pub fn txn<T>(keyspace: &Keyspace, now: i64, work: impl FnOnce(&mut Txn<'_, '_>) -> T) -> T {
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    work(&mut Txn::new(&mut held, conditions(now), &mut NoEffects))
}

/// Runs an op with the locks that it needs, no more.
pub fn run_op(keyspace: &Keyspace, now: i64, op: &Op) -> Result<bool, Full> {
    let mut held = Held::new(keyspace);
    match op.partitions(keyspace) {
        Some(partitions) => held.acquire(Want::Many(&partitions)),
        None => held.acquire(Want::All),
    };
    let done = op.run(&mut Txn::new(&mut held, conditions(now), &mut NoEffects));
    drop(held);
    if matches!(op, Op::Flush { .. }) {
        // Most of what was flushed, as the cron would: a rest meets what comes next.
        (0..keyspace.partition_count() as u16).for_each(|partition| {
            (0..30).for_each(|_| _ = keyspace.free_step(partition, 50));
        });
    }
    done
}

/// Everything that is stored, entries past their time included.
pub fn dump(keyspace: &Keyspace) -> State {
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    let keep = Conditions { expiry_mode: ExpiryMode::Keep, no_touch: true, ..conditions(START) };
    let mut sink = NoEffects;
    let mut txn = Txn::new(&mut held, keep, &mut sink);
    let mut state = State::new();
    for db in 0..txn.databases() {
        let mut keys = Vec::new();
        txn.for_each_key(Db(db), None, |key| keys.push(key.to_vec()));
        assert_eq!(keys.len() as u64, txn.len(Db(db)));
        for bytes in keys {
            let key = txn.key(&bytes);
            let entry = txn.find(Db(db), &key, Lookup::Silent).expect("it was just listed");
            let (stored, at) = (Stored::of(entry.value), entry.expiry.map(|at| at.0));
            assert!(state.insert((db, bytes), (stored, at)).is_none(), "a key is listed once");
        }
    }
    state
}

pub fn live_bytes(keyspace: &Keyspace) -> u64 {
    keyspace.arenas().iter().map(|arena| arena.live_bytes()).sum()
}

/// Empties the keyspace, which must then hold nothing at all.
pub fn flush_and_check(keyspace: &Keyspace, now: i64) {
    txn(keyspace, now, |txn| txn.flush(None));
    keyspace.free_all();
    keyspace.check_invariants();
    assert_eq!(live_bytes(keyspace), 0, "an empty keyspace keeps no objects");
}

pub fn compact(keyspace: &Keyspace, steps_max: usize) -> u64 {
    let mut moved = 0;
    for arena in 0..keyspace.arenas().len() {
        for _ in 0..steps_max {
            let step = keyspace.compact_step(arena, 16);
            moved += step.moved;
            if !step.more {
                break;
            }
        }
    }
    moved
}
