//! The locks under every interleaving that a scheduler of our own thinks of: shuttle takes the place of the
//! mutex, runs one thread at a time and switches at each lock. It finds a deadlock by itself; mutual
//! exclusion is asserted.
//!
//! Run by `cargo xtask locks`.

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use shuttle::thread;
use std::sync::Arc;

const PARTITIONS: u16 = 4;
const ITERATIONS: usize = 2000;

struct World {
    keyspace: Keyspace,
    /// Flags by partition: a thread believes that it holds it.
    held: [AtomicBool; PARTITIONS as usize],
    done: AtomicU64,
}

impl World {
    fn new() -> Arc<World> {
        let config = Config {
            partitions: usize::from(PARTITIONS),
            arenas: 2,
            databases: 2,
            reserve_bytes: 2 << 20,
            hash_secret: [1; 16],
            class_bytes: |bytes| bytes,
        };
        let keyspace = Keyspace::new(config).expect("two megabytes of addresses are to be had");
        Arc::new(World { keyspace, held: Default::default(), done: AtomicU64::new(0) })
    }

    /// A key of this partition.
    fn key(&self, partition: u16) -> Vec<u8> {
        (0..)
            .map(|number| format!("key:{number}").into_bytes())
            .find(|bytes| self.keyspace.partition_of(self.keyspace.key(bytes).slot) == partition)
            .expect("every partition has keys")
    }

    /// Locks, checks that no other thread is there, adds one to the counter of every partition, and looks
    /// again.
    fn work(&self, held: &mut Held<'_>, want: Want<'_>) {
        held.acquire(want);
        let all: Vec<u16> = (0..PARTITIONS).collect();
        let partitions = match want {
            Want::Nothing => &[],
            Want::One(ref partition) => std::slice::from_ref(partition),
            Want::Many(partitions) => partitions,
            Want::All => &all,
        };
        for &partition in partitions {
            let before = self.held[usize::from(partition)].swap(true, SeqCst);
            assert!(!before, "two threads hold partition {partition}");
        }
        let mut sink = NoEffects;
        let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: false };
        let mut txn = Txn::new(held, conditions, &mut sink);
        for &partition in partitions {
            let bytes = self.key(partition);
            let key = txn.key(&bytes);
            let old = match txn.find(Db(0), &key, Lookup::Read).map(|entry| entry.value) {
                Some(Value::Int(old)) => old,
                _ => 0,
            };
            thread::yield_now();
            txn.set(Db(0), &key, NewValue::Int(old + 1), Expiry::Clear).expect("there is room");
        }
        for &partition in partitions {
            assert!(self.held[usize::from(partition)].swap(false, SeqCst));
        }
        self.done.fetch_add(partitions.len() as u64, SeqCst);
    }

    /// Checks that no count is lost.
    fn check(&self) {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::All);
        let mut sink = NoEffects;
        let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: true };
        let mut txn = Txn::new(&mut held, conditions, &mut sink);
        let mut sum = 0;
        for partition in 0..PARTITIONS {
            let bytes = self.key(partition);
            let key = txn.key(&bytes);
            if let Some(Value::Int(count)) = txn.find(Db(0), &key, Lookup::Silent).map(|entry| entry.value) {
                sum += count as u64;
            }
        }
        assert_eq!(sum, self.done.load(SeqCst));
        held.release();
        self.keyspace.check_invariants();
    }
}

fn explore(iterations: usize, scenario: impl Fn() + Send + Sync + Copy + 'static) {
    shuttle::check_random(scenario, iterations);
    // Few switches at unlikely places: what random schedules find last.
    shuttle::check_pct(scenario, iterations, 3);
}

/// Overlapping sets, the gate, and single partitions, each in its own thread.
#[test]
fn overlapping_wants_exclude_each_other() {
    explore(ITERATIONS, || {
        let world = World::new();
        let wants: [Want<'static>; 4] = [Want::Many(&[0, 1]), Want::Many(&[1, 3]), Want::All, Want::One(3)];
        let threads: Vec<_> = wants
            .into_iter()
            .map(|want| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.work(&mut Held::new(&world.keyspace), want))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        world.check();
    });
}

/// Workers keep what they hold from one command to the next, and go from one want to any other.
#[test]
fn batches_go_from_want_to_want() {
    explore(ITERATIONS, || {
        let world = World::new();
        let batches: [&'static [Want<'static>]; 3] = [
            &[Want::One(0), Want::One(0), Want::Many(&[0, 2]), Want::One(2), Want::One(1)],
            &[Want::Many(&[1, 2]), Want::One(1), Want::All, Want::Many(&[0, 3]), Want::Nothing],
            &[Want::One(2), Want::Many(&[0, 1, 2]), Want::Many(&[1, 2]), Want::One(3)],
        ];
        let threads: Vec<_> = batches
            .into_iter()
            .map(|batch| {
                let world = Arc::clone(&world);
                thread::spawn(move || {
                    let mut held = Held::new(&world.keyspace);
                    batch.iter().for_each(|&want| world.work(&mut held, want));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        world.check();
    });
}

/// Cron and others work at the same time as the workers: compaction only tries the locks, the rest takes one
/// at a time or all.
#[test]
fn cron_beside_workers() {
    explore(ITERATIONS / 4, || {
        let world = World::new();
        // Something to compact, expire and evict.
        {
            let mut held = Held::new(&world.keyspace);
            held.acquire(Want::All);
            let mut sink = NoEffects;
            let conditions = Conditions { now: UnixMs(0), expiry_mode: ExpiryMode::Delete, no_touch: true };
            let mut txn = Txn::new(&mut held, conditions, &mut sink);
            for number in 0..200 {
                let bytes = format!("other:{number}").into_bytes();
                let key = txn.key(&bytes);
                let expiry = if number % 4 == 0 { Expiry::At(UnixMs(0)) } else { Expiry::Clear };
                txn.set(Db(1), &key, NewValue::Bytes(&[7; 300]), expiry).expect("there is room");
            }
            for number in (0..200).filter(|number| number % 3 != 0) {
                let bytes = format!("other:{number}").into_bytes();
                let key = txn.key(&bytes);
                txn.remove(Db(1), &key);
            }
        }
        let spawn = |work: fn(&World)| {
            let world = Arc::clone(&world);
            thread::spawn(move || work(&world))
        };
        let threads = [
            spawn(|world| {
                let mut held = Held::new(&world.keyspace);
                world.work(&mut held, Want::Many(&[0, 2]));
                world.work(&mut held, Want::One(2));
            }),
            spawn(|world| world.work(&mut Held::new(&world.keyspace), Want::All)),
            spawn(|world| {
                for arena in 0..2 {
                    let step = world.keyspace.compact_step(arena, 8);
                    assert!(step.moved + step.stayed <= 8);
                }
            }),
            spawn(|world| {
                let mut snapshot = world.keyspace.snapshot().expect("none is under way");
                while snapshot.step(40, &mut |_| {}) {}
            }),
            spawn(|world| {
                for partition in 0..PARTITIONS {
                    world.keyspace.expire_step(partition, UnixMs(1000), 10, &mut NoEffects);
                }
                world.keyspace.set_access(AccessMode::Lru, 10);
            }),
            spawn(|world| {
                let policy = EvictionPolicy::VolatileTtl;
                world.keyspace.evict_one(policy, UnixMs(1), &mut Prng::new(1), &mut NoEffects);
            }),
        ];
        threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        world.check();
    });
}

/// The check can fail: locks in another order than ascending are found to deadlock.
#[test]
#[should_panic(expected = "deadlock")]
fn the_wrong_order_is_found() {
    shuttle::check_random(
        || {
            let world = World::new();
            let threads: Vec<_> = [(0, 1), (1, 0)]
                .into_iter()
                .map(|(first, second)| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || {
                        let (mut one, mut two) = (Held::new(&world.keyspace), Held::new(&world.keyspace));
                        one.acquire(Want::One(first));
                        two.acquire(Want::One(second));
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        },
        ITERATIONS,
    );
}
