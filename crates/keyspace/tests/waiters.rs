//! Waiters: who is noted as ready when, that each is ended once whoever tries, and that nobody is left in a list.

use isotherm_keyspace::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const NOW: UnixMs = UnixMs(1_750_000_000_000);

fn keyspace(partitions: usize) -> Keyspace {
    let config = Config {
        partitions,
        arenas: 1,
        databases: 2,
        reserve_bytes: 64 << 20,
        hash_secret: [3; 16],
        class_bytes: |bytes| bytes,
    };
    Keyspace::new(config).expect("address space")
}

fn conditions() -> Conditions {
    Conditions { now: NOW, expiry_mode: ExpiryMode::Delete, no_touch: false }
}

/// A waiter that counts how often it was woken.
fn waiter(keys: &[(u16, &str)], on_removal: bool) -> (Arc<Waiter>, Arc<AtomicU64>) {
    let woken = Arc::new(AtomicU64::new(0));
    let keys = keys.iter().map(|(db, key)| (Db(*db), Box::from(key.as_bytes()))).collect();
    let wake = |waiter: &Arc<Waiter>| {
        let woken: &Arc<AtomicU64> = waiter.client.downcast_ref().expect("made above");
        woken.fetch_add(1, SeqCst);
    };
    (Waiter::new(Type::String, on_removal, keys, wake, Box::new(Arc::clone(&woken))), woken)
}

fn change(held: &mut Held<'_>, work: impl FnOnce(&mut Txn<'_, '_>)) -> Vec<(u16, String)> {
    work(&mut Txn::new(held, conditions(), &mut NoEffects));
    let mut ready = Vec::new();
    while let Some((db, key)) = held.take_ready() {
        ready.push((db.0, String::from_utf8(key.to_vec()).expect("plain names")));
    }
    ready
}

fn set(txn: &mut Txn<'_, '_>, db: u16, name: &str) {
    let key = txn.key(name.as_bytes());
    txn.set(Db(db), &key, NewValue::Int(1), Expiry::Clear).expect("there is room");
}

#[test]
fn keys_are_ready_in_the_order_of_their_first_change() {
    let keyspace = keyspace(8);
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let (first, _) = waiter(&[(0, "a"), (0, "b"), (0, "a")], false);
    let (second, _) = waiter(&[(0, "b"), (1, "b")], false);
    held.wait(&first);
    held.wait(&second);
    assert_eq!(first.keys.len(), 2, "a key is waited for once");
    let ready = change(&mut held, |txn| {
        ["x", "b", "a", "b"].iter().for_each(|name| set(txn, 0, name));
        set(txn, 1, "a");
    });
    assert_eq!(ready, [(0, "b".into()), (0, "a".into())]);
    let key = keyspace.key(b"b");
    let waiters = held.waiters(Db(0), &key);
    assert!(Arc::ptr_eq(&waiters[0], &first) && Arc::ptr_eq(&waiters[1], &second) && waiters.len() == 2);
    // A removal is a change, a lookup is none; neither is a key of another name.
    let ready = change(&mut held, |txn| {
        let (a, b) = (txn.key(b"a"), txn.key(b"b"));
        txn.find(Db(0), &b, Lookup::Read);
        txn.remove(Db(0), &a);
        txn.remove(Db(1), &b);
    });
    assert_eq!(ready, [(0, "a".into())]);
    let mut ready = change(&mut held, |txn| txn.swap(Db(0), Db(1)));
    ready.sort();
    assert_eq!(ready, [(0, "a".into()), (0, "b".into()), (1, "b".into())]);
    assert_eq!(change(&mut held, |txn| _ = txn.flush(Some(Db(1)))), [(1, "b".into())]);
    held.release();
    assert_eq!(keyspace.waited_keys(), [3, 0]);
    for waiter in [&first, &second] {
        assert!(waiter.end() && !waiter.end());
        held.forget(waiter);
    }
    assert_eq!(keyspace.waited_keys(), [0, 0]);
    keyspace.check_invariants();
}

#[test]
fn whoever_waits_for_a_removal_is_woken_by_it() {
    let keyspace = keyspace(1);
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let (cares, woken) = waiter(&[(0, "k")], true);
    let (does_not, never) = waiter(&[(0, "k")], false);
    held.wait(&cares);
    held.wait(&does_not);
    let ready = change(&mut held, |txn| {
        let key = txn.key(b"k");
        txn.set(Db(0), &key, NewValue::Int(1), Expiry::At(UnixMs(NOW.0 + 60_000))).expect("there is room");
    });
    assert_eq!(ready.len(), 1);
    held.release();
    let step = keyspace.expire_step(0, UnixMs(NOW.0 + 120_000), 100, &mut NoEffects);
    assert_eq!((step.expired, woken.load(SeqCst), never.load(SeqCst)), (1, 1, 0));
    // It is woken once until it has heard.
    cares.wake();
    assert!(cares.is_woken() && woken.load(SeqCst) == 1);
    cares.has_heard();
    cares.wake();
    assert_eq!(woken.load(SeqCst), 2);
    assert_eq!(keyspace.waited_keys(), [1, 1]);
    for waiter in [&cares, &does_not] {
        waiter.end();
        held.forget(waiter);
    }
}

/// Threads push and serve, others give up: whoever has waited is ended exactly once, and nothing is pushed in vain.
#[test]
fn everybody_is_ended_once() {
    const CLIENTS: u64 = 4000;
    let keyspace = keyspace(4);
    let (served, gave_up, at_once) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let serve = |held: &mut Held<'_>| {
        while let Some((db, name)) = held.take_ready() {
            let key = keyspace.key(&name);
            for waiter in held.waiters(db, &key) {
                if !waiter.claim() {
                    continue;
                }
                let taken = Txn::new(held, conditions(), &mut NoEffects).remove(db, &key);
                if !taken {
                    waiter.release();
                    continue;
                }
                waiter.finish();
                held.forget_here(&waiter);
                served.fetch_add(1, SeqCst);
            }
        }
    };
    let (pushed, done) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let (keyspace, gave_up, at_once, done) = (&keyspace, &gave_up, &at_once, &done);
            scope.spawn(move || {
                for number in 0..CLIENTS / 2 {
                    let names = [format!("k{}", number % 5), format!("k{}", (number + worker) % 5)];
                    let keys: Vec<(u16, &str)> = names.iter().map(|name| (0, name.as_str())).collect();
                    let (waiter, _) = waiter(&keys, false);
                    let mut held = Held::new(keyspace);
                    held.acquire(Want::All);
                    let is_there = names.iter().any(|name| {
                        let key = keyspace.key(name.as_bytes());
                        Txn::new(&mut held, conditions(), &mut NoEffects).remove(Db(0), &key)
                    });
                    // Whoever finds something does not wait, but may make others look.
                    while held.take_ready().is_some() {}
                    if is_there {
                        at_once.fetch_add(1, SeqCst);
                        continue;
                    }
                    held.wait(&waiter);
                    held.release();
                    while number % 3 > 0 && !waiter.has_ended() {
                        std::thread::yield_now();
                    }
                    gave_up.fetch_add(u64::from(waiter.end()), SeqCst);
                    held.forget(&waiter);
                }
                done.fetch_add(1, SeqCst);
            });
            let (keyspace, pushed, done, serve) = (keyspace, &pushed, done, &serve);
            scope.spawn(move || {
                let mut number = worker;
                while done.load(SeqCst) < 2 {
                    number += 1;
                    let name = format!("k{}", number % 5);
                    let key = keyspace.key(name.as_bytes());
                    let mut held = Held::new(keyspace);
                    held.acquire(Want::One(keyspace.partition_of(key.slot)));
                    let mut nobody = NoEffects;
                    let mut txn = Txn::new(&mut held, conditions(), &mut nobody);
                    if !txn.contains(Db(0), &key) {
                        set(&mut txn, 0, &name);
                        pushed.fetch_add(1, SeqCst);
                    }
                    serve(&mut held);
                    held.release();
                }
            });
        }
    });
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let left = Txn::new(&mut held, conditions(), &mut NoEffects).len(Db(0));
    held.release();
    let [served, gave_up, at_once] = [&served, &gave_up, &at_once].map(|count| count.load(SeqCst));
    assert_eq!(served + gave_up + at_once, CLIENTS);
    assert_eq!(
        pushed.load(SeqCst),
        served + at_once + left,
        "what was pushed went to one client or is there"
    );
    assert!(served > 0 && gave_up > 0, "{served} served, {gave_up} gave up");
    assert_eq!(keyspace.waited_keys(), [0, 0]);
    keyspace.check_invariants();
}
