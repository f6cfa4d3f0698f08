//! Leased keys: what they hold up, and what passes them over.

use crate::support::*;
use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

const ID: LeaseId = LeaseId(NonZeroU64::MIN);

fn small(partitions: usize) -> Keyspace {
    keyspace(partitions, 1, 16 << 20, 7)
}

fn lease(keyspace: &Keyspace, names: &[&[u8]]) {
    let mut held = Held::new(keyspace);
    held.acquire(Want::All);
    keyspace.begin_lease();
    for name in names {
        let place = keyspace.lease_place(&keyspace.key(name));
        assert!(held.lease(place, ID) && !held.lease(place, ID), "it is leased once");
    }
}

fn end(keyspace: &Keyspace) {
    let mut held = Held::new(keyspace);
    held.acquire_beside_leases();
    held.free_leases(ID);
    held.release();
    keyspace.end_lease();
}

fn set(keyspace: &Keyspace, name: &[u8], expiry: Expiry) {
    run_op(keyspace, START, &Op::Set { name: (0, name.to_vec()), value: Stored::Int(1), expiry })
        .expect("there is room");
}

fn count(keyspace: &Keyspace) -> u64 {
    let mut held = Held::new(keyspace);
    held.acquire_beside_leases();
    let conditions = Conditions { now: UnixMs(START), expiry_mode: ExpiryMode::Keep, no_touch: true };
    Txn::new(&mut held, conditions, &mut NoEffects).len(Db(0))
}

#[test]
fn a_key_is_leased_and_its_neighbours_are_not() {
    let keyspace = small(4);
    lease(&keyspace, &[b"{a}1", b"b"]);
    let other = LeaseId(NonZeroU64::MIN.saturating_add(1));
    let mut held = Held::new(&keyspace);
    held.acquire_beside_leases();
    for (name, is_leased) in [(&b"{a}1"[..], true), (b"{a}2", false), (b"b", true), (b"c", false)] {
        let key = keyspace.key(name);
        assert_eq!(held.is_leased(&key, None), is_leased);
        assert_eq!(held.is_leased(&key, Some(other)), is_leased);
        assert!(!held.is_leased(&key, Some(ID)));
    }
    held.lease_all(ID);
    assert!(held.is_leased(&keyspace.key(b"c"), None) && !held.is_leased(&keyspace.key(b"c"), Some(ID)));
    held.release();
    end(&keyspace);
    assert!(!keyspace.has_leases());
    held.acquire(Want::All);
    assert!(!held.is_leased(&keyspace.key(b"b"), None) && !held.is_leased(&keyspace.key(b"c"), None));
}

#[test]
fn the_gate_waits_for_the_end_of_all_leases() {
    let keyspace = Arc::new(small(4));
    let changes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&changes);
    keyspace.watch_leases(move || _ = counted.fetch_add(1, Ordering::SeqCst));
    lease(&keyspace, &[b"a"]);
    let has_gate = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut held = Held::new(&keyspace);
            held.acquire(Want::All);
            assert!(!keyspace.has_leases());
            has_gate.store(true, Ordering::SeqCst);
        });
        while !keyspace.is_gate_awaited() {
            std::thread::yield_now();
        }
        // Meanwhile others have the partitions.
        let mut held = Held::new(&keyspace);
        (0..100).for_each(|_| {
            held.acquire(Want::Many(&[0, 3]));
            held.release();
        });
        assert!(!has_gate.load(Ordering::SeqCst));
        end(&keyspace);
    });
    assert!(has_gate.into_inner() && !keyspace.is_gate_awaited());
    assert_eq!(
        changes.load(Ordering::SeqCst),
        2,
        "the lease has ended, and the gate is not waited for any more"
    );
}

#[test]
fn leased_keys_expire_later() {
    let keyspace = small(1);
    for number in 0..500 {
        set(&keyspace, format!("{{a}}{number}").as_bytes(), Expiry::At(UnixMs(START + 1)));
    }
    lease(&keyspace, &[b"{a}7", b"{a}300"]);
    let step = || keyspace.expire_step(0, UnixMs(START + 1_000_000), 10_000, &mut NoEffects);
    let steps: Vec<ExpireStep> = (0..20).map(|_| step()).collect();
    assert_eq!(steps.iter().map(|step| step.expired).sum::<u64>(), 498);
    assert!(!steps[19].more, "what is passed over is not looked for again and again");
    assert_eq!(count(&keyspace), 2);
    end(&keyspace);
    assert_eq!((0..20).map(|_| step().expired).sum::<u64>(), 2);
    keyspace.check_invariants();
}

#[test]
fn leased_keys_are_not_evicted() {
    const WHICH: (EvictionPolicy, EvictionGain) = (EvictionPolicy::AllKeysRandom, EvictionGain::Any);
    let keyspace = small(2);
    let names: Vec<Vec<u8>> = (0..50).map(|number| format!("k{number}").into_bytes()).collect();
    names.iter().for_each(|name| set(&keyspace, name, Expiry::Clear));
    lease(&keyspace, &[&names[3], &names[40]]);
    let mut prng = Prng::new(1);
    let (mut evicted, mut leased) = (0, 0);
    while evicted < 48 {
        match keyspace.try_evict(WHICH, None, UnixMs(START), &mut prng, &mut NoEffects) {
            Evicted::Key(_) => evicted += 1,
            Evicted::Leased => leased += 1,
            Evicted::NotYet => {}
            Evicted::Nothing => panic!("{evicted} were evicted"),
        }
    }
    assert!(leased > 0);
    let attempt = |prng: &mut Prng| keyspace.try_evict(WHICH, None, UnixMs(START), prng, &mut NoEffects);
    assert!((0..100).all(|_| !matches!(attempt(&mut prng), Evicted::Key(_))));
    end(&keyspace);
    assert!(matches!(attempt(&mut prng), Evicted::Key(_)));
}
