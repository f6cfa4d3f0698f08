//! The files of segments: one each, named by its number, in a folder of this process alone.
//!
//! ```text
//!   <swap-dir>/lock             held as long as the process lives
//!   <swap-dir>/owner            which log this is, once a base of the append-only file refers to it (`owner`)
//!   <swap-dir>/00000017.cold    segment 17: at most 64 MB, read and written past the page cache where the file system can
//! ```
//! Readers have no lock on a file while they read it: a segment that is freed and written anew meanwhile
//! shows them bytes that do not verify, since a record proves its place and its key.
//!
//! **Start.** Nothing is removed or cut before all that the base in force refers to was found: its log, each
//! segment, its length, the sum of its first block. Then everything that the base does not name is removed,
//! and so are the bytes after a named length.
//!
//! **Descriptors.** A segment needs none while no thread reads it: [`OpenFiles`] keeps the most used ones
//! open, within a bound.
//!
//! **Sync.** Only bytes that a base is about to name, and that no base has named yet, are synced. A failed
//! sync is not repeated.

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
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use super::open_files::{Handle, OpenFiles};
use super::owner::{self, Claim, Owner};
use isotherm_runtime::log;

/// Why a value was not read.
#[derive(Debug)]
pub enum ReadError {
    /// The segment has no file: it was freed.
    NoFile,
    Io(io::Error),
    /// Bytes that are no record of this place and key.
    Damaged(Damage),
    OtherKey,
    /// Given up by the thread that waited for it.
    NoAnswer,
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
            ReadError::NoAnswer => f.write_str("the disk does not answer"),
        }
    }
}

/// Files that are looked at to know whether the disk answers.
const PROBED_MAX: usize = 8;

/// The file of a segment.
#[derive(Default)]
struct SegmentFile {
    handle: Arc<Handle>,
    /// Through the page cache, whose read-ahead a thread needs that reads value after value.
    in_order: Arc<Handle>,
    /// End of the last write that the disk has taken.
    written_bytes: AtomicU64,
    /// Length of the durable part.
    synced_bytes: AtomicU64,
    /// [`block_sum`]; 0: its first group was not written.
    first_block: AtomicU32,
}

/// Why what a base refers to is not durable.
#[derive(Debug)]
pub struct NotSynced {
    /// Segment that could not be synced; `None`: the names in the folder.
    pub segment: Option<SegmentNumber>,
    pub error: io::Error,
}

/// Rules by which files are opened.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Past the page cache.
    pub wants_direct: bool,
    /// Number of files kept open at most.
    pub open_max: usize,
    /// A base will have them synced.
    pub is_synced_later: bool,
    /// Files with all data are written to the same file system.
    pub is_shared: bool,
}

pub struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Past the page cache.
    is_direct: bool,
    log: LogId,
    /// Segments that have a file, by number.
    segments: RwLock<Vec<Option<Arc<SegmentFile>>>>,
    is_synced_later: bool,
    is_shared: bool,
    open_files: OpenFiles,
    /// The manifest that is named by the folder's owner.
    manifest: PathBuf,
    has_owner: AtomicBool,
    /// The owner's file names a manifest that has moved since.
    is_owner_moved: AtomicBool,
    /// A sync of the folder failed.
    is_doubtful: AtomicBool,
    _lock: Mutex<Box<dyn Lock>>,
}

/// Returns whether files of a folder can be read and written past the page cache. This is tried out: some
/// file systems open files so, and then refuse.
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
        access: Access,
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
        let owner = owner::check(&*disk, folder, claim)?;
        let checkpoint = claim.checkpoint.as_ref();
        let files = Files {
            log: checkpoint.map_or(claim.new_log, |checkpoint| checkpoint.log),
            segments: RwLock::new((0..segments).map(|_| None).collect()),
            is_synced_later: access.is_synced_later,
            is_shared: access.is_shared,
            open_files: OpenFiles::new(access.open_max),
            manifest: claim.manifest.clone(),
            has_owner: AtomicBool::new(owner != Owner::None),
            is_owner_moved: AtomicBool::new(owner == Owner::Us { is_moved: true }),
            is_doubtful: AtomicBool::new(false),
            is_direct: access.wants_direct && can_be_direct(&*disk, folder),
            _lock: Mutex::new(lock),
            disk,
            folder: folder.into(),
        };
        let named = checkpoint.map_or(&[][..], |checkpoint| &checkpoint.segments);
        let mut longer = Vec::new();
        for segment in named {
            let len = files.find(segment).map_err(|why| owner::refusal(folder, &why))?;
            longer.extend((len > segment.named.bytes).then_some(segment.named));
        }
        files.remove_others().map_err(|error| why("empty", &error))?;
        for named in longer {
            files.cut(named).map_err(|error| why("cut files of", &error))?;
        }
        if checkpoint.is_none() {
            files.forget_owner();
        } else if owner == (Owner::Us { is_moved: true })
            && let Err(error) = files.name_owner()
        {
            // It is tried again before the next base refers to the folder.
            log::warning(why("name the owner of", &error));
        }
        Ok(files)
    }

    /// Says in the folder whose it is, if it does not, and makes the names in it durable.
    fn name_owner(&self) -> io::Result<()> {
        if !self.has_owner.load(Relaxed) || self.is_owner_moved.load(Relaxed) {
            owner::write(&*self.disk, &self.folder, self.log, &self.manifest)?;
            self.has_owner.store(true, Relaxed);
            self.is_owner_moved.store(false, Relaxed);
        }
        self.disk.sync_dir(&self.folder)
    }

    /// Takes the file of a segment that the base refers to, if it is what the base means. Returns its length.
    fn find(&self, segment: &NamedSegment) -> Result<u64, String> {
        let NamedSegment { named: Named { segment: number, bytes }, first_block } = *segment;
        let path = self.path(number);
        let of_file = |what: &str| format!("{} {what}", path.display());
        let found = SegmentFile::default();
        let file = self.file(number, &found).map_err(|error| match error.kind() {
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
        found.written_bytes.store(bytes, Relaxed);
        found.synced_bytes.store(bytes, Relaxed);
        found.first_block.store(first_block.unwrap_or(0), Relaxed);
        self.set(number, Some(Arc::new(found)));
        Ok(len)
    }

    fn open_file(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        if self.is_direct { self.disk.open_direct(path, mode) } else { self.disk.open(path, mode) }
    }

    /// The file of a segment, opened if it is not.
    fn file(&self, segment: SegmentNumber, found: &SegmentFile) -> io::Result<Arc<dyn File>> {
        self.open_files.open(&found.handle, || self.open_file(&self.path(segment), Mode::Update))
    }

    /// Opens the file of a segment that may be freed meanwhile, for a reader.
    fn file_of(&self, segment: SegmentNumber) -> Result<Arc<dyn File>, ReadError> {
        let found = self.get(segment).ok_or(ReadError::NoFile)?;
        self.file(segment, &found).map_err(|error| self.read_error(segment, &found, error))
    }

    /// Returns why a file did not open. Its name goes after its segment; a file whose segment is there has
    /// lost its name.
    fn read_error(&self, segment: SegmentNumber, found: &Arc<SegmentFile>, error: io::Error) -> ReadError {
        let is_there = self.get(segment).is_some_and(|now| Arc::ptr_eq(&now, found));
        if is_there { ReadError::Io(error) } else { ReadError::NoFile }
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
        self.file(named.segment, &found)?.set_len(named.bytes)
    }

    pub fn segments_max(&self) -> u64 {
        self.segments().len() as u64
    }

    /// Returns about how much memory its table takes, together with its open files and the buffers for reads
    /// past the page cache.
    pub fn memory_bytes(&self) -> u64 {
        const OPEN_BYTES: usize = 64;
        // Without a look at each of them: there may be very many.
        let segments = self.segments().len();
        let segment_bytes =
            size_of::<Option<Arc<SegmentFile>>>() + size_of::<SegmentFile>() + 2 * size_of::<Handle>();
        (segments * segment_bytes + self.open_files.count() * OPEN_BYTES + direct_rooms_bytes()) as u64
    }

    /// Asks how much may still be written on the file system.
    pub fn free_bytes(&self) -> io::Result<u64> {
        self.disk.free_bytes(&self.folder)
    }

    /// Tries whether `bytes` can be written in addition to the segments. They are removed again.
    pub fn has_room(&self, bytes: usize) -> bool {
        let path = self.folder.join("probe");
        let file = self.open_file(&path, Mode::Truncate);
        let written = file.map(|file| write_all_at(&*file, &vec![7; bytes], 0).is_ok());
        _ = self.disk.remove(&path);
        written.unwrap_or(false)
    }

    /// Returns whether files with all data are on the same file system.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Files that are open, and how many may be.
    pub fn open_files(&self) -> (u64, u64) {
        (self.open_files.count() as u64, self.open_files.files_max() as u64)
    }

    fn path(&self, segment: SegmentNumber) -> PathBuf {
        self.folder.join(segment.file_name())
    }

    fn segments(&self) -> RwLockReadGuard<'_, Vec<Option<Arc<SegmentFile>>>> {
        self.segments.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_within(&self, segment: SegmentNumber) -> bool {
        (segment.0 as usize) < self.segments().len()
    }

    fn get(&self, segment: SegmentNumber) -> Option<Arc<SegmentFile>> {
        self.segments()[segment.0 as usize].clone()
    }

    /// Returns the one before.
    fn set(&self, segment: SegmentNumber, file: Option<Arc<SegmentFile>>) -> Option<Arc<SegmentFile>> {
        let mut segments = self.segments.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut segments[segment.0 as usize], file)
    }

    /// Writes a group. The first one of a segment creates its file.
    pub fn write(&self, segment: SegmentNumber, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (found, file) = match self.get(segment) {
            Some(found) => (Arc::clone(&found), self.file(segment, &found)?),
            None => {
                let created = Arc::new(SegmentFile::default());
                let create = || self.open_file(&self.path(segment), Mode::Truncate);
                let file = self.open_files.open(&created.handle, create)?;
                self.set(segment, Some(Arc::clone(&created)));
                (created, file)
            }
        };
        found.handle.is_unsynced.store(self.is_synced_later && !self.is_direct, Relaxed);
        write_all_at(&*file, bytes, offset).map_err(|error| error.error)?;
        if offset == 0 {
            found.first_block.store(block_sum(bytes), Relaxed);
        }
        found.written_bytes.fetch_max(offset + bytes.len() as u64, Relaxed);
        Ok(())
    }

    /// The segment is free: its file goes.
    pub fn remove(&self, segment: SegmentNumber) -> io::Result<()> {
        if let Some(found) = self.set(segment, None) {
            self.open_files.forget(&found.handle);
            self.open_files.forget(&found.in_order);
        }
        self.disk.remove(&self.path(segment))
    }

    /// Returns whether anything can be read: from some files, or from the folder while there are none.
    pub fn probe(&self) -> bool {
        let segments = self.segments();
        let with_file =
            segments.iter().enumerate().filter_map(|(number, found)| Some((number, found.clone()?)));
        let some: Vec<_> = with_file.take(PROBED_MAX).collect();
        drop(segments);
        let reads = |(number, found): &(usize, Arc<SegmentFile>)| {
            let file = self.file(SegmentNumber(*number as u32), found);
            file.is_ok_and(|file| read_exact_at(&*file, &mut [0; 1], 0).is_ok())
        };
        match some.is_empty() {
            true => self.disk.list(&self.folder).is_ok(),
            false => some.iter().any(reads),
        }
    }

    // ---- what a base refers to ----

    /// Returns what a base says of segments. One that has no file has no value either; where the last group
    /// failed, its file is shorter. No disk is asked.
    pub fn checkpoint(&self, named: &[Named]) -> Checkpoint {
        let with_file = named.iter().filter_map(|named| Some((named, self.get(named.segment)?)));
        let segments = with_file.map(|(named, found)| {
            let bytes = named.bytes.min(found.written_bytes.load(Relaxed));
            let first_block = Some(found.first_block.load(Relaxed)).filter(|sum| *sum != 0 && bytes > 0);
            NamedSegment { named: Named { segment: named.segment, bytes }, first_block }
        });
        Checkpoint { log: self.log, segments: segments.collect() }
    }

    /// Makes durable what a base refers to, and says in the folder whose it is. Before its manifest is
    /// written.
    pub fn sync(&self, checkpoint: &Checkpoint) -> Result<(), NotSynced> {
        for NamedSegment { named, .. } in &checkpoint.segments {
            let Some(found) = self.get(named.segment) else { continue };
            if found.synced_bytes.load(Relaxed) < named.bytes {
                let segment = Some(named.segment);
                found.handle.is_unsynced.store(false, Relaxed);
                let synced = self.file(named.segment, &found).and_then(|file| file.sync_all());
                synced.map_err(|error| NotSynced { segment, error })?;
                found.synced_bytes.store(named.bytes, Relaxed);
            }
        }
        self.name_owner().map_err(|error| {
            self.is_doubtful.store(true, Relaxed);
            NotSynced { segment: None, error }
        })
    }

    /// Names in the folder may not be durable: no base can refer to it.
    pub fn is_doubtful(&self) -> bool {
        self.is_doubtful.load(Relaxed)
    }

    /// Returns whether a base may refer to the folder.
    pub fn has_owner(&self) -> bool {
        self.has_owner.load(Relaxed)
    }

    /// Returns whether this is the manifest that the owner is said to be.
    pub fn is_of(&self, manifest: &Path) -> bool {
        std::path::absolute(manifest).is_ok_and(|manifest| manifest == self.manifest)
    }

    /// No base refers to the folder any more. If this fails, the next start sees it by the manifest.
    pub fn forget_owner(&self) {
        if self.has_owner.swap(false, Relaxed) {
            let _ = self.disk.remove(&owner::path(&self.folder));
        }
    }

    /// Returns the parts of the segments that a base in force may refer to, for a caller that asks for many
    /// records.
    pub fn durable(&self) -> Durable {
        let bytes = |found: &Option<Arc<SegmentFile>>| {
            found.as_ref().map_or(0, |found| found.synced_bytes.load(Relaxed))
        };
        Durable { bytes: self.segments().iter().map(bytes).collect() }
    }

    /// Bytes of a segment, as they are.
    pub fn read_stretch(&self, segment: SegmentNumber, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let found = self.get(segment).ok_or(io::ErrorKind::NotFound)?;
        read_exact_at(&*self.file(segment, &found)?, bytes, offset)
    }

    /// The value of a key that lies at `place`, verified.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        Files::read_from(&*self.file_of(place.segment())?, place, key)
    }

    /// Reads a value as `read` does, for a caller that reads many, about in the order in which they were
    /// written.
    pub fn read_in_order(&self, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        Files::read_from(&*self.file_in_order(place.segment())?, place, key)
    }

    /// Returns the file of a segment for such a reader, if that needs no call of the disk.
    pub fn opened_in_order(&self, segment: SegmentNumber) -> Option<Arc<dyn File>> {
        let found = self.get(segment)?;
        match self.is_direct {
            true => found.in_order.get(),
            false => found.handle.get(),
        }
    }

    /// Opens it if need be: the same file as long as that is open, and not written anew.
    pub fn file_in_order(&self, segment: SegmentNumber) -> Result<Arc<dyn File>, ReadError> {
        if !self.is_direct {
            return self.file_of(segment);
        }
        let found = self.get(segment).ok_or(ReadError::NoFile)?;
        let open = || self.disk.open(&self.path(segment), Mode::Read);
        self.open_files.open(&found.in_order, open).map_err(|error| self.read_error(segment, &found, error))
    }

    /// Returns the file in which the record of a key of `key_bytes` lies, the record's first byte and its
    /// length. `None`: it was freed, or its file is closed.
    pub fn locate(&self, place: Place, key_bytes: usize) -> Option<(Arc<dyn File>, u64, usize)> {
        let file = self.get(place.segment())?.handle.get()?;
        Some((file, place.offset(), record_bytes(key_bytes, place.payload_bytes())))
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

/// Durable length of each segment. It gets no less as long as a base refers to the segment.
pub struct Durable {
    bytes: Vec<u64>,
}

impl Durable {
    /// Returns whether the record of a key of this length lies within the durable part.
    pub fn has(&self, reference: ColdRef, key_bytes: usize) -> bool {
        let place = Place::from_raw(reference.raw());
        let end = place.offset() + record_bytes(key_bytes, place.payload_bytes()) as u64;
        self.bytes.get(place.segment().0 as usize).is_some_and(|bytes| *bytes >= end)
    }
}

#[cfg(test)]
mod tests;
