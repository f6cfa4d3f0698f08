//! Leases under every interleaving that shuttle thinks of: scripts that take long, commands that need their
//! keys, the gate.
//!
//! Two numbers lie in two partitions, and only scripts change them, one after the other and both by one. So a
//! thread that has both, and finds neither leased, finds them equal; and so does one that has the gate. A
//! script meets the second key in its middle, so it has the token; one without a token has named its key
//! before. Shuttle finds by itself where no thread makes progress.

use isotherm_keyspace::*;
use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use std::num::NonZeroU64;
use std::sync::Arc;

const PARTITIONS: u16 = 4;
const ITERATIONS: usize = 1000;

/// Changes that parked connections wait for: `WorkerMessage::ScriptsChanged`.
#[derive(Default)]
struct Changes {
    count: Mutex<u64>,
    more: Condvar,
}

impl Changes {
    fn count(&self) -> u64 {
        *self.count.lock().expect("no thread fails")
    }

    fn wait_behind(&self, seen: u64) {
        let mut count = self.count.lock().expect("no thread fails");
        while *count == seen {
            count = self.more.wait(count).expect("no thread fails");
        }
    }
}

struct World {
    keyspace: Keyspace,
    changes: Arc<Changes>,
    token: Mutex<()>,
    names: [Vec<u8>; 3],
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
        let changes = Arc::new(Changes::default());
        let seen = Arc::clone(&changes);
        keyspace.watch_leases(move || {
            *seen.count.lock().expect("no thread fails") += 1;
            seen.more.notify_all();
        });
        let in_partition = |wanted: u16| {
            let mut names = (0..).map(|number| format!("key:{number}").into_bytes());
            names
                .find(|name| keyspace.partition_of(keyspace.key(name).slot) == wanted)
                .expect("every partition has keys")
        };
        let names = [in_partition(0), in_partition(2), in_partition(2)];
        let names = [names[0].clone(), names[1].clone(), [b"{", &names[2][..], b"}other"].concat()];
        Arc::new(World { keyspace, changes, token: Mutex::new(()), names })
    }

    fn key(&self, at: usize) -> Key<'_> {
        self.keyspace.key(&self.names[at])
    }

    fn partition(&self, at: usize) -> u16 {
        self.keyspace.partition_of(self.key(at).slot)
    }

    fn get(&self, held: &mut Held<'_>, at: usize) -> i64 {
        let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: false };
        let mut sink = NoEffects;
        let mut txn = Txn::new(held, conditions, &mut sink);
        match txn.find(Db(0), &self.key(at), Lookup::Read).map(|entry| entry.value) {
            Some(Value::Int(value)) => value,
            _ => 0,
        }
    }

    fn add_one(&self, held: &mut Held<'_>, at: usize) {
        let value = self.get(held, at);
        let conditions = Conditions { now: UnixMs(1), expiry_mode: ExpiryMode::Delete, no_touch: false };
        let mut sink = NoEffects;
        let mut txn = Txn::new(held, conditions, &mut sink);
        txn.set(Db(0), &self.key(at), NewValue::Int(value + 1), Expiry::Clear).expect("there is room");
    }

    /// Locks the partitions of these keys when none of them is another's: a command, or the beginning of a
    /// script.
    fn lock_free(&self, held: &mut Held<'_>, keys: &[usize]) {
        let mut partitions: Vec<u16> = keys.iter().map(|&at| self.partition(at)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        loop {
            let seen = self.changes.count();
            held.acquire(Want::Many(&partitions));
            if !keys.iter().any(|&at| held.is_leased(&self.key(at), None)) {
                return;
            }
            held.release();
            self.changes.wait_behind(seen);
        }
    }

    fn lease(&self, held: &mut Held<'_>, at: usize, id: LeaseId) {
        held.lease(self.keyspace.lease_place(&self.key(at)), id);
    }

    /// Locks for one more command of a script that has leases.
    fn lock_for_script(&self, held: &mut Held<'_>, at: usize, id: LeaseId) {
        loop {
            let seen = self.changes.count();
            held.acquire(Want::One(self.partition(at)));
            if !held.is_leased(&self.key(at), Some(id)) {
                return self.lease(held, at, id);
            }
            held.release();
            self.changes.wait_behind(seen);
        }
    }

    fn end(&self, held: &mut Held<'_>, keys: &[usize], id: LeaseId) {
        let mut partitions: Vec<u16> = keys.iter().map(|&at| self.partition(at)).collect();
        partitions.sort_unstable();
        partitions.dedup();
        held.acquire(Want::Many(&partitions));
        held.free_leases(id);
        held.release();
        self.keyspace.end_lease();
    }

    /// A script that is called with one of the numbers and meets the other.
    fn script(&self, number: u64, named: usize) {
        let (id, met) = (LeaseId(NonZeroU64::new(number).expect("not 0")), 1 - named);
        let _token = self.token.lock().expect("no thread fails");
        let mut held = Held::new(&self.keyspace);
        self.lock_free(&mut held, &[named]);
        self.add_one(&mut held, named);
        // Short scripts lock what they meet if no thread has it.
        if held.try_extend(self.partition(met)) && !held.is_leased(&self.key(met), None) {
            thread::yield_now();
            self.add_one(&mut held, met);
            held.release();
            return;
        }
        self.keyspace.begin_lease();
        self.lease(&mut held, named, id);
        held.release();
        thread::yield_now();
        self.lock_for_script(&mut held, met, id);
        self.add_one(&mut held, met);
        held.release();
        self.end(&mut held, &[0, 1], id);
    }

    /// A script without a token: it has named what it needs.
    fn named_script(&self, number: u64, keys: &[usize]) {
        let id = LeaseId(NonZeroU64::new(number).expect("not 0"));
        let mut held = Held::new(&self.keyspace);
        self.lock_free(&mut held, keys);
        self.keyspace.begin_lease();
        keys.iter().for_each(|&at| self.lease(&mut held, at, id));
        self.add_one(&mut held, keys[0]);
        held.release();
        thread::yield_now();
        for &at in &keys[1..] {
            held.acquire(Want::One(self.partition(at)));
            self.add_one(&mut held, at);
            held.release();
        }
        self.end(&mut held, keys, id);
    }

    fn command(&self) {
        let mut held = Held::new(&self.keyspace);
        self.lock_free(&mut held, &[0, 1]);
        assert_eq!(self.get(&mut held, 0), self.get(&mut held, 1), "a script is seen in its middle");
    }

    /// Another key of a leased partition is not leased.
    fn other_command(&self) {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::One(self.partition(2)));
        assert!(!held.is_leased(&self.key(2), None));
        self.add_one(&mut held, 2);
    }

    fn gate(&self) {
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::All);
        assert!(!self.keyspace.has_leases());
        assert_eq!(self.get(&mut held, 0), self.get(&mut held, 1), "the gate falls into a script");
    }
}

fn explore(iterations: usize, works: &'static [fn(&World)], sum: i64) {
    let scenario = move || {
        let world = World::new();
        let threads: Vec<_> = works
            .iter()
            .map(|work| {
                let world = Arc::clone(&world);
                thread::spawn(move || work(&world))
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        let mut held = Held::new(&world.keyspace);
        held.acquire(Want::All);
        assert_eq!(world.get(&mut held, 0), sum);
        assert_eq!(world.get(&mut held, 1), sum);
    };
    shuttle::check_random(scenario, iterations);
    shuttle::check_pct(scenario, iterations, 3);
}

#[test]
fn a_script_is_seen_at_its_end() {
    explore(
        ITERATIONS,
        &[|w| w.script(1, 0), World::command, World::other_command, World::gate, World::command],
        1,
    );
}

#[test]
fn scripts_that_meet_each_others_keys() {
    explore(ITERATIONS, &[|w| w.script(1, 0), |w| w.script(2, 1), World::command, World::gate], 2);
}

#[test]
fn scripts_with_and_without_the_token() {
    explore(
        ITERATIONS,
        &[|w| w.script(1, 0), |w| w.named_script(2, &[0, 1]), |w| w.named_script(3, &[1, 0]), World::command],
        3,
    );
    explore(
        ITERATIONS,
        &[|w| w.named_script(1, &[0, 1]), |w| w.script(2, 1), World::gate, World::gate, World::command],
        2,
    );
}

/// Two scripts without a token that met keys would wait for each other: the model finds that.
#[test]
#[should_panic(expected = "deadlock")]
fn meeting_keys_without_the_token_is_a_cycle() {
    explore(
        ITERATIONS,
        &[
            |w| {
                let mut held = Held::new(&w.keyspace);
                let id = LeaseId(NonZeroU64::MIN);
                w.lock_free(&mut held, &[0]);
                w.keyspace.begin_lease();
                w.lease(&mut held, 0, id);
                held.release();
                w.lock_for_script(&mut held, 1, id);
                held.release();
                w.end(&mut held, &[0, 1], id);
            },
            |w| {
                let mut held = Held::new(&w.keyspace);
                let id = LeaseId(NonZeroU64::MIN.saturating_add(1));
                w.lock_free(&mut held, &[1]);
                w.keyspace.begin_lease();
                w.lease(&mut held, 1, id);
                held.release();
                w.lock_for_script(&mut held, 0, id);
                held.release();
                w.end(&mut held, &[0, 1], id);
            },
        ],
        0,
    );
}
