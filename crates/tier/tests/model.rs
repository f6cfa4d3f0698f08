//! A caller with a map instead of a keyspace and a disk in memory that fails by a seed: no value is ever lost
//! or wrong.
//!
//! `SEEDS=0..1000 cargo test --profile fast -p isotherm-tier --test model` for more seeds.

use isotherm_stdx::{Prng, Slot, UnixMs};
use isotherm_tier::{
    BLOCK_BYTES, Cleaning, Full, Group, Live, Log, LogConfig, Named, Place, Record, SEGMENT_BYTES,
    SegmentNumber, SegmentState, Snapshots, Stream, Ticket, Written, record_bytes,
};
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Clone, PartialEq, Debug)]
enum Value {
    Hot(Vec<u8>),
    /// Place of the value on disk, and the bytes that have to be there.
    Cold(Place, Vec<u8>),
}

type Key = Vec<u8>;
type Disk = HashMap<SegmentNumber, Vec<u8>>;

struct World {
    random: Prng,
    log: Log,
    live: Arc<Live>,
    disk: Disk,
    entries: HashMap<Key, Value>,
    /// Writes that the disk has not ended: ticket, place, bytes.
    under_way: Vec<(Ticket, SegmentNumber, u64, Vec<u8>)>,
    cleaning: Option<(Cleaning, bool)>,
    /// The one in force, and others that might be: nothing was heard of their lists.
    bases: Vec<Base>,
    next_base: Option<Base>,
    /// The one that is under way: it reads what was cold at its cut.
    snapshot: Option<HashMap<Key, Value>>,
    snapshots: Snapshots,
    fails_of_100: u64,
    seen: Seen,
}

/// State that would be loaded after a crash.
#[derive(Clone)]
struct Base {
    named: Vec<Named>,
    entries: HashMap<Key, Value>,
}

#[derive(Default, Debug)]
struct Seen {
    cold_reads: u64,
    failed_writes: u64,
    survivors: u64,
    freed: u64,
    full: u64,
    recoveries: u64,
    waited: u64,
    plain: u64,
    doubtful: u64,
    snapshots: u64,
}

fn place_on(disk: &mut Disk, segment: SegmentNumber, offset: u64, bytes: &[u8]) {
    let file = disk.entry(segment).or_default();
    let end = offset as usize + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset as usize..end].copy_from_slice(bytes);
}

fn read(disk: &Disk, place: Place, key_bytes: usize) -> &[u8] {
    let bytes = record_bytes(key_bytes, place.payload_bytes());
    &disk[&place.segment()][place.offset() as usize..place.offset() as usize + bytes]
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Prng::new(seed);
        let log = Log::new(LogConfig::of_bytes((4 + random.below(4)) * SEGMENT_BYTES));
        let live = log.live();
        World {
            fails_of_100: [0, 0, 5, 30][random.below(4) as usize],
            random,
            log,
            live,
            disk: Disk::new(),
            entries: HashMap::new(),
            under_way: Vec::new(),
            cleaning: None,
            bases: Vec::new(),
            next_base: None,
            snapshot: None,
            snapshots: Snapshots::default(),
            seen: Seen::default(),
        }
    }

    fn some_key(&mut self) -> Key {
        // Few keys with large values: a segment is full soon.
        let number = self.random.below(300);
        format!("key:{number}").into_bytes()
    }

    fn retire(&self, key: &Key) {
        if let Some(Value::Cold(place, _)) = self.entries.get(key) {
            self.live.retire(*place);
        }
    }

    fn set(&mut self) {
        let key = self.some_key();
        self.retire(&key);
        let len = match self.random.below(20) {
            0 => 1_100_000 + self.random.below(3_000_000),
            1..8 => self.random.below(5000),
            _ => 200_000 + self.random.below(400_000),
        } as usize;
        let mut value = vec![self.random.below(256) as u8; len];
        value.iter_mut().take(64).for_each(|byte| *byte = self.random.below(256) as u8);
        self.entries.insert(key, Value::Hot(value));
    }

    fn delete(&mut self) {
        let key = self.some_key();
        self.retire(&key);
        self.entries.remove(&key);
    }

    fn read(&mut self) {
        let key = self.some_key();
        let Some(Value::Cold(place, value)) = self.entries.get(&key) else { return };
        let record = Record::read(*place, read(&self.disk, *place, key.len())).expect("it is whole");
        assert!(record.key == key && record.payload == value && record.form == 3);
        self.seen.cold_reads += 1;
        if self.random.below(3) == 0 {
            let value = value.clone();
            self.retire(&key);
            self.entries.insert(key, Value::Hot(value));
        }
    }

    fn demote(&mut self) {
        let key = self.some_key();
        let Some(Value::Hot(value)) = self.entries.get(&key) else { return };
        let record = record(&key, value);
        match self.log.append(Stream::Fresh, &record, None) {
            Ok(_) => {}
            Err(Full::Segments | Full::Writes) => self.seen.full += 1,
        }
        if self.random.below(20) == 0 {
            self.log.seal(Stream::Fresh);
        }
    }

    /// Does what the caller does with a group that is on disk.
    fn turn_over(&mut self, group: &Group) {
        for (place, record, before) in group.records() {
            let entry = self.entries.get_mut(record.key);
            let is_meant = match (&entry, before) {
                (Some(Value::Hot(value)), None) => value == record.payload,
                (Some(Value::Cold(at, _)), Some(before)) => *at == before,
                _ => false,
            };
            match entry {
                Some(entry) if is_meant => {
                    if let Some(before) = before {
                        self.live.retire(before);
                    }
                    *entry = Value::Cold(place, record.payload.to_vec());
                }
                _ => self.live.retire(place),
            }
        }
    }

    fn begin_write(&mut self) {
        if let Some(write) = self.log.next_write() {
            assert!(write.offset.is_multiple_of(BLOCK_BYTES as u64));
            self.under_way.push((write.ticket, write.segment, write.offset, write.bytes.to_vec()));
        }
    }

    /// Some write ends, in any order: whole, or with a part of its bytes on disk.
    fn end_write(&mut self) {
        if self.under_way.is_empty() {
            return;
        }
        let at = self.random.below(self.under_way.len() as u64) as usize;
        let (ticket, segment, offset, bytes) = self.under_way.swap_remove(at);
        let is_on_disk = self.random.below(100) >= self.fails_of_100;
        let len = if is_on_disk { bytes.len() } else { self.random.below(bytes.len() as u64) as usize };
        place_on(&mut self.disk, segment, offset, &bytes[..len]);
        match self.log.written(ticket, is_on_disk) {
            Written::Done(group) => self.turn_over(&group),
            Written::Again => self.seen.failed_writes += 1,
            Written::GivenUp(_) => self.seen.full += 1,
        }
    }

    fn clean(&mut self) {
        match self.cleaning.take() {
            None => self.cleaning = self.log.begin_cleaning().map(|cleaning| (cleaning, false)),
            Some((mut cleaning, false)) => {
                let is_through = !self.clean_stretch(&mut cleaning);
                self.cleaning = Some((cleaning, is_through));
                self.log.seal(Stream::Survivors);
            }
            // Its survivors must be on disk before it ends.
            Some((cleaning, true)) if self.log.is_writing() => self.cleaning = Some((cleaning, true)),
            Some((cleaning, true)) => {
                // A base does not name the holes of a segment.
                let was_restored = self.seen.recoveries > 0;
                assert!(was_restored || !cleaning.is_damaged(), "what was never written is no damage");
                self.log.end_cleaning(cleaning);
            }
        }
    }

    /// `false`: the segment is through.
    fn clean_stretch(&mut self, cleaning: &mut Cleaning) -> bool {
        let Some(stretch) = cleaning.next_read() else { return false };
        let file = self.disk.entry(stretch.segment).or_default();
        let end = stretch.offset as usize + stretch.bytes;
        if file.len() < end {
            file.resize(end, 0); // a group after the last one failed
        }
        let bytes = file[stretch.offset as usize..end].to_vec();
        for (place, record) in cleaning.records(&bytes) {
            if self
                .entries
                .get(record.key)
                .is_some_and(|value| matches!(value, Value::Cold(at, _) if *at == place))
            {
                // Without room it stays where it is; the segment is cleaned another time.
                if self.log.append(Stream::Survivors, &record, Some(place)).is_ok() {
                    self.seen.survivors += 1;
                }
            }
        }
        true
    }

    fn collect(&mut self) {
        for segment in self.log.collect(self.snapshots) {
            self.seen.freed += 1;
            // Removed, or left to be written over.
            if self.random.below(2) == 0 {
                self.disk.remove(&segment);
            }
        }
        self.seen.waited += u64::from(self.log.segments(SegmentState::Waiting));
    }

    /// Begins a snapshot, or ends the current one after it has read all that it refers to.
    fn snapshot(&mut self) {
        match self.snapshot.take() {
            None => {
                self.snapshots.begun += 1;
                self.snapshots.oldest = Some(self.snapshots.begun);
                self.snapshot = Some(self.entries.clone());
            }
            Some(entries) => {
                check_entries(&self.disk, &entries);
                self.seen.snapshots += 1;
                self.snapshots.oldest = None;
            }
        }
    }

    fn base(&mut self) {
        match self.next_base.take() {
            None if self.log.is_writing() => {}
            None if self.random.below(8) == 0 => {
                // One that has all values itself.
                self.log.unnamed();
                self.bases = vec![Base { named: Vec::new(), entries: self.in_memory() }];
                self.seen.plain += 1;
            }
            // A sync has failed: no base refers to that.
            None if self.log.doubtful_segments() > 0 => self.seen.doubtful += 1,
            None => {
                // A base refers to the values that were there at its cut, some time ago.
                let entries = self.snapshot.as_ref().unwrap_or(&self.entries).clone();
                let named = self.log.name(self.snapshots);
                let doubtful = self.random.below(20) == 0;
                if doubtful && let Some(named) = named.last() {
                    self.log.doubt(named.segment);
                    self.log.named(false);
                    return;
                }
                self.next_base = Some(Base { named, entries });
            }
            Some(base) => match self.random.below(5) {
                0 => self.log.named(false),
                // It is in force or not: its list was written, and the disk did not say so.
                1 => self.bases.push(base),
                _ => {
                    self.log.named(true);
                    self.bases = vec![base];
                }
            },
        }
    }

    /// The data with all values in memory.
    fn in_memory(&self) -> HashMap<Key, Value> {
        let hot = |value: &Value| match value {
            Value::Hot(value) | Value::Cold(_, value) => Value::Hot(value.clone()),
        };
        self.entries.iter().map(|(key, value)| (key.clone(), hot(value))).collect()
    }

    /// A crash: what the base in force refers to is there, cut to the lengths that it names.
    fn recover(&mut self) {
        if self.bases.is_empty() {
            return;
        }
        let at = self.random.below(self.bases.len() as u64) as usize;
        let base = self.bases.swap_remove(at);
        self.bases = vec![base.clone()];
        self.seen.recoveries += 1;
        self.disk.retain(|segment, _| base.named.iter().any(|named| named.segment == *segment));
        for named in &base.named {
            self.disk.entry(named.segment).or_default().truncate(named.bytes as usize);
        }
        let config = LogConfig::of_bytes(u64::from(self.log.segments_max()) * SEGMENT_BYTES);
        (self.under_way, self.cleaning, self.next_base) = (Vec::new(), None, None);
        (self.snapshot, self.snapshots) = (None, Snapshots::default());
        self.log = Log::restored(config, &base.named);
        self.live = self.log.live();
        if self.random.below(2) == 0 {
            // The caller collects before it has loaded all: nothing of what is named goes.
            assert!(self.log.collect(self.snapshots).is_empty());
        }
        for value in base.entries.values() {
            if let Value::Cold(place, _) = value {
                self.live.add(*place);
            }
        }
        self.entries = base.entries;
        self.check();
    }

    fn check(&self) {
        self.log.check_invariants();
        check_entries(&self.disk, &self.entries);
    }

    fn step(&mut self) {
        match self.random.below(100) {
            0..25 => self.set(),
            25..30 => self.delete(),
            30..45 => self.read(),
            45..70 => self.demote(),
            70..80 => self.begin_write(),
            80..90 => self.end_write(),
            90..96 => self.clean(),
            96..98 => self.collect(),
            98 if self.random.below(2) == 0 => self.snapshot(),
            98 => self.base(),
            _ if self.random.below(10) == 0 => self.recover(),
            _ => {}
        }
    }
}

fn check_entries(disk: &Disk, entries: &HashMap<Key, Value>) {
    for (key, value) in entries {
        if let Value::Cold(place, value) = value {
            let record = Record::read(*place, read(disk, *place, key.len())).expect("it is whole");
            assert!(record.key == key && record.payload == value);
        }
    }
}

fn record<'a>(key: &'a [u8], payload: &'a [u8]) -> Record<'a> {
    Record { form: 3, expiry: Some(UnixMs(77)), database: 2, slot: Slot::of_key(key), key, payload }
}

fn run(seed: u64, total: &mut Seen) {
    let mut world = World::new(seed);
    for step in 0..8_000 {
        world.step();
        if step % 500 == 0 {
            world.check();
        }
    }
    world.check();
    total.cold_reads += world.seen.cold_reads;
    total.failed_writes += world.seen.failed_writes;
    total.survivors += world.seen.survivors;
    total.freed += world.seen.freed;
    total.full += world.seen.full;
    total.recoveries += world.seen.recoveries;
    total.waited += world.seen.waited;
    total.plain += world.seen.plain;
    total.doubtful += world.seen.doubtful;
    total.snapshots += world.seen.snapshots;
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..3".to_string());
    let (from, to) = text.split_once("..").expect("SEEDS=0..100");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn no_value_is_lost_or_wrong() {
    let mut total = Seen::default();
    for seed in seeds() {
        println!("seed {seed}");
        run(seed, &mut total);
    }
    println!("{total:?}");
    let Seen { cold_reads, failed_writes, survivors, freed, full, .. } = total;
    let Seen { recoveries, waited, plain, doubtful, snapshots, .. } = total;
    let counts =
        [cold_reads, failed_writes, survivors, freed, full, recoveries, waited, plain, doubtful, snapshots];
    assert!(counts.iter().all(|count| *count > 0), "the test shows nothing: {counts:?}");
}
