//! Longest times for which a single command keeps a thread busy while a collection of ten million elements
//! grows, is emitted to a snapshot under writes, shrinks and is removed: by the thread's CPU clock, in
//! microseconds. Also shown is the memory that a snapshot takes.
//!
//! `cargo run --release -p isotherm-keyspace --example stall -- [elements]
//! [machine|hash|set|zset|list|stream|pending ...]`
//!
//! `machine` is no collection: it does as many pieces of work that touch four places of memory that is there.
//! If one of these takes long, the host of this machine took the time, which the thread's clock counts too;
//! that much of the other rows is the machine's.
//!
//! The allocator is the server's. The steps of cron (freeing what was removed, compaction) are shown too:
//! each holds a partition's lock as a command does.

use isotherm_keyspace::*;
use isotherm_stdx::Prng;
use rustix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

const KEY: &[u8] = b"value";
const OTHER: &[u8] = b"other";
const NOW: UnixMs = UnixMs(1_800_000_000_000);
/// Limit of one step of freeing, the same as cron's.
const FREED_PER_STEP: usize = 200;
const ITEMS_PER_STEP: u64 = 500;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let elements = arguments.next().map_or(10_000_000, |text| text.parse().expect("a number of elements"));
    let wanted: Vec<String> = arguments.collect();
    println!("longest of each, us of the thread's CPU clock; {elements} elements");
    let is_wanted = |kind| wanted.is_empty() || wanted.iter().any(|name| name == kind);
    if is_wanted("machine") {
        machine(elements);
    }
    for kind in ["hash", "set", "zset", "list", "stream", "pending"] {
        if is_wanted(kind) {
            Run::new(kind, elements).all();
        }
    }
}

/// Measures pieces of work that cannot take long: what they take longer is the machine's.
fn machine(pieces: u64) {
    const WORDS: usize = (1 << 30) / size_of::<u64>();
    let (mut memory, mut prng, mut longest) = (vec![1u64; WORDS], Prng::new(1), Longest::default());
    for piece in 0..pieces {
        longest.time(|| (0..4).for_each(|_| memory[prng.below(WORDS as u64) as usize] ^= piece));
    }
    longest.print("machine", "four touches of memory");
    std::hint::black_box(memory);
}

/// The longest of some pieces of work, and how many took more than a millisecond.
#[derive(Default)]
struct Longest {
    ns: u64,
    at: u64,
    count: u64,
    over: u64,
}

impl Longest {
    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let start = thread_ns();
        let result = work();
        let took = thread_ns() - start;
        self.count += 1;
        self.over += u64::from(took > 1_000_000);
        if took > self.ns {
            (self.ns, self.at) = (took, self.count);
        }
        result
    }

    fn print(&self, kind: &str, what: &str) {
        let Longest { ns, at, count, over } = *self;
        println!("{kind:<8} {what:<28} {:>9.1}   the {at}. of {count}, {over} over 1 ms", ns as f64 / 1e3);
    }
}

fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn rss_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    statm.split_ascii_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}

fn name(number: u64) -> Vec<u8> {
    format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15)).into_bytes()
}

struct Run {
    kind: &'static str,
    elements: u64,
    /// Lives as long as the process: a snapshot borrows it while writes continue.
    keyspace: &'static Keyspace,
    limits: Limits,
    prng: Prng,
}

impl Run {
    fn new(kind: &'static str, elements: u64) -> Run {
        let config = Config {
            partitions: 1,
            arenas: 1,
            databases: 1,
            reserve_bytes: 16 << 30,
            hash_secret: *b"0123456789abcdef",
            class_bytes: |bytes| bytes,
        };
        let keyspace = Box::leak(Box::new(Keyspace::new(config).expect("address space")));
        Run { kind, elements, keyspace, limits: Limits::default(), prng: Prng::new(1) }
    }

    fn txn<R>(&self, longest: &mut Longest, work: impl FnOnce(&mut Txn<'_, '_>) -> R) -> R {
        let conditions = Conditions { now: NOW, expiry_mode: ExpiryMode::Delete, no_touch: false };
        longest.time(|| {
            let mut held = Held::new(self.keyspace);
            held.acquire(Want::All);
            work(&mut Txn::new(&mut held, conditions, &mut NoEffects))
        })
    }

    /// Adds an element.
    fn add(&self, longest: &mut Longest, number: u64) {
        let (limits, name) = (&self.limits, name(number));
        self.txn(longest, |txn| {
            let key = txn.key(KEY);
            match self.kind {
                "hash" => _ = txn.edit_hash(Db(0), &key, limits, |edit| edit.set(&name, &name, None, false)),
                "set" => _ = txn.edit_set(Db(0), &key, limits, |edit| edit.add(&name)),
                "zset" => {
                    let score = (number.wrapping_mul(0x9e37_79b9) & 0xff_ffff) as f64 / 7.0;
                    _ = txn.edit_zset(Db(0), &key, limits, |edit| edit.set(&name, score));
                }
                "list" => {
                    _ = txn.edit_list(Db(0), &key, limits, |edit| {
                        edit.push(
                            if number.is_multiple_of(2) { End::Back } else { End::Front },
                            std::iter::once(&*name),
                        )
                    })
                }
                _ => {
                    let id = StreamId { ms: number / 10 + 1, seq: number % 10 + 1 };
                    _ = txn.edit_stream(Db(0), &key, limits, |edit| edit.add(id, &[b"field", &name]));
                }
            }
        });
    }

    /// Takes an element out.
    fn take(&mut self, longest: &mut Longest, number: u64) {
        let (limits, name, place) = (&self.limits, name(number), self.prng.next_u64());
        self.txn(longest, |txn| {
            let key = txn.key(KEY);
            match self.kind {
                "hash" => _ = txn.edit_hash(Db(0), &key, limits, |edit| edit.remove(&name, false)),
                "set" => _ = txn.edit_set(Db(0), &key, limits, |edit| edit.remove(&name)),
                "zset" => _ = txn.edit_zset(Db(0), &key, limits, |edit| edit.remove(&name)),
                "list" => {
                    _ = txn.edit_list(Db(0), &key, limits, |edit| match place % 3 {
                        0 => edit.remove(place % edit.len().max(1), 1),
                        1 => edit.remove(0, 1),
                        _ => edit.remove(edit.len() - 1, 1),
                    })
                }
                _ => {
                    _ = txn.edit_stream(Db(0), &key, limits, |edit| {
                        edit.delete(StreamId { ms: number / 10 + 1, seq: number % 10 + 1 })
                    })
                }
            }
        });
    }

    /// Everything is pending with one of a few consumers.
    fn deliver(&self, longest: &mut Longest, number: u64) {
        let id = StreamId { ms: number / 10 + 1, seq: number % 10 + 1 };
        self.txn(longest, |txn| {
            let edited = txn.edit_stream(Db(0), &txn.key(KEY), &self.limits, |edit| {
                edit.create().expect("there is room");
                if edit.group_mut(b"group").is_none() {
                    let mut group = ConsumerGroup::new(StreamId::MIN, None);
                    (0..4u8).for_each(|n| group.add_consumer(&[n], Consumer::new(0)));
                    edit.add_group(b"group", group);
                }
                let mut group = edit.group_mut(b"group").expect("it is there");
                let name =
                    group.consumers().keys().nth(number as usize % 4).cloned().expect("there are four");
                group.deliver(Pending { id, delivered_ms: 0, deliveries: 1, consumer: name });
            });
            edited.expect("it is a stream");
        });
    }

    fn acknowledge(&self, longest: &mut Longest, number: u64) {
        let id = StreamId { ms: number / 10 + 1, seq: number % 10 + 1 };
        self.txn(longest, |txn| {
            let edited = txn.edit_stream(Db(0), &txn.key(KEY), &self.limits, |edit| {
                edit.group_mut(b"group").expect("it is there").acknowledge(id)
            });
            edited.expect("it is a stream");
        });
    }

    fn write(&mut self, longest: &mut Longest, number: u64, grows: bool) {
        match (self.kind, grows) {
            ("pending", true) => self.deliver(longest, number),
            ("pending", false) => self.acknowledge(longest, number),
            (_, true) => self.add(longest, number),
            (_, false) => self.take(longest, number),
        }
    }

    /// Numbers of all elements, each once, in an order that goes to and fro.
    fn scattered(&self, number: u64) -> u64 {
        (number * 7_368_787 + 1) % self.elements
    }

    fn all(&mut self) {
        let before = rss_bytes();
        let mut longest = Longest::default();
        (0..self.elements).for_each(|number| self.write(&mut longest, number, true));
        longest.print(self.kind, "grow");
        println!(
            "{:<8} {:<28} {:>9.1} B an element",
            self.kind,
            "RSS",
            (rss_bytes() - before) as f64 / self.elements as f64
        );
        self.snapshot();
        let mut longest = Longest::default();
        for number in 0..self.elements / 2 {
            self.write(&mut longest, self.scattered(number), false);
        }
        longest.print(self.kind, "shrink by half");
        self.compact();
        self.whole();
    }

    /// A walk with writes all over the value: one in a thousand elements before its beginning, so that every
    /// write is the first one after the cut, then growth and shrinking while it continues.
    fn snapshot(&mut self) {
        let (mut writes, mut steps, mut emitted) = (Longest::default(), Longest::default(), 0u64);
        let before = rss_bytes();
        let mut snapshot = self.keyspace.snapshot().expect("none is under way");
        let mut number = 0;
        for _ in 0..self.elements / 1000 {
            let place = self.scattered(number);
            self.write(&mut writes, place, false);
            self.write(&mut writes, place, true);
            number += 1;
        }
        let kept = self.keyspace.snapshot_bytes();
        let (early, mut most) = (rss_bytes() - before.min(rss_bytes()), 0);
        loop {
            let more = steps.time(|| snapshot.step(ITEMS_PER_STEP, &mut |_| emitted += 1));
            if !more {
                break;
            }
            for _ in 0..4 {
                let place = self.scattered(number);
                self.write(&mut writes, place, false);
                self.write(&mut writes, place, true);
                number += 1;
            }
            if steps.count.is_multiple_of(1024) {
                most = most.max(rss_bytes().saturating_sub(before));
            }
        }
        drop(snapshot);
        writes.print(self.kind, "write beside a snapshot");
        steps.print(self.kind, "step of the snapshot");
        println!(
            "{:<8} {:<28} {:>9.1} MB kept after {} writes (RSS {:.1} MB), RSS at most {:.1} MB; {emitted} parts",
            self.kind,
            "snapshot's memory",
            kept as f64 / 1e6,
            self.elements / 500,
            early as f64 / 1e6,
            most as f64 / 1e6,
        );
    }

    fn compact(&self) {
        let mut longest = Longest::default();
        while longest.time(|| self.keyspace.compact_step(0, 16)).more {}
        longest.print(self.kind, "step of compaction");
    }

    /// Measures the commands on the value as a whole.
    fn whole(&mut self) {
        let one = |what: &str, work: &dyn Fn(&mut Longest)| {
            let mut longest = Longest::default();
            work(&mut longest);
            longest.print(self.kind, what);
        };
        if self.kind == "pending" {
            one("XGROUP DELCONSUMER", &|longest| {
                self.txn(longest, |txn| {
                    let edited = txn.edit_stream(Db(0), &txn.key(KEY), &self.limits, |edit| {
                        edit.group_mut(b"group").expect("it is there").remove_consumer(&[0])
                    });
                    edited.expect("it is a stream");
                });
            });
            self.free("step of taking out its own");
        }
        one("EXPIRE", &|longest| {
            self.txn(longest, |txn| txn.set_expiry(Db(0), &txn.key(KEY), Some(UnixMs(NOW.0 + 1000))))
                .expect("room");
        });
        one("RENAME", &|longest| {
            self.txn(longest, |txn| txn.rename((Db(0), &txn.key(KEY)), (Db(0), &txn.key(OTHER))))
                .expect("room");
        });
        one("SET over it", &|longest| {
            self.txn(longest, |txn| txn.set(Db(0), &txn.key(OTHER), NewValue::Int(1), Expiry::Clear))
                .expect("room");
        });
        self.free("step of freeing it");
    }

    fn free(&self, what: &str) {
        let mut longest = Longest::default();
        while longest.time(|| self.keyspace.free_step(0, FREED_PER_STEP)) {}
        longest.print(self.kind, what);
    }
}
