//! Waiters: which are noted as ready when, that each is ended once by any thread, and that none is left in a
//! list.

use crate::support::OnDrop;
use isotherm_keyspace::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

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
fn waiter(keyspace: &Keyspace, keys: &[(u16, &str)], on_removal: bool) -> (Arc<Waiter>, Arc<AtomicU64>) {
    let woken = Arc::new(AtomicU64::new(0));
    let keys = keys.iter().map(|(db, key)| (Db(*db), key.as_bytes()));
    let wake = |waiter: &Arc<Waiter>| {
        let woken: &Arc<AtomicU64> = waiter.client.downcast_ref().expect("made above");
        woken.fetch_add(1, SeqCst);
    };
    (Waiter::new(keyspace, Type::String, on_removal, keys, wake, Box::new(Arc::clone(&woken))), woken)
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
    let (first, _) = waiter(&keyspace, &[(0, "a"), (0, "b"), (0, "a")], false);
    let (second, _) = waiter(&keyspace, &[(0, "b"), (1, "b")], false);
    held.wait(&first);
    held.wait(&second);
    assert_eq!(first.keys.len(), 2, "a key is waited for once");
    let ready = change(&mut held, |txn| {
        ["x", "b", "a", "b"].iter().for_each(|name| set(txn, 0, name));
        set(txn, 1, "a");
    });
    assert_eq!(ready, [(0, "b".into()), (0, "a".into())]);
    let key = keyspace.key(b"b");
    let mut next = |turn| held.next_waiter(Db(0), &key, turn, Some(Type::String));
    assert!(next(0).is_some_and(|waiter| Arc::ptr_eq(&waiter, &first)));
    assert!(next(first.turn()).is_some_and(|waiter| Arc::ptr_eq(&waiter, &second)));
    assert!(next(second.turn()).is_none());
    assert!(held.next_waiter(Db(0), &key, 0, Some(Type::List)).is_none(), "none waits for a list");
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
    // Of a whole database only those are noted that are there now.
    assert_eq!(ready, [(0, "a".into()), (1, "b".into())]);
    assert_eq!(change(&mut held, |txn| _ = txn.flush(Some(Db(1)))), []);
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
fn waiters_for_a_removal_are_woken_by_it() {
    let keyspace = keyspace(1);
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let (cares, woken) = waiter(&keyspace, &[(0, "k")], true);
    let (does_not, never) = waiter(&keyspace, &[(0, "k")], false);
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
    cares.clear_woken();
    cares.wake();
    assert_eq!(woken.load(SeqCst), 2);
    assert_eq!(keyspace.waited_keys(), [1, 1]);
    for waiter in [&cares, &does_not] {
        waiter.end();
        held.forget(waiter);
    }
}

/// Threads push and serve, others give up: each client that has waited is ended exactly once, and each push
/// is taken once.
#[test]
fn each_waiter_is_ended_once() {
    const CLIENTS: u64 = 4000;
    let keyspace = keyspace(4);
    let (served, gave_up, at_once) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let serve = |held: &mut Held<'_>| {
        while let Some((db, name)) = held.take_ready() {
            let key = keyspace.key(&name);
            let mut turn = 0;
            while let Some(waiter) = held.next_waiter(db, &key, turn, Some(Type::String)) {
                turn = waiter.turn();
                if waiter.claim() != Claim::Taken {
                    continue;
                }
                let taken = Txn::new(held, conditions(), &mut NoEffects).remove(db, &key);
                if !taken {
                    waiter.release();
                    continue;
                }
                waiter.finish();
                served.fetch_add(1, SeqCst);
            }
        }
    };
    let (pushed, done, no_pusher) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for worker in 0..2u64 {
            let (keyspace, gave_up, at_once) = (&keyspace, &gave_up, &at_once);
            let (done, no_pusher) = (&done, &no_pusher);
            scope.spawn(move || {
                let _counting = OnDrop(|| _ = done.fetch_add(1, SeqCst));
                for number in 0..CLIENTS / 2 {
                    let names = [format!("k{}", number % 5), format!("k{}", (number + worker) % 5)];
                    let keys: Vec<(u16, &str)> = names.iter().map(|name| (0, name.as_str())).collect();
                    let (waiter, _) = waiter(keyspace, &keys, false);
                    let mut held = Held::new(keyspace);
                    held.acquire(Want::All);
                    let is_there = names.iter().any(|name| {
                        let key = keyspace.key(name.as_bytes());
                        Txn::new(&mut held, conditions(), &mut NoEffects).remove(Db(0), &key)
                    });
                    // A client that finds something does not wait, but may make others look.
                    while held.take_ready().is_some() {}
                    if is_there {
                        at_once.fetch_add(1, SeqCst);
                        continue;
                    }
                    held.wait(&waiter);
                    held.release();
                    while number % 3 > 0 && !waiter.has_ended() {
                        assert!(!no_pusher.load(SeqCst), "a pushing thread has failed");
                        std::thread::yield_now();
                    }
                    gave_up.fetch_add(u64::from(waiter.end()), SeqCst);
                    held.forget(&waiter);
                }
            });
            let (keyspace, pushed, done, serve) = (keyspace, &pushed, done, &serve);
            scope.spawn(move || {
                let _noting = OnDrop(|| no_pusher.store(true, SeqCst));
                let mut number = worker;
                while done.load(SeqCst) < 2 {
                    number += 1;
                    let name = format!("k{}", number % 5);
                    let key = keyspace.key(name.as_bytes());
                    let mut held = Held::new(keyspace);
                    held.acquire(Want::One(keyspace.partition_of(key.slot)));
                    let mut no_effects = NoEffects;
                    let mut txn = Txn::new(&mut held, conditions(), &mut no_effects);
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

/// A thread that serves readers: whatever is under a key is there for each of them. Wakes lie in a queue.
struct Reading<'k> {
    held: Held<'k>,
    /// Numbers of waiters, in the order of their answers.
    answered: Vec<u64>,
}

/// The number of a waiter, and where it is put when its owner is to look.
type Mailbox = (u64, Arc<std::sync::Mutex<Vec<Arc<Waiter>>>>);

fn mailbox(waiter: &Waiter) -> &Mailbox {
    waiter.client.downcast_ref().expect("made by `reader`")
}

fn reader(keyspace: &Keyspace, keys: &[String], mailbox: Mailbox) -> Arc<Waiter> {
    let keys = keys.iter().map(|key| (Db(0), key.as_bytes()));
    let wake = |waiter: &Arc<Waiter>| {
        self::mailbox(waiter).1.lock().expect("one thread").push(Arc::clone(waiter));
    };
    Waiter::new(keyspace, Type::String, false, keys, wake, Box::new(mailbox))
}

impl<'k> Serve<'k> for Reading<'k> {
    type Answer = u64;
    type Missing = ();

    fn held(&mut self) -> &mut Held<'k> {
        &mut self.held
    }
    fn acquire(&mut self, waiter: &Waiter) {
        let mut partitions: Vec<u16> = waiter.keys.iter().map(|key| key.partition).collect();
        partitions.dedup();
        self.held.acquire(Want::Many(&partitions));
    }
    fn reaches(&mut self, _: &Waiter) -> bool {
        true
    }
    fn is_leased(&mut self, _: &Waiter) -> bool {
        false
    }

    fn postpone(&mut self, _: &Arc<Waiter>) {
        unreachable!("nothing is leased");
    }

    fn kind_of(&mut self, db: Db, key: &Key<'_>) -> Option<Type> {
        let mut no_effects = NoEffects;
        let mut txn = Txn::new(&mut self.held, conditions(), &mut no_effects);
        txn.find(db, key, Lookup::Silent).map(|entry| entry.kind())
    }
    fn run(&mut self, waiter: &Arc<Waiter>) -> Attempt<u64, ()> {
        Attempt::Answer(mailbox(waiter).0)
    }
    fn fetch(&mut self, _: &Arc<Waiter>, (): ()) {
        unreachable!("everything is in memory");
    }
    fn answer(&mut self, _: &Arc<Waiter>, number: u64) {
        self.answered.push(number);
    }
}

/// Returns what a thread looks at, at most under one lock and in all, while `count` clients wait for one key,
/// some of them without a result or no longer, and are served by one change.
fn look_at_clients(count: u64) -> (u64, u64) {
    let keyspace = keyspace(4);
    let woken = Arc::default();
    let mut held = Held::new(&keyspace);
    held.acquire(Want::All);
    let waiters: Vec<Arc<Waiter>> =
        (0..count).map(|number| reader(&keyspace, &["k".into()], (number, Arc::clone(&woken)))).collect();
    let begun = isotherm_stdx::steps::looked();
    waiters.iter().for_each(|waiter| held.wait(waiter));
    // Half of them give up; most of those are still listed when the key changes.
    waiters.iter().step_by(2).for_each(|waiter| assert!(waiter.end()));
    waiters.iter().step_by(4).for_each(|waiter| held.forget(waiter));
    let mut server = Reading { held, answered: Vec::new() };
    let (mut most, mut holds) = (0, 0);
    let mut looks: Vec<Option<Arc<Waiter>>> = vec![None];
    while let Some(next) = looks.pop() {
        let before = isotherm_stdx::steps::looked();
        match next {
            None => {
                let key = keyspace.key(b"k");
                server.held.acquire(Want::One(keyspace.partition_of(key.slot)));
                let mut no_effects = NoEffects;
                set(&mut Txn::new(&mut server.held, conditions(), &mut no_effects), 0, "k");
                serve_ready(&mut server);
            }
            Some(waiter) => look(&mut server, &waiter),
        }
        server.held.release();
        most = most.max(isotherm_stdx::steps::looked() - before);
        holds += 1;
        looks.extend(woken.lock().expect("one thread").drain(..).map(Some));
    }
    let odd: Vec<u64> = (0..count).filter(|number| number % 2 == 1).collect();
    assert!(server.answered == odd, "each once, the oldest first");
    assert!(holds >= count * 3 / 4 / WAITERS_PER_HOLD_MAX);
    waiters.iter().for_each(|waiter| server.held.forget(waiter));
    assert_eq!(keyspace.waited_keys(), [0, 0]);
    keyspace.check_invariants();
    (most, isotherm_stdx::steps::looked() - begun)
}

#[test]
fn a_hold_serves_so_many_and_hands_the_rest_on() {
    let (few, many) = (look_at_clients(1000), look_at_clients(16_000));
    if cfg!(debug_assertions) {
        // Each is taken from its list, claimed and taken out of it.
        assert!(many.0 <= 4 * WAITERS_PER_HOLD_MAX, "{} under one lock", many.0);
        assert!(few.1 >= 2000 && many.1 <= 17 * few.1, "{few:?} {many:?}");
    }
}

/// A client that waits for very many keys causes no scan: its coming, a SWAPDB and its going look at each of
/// the keys some times, not at all of them for each.
#[test]
fn very_many_keys_are_no_scan() {
    let work = |count: u64| {
        let keyspace = keyspace(8);
        let names: Vec<String> = (0..count).map(|number| format!("key:{number}")).collect();
        let waiter = reader(&keyspace, &names, (0, Arc::default()));
        let mut server = Reading { held: Held::new(&keyspace), answered: Vec::new() };
        server.held.acquire(Want::All);
        let begun = isotherm_stdx::steps::looked();
        server.held.wait(&waiter);
        Txn::new(&mut server.held, conditions(), &mut NoEffects).swap(Db(0), Db(1));
        // SWAPDB is documented to look at all that is waited for.
        server.held.exempt(count);
        serve_ready(&mut server);
        server.held.release();
        // Woken for nothing, as by a thread that was too late.
        look(&mut server, &waiter);
        server.held.release();
        assert!(server.answered.is_empty() && waiter.end());
        server.held.forget(&waiter);
        assert_eq!(keyspace.waited_keys(), [0, 0]);
        isotherm_stdx::steps::looked() - begun
    };
    let (few, many) = (work(1000), work(16_000));
    assert!(!cfg!(debug_assertions) || few >= 3000 && many <= 17 * few, "{few} {many}");
}
