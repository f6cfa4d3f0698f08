//! The protocol of waiters under interleavings that a scheduler of our own chooses. The explored code is that
//! of the keyspace (`waiter`, `serving`, `ready`, the locks); beneath it lies a small server: two workers
//! with a mailbox each, and two kinds of commands.
//!
//! ```text
//! list     a key holds a number of elements, as a number; pop takes one, and the last takes the key away
//! stream   a key holds the number of its last entry; read is served once that is above what it has seen
//! ```
//! So a stream's key may be there with nothing new for a waiter, as with XREAD. Keys `a` and `d` lie in two
//! partitions.
//!
//! Checked when all is quiet, and nothing is on its way: no waiter waits while there is something for it;
//! what was pushed was delivered once or is still there; each waiter has ended once; what was killed has
//! taken nothing after the kill had returned; no waiter is left in a list.
//!
//! Run by `cargo xtask locks`.

use isotherm_keyspace::*;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use shuttle::thread;
use std::collections::VecDeque;
use std::sync::Arc;

const ITERATIONS: usize = 1500;
const NOW: UnixMs = UnixMs(1);
const DB: Db = Db(0);

/// Request of a client that waits.
enum Request {
    /// The first element of one of its lists.
    Pop,
    /// An entry of one of its streams, by key, after these.
    Read { behind: Vec<i64> },
    /// An element of its first list, to be put into the other: it needs both.
    Move,
}

struct Client {
    request: Request,
    names: Vec<&'static str>,
    worker: usize,
    world: std::sync::Weak<World>,
    /// The kill has returned.
    is_killed: AtomicBool,
    /// Answers that it was sent.
    answers: AtomicU64,
    /// Waiters end once: by an answer, by time, by a kill.
    ends: AtomicU64,
}

enum WorkerMessage {
    Look(Arc<Waiter>),
    Served(Arc<Waiter>),
}

struct World {
    keyspace: Keyspace,
    mailboxes: [Mutex<VecDeque<WorkerMessage>>; 2],
    pushed: AtomicU64,
    popped: AtomicU64,
    waiters: std::sync::Mutex<Vec<Arc<Waiter>>>,
}

fn client(waiter: &Waiter) -> &Client {
    waiter.client.downcast_ref().expect("made by `World::wait`")
}

fn conditions() -> Conditions {
    Conditions { now: NOW, expiry_mode: ExpiryMode::Delete, no_touch: false }
}

/// The number under a key; 0 without it.
fn number(held: &mut Held<'_>, db: Db, name: &str) -> i64 {
    let mut no_effects = NoEffects;
    let mut txn = Txn::new(held, conditions(), &mut no_effects);
    let key = txn.key(name.as_bytes());
    match txn.find(db, &key, Lookup::Silent).map(|entry| entry.value) {
        Some(Value::Int(number)) => number,
        _ => 0,
    }
}

fn set_number(held: &mut Held<'_>, name: &str, number: i64) {
    let mut no_effects = NoEffects;
    let mut txn = Txn::new(held, conditions(), &mut no_effects);
    let key = txn.key(name.as_bytes());
    match number {
        0 => drop(txn.remove(DB, &key)),
        _ => drop(txn.set(DB, &key, NewValue::Int(number), Expiry::Clear).expect("there is room")),
    }
}

/// A thread that runs commands.
struct Worker<'w> {
    world: &'w World,
    held: Held<'w>,
}

impl<'w> Serve<'w> for Worker<'w> {
    type Answer = ();
    type Missing = ();

    fn held(&mut self) -> &mut Held<'w> {
        &mut self.held
    }

    fn acquire(&mut self, waiter: &Waiter) {
        let partitions: Vec<u16> = waiter.keys.iter().map(|key| key.partition).collect();
        let both = matches!(client(waiter).request, Request::Move) as usize;
        let all = self.world.partitions(&client(waiter).names[..client(waiter).names.len().max(2 * both)]);
        assert!(partitions.iter().all(|partition| all.contains(partition)));
        self.held.acquire(Want::Many(&all));
    }

    fn reaches(&mut self, waiter: &Waiter) -> bool {
        !matches!(client(waiter).request, Request::Move)
            || client(waiter).names.iter().all(|name| {
                let partition = self.world.keyspace.partition_of(Slot::of_key(name.as_bytes()));
                self.held.try_extend(partition)
            })
    }

    fn is_leased(&mut self, _: &Waiter) -> bool {
        false
    }

    fn postpone(&mut self, _: &Arc<Waiter>) {
        unreachable!("nothing is leased");
    }

    fn kind_of(&mut self, db: Db, key: &Key<'_>) -> Option<Type> {
        let name = std::str::from_utf8(key.bytes).expect("plain names");
        (number(&mut self.held, db, name) > 0).then_some(Type::String)
    }

    fn run(&mut self, waiter: &Arc<Waiter>) -> Attempt<(), ()> {
        let client = client(waiter);
        for (at, name) in client.names.iter().enumerate() {
            if !self.holds(name) {
                continue;
            }
            let there = number(&mut self.held, DB, name);
            match &client.request {
                Request::Read { behind } if there > behind[at] => return Attempt::Answer(()),
                Request::Read { .. } => {}
                Request::Pop if there > 0 => {
                    set_number(&mut self.held, name, there - 1);
                    self.world.popped.fetch_add(1, SeqCst);
                    return Attempt::Answer(());
                }
                Request::Move if at == 0 && there > 0 => {
                    set_number(&mut self.held, name, there - 1);
                    let other = client.names[1];
                    let there = number(&mut self.held, DB, other);
                    set_number(&mut self.held, other, there + 1);
                    return Attempt::Answer(());
                }
                Request::Pop | Request::Move => {}
            }
        }
        Attempt::Nothing
    }

    fn fetch(&mut self, _: &Arc<Waiter>, (): ()) {
        unreachable!("everything is in memory");
    }

    fn answer(&mut self, waiter: &Arc<Waiter>, (): ()) {
        let client = client(waiter);
        assert!(!client.is_killed.load(SeqCst), "what was killed takes nothing");
        self.world.post(client.worker, WorkerMessage::Served(Arc::clone(waiter)));
    }
}

impl<'w> Worker<'w> {
    fn new(world: &'w World) -> Worker<'w> {
        Worker { world, held: Held::new(&world.keyspace) }
    }

    fn holds(&self, name: &str) -> bool {
        self.held.holds(&self.world.keyspace.key(name.as_bytes()))
    }

    /// A command on one key: it changes it, serves, and releases.
    fn change(&mut self, name: &'static str, change: impl FnOnce(&mut Held<'_>)) {
        self.held.acquire(Want::Many(&self.world.partitions(&[name])));
        change(&mut self.held);
        self.serve();
    }

    fn serve(&mut self) {
        if self.held.has_ready() {
            serve_ready(self);
        }
        self.held.release();
    }

    /// RPUSH, XADD.
    fn push(&mut self, name: &'static str) {
        self.world.pushed.fetch_add(1, SeqCst);
        self.change(name, |held| {
            let there = number(held, DB, name);
            set_number(held, name, there + 1);
        });
    }

    /// A change after which the key holds what it held (EXPIRE, XTRIM).
    fn touch(&mut self, name: &'static str) {
        self.change(name, |held| {
            let there = number(held, DB, name);
            set_number(held, name, there);
        });
    }

    fn swap(&mut self) {
        self.held.acquire(Want::All);
        Txn::new(&mut self.held, conditions(), &mut NoEffects).swap(Db(0), Db(1));
        self.serve();
    }

    /// Reads the messages in the mailbox of a worker.
    fn read_messages(&mut self, worker: usize) {
        while let Some(message) = self.world.take(worker) {
            match message {
                WorkerMessage::Look(waiter) => {
                    look(self, &waiter);
                    self.held.release();
                }
                WorkerMessage::Served(waiter) => {
                    assert!(waiter.is_answered());
                    client(&waiter).answers.fetch_add(1, SeqCst);
                    self.leave(&waiter);
                }
            }
        }
    }

    /// The owner's last act: out of the lists.
    fn leave(&mut self, waiter: &Arc<Waiter>) {
        assert_eq!(client(waiter).ends.fetch_add(1, SeqCst), 0, "a waiter ends once");
        self.held.forget(waiter);
    }

    /// Ends the wait of a waiter: its time is over, or its connection is gone, which its worker sees.
    fn time_out(&mut self, waiter: &Arc<Waiter>) {
        if waiter.end() {
            self.leave(waiter);
        }
    }

    /// CLIENT KILL, from any worker: the owner takes it out of the lists later.
    fn kill(&mut self, waiter: &Arc<Waiter>) {
        kill(waiter);
        client(waiter).is_killed.store(!waiter.is_answered(), SeqCst);
        // The thread that has killed pushes: that is not for the killed client.
        self.push("a");
    }

    /// CLIENT UNBLOCK: the answer travels as one that was served does.
    fn unblock(&mut self, waiter: &Arc<Waiter>) {
        if waiter.answer_otherwise() {
            self.world.post(client(waiter).worker, WorkerMessage::Served(Arc::clone(waiter)));
        }
    }
}

/// Does to the waiter of a client what `Node::kill` does.
fn kill(waiter: &Waiter) {
    waiter.end();
}

impl World {
    fn new() -> Arc<World> {
        let config = Config {
            partitions: 2,
            arenas: 1,
            databases: 2,
            reserve_bytes: 2 << 20,
            hash_secret: [1; 16],
            class_bytes: |bytes| bytes,
        };
        let keyspace = Keyspace::new(config).expect("two megabytes of addresses are to be had");
        let world = World {
            keyspace,
            mailboxes: Default::default(),
            pushed: AtomicU64::new(0),
            popped: AtomicU64::new(0),
            waiters: Default::default(),
        };
        let two = world.partitions(&["a", "d"]);
        assert_eq!(two.len(), 2, "the keys lie in two partitions");
        Arc::new(world)
    }

    fn partitions(&self, names: &[&str]) -> Vec<u16> {
        let partition = |name: &&str| self.keyspace.partition_of(self.keyspace.key(name.as_bytes()).slot);
        let mut partitions: Vec<u16> = names.iter().map(partition).collect();
        partitions.sort_unstable();
        partitions.dedup();
        partitions
    }

    fn post(&self, worker: usize, message: WorkerMessage) {
        self.mailboxes[worker].lock().expect("no thread fails").push_back(message);
    }

    fn take(&self, worker: usize) -> Option<WorkerMessage> {
        self.mailboxes[worker].lock().expect("no thread fails").pop_front()
    }

    /// A client of `worker` begins to wait; there is nothing for it yet.
    fn wait(self: &Arc<World>, worker: usize, names: &[&'static str], request: Request) -> Arc<Waiter> {
        let listed = match request {
            Request::Move => &names[..1],
            Request::Pop | Request::Read { .. } => names,
        };
        let waiting = Client {
            request,
            names: names.to_vec(),
            worker,
            world: Arc::downgrade(self),
            is_killed: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            ends: AtomicU64::new(0),
        };
        let wake = |waiter: &Arc<Waiter>| {
            let client = client(waiter);
            let world = client.world.upgrade().expect("it lives while its threads do");
            world.post(client.worker, WorkerMessage::Look(Arc::clone(waiter)));
        };
        let keys = listed.iter().map(|name| (DB, name.as_bytes()));
        let waiter = Waiter::new(&self.keyspace, Type::String, false, keys, wake, Box::new(waiting));
        let mut held = Held::new(&self.keyspace);
        held.acquire(Want::All);
        held.wait(&waiter);
        held.release();
        self.waiters.lock().expect("no thread fails").push(Arc::clone(&waiter));
        waiter
    }

    /// All threads have ended: what lies in the mailboxes is done, then all must be as promised.
    fn settle(&self) {
        let mut worker = Worker::new(self);
        while self.mailboxes.iter().any(|mailbox| !mailbox.lock().expect("no thread fails").is_empty()) {
            (0..2).for_each(|number| worker.read_messages(number));
        }
        worker.held.acquire(Want::All);
        let waiters = std::mem::take(&mut *self.waiters.lock().expect("no thread fails"));
        for waiter in &waiters {
            let client = client(waiter);
            if !waiter.has_ended() {
                for (at, name) in client.names.iter().enumerate() {
                    let there = number(&mut worker.held, DB, name);
                    let is_for_it = match &client.request {
                        Request::Pop => there > 0,
                        Request::Move => at == 0 && there > 0,
                        Request::Read { behind } => there > behind[at],
                    };
                    assert!(
                        !is_for_it,
                        "a waiter waits while {name} has something for it: a wake-up was lost"
                    );
                }
            }
            let answers = client.answers.load(SeqCst);
            assert_eq!(answers, u64::from(waiter.is_answered()), "answers are delivered once");
        }
        let is_popped = |waiter: &&Arc<Waiter>| !matches!(client(waiter).request, Request::Read { .. });
        if waiters.iter().filter(is_popped).count() == waiters.len() {
            let names = ["a", "d"];
            let there: i64 = names
                .iter()
                .flat_map(|name| [Db(0), Db(1)].map(|db| (db, name)))
                .map(|(db, name)| number(&mut worker.held, db, name))
                .sum();
            let popped = self.popped.load(SeqCst);
            assert_eq!(self.pushed.load(SeqCst), popped + there as u64, "taken once, or still there");
        }
        worker.held.release();
        // The owners of the rest leave, and then the lists are empty.
        for waiter in &waiters {
            if client(waiter).ends.load(SeqCst) == 0 {
                waiter.end();
                worker.leave(waiter);
            }
        }
        assert_eq!(self.keyspace.waited_keys(), [0, 0]);
        self.keyspace.check_invariants();
    }

    fn spawn(
        self: &Arc<World>,
        work: impl FnOnce(&mut Worker<'_>) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let world = Arc::clone(self);
        thread::spawn(move || work(&mut Worker::new(&world)))
    }
}

fn explore(scenario: impl Fn(&Arc<World>) -> Vec<thread::JoinHandle<()>> + Send + Sync + Copy + 'static) {
    let run = move || {
        let world = World::new();
        scenario(&world).into_iter().for_each(|thread| thread.join().expect("no thread fails"));
        world.settle();
    };
    shuttle::check_random(run, ITERATIONS);
    // Few switches at unlikely places: what random schedules find last.
    shuttle::check_pct(run, ITERATIONS, 3);
}

/// XREAD BLOCK of two streams: one is touched, while an entry is added to the other.
#[test]
fn a_stream_that_has_nothing_new_hides_no_other() {
    explore(|world| {
        Worker::new(world).push("a");
        world.wait(0, &["a", "d"], Request::Read { behind: vec![1, 0] });
        world.wait(1, &["d"], Request::Read { behind: vec![0] });
        vec![
            world.spawn(|worker| {
                worker.touch("a");
                worker.read_messages(0);
            }),
            world.spawn(|worker| {
                worker.push("d");
                worker.read_messages(1);
            }),
        ]
    });
}

/// Two lists, two clients that push, clients that wait for one or both, and one whose time is over.
#[test]
fn elements_are_taken_once() {
    explore(|world| {
        world.wait(0, &["a", "d"], Request::Pop);
        let impatient = world.wait(0, &["d", "a"], Request::Pop);
        world.wait(1, &["d"], Request::Pop);
        vec![
            world.spawn(|worker| {
                worker.push("a");
                worker.read_messages(0);
            }),
            world.spawn(|worker| {
                worker.push("d");
                worker.push("d");
                worker.read_messages(1);
            }),
            world.spawn(move |worker| worker.time_out(&impatient)),
        ]
    });
}

/// A client is killed while others push: what it was served before is delivered, and afterwards it takes
/// nothing.
#[test]
fn a_killed_client_takes_nothing() {
    explore(|world| {
        let victim = world.wait(0, &["a", "d"], Request::Pop);
        let unblocked = world.wait(1, &["a"], Request::Pop);
        let again = Arc::clone(&victim);
        vec![
            world.spawn(move |worker| {
                worker.kill(&victim);
                worker.read_messages(0);
            }),
            world.spawn(|worker| {
                worker.push("d");
                worker.read_messages(1);
            }),
            world.spawn(move |worker| {
                worker.unblock(&unblocked);
                worker.unblock(&again);
            }),
        ]
    });
}

/// A command that needs a key which the client that pushed does not hold is run by its own worker, and those
/// behind it are served then; the databases are swapped meanwhile.
#[test]
fn what_is_passed_on_arrives() {
    explore(|world| {
        world.wait(0, &["a", "d"], Request::Move);
        world.wait(1, &["a"], Request::Pop);
        world.wait(1, &["d"], Request::Pop);
        vec![
            world.spawn(|worker| {
                worker.push("a");
                worker.push("a");
                worker.read_messages(0);
            }),
            world.spawn(|worker| {
                worker.swap();
                worker.read_messages(1);
                worker.swap();
            }),
            world.spawn(|worker| worker.push("d")),
        ]
    });
}

/// All at once: streams and their touching, a kill, a time-out, and owners that look.
#[test]
fn readers_that_find_nothing_beside_kills_and_time_outs() {
    explore(|world| {
        Worker::new(world).push("d");
        let first = world.wait(0, &["a", "d"], Request::Read { behind: vec![0, 1] });
        let second = world.wait(1, &["d", "a"], Request::Read { behind: vec![1, 0] });
        vec![
            world.spawn(|worker| {
                worker.touch("d");
                worker.read_messages(0);
                worker.read_messages(1);
            }),
            world.spawn(move |worker| {
                worker.push("a");
                worker.time_out(&second);
            }),
            world.spawn(move |worker| {
                worker.touch("a");
                kill(&first);
            }),
        ]
    });
}
