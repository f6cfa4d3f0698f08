//! Bases that refer to the log, on a disk that loses power at any call and fails syncs by a seed: what the
//! manifest in force names is there.
//!
//! `SEEDS=0..10000 cargo test --profile ci -p isotherm-swap --lib tier::crashes` for more seeds.

use isotherm_disk::{
    Call, Damage, Disk, Fault, Mode, Plan, RandomFault, SimDisk, read_exact_at, write_all_at,
};
use isotherm_keyspace::{ColdRef, Slot};
use isotherm_stdx::Prng;
use isotherm_tier::{
    Checkpoint, Full, Group, Log, LogConfig, LogId, Place, Record, SEGMENT_BYTES, Snapshots, Stream, Written,
    record_bytes,
};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use isotherm_node::tier::files::{Access, Files};
use isotherm_node::tier::owner::Claim;

#[derive(Clone, PartialEq)]
enum Value {
    Hot(Vec<u8>),
    Cold(Place, Vec<u8>),
}

type Entries = HashMap<Vec<u8>, Value>;

const FOLDER: &str = "cold";
const MANIFEST: &str = "manifest";
/// A base that has all values. Not empty, as none is: of an empty file a failed sync can leave what it was
/// before, and the next sync does not mend it.
const PLAIN: &[u8] = b"plain";
const SEGMENTS: u64 = 6;
/// Files are closed and opened again.
const OPEN_MAX: usize = 2;
/// Size of a segment. The test looks at calls of the disk, not at bytes: a seed takes some milliseconds.
const SMALL_SEGMENT_BYTES: u64 = 1 << 20;
const VALUE_BYTES_MAX: u64 = 8000;

struct World {
    random: Prng,
    disk: SimDisk,
    files: Files,
    log: Log,
    entries: Entries,
    /// Contents of each base that was written.
    bases: HashMap<u64, Entries>,
    next_base: u64,
    /// The last one that was listed without a doubt.
    listed: u64,
    seen: Seen,
}

#[derive(Default, Debug)]
struct Seen {
    crashes: u64,
    in_start: u64,
    cold_after_start: u64,
    referring: u64,
    plain: u64,
    failed_syncs: u64,
    unknown: u64,
    survivors: u64,
    freed: u64,
}

fn record<'a>(key: &'a [u8], payload: &'a [u8]) -> Record<'a> {
    Record { form: 0, expiry: None, database: 0, slot: Slot::of_key(key), key, payload }
}

fn config() -> LogConfig {
    LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES).with_segments_of(SMALL_SEGMENT_BYTES)
}

fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn read_file(disk: &SimDisk, path: &str) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open(Path::new(path), Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()? as usize];
    read_exact_at(&*file, &mut bytes, 0)?;
    Ok(Some(bytes))
}

/// Writes a file as the writer of the append-only file does.
fn write_file(disk: &SimDisk, path: &str, bytes: &[u8]) -> io::Result<()> {
    let beside = Path::new("beside");
    let file = disk.open(beside, Mode::Truncate)?;
    write_all_at(&*file, bytes, 0).map_err(|error| error.error)?;
    file.sync_all()?;
    disk.rename(beside, Path::new(path))?;
    disk.sync_dir(Path::new(""))
}

/// The number of the base that the manifest lists, and what it refers to.
fn manifest(disk: &SimDisk) -> io::Result<Option<(u64, Option<Checkpoint>)>> {
    let Some(text) = read_file(disk, MANIFEST)? else { return Ok(None) };
    let number = u64::from_le_bytes(text[..8].try_into().expect("eight bytes"));
    let base = read_file(disk, &format!("base-{number}"))?.expect("what is listed is there");
    let checkpoint = (base != PLAIN).then(|| Checkpoint::parse(&base).expect("it is whole"));
    Ok(Some((number, checkpoint)))
}

fn open(disk: &SimDisk) -> Result<(u64, Files, Log), String> {
    let listed = manifest(disk).map_err(|error| error.to_string())?;
    let has_manifest = listed.is_some();
    let (number, checkpoint) = listed.unwrap_or((0, None));
    let named = checkpoint.as_ref().map(Checkpoint::named).unwrap_or_default();
    let claim = Claim {
        checkpoint,
        new_log: LogId([number as u8; 16]),
        manifest: MANIFEST.into(),
        has_manifest,
        lacks_base: false,
    };
    let config = config().covering(&named);
    let access = Access { wants_direct: false, open_max: OPEN_MAX, is_synced_later: true, is_shared: true };
    let files = Files::open(shared(disk), Path::new(FOLDER), config.segments_max(), &claim, access)?;
    Ok((number, files, Log::restored(config, &named)))
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = Prng::new(seed);
        let disk = SimDisk::new(random.below(1 << 40), Plan::default());
        let (_, files, log) = open(&disk).expect("an empty disk");
        World {
            random,
            disk,
            files,
            log,
            entries: Entries::new(),
            bases: HashMap::from([(0, Entries::new())]),
            next_base: 1,
            listed: 0,
            seen: Seen::default(),
        }
    }

    fn some_key(&mut self) -> Vec<u8> {
        format!("key:{}", self.random.below(200)).into_bytes()
    }

    fn set(&mut self) {
        let key = self.some_key();
        let mut value = vec![self.random.below(256) as u8; 1 + self.random.below(VALUE_BYTES_MAX) as usize];
        value.iter_mut().take(64).for_each(|byte| *byte = self.random.below(256) as u8);
        if let Some(Value::Cold(place, _)) = self.entries.insert(key, Value::Hot(value)) {
            self.log.live().retire(place);
        }
    }

    fn demote(&mut self) {
        let key = self.some_key();
        if let Some(Value::Hot(value)) = self.entries.get(&key) {
            let _ = self.log.append(Stream::Fresh, &record(&key, value), None);
        }
    }

    fn settle(&mut self) {
        self.log.seal(Stream::Fresh);
        self.log.seal(Stream::Survivors);
        while let Some(write) = self.log.next_write() {
            let (ticket, written) =
                (write.ticket, self.files.write(write.segment, write.offset, write.bytes));
            if let Written::Done(group) = self.log.written(ticket, written.is_ok()) {
                self.turn_over(&group);
            }
        }
    }

    fn turn_over(&mut self, group: &Group) {
        let live = self.log.live();
        for (place, record, before) in group.records() {
            let entry = self.entries.get_mut(record.key);
            let is_meant = match (&entry, before) {
                (Some(Value::Hot(value)), None) => value == record.payload,
                (Some(Value::Cold(at, _)), Some(before)) => *at == before,
                _ => false,
            };
            match entry.filter(|_| is_meant) {
                Some(entry) => {
                    before.into_iter().for_each(|before| live.retire(before));
                    *entry = Value::Cold(place, record.payload.to_vec());
                }
                None => live.retire(place),
            }
        }
    }

    fn clean(&mut self) {
        let Some(mut cleaning) = self.log.begin_cleaning() else { return };
        while let Some(stretch) = cleaning.next_read() {
            let mut bytes = vec![0; stretch.bytes];
            if self.files.read_stretch(stretch.segment, stretch.offset, &mut bytes).is_err() {
                cleaning.skip();
                continue;
            }
            for (place, record) in cleaning.records(&bytes) {
                let lives = matches!(self.entries.get(record.key), Some(Value::Cold(at, _)) if *at == place);
                if !lives {
                    continue;
                }
                if self.log.append(Stream::Survivors, &record, Some(place)) == Err(Full::Writes) {
                    self.settle();
                    let _ = self.log.append(Stream::Survivors, &record, Some(place));
                }
                self.seen.survivors += 1;
            }
        }
        self.settle();
        self.log.end_cleaning(cleaning);
    }

    fn collect(&mut self) {
        for segment in self.log.collect(Snapshots::default()) {
            self.seen.freed += 1;
            let _ = self.files.remove(segment);
        }
    }

    /// A rewrite, from its cut to its manifest.
    fn base(&mut self) {
        self.settle();
        // Before a manifest is listed a folder with an owner would be another one's.
        if self.listed == 0 || self.log.doubtful_segments() > 0 || self.files.is_doubtful() {
            self.plain_base();
            return;
        }
        let (named, entries) = (self.log.name(Snapshots::default()), self.entries.clone());
        let checkpoint = self.files.checkpoint(&named);
        // Other steps are made meanwhile.
        for _ in 0..self.random.below(20) {
            self.other_step();
        }
        let number = self.next_base;
        self.next_base += 1;
        let written = write_file(&self.disk, &format!("base-{number}"), &checkpoint.write());
        if written.is_err() {
            return self.log.named(false);
        }
        if let Err(failed) = self.files.sync(&checkpoint) {
            self.seen.failed_syncs += 1;
            failed.segment.into_iter().for_each(|segment| self.log.doubt(segment));
            return self.log.named(false);
        }
        self.bases.insert(number, entries);
        match write_file(&self.disk, MANIFEST, &number.to_le_bytes()) {
            Ok(()) => {
                (self.listed, self.seen.referring) = (number, self.seen.referring + 1);
                self.log.named(true);
            }
            // In force or not: nothing is said.
            Err(_) => self.seen.unknown += 1,
        }
    }

    fn plain_base(&mut self) {
        let hot = |value: &Value| match value {
            Value::Hot(value) | Value::Cold(_, value) => Value::Hot(value.clone()),
        };
        let number = self.next_base;
        self.next_base += 1;
        let entries = self.entries.iter().map(|(key, value)| (key.clone(), hot(value))).collect();
        self.bases.insert(number, entries);
        let written = write_file(&self.disk, &format!("base-{number}"), PLAIN)
            .and_then(|()| write_file(&self.disk, MANIFEST, &number.to_le_bytes()));
        if written.is_ok() {
            (self.listed, self.seen.plain) = (number, self.seen.plain + 1);
            self.log.unnamed();
            self.files.forget_owner();
        }
    }

    fn other_step(&mut self) {
        match self.random.below(100) {
            0..40 => self.set(),
            40..80 => self.demote(),
            80..92 => self.settle(),
            92..95 => self.clean(),
            _ => self.collect(),
        }
    }

    fn plan(&mut self, calls_max: u64) -> Plan {
        let fault = |call, one_in| RandomFault { call, fault: Fault::Io, one_in };
        let faults = match self.random.below(3) {
            0 => Vec::new(),
            1 => vec![fault(Call::Sync, 20), fault(Call::Write, 100)],
            _ => vec![fault(Call::SyncDir, 30), fault(Call::Rename, 30), fault(Call::Sync, 100)],
        };
        let damage = if self.random.below(2) == 0 { Damage::ALL } else { Damage::default() };
        let crash_at = Some(self.random.below(calls_max));
        Plan { crash_at, random_faults: faults, damage, writeback_one_in: 5, ..Plan::default() }
    }

    /// The machine starts again, sometimes to stop within the start.
    fn start_again(&mut self) {
        self.seen.crashes += 1;
        let mut plan = self.plan(20);
        plan.random_faults.clear();
        let (is_hasty, is_kill) = (self.random.below(3) == 0, self.random.below(4) == 0);
        let first = if is_hasty { plan } else { Plan::default() };
        if is_kill {
            self.disk.kill(first)
        } else {
            self.disk.restart(first)
        }
        let opened = match open(&self.disk) {
            Err(_) if self.disk.is_stopped() => {
                self.seen.in_start += 1;
                self.disk.restart(Plan::default());
                open(&self.disk)
            }
            opened => opened,
        };
        let (number, files, log) = opened.expect("what the manifest names is there");
        assert!(number >= self.listed, "base {number}, and {} was listed", self.listed);
        self.disk.set_plan(Plan::default());
        (self.files, self.log, self.listed) = (files, log, number);
        self.entries = self.bases[&number].clone();
        let durable = self.files.durable();
        for (key, value) in &self.entries {
            let Value::Cold(place, value) = value else { continue };
            let reference = ColdRef::new(place.raw());
            assert!(durable.has(reference, key.len()), "{} B at {place:?}", record_bytes(key.len(), 0));
            self.log.live().add(*place);
            assert_eq!(self.files.read(*place, key).expect("it is whole"), *value);
            self.seen.cold_after_start += 1;
        }
        self.log.check_invariants();
    }

    fn life(&mut self) {
        let plan = self.plan(400);
        self.disk.set_plan(plan);
        for _ in 0..400 {
            if self.disk.is_stopped() {
                break;
            }
            if self.random.below(12) == 0 { self.base() } else { self.other_step() }
        }
        self.log.check_invariants();
        self.start_again();
    }
}

fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("SEEDS").unwrap_or_else(|_| "0..30".to_string());
    let (from, to) = text.split_once("..").expect("SEEDS=0..100");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn what_the_manifest_in_force_names_is_there() {
    let mut seen = [0; 9];
    for seed in seeds() {
        println!("seed {seed}");
        let mut world = World::new(seed);
        (0..10).for_each(|_| world.life());
        let Seen { crashes, in_start, cold_after_start, referring, plain, .. } = world.seen;
        let Seen { failed_syncs, unknown, survivors, freed, .. } = world.seen;
        let one =
            [crashes, in_start, cold_after_start, referring, plain, failed_syncs, unknown, survivors, freed];
        seen.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
    }
    println!("{seen:?}");
    assert!(seen.iter().all(|count| *count > 0), "the test shows nothing: {seen:?}");
}
