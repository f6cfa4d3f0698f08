//! The files of segments: one each, named by its number, in a folder of this process alone.
//!
//! ```text
//!   <swap-dir>/lock             held as long as the process lives
//!   <swap-dir>/owner            which log this is, once a base of the append-only file refers to it (`owner`)
//!   <swap-dir>/00000017.cold    segment 17: at most 64 MB, read and written past the page cache where the file system can
//! ```
//! Readers have no lock on a file while they read it: a segment that is freed and written anew meanwhile shows them bytes that do not
//! verify, since a record proves its place and its key.
//!
//! **Start.** Nothing is removed or cut before all that the base in force refers to was found: its log, each segment, its length, the sum of
//! its first block. Then what the base does not name goes, and what lies behind a named length.
//!
//! **Sync.** Only what a base is about to name is synced, and of that what no base has named yet. A failed sync is not repeated.

use isotherm_disk::{Disk, File, Lock, Mode, direct_rooms_bytes, read_exact_at, write_all_at};
use isotherm_keyspace::ColdRef;
use isotherm_tier::{
    BLOCK_BYTES, Checkpoint, Damage, LogId, Named, NamedSegment, Place, Record, SEGMENT_FILE_SUFFIX,
    SegmentNumber, block_sum, record_bytes,
};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

use super::owner::{self, Claim};

/// Why a value was not read.
#[derive(Debug)]
pub enum ReadError {
    /// The segment has no file: it was freed.
    NoFile,
    Io(io::Error),
    /// What is there is no record of this place and key.
    Damaged(Damage),
    OtherKey,
}

impl ReadError {
    /// Returns whether bytes came, and were none of this record.
    pub fn is_damage(&self) -> bool {
        matches!(self, ReadError::Damaged(_) | ReadError::OtherKey)
    }

    /// Returns whether the system refused.
    pub fn is_of_system(&self) -> bool {
        matches!(self, ReadError::Io(_))
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReadError::NoFile => f.write_str("its file is gone"),
            ReadError::Io(error) => write!(f, "{error}"),
            ReadError::Damaged(damage) => write!(f, "its record is damaged: {damage:?}"),
            ReadError::OtherKey => f.write_str("another key's record is there"),
        }
    }
}

/// Files that are looked at to know whether the disk answers.
const PROBED_MAX: usize = 8;

/// The file of a segment.
struct SegmentFile {
    file: Arc<dyn File>,
    /// Through the page cache, whose read-ahead those need who read value after value: opened by the first of them.
    in_order: OnceLock<Arc<dyn File>>,
    /// So much of it is durable.
    synced_bytes: AtomicU64,
    /// [`block_sum`]; 0: its first group was not written.
    first_block: AtomicU32,
}

/// Why what a base refers to is not durable.
#[derive(Debug)]
pub struct NotSynced {
    /// `None`: the names in the folder.
    pub segment: Option<SegmentNumber>,
    pub error: io::Error,
}

pub struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Past the page cache.
    is_direct: bool,
    log: LogId,
    open: RwLock<Vec<Option<Arc<SegmentFile>>>>,
    /// The manifest that is named by the folder's owner.
    manifest: PathBuf,
    has_owner: AtomicBool,
    /// A sync of the folder failed.
    is_doubtful: AtomicBool,
    _lock: Mutex<Box<dyn Lock>>,
}

/// Whether files of a folder can be read and written past the page cache: some file systems open them so, and then refuse.
fn can_be_direct(disk: &dyn Disk, folder: &Path) -> bool {
    let path = folder.join("probe");
    let tried = disk.open_direct(&path, Mode::Truncate).and_then(|file| {
        let (written, mut read) = ([7; BLOCK_BYTES], [0; 100]);
        write_all_at(&*file, &written, 0).map_err(|error| error.error)?;
        read_exact_at(&*file, &mut read, 1000)?;
        Ok(read == [7; 100])
    });
    _ = disk.remove(&path);
    tried.unwrap_or(false)
}

impl Files {
    /// Takes the folder, and removes what no base refers to. Says why it cannot be; then all is as it was.
    pub fn open(
        disk: Arc<dyn Disk>,
        folder: &Path,
        segments: u32,
        claim: &Claim,
        wants_direct: bool,
    ) -> Result<Files, String> {
        let why = |what: &str, error: &io::Error| {
            format!("Can't {what} the folder '{}' of swap-dir: {error}", folder.display())
        };
        match disk.create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(why("create", &error)),
            _ => {}
        }
        let lock = disk.lock(&folder.join("lock")).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => {
                format!("The folder '{}' of swap-dir is in use by another process", folder.display())
            }
            _ => why("lock", &error),
        })?;
        let has_owner = owner::check(&*disk, folder, claim)?;
        let checkpoint = claim.checkpoint.as_ref();
        let files = Files {
            log: checkpoint.map_or(claim.new_log, |checkpoint| checkpoint.log),
            open: RwLock::new((0..segments).map(|_| None).collect()),
            manifest: claim.manifest.clone(),
            has_owner: AtomicBool::new(has_owner),
            is_doubtful: AtomicBool::new(false),
            is_direct: wants_direct && can_be_direct(&*disk, folder),
            _lock: Mutex::new(lock),
            disk,
            folder: folder.into(),
        };
        let named = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.segments);
        for segment in named {
            let found = files.find(segment).map_err(|why| owner::refusal(folder, &why))?;
            files.set(segment.named.segment, Some(Arc::new(found)));
        }
        files.remove_others().map_err(|error| why("empty", &error))?;
        for NamedSegment { named, .. } in named {
            files.cut(*named).map_err(|error| why("cut files of", &error))?;
        }
        if checkpoint.is_none() && has_owner {
            files.forget_owner();
        }
        Ok(files)
    }

    /// The file of a segment that the base refers to, if it is what the base means.
    fn find(&self, segment: &NamedSegment) -> Result<SegmentFile, String> {
        let NamedSegment { named: Named { segment: number, bytes }, first_block } = *segment;
        let path = self.path(number);
        let of_file = |what: &str| format!("{} {what}", path.display());
        let file = self.open_file(&path, Mode::Update).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => of_file("is missing"),
            _ => of_file(&format!("cannot be opened ({error})")),
        })?;
        let len = file.len().map_err(|error| of_file(&format!("cannot be read ({error})")))?;
        if len < bytes {
            return Err(of_file(&format!("has {len} bytes of the {bytes} that the base refers to")));
        }
        if let Some(sum) = first_block {
            let mut block = [0; BLOCK_BYTES];
            let read = read_exact_at(&*file, &mut block, 0);
            read.map_err(|error| of_file(&format!("cannot be read ({error})")))?;
            if block_sum(&block) != sum {
                return Err(of_file(
                    "is not the one that the base refers to, but of another time or another log",
                ));
            }
        }
        let first_block = AtomicU32::new(first_block.unwrap_or(0));
        let in_order = OnceLock::new();
        Ok(SegmentFile { file, in_order, synced_bytes: AtomicU64::new(bytes), first_block })
    }

    fn open_file(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        if self.is_direct { self.disk.open_direct(path, mode) } else { self.disk.open(path, mode) }
    }

    pub fn is_direct(&self) -> bool {
        self.is_direct
    }

    /// Files of segments that no base refers to.
    fn remove_others(&self) -> io::Result<()> {
        for name in self.disk.list(&self.folder)? {
            let number =
                name.strip_suffix(SEGMENT_FILE_SUFFIX).map(|number| number.parse().ok().map(SegmentNumber));
            let Some(number) = number else { continue };
            let is_named = number.is_some_and(|number| {
                self.is_within(number) && self.path(number).ends_with(&name) && self.get(number).is_some()
            });
            if !is_named {
                self.disk.remove(&self.folder.join(name))?;
            }
        }
        Ok(())
    }

    fn cut(&self, named: Named) -> io::Result<()> {
        let Some(found) = self.get(named.segment) else { return Ok(()) };
        if found.file.len()? > named.bytes { found.file.set_len(named.bytes) } else { Ok(()) }
    }

    pub fn segments_max(&self) -> u64 {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len() as u64
    }

    /// What its table, its open files and the rooms of those who read past the page cache take in memory, about.
    pub fn memory_bytes(&self) -> u64 {
        const OPEN_BYTES: u64 = 64;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let files = open.iter().flatten().count() as u64;
        let table_bytes = open.capacity() * size_of::<Option<Arc<dyn File>>>() + direct_rooms_bytes();
        table_bytes as u64 + files * OPEN_BYTES
    }

    fn path(&self, segment: SegmentNumber) -> PathBuf {
        self.folder.join(segment.file_name())
    }

    fn is_within(&self, segment: SegmentNumber) -> bool {
        (segment.0 as usize) < self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn get(&self, segment: SegmentNumber) -> Option<Arc<SegmentFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)[segment.0 as usize].clone()
    }

    fn set(&self, segment: SegmentNumber, file: Option<Arc<SegmentFile>>) {
        self.open.write().unwrap_or_else(PoisonError::into_inner)[segment.0 as usize] = file;
    }

    /// Writes a group. The first one of a segment creates its file.
    pub fn write(&self, segment: SegmentNumber, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let found = match self.get(segment) {
            Some(found) => found,
            None => {
                let file = self.open_file(&self.path(segment), Mode::Truncate)?;
                let (synced_bytes, first_block) = (AtomicU64::new(0), AtomicU32::new(0));
                let in_order = OnceLock::new();
                let created = Arc::new(SegmentFile { file, in_order, synced_bytes, first_block });
                self.set(segment, Some(Arc::clone(&created)));
                created
            }
        };
        write_all_at(&*found.file, bytes, offset).map_err(|error| error.error)?;
        if offset == 0 {
            found.first_block.store(block_sum(bytes), Relaxed);
        }
        Ok(())
    }

    /// The segment is free: its file goes.
    pub fn remove(&self, segment: SegmentNumber) -> io::Result<()> {
        self.set(segment, None);
        self.disk.remove(&self.path(segment))
    }

    /// Whether anything can be read: of some files, or of the folder while there are none.
    pub fn probe(&self) -> bool {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let some: Vec<_> = open.iter().flatten().take(PROBED_MAX).cloned().collect();
        drop(open);
        match some.is_empty() {
            true => self.disk.list(&self.folder).is_ok(),
            false => some.iter().any(|found| read_exact_at(&*found.file, &mut [0; 1], 0).is_ok()),
        }
    }

    // ---- what a base refers to ----

    /// What a base says of segments. One that has no file has no value either; where the last group failed, its file is shorter. A file whose length
    /// is not known cannot be left out: the base refers to it, and the next start would remove it.
    pub fn checkpoint(&self, named: &[Named]) -> io::Result<Checkpoint> {
        let with_file = named.iter().filter_map(|named| Some((named, self.get(named.segment)?)));
        let segments = with_file.map(|(named, found)| {
            let bytes = named.bytes.min(found.file.len()?);
            let first_block = Some(found.first_block.load(Relaxed)).filter(|sum| *sum != 0 && bytes > 0);
            Ok(NamedSegment { named: Named { segment: named.segment, bytes }, first_block })
        });
        Ok(Checkpoint { log: self.log, segments: segments.collect::<io::Result<_>>()? })
    }

    /// Makes durable what a base refers to, and says in the folder whose it is. Before its manifest is written.
    pub fn sync(&self, checkpoint: &Checkpoint) -> Result<(), NotSynced> {
        for NamedSegment { named, .. } in &checkpoint.segments {
            let Some(found) = self.get(named.segment) else { continue };
            if found.synced_bytes.load(Relaxed) < named.bytes {
                let segment = Some(named.segment);
                found.file.sync_all().map_err(|error| NotSynced { segment, error })?;
                found.synced_bytes.store(named.bytes, Relaxed);
            }
        }
        let named = || {
            if !self.has_owner.load(Relaxed) {
                owner::write(&*self.disk, &self.folder, self.log, &self.manifest)?;
                self.has_owner.store(true, Relaxed);
            }
            self.disk.sync_dir(&self.folder)
        };
        named().map_err(|error| {
            self.is_doubtful.store(true, Relaxed);
            NotSynced { segment: None, error }
        })
    }

    /// Names in the folder may not be durable: no base can refer to it.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Relaxed)
    }

    /// Whether a base may refer to the folder.
    pub fn has_owner(&self) -> bool {
        self.has_owner.load(Relaxed)
    }

    /// No base refers to the folder any more. If this fails, the next start sees it by the manifest.
    pub fn forget_owner(&self) {
        if self.has_owner.swap(false, Relaxed) {
            let _ = self.disk.remove(&owner::path(&self.folder));
        }
    }

    /// What a base in force may refer to, for one who asks for many records.
    pub fn durable(&self) -> Durable {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let bytes = |found: &Option<Arc<SegmentFile>>| {
            found.as_ref().map_or(0, |found| found.synced_bytes.load(Relaxed))
        };
        Durable { bytes: open.iter().map(bytes).collect() }
    }

    /// Bytes of a segment, as they are.
    pub fn read_stretch(&self, segment: SegmentNumber, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let found = self.get(segment).ok_or(io::ErrorKind::NotFound)?;
        read_exact_at(&*found.file, bytes, offset)
    }

    /// The value of a key that lies at `place`, verified.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let found = self.get(place.segment()).ok_or(ReadError::NoFile)?;
        Files::read_from(&*found.file, place, key)
    }

    /// The same for one who reads many, about in the order in which they were written.
    pub fn read_in_order(&self, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        Files::read_from(&*self.file_in_order(place.segment())?, place, key)
    }

    /// What such a reader reads of a segment: the same file as long as that is not written anew.
    pub fn file_in_order(&self, segment: SegmentNumber) -> Result<Arc<dyn File>, ReadError> {
        let found = self.get(segment).ok_or(ReadError::NoFile)?;
        if !self.is_direct {
            return Ok(Arc::clone(&found.file));
        }
        let in_order = match found.in_order.get() {
            Some(file) => file,
            None => {
                let file = self.disk.open(&self.path(segment), Mode::Read).map_err(ReadError::Io)?;
                found.in_order.get_or_init(|| file)
            }
        };
        Ok(Arc::clone(in_order))
    }

    /// Where the record of a key of so many bytes lies: the file, its first byte and its length. `None`: it was freed.
    pub fn locate(&self, place: Place, key_bytes: usize) -> Option<(Arc<dyn File>, u64, usize)> {
        let found = self.get(place.segment())?;
        Some((Arc::clone(&found.file), place.offset(), record_bytes(key_bytes, place.payload_bytes())))
    }

    /// The value of a key, if the bytes are its record at `place`.
    pub fn verify(place: Place, key: &[u8], bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
        let record = Record::read(place, bytes).map_err(ReadError::Damaged)?;
        if record.key == key { Ok(record.payload.to_vec()) } else { Err(ReadError::OtherKey) }
    }

    fn read_from(file: &dyn File, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let mut bytes = vec![0; record_bytes(key.len(), place.payload_bytes())];
        read_exact_at(file, &mut bytes, place.offset()).map_err(ReadError::Io)?;
        let record = Record::read(place, &bytes).map_err(ReadError::Damaged)?;
        if record.key != key {
            return Err(ReadError::OtherKey);
        }
        let start = record.payload.as_ptr() as usize - bytes.as_ptr() as usize;
        bytes.truncate(start + place.payload_bytes());
        bytes.drain(..start);
        Ok(bytes)
    }
}

/// So much of each segment is durable: it gets no less as long as a base refers to it.
pub struct Durable {
    bytes: Vec<u64>,
}

impl Durable {
    /// Whether the record of a key of so many bytes lies within.
    pub fn has(&self, reference: ColdRef, key_bytes: usize) -> bool {
        let place = Place::from_raw(reference.raw());
        let end = place.offset() + record_bytes(key_bytes, place.payload_bytes()) as u64;
        self.bytes.get(place.segment().0 as usize).is_some_and(|bytes| *bytes >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::{FaultyDisk, Plan, SimDisk, Trouble, Troubles};
    use isotherm_keyspace::Slot;
    use isotherm_tier::{Log, LogConfig, Stream};

    /// A base refers to all segments that it names, or to none.
    #[test]
    fn a_segment_whose_length_is_not_known_is_not_left_out() {
        let troubles = Arc::<Troubles>::default();
        let disk = FaultyDisk::new(Arc::new(SimDisk::new(7, Plan::default())), Arc::clone(&troubles));
        let files = Files::open(Arc::new(disk), Path::new("cold"), 4, &Claim::of_nothing(), false)
            .expect("it is free");
        let named = [0, 1, 2].map(|number| Named { segment: SegmentNumber(number), bytes: 1 << 20 });
        for segment in [0, 2] {
            files.write(SegmentNumber(segment), 0, &[7; BLOCK_BYTES]).expect("no fault is set");
        }
        let found = files.checkpoint(&named).expect("no fault is set").named();
        assert_eq!(
            found,
            [0, 2].map(|number| Named { segment: SegmentNumber(number), bytes: BLOCK_BYTES as u64 })
        );
        troubles.reads.set(Some((Trouble::Io, 1)));
        assert!(files.checkpoint(&named).is_err());
        assert_eq!(files.checkpoint(&named).expect("it was one call").named(), found);
    }

    #[test]
    fn a_value_is_read_by_its_key_alone_and_a_freed_one_is_not() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7, Plan::default()));
        let config = LogConfig::of_bytes(1 << 30);
        let files = Files::open(
            Arc::clone(&disk),
            Path::new("cold"),
            config.segments_max(),
            &Claim::of_nothing(),
            true,
        )
        .unwrap();
        let mut log = Log::new(config);
        let record = |key: &'static [u8], payload: &'static [u8]| Record {
            form: 0,
            expiry: None,
            database: 0,
            slot: Slot::of_key(key),
            key,
            payload,
        };
        let place = log.append(Stream::Fresh, &record(b"key", b"a value"), None).unwrap();
        log.seal(Stream::Fresh);
        let write = log.next_write().unwrap();
        files.write(write.segment, write.offset, write.bytes).unwrap();
        assert_eq!(files.read(place, b"key").unwrap(), b"a value");
        assert_eq!(files.read_in_order(place, b"key").unwrap(), b"a value");
        assert!(matches!(files.read(place, b"kex"), Err(ReadError::OtherKey | ReadError::Damaged(_))));
        let beside = Place::new(place.segment(), place.offset() + 16, 7);
        assert!(files.read(beside, b"key").is_err());
        files.remove(place.segment()).unwrap();
        assert!(matches!(files.read(place, b"key"), Err(ReadError::NoFile)));
        // The folder is this one's.
        assert!(
            Files::open(Arc::clone(&disk), Path::new("cold"), 4, &Claim::of_nothing(), true)
                .is_err_and(|why| why.contains("in use"))
        );
    }
}
