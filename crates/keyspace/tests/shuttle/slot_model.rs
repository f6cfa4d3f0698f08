//! A slot that leaves the node, under interleavings that a scheduler of our own chooses: a client that
//! registers for it reads its word under the lock that the loss takes, so the loss releases the client, or
//! the client finds that the slot is gone.
//!
//! ```text
//! loss      lock | word: gone | watches fail, waiters are answered | unlock | it is over
//! waits     lock | word there? list the waiter : refused | unlock
//! watches   lock | list the watch | unlock | lock | word gone? fail | unlock
//! writes    lock | word there? write : refused | unlock
//! ```
//! The word is a relaxed one, as the server's is: the lock orders it.

use isotherm_keyspace::*;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use shuttle::thread;
use std::sync::Arc;

const ITERATIONS: usize = 3000;
const DB: Db = Db(0);
const NAME: &[u8] = b"a";

struct World {
    keyspace: Keyspace,
    is_here: AtomicBool,
    /// The loss has returned.
    is_over: AtomicBool,
    refused: AtomicU64,
    answered: AtomicU64,
}

fn conditions() -> Conditions {
    Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: false }
}

impl World {
    fn lock(&self) -> Held<'_> {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::One(self.keyspace.partition_of(Slot::of_key(NAME))));
        held
    }

    fn lose(&self) {
        let slot = Slot::of_key(NAME);
        let mut held = self.lock();
        self.is_here.store(false, Relaxed);
        for (of, waiter) in held.leave_slots(self.keyspace.partition_of(slot), |left| left == slot) {
            assert_eq!(of, slot);
            self.answered.fetch_add(u64::from(waiter.answer_otherwise()), SeqCst);
        }
        held.release();
        self.is_over.store(true, SeqCst);
    }

    fn wait(&self, waiter: &Arc<Waiter>) {
        let was_over = self.is_over.load(SeqCst);
        let mut held = self.lock();
        match self.is_here.load(Relaxed) {
            true => {
                assert!(!was_over, "nothing registers behind the loss");
                held.wait(waiter);
            }
            false => drop(self.refused.fetch_add(1, SeqCst)),
        }
        held.release();
    }

    fn watch(&self, watcher: &Arc<Watcher>) {
        let mut held = self.lock();
        let name = Arc::from(NAME);
        Txn::new(&mut held, conditions(), &mut NoEffects).watch(DB, &name, watcher);
        held.release();
        held = self.lock();
        if !self.is_here.load(Relaxed) {
            watcher.mark_dirty();
        }
        held.release();
    }

    fn write(&self) {
        let was_over = self.is_over.load(SeqCst);
        let mut held = self.lock();
        if self.is_here.load(Relaxed) {
            assert!(!was_over, "no command runs behind the loss");
        }
        held.release();
    }
}

fn scenario() {
    let config = Config {
        partitions: 2,
        arenas: 1,
        databases: 1,
        reserve_bytes: 16 << 20,
        hash_secret: *b"0123456789abcdef",
        class_bytes: |bytes| bytes,
    };
    let world = Arc::new(World {
        keyspace: Keyspace::new(config).expect("address space"),
        is_here: AtomicBool::new(true),
        is_over: AtomicBool::new(false),
        refused: AtomicU64::new(0),
        answered: AtomicU64::new(0),
    });
    let keys = [(DB, NAME)];
    let waiter = Waiter::new(&world.keyspace, Type::List, false, keys.into_iter(), |_| (), Box::new(()));
    let watcher = Arc::new(Watcher::default());
    let works: [Box<dyn FnOnce(&World) + Send>; 4] = [
        Box::new(World::lose),
        Box::new({
            let waiter = Arc::clone(&waiter);
            move |world| world.wait(&waiter)
        }),
        Box::new({
            let watcher = Arc::clone(&watcher);
            move |world| world.watch(&watcher)
        }),
        Box::new(World::write),
    ];
    let threads = works.map(|work| {
        let world = Arc::clone(&world);
        thread::spawn(move || work(&world))
    });
    threads.into_iter().for_each(|thread| thread.join().expect("no check has failed"));
    let (refused, answered) = (world.refused.load(SeqCst), world.answered.load(SeqCst));
    assert_eq!(refused + answered, 1, "the client is refused or let go of, once");
    assert_eq!(waiter.has_ended(), answered == 1);
    assert!(watcher.is_dirty(), "the transaction fails");
}

#[test]
fn a_loss_finds_all_that_has_registered() {
    shuttle::check_random(scenario, ITERATIONS);
    shuttle::check_pct(scenario, ITERATIONS, 3);
}
