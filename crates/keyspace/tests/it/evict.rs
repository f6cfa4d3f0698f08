//! Eviction takes what its policy allows, prefers what its policy prefers, finds the few volatile keys among
//! many others, and continues until nothing is left.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

const MIRI: bool = cfg!(miri);

const VOLATILE: [EvictionPolicy; 4] = [
    EvictionPolicy::VolatileLru,
    EvictionPolicy::VolatileLfu,
    EvictionPolicy::VolatileRandom,
    EvictionPolicy::VolatileTtl,
];
const ALL_KEYS: [EvictionPolicy; 3] =
    [EvictionPolicy::AllKeysLru, EvictionPolicy::AllKeysLfu, EvictionPolicy::AllKeysRandom];

fn mode_of(policy: EvictionPolicy) -> AccessMode {
    match policy {
        EvictionPolicy::AllKeysLru | EvictionPolicy::VolatileLru => AccessMode::Lru,
        EvictionPolicy::AllKeysLfu | EvictionPolicy::VolatileLfu => AccessMode::Lfu,
        _ => AccessMode::Page,
    }
}

/// Names of the keys that left, in order.
#[derive(Default)]
struct Evicted(Vec<Name>);

impl EffectSink for Evicted {
    fn mask(&self) -> EffectMask {
        EffectMask::ALL
    }
    fn effect(&mut self, effect: Effect<'_>) {
        let Effect::Evicted { db, key } = effect else { panic!("{effect:?} is no eviction") };
        self.0.push((db.0, key.to_vec()));
    }
}

fn evict(keyspace: &Keyspace, policy: EvictionPolicy, prng: &mut Prng, count: usize) -> Vec<Name> {
    let mut evicted = Evicted::default();
    for _ in 0..count {
        if !keyspace.evict_one(policy, UnixMs(START), prng, &mut evicted) {
            break;
        }
    }
    evicted.0
}

fn set(keyspace: &Keyspace, now: i64, name: Name, expiry: Expiry) {
    run_op(keyspace, now, &Op::Set { name, value: Stored::Int(1), expiry }).expect("there is room");
}

/// Every policy, until nothing that may leave is left.
#[test]
fn each_policy_takes_what_it_may_until_it_is_gone() {
    for (seed, policy) in VOLATILE.into_iter().chain(ALL_KEYS).enumerate() {
        let keyspace = keyspace([1, 16][seed % 2], 1, 1 << 30, seed as u8);
        keyspace.set_access(mode_of(policy), 10);
        let mut prng = Prng::new(seed as u64);
        let shape = Shape { keys: 3000, long: true, first_db: 0, databases: 3, whole: false };
        for _ in 0..if MIRI { 100 } else { 3000 } {
            run_op(&keyspace, START, &Op::random(&mut prng, &shape, START)).expect("there is room");
        }
        let before = dump(&keyspace);
        let may_leave: BTreeSet<Name> = before
            .iter()
            .filter(|(_, (_, at))| at.is_some() || ALL_KEYS.contains(&policy))
            .map(|(name, _)| name.clone())
            .collect();
        assert!(may_leave.len() > before.len() / 10);
        let evicted = evict(&keyspace, policy, &mut prng, usize::MAX);
        assert_eq!(evicted.len(), may_leave.len(), "{policy:?}");
        assert_eq!(evicted.into_iter().collect::<BTreeSet<_>>(), may_leave, "{policy:?}");
        keyspace.check_invariants();
        let mut expected = before;
        expected.retain(|name, _| !may_leave.contains(name));
        assert!(dump(&keyspace) == expected);
        assert!(!keyspace.evict_one(policy, UnixMs(START), &mut prng, &mut NoEffects));
        flush_and_check(&keyspace, START);
    }
}

/// A key in ten thousand is volatile: it is found without a look at the others.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn few_volatile_keys_are_found_among_many() {
    const KEYS: usize = 200_000;
    const VOLATILE_KEYS: usize = KEYS / 10_000;
    for giant_slot in [false, true] {
        let keyspace = keyspace(1, 1, 1 << 30, 20);
        for number in 0..KEYS {
            let name = if giant_slot { format!("{{slot}}{number}") } else { format!("key:{number}") };
            set(&keyspace, START, (0, name.into_bytes()), Expiry::Clear);
        }
        for policy in VOLATILE {
            for number in 0..VOLATILE_KEYS {
                let name = if giant_slot { format!("{{slot}}v{number}") } else { format!("v:{number}") };
                set(&keyspace, START, (0, name.into_bytes()), Expiry::At(UnixMs(START + 1_000_000)));
            }
            let mut prng = Prng::new(20);
            let mut times: Vec<Duration> = (0..VOLATILE_KEYS)
                .map(|_| {
                    let begin = Instant::now();
                    assert_eq!(evict(&keyspace, policy, &mut prng, 1).len(), 1);
                    begin.elapsed()
                })
                .collect();
            // The median: the machine may be busy with something else.
            times.sort();
            let median = times[VOLATILE_KEYS / 2];
            println!("{policy:?}, giant slot {giant_slot}: {median:?} each");
            assert!(!keyspace.evict_one(policy, UnixMs(START), &mut prng, &mut NoEffects));
            // A search through all keys takes some ten milliseconds.
            assert!(median < Duration::from_millis(1), "{policy:?} needs {median:?} for a key");
        }
    }
}

/// All keys of a giant slot were volatile once, few still are: bounds that have become too low do not lead
/// astray for long.
#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn bounds_of_keys_that_persist_are_forgotten() {
    const KEYS: usize = 100_000;
    let keyspace = keyspace(1, 1, 1 << 30, 21);
    let name = |number: usize| -> Name { (0, format!("{{slot}}{number}").into_bytes()) };
    for number in 0..KEYS {
        set(&keyspace, START, name(number), Expiry::At(UnixMs(START + 1_000_000)));
    }
    for number in 0..KEYS {
        if number % 1000 != 0 {
            run_op(&keyspace, START, &Op::SetExpiry { name: name(number), at: None })
                .expect("it needs no room");
        }
    }
    let begin = Instant::now();
    let evicted = evict(&keyspace, EvictionPolicy::VolatileRandom, &mut Prng::new(21), usize::MAX);
    println!("{:?} each", begin.elapsed() / evicted.len() as u32);
    assert_eq!(evicted.len(), KEYS / 1000);
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    keyspace.check_invariants();
}

/// The mean place of those that left in the order that the policy would like best: 0 is perfect, 0.5 is
/// chance.
fn mean_rank(keyspace: &Keyspace, policy: EvictionPolicy, best_first: &[Name]) -> f64 {
    let ranks: BTreeMap<&Name, usize> =
        best_first.iter().enumerate().map(|(rank, name)| (name, rank)).collect();
    let evicted = evict(keyspace, policy, &mut Prng::new(22), best_first.len() / 10);
    let sum: usize = evicted.iter().map(|name| ranks[name]).sum();
    sum as f64 / evicted.len() as f64 / best_first.len() as f64
}

#[test]
#[cfg_attr(miri, ignore = "many keys")]
fn the_worst_keys_leave_first() {
    const KEYS: usize = 10_000;
    let names: Vec<Name> = (0..KEYS).map(|number| (0, format!("key:{number}").into_bytes())).collect();
    for policy in VOLATILE.into_iter().chain(ALL_KEYS) {
        let keyspace = keyspace(4, 1, 1 << 30, 22);
        keyspace.set_access(mode_of(policy), 10);
        let mut prng = Prng::new(22);
        let mut order: Vec<usize> = (0..KEYS).collect();
        for at in (1..KEYS).rev() {
            order.swap(at, prng.below(at as u64 + 1) as usize);
        }
        // Made long ago, volatile all of them; the later in `order`, the later the expiry, the access, the
        // more of them.
        for (rank, &at) in order.iter().enumerate() {
            let expiry = Expiry::At(UnixMs(START + 1_000_000 + rank as i64 * 1000));
            set(&keyspace, START - 20_000_000, names[at].clone(), expiry);
        }
        for (rank, &at) in order.iter().enumerate() {
            let now = START - (KEYS - rank) as i64 * 1000;
            for _ in 0..if mode_of(policy) == AccessMode::Lfu { rank / 100 } else { 1 } {
                txn(&keyspace, now, |txn| {
                    assert!(txn.find(Db(0), &txn.key(&names[at].1), Lookup::Read).is_some());
                });
            }
        }
        let best_first: Vec<Name> = order.iter().map(|&at| names[at].clone()).collect();
        let rank = mean_rank(&keyspace, policy, &best_first);
        println!("{policy:?}: mean rank {rank:.3}");
        match policy {
            EvictionPolicy::VolatileRandom | EvictionPolicy::AllKeysRandom => {
                assert!((0.45..0.55).contains(&rank), "{policy:?}: {rank}");
            }
            // The counters of LFU are logarithmic, and ties are many. A tenth taken perfectly would be 0.05.
            EvictionPolicy::VolatileLfu | EvictionPolicy::AllKeysLfu => {
                assert!(rank < 0.25, "{policy:?}: {rank}")
            }
            _ => assert!(rank < 0.15, "{policy:?}: {rank}"),
        }
    }
}

/// A key that was just written is as new as one that was just read.
#[test]
fn a_write_counts_as_an_access() {
    let keyspace = keyspace(1, 1, 1 << 30, 23);
    keyspace.set_access(AccessMode::Lru, 10);
    let name: Name = (0, b"key".into());
    let idle = |keyspace: &Keyspace| {
        txn(keyspace, START, |txn| {
            txn.find(Db(0), &txn.key(b"key"), Lookup::Silent).expect("it is there").idle_seconds()
        })
    };
    set(&keyspace, START - 100_000, name.clone(), Expiry::Clear);
    assert_eq!(idle(&keyspace), 100);
    set(&keyspace, START - 50_000, name.clone(), Expiry::Clear);
    assert_eq!(idle(&keyspace), 50);
    // An edit follows a lookup, which counts.
    txn(&keyspace, START - 20_000, |txn| {
        assert!(txn.find(Db(0), &txn.key(b"key"), Lookup::Write).is_some());
    });
    assert_eq!(idle(&keyspace), 20);
    // Of a client that leaves no traces, a write leaves none either.
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let mut sink = NoEffects;
    let mut quiet =
        Txn::new(&mut held, Conditions { no_touch: true, ..conditions(START - 10_000) }, &mut sink);
    let key = quiet.key(b"key");
    quiet.set(Db(0), &key, NewValue::Int(2), Expiry::Clear).expect("there is room");
    held.release();
    assert_eq!(idle(&keyspace), 20);
}

/// Under LFU a lookup and the store that follows it are one access.
#[test]
fn a_write_counts_once() {
    let keyspace = keyspace(1, 1, 1 << 30, 26);
    // Factor 0: every access adds one.
    keyspace.set_access(AccessMode::Lfu, 0);
    set(&keyspace, START, (0, b"key".into()), Expiry::Clear);
    let frequency = |txn: &mut Txn<'_, '_>| {
        let key = txn.key(b"key");
        txn.find(Db(0), &key, Lookup::Silent).expect("it is there").frequency()
    };
    txn(&keyspace, START, |txn| {
        let key = txn.key(b"key");
        let start = frequency(txn);
        for finds_first in [false, false, true, false, true] {
            let before = frequency(txn);
            if finds_first {
                assert!(txn.find(Db(0), &key, Lookup::Write).is_some());
            }
            txn.set(Db(0), &key, NewValue::Int(1), Expiry::Clear).expect("there is room");
            assert_eq!(frequency(txn), before + 1);
        }
        assert_eq!(frequency(txn), start + 5);
    });
}

/// Random policies give every key its chance.
#[test]
#[cfg_attr(miri, ignore = "many draws")]
fn random_eviction_is_uniform() {
    const KEYS: usize = 300;
    for policy in [EvictionPolicy::AllKeysRandom, EvictionPolicy::VolatileRandom] {
        let keyspace = keyspace(4, 1, 1 << 30, 24);
        let name = |number: usize| match number % 3 {
            0 => (0, format!("key:{number}").into_bytes()),
            _ => (number as u16 % 2, format!("{{slot}}{number}").into_bytes()),
        };
        let names: Vec<Name> = (0..KEYS).map(name).collect();
        let expiry = Expiry::At(UnixMs(START + 1_000_000));
        names.iter().for_each(|name| set(&keyspace, START, name.clone(), expiry));
        let (mut prng, mut draws) = (Prng::new(24), BTreeMap::new());
        for _ in 0..KEYS * 100 {
            let name = evict(&keyspace, policy, &mut prng, 1).pop().expect("there are keys");
            *draws.entry(name.clone()).or_insert(0u64) += 1;
            set(&keyspace, START, name, expiry);
        }
        let chi_square: f64 = names
            .iter()
            .map(|name| (draws.get(name).copied().unwrap_or(0) as f64 - 100.0).powi(2) / 100.0)
            .sum();
        println!("{policy:?}: chi square {chi_square:.0}");
        // 299 degrees of freedom: 299 +- 24. The volatile policy takes a random page first, whatever lies in
        // it.
        let limit = if policy == EvictionPolicy::AllKeysRandom { 422.0 } else { 15_000.0 };
        assert!(chi_square < limit, "{policy:?}: {chi_square}");
        assert!(names.iter().all(|name| draws.contains_key(name)));
    }
}

/// Watched keys that are evicted count as changed, those that were past their time anyway do not.
#[test]
fn eviction_flags_watchers() {
    use std::sync::Arc;
    let keyspace = keyspace(1, 1, 1 << 30, 25);
    for (expiry, dirty) in [(None, true), (Some(START + 1000), true), (Some(START - 1), false)] {
        set(
            &keyspace,
            START - 10,
            (0, b"key".into()),
            expiry.map_or(Expiry::Clear, |at| Expiry::At(UnixMs(at))),
        );
        let watcher = Arc::new(Watcher::default());
        let hide = Conditions { expiry_mode: ExpiryMode::Hide, ..conditions(START) };
        let mut held = Held::new(&keyspace);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        let mut watching = Txn::new(&mut held, hide, &mut sink);
        watching.watch(Db(0), &Arc::from(&b"key"[..]), &watcher);
        held.release();
        assert_eq!(evict(&keyspace, EvictionPolicy::AllKeysRandom, &mut Prng::new(25), 10).len(), 1);
        assert_eq!(watcher.is_dirty(), dirty, "{expiry:?}");
        txn(&keyspace, START, |txn| txn.unwatch(Db(0), &txn.key(b"key"), &watcher));
    }
}
