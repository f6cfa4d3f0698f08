//! The files of segments: one each, named by its number, in a folder of this process alone.
//!
//! ```text
//!   <swap-dir>/lock             held as long as the process lives
//!   <swap-dir>/00000017.cold    segment 17: at most 64 MB
//! ```
//! Readers have no lock on a file while they read it: a segment that is freed and written anew meanwhile shows them bytes that do not
//! verify, since a record proves its place and its key.

use isotherm_disk::{Disk, File, Lock, Mode, read_exact_at, write_all_at};
use isotherm_tier::{Damage, Place, Record, SegmentNumber, record_bytes};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

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

const SUFFIX: &str = ".cold";
/// Files that are looked at to know whether the disk answers.
const PROBED_MAX: usize = 8;

pub struct Files {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    open: RwLock<Vec<Option<Arc<dyn File>>>>,
    _lock: Mutex<Box<dyn Lock>>,
}

impl Files {
    /// Takes the folder, and removes what another process has left there.
    pub fn open(disk: Arc<dyn Disk>, folder: &Path, segments: u32) -> Result<Files, String> {
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
        for name in disk.list(folder).map_err(|error| why("list", &error))? {
            if name.ends_with(SUFFIX) {
                disk.remove(&folder.join(name)).map_err(|error| why("empty", &error))?;
            }
        }
        let open = RwLock::new((0..segments).map(|_| None).collect());
        Ok(Files { disk, folder: folder.into(), open, _lock: Mutex::new(lock) })
    }

    /// What its table and its open files take in memory, about.
    pub fn memory_bytes(&self) -> u64 {
        const OPEN_BYTES: u64 = 64;
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        let files = open.iter().flatten().count() as u64;
        (open.capacity() * size_of::<Option<Arc<dyn File>>>()) as u64 + files * OPEN_BYTES
    }

    fn path(&self, segment: SegmentNumber) -> PathBuf {
        self.folder.join(format!("{:08}{SUFFIX}", segment.0))
    }

    fn get(&self, segment: SegmentNumber) -> Option<Arc<dyn File>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner)[segment.0 as usize].clone()
    }

    fn set(&self, segment: SegmentNumber, file: Option<Arc<dyn File>>) {
        self.open.write().unwrap_or_else(PoisonError::into_inner)[segment.0 as usize] = file;
    }

    /// Writes a group. The first one of a segment creates its file.
    pub fn write(&self, segment: SegmentNumber, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let file = match self.get(segment) {
            Some(file) => file,
            None => {
                let file = self.disk.open(&self.path(segment), Mode::Truncate)?;
                self.set(segment, Some(Arc::clone(&file)));
                file
            }
        };
        write_all_at(&*file, bytes, offset).map_err(|error| error.error)
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
            false => some.iter().any(|file| read_exact_at(&**file, &mut [0; 1], 0).is_ok()),
        }
    }

    /// Bytes of a segment, as they are.
    pub fn read_stretch(&self, segment: SegmentNumber, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let file = self.get(segment).ok_or(io::ErrorKind::NotFound)?;
        read_exact_at(&*file, bytes, offset)
    }

    /// The value of a key that lies at `place`, verified.
    pub fn read(&self, place: Place, key: &[u8]) -> Result<Vec<u8>, ReadError> {
        let file = self.get(place.segment()).ok_or(ReadError::NoFile)?;
        let mut bytes = vec![0; record_bytes(key.len(), place.payload_bytes())];
        read_exact_at(&*file, &mut bytes, place.offset()).map_err(ReadError::Io)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::{Plan, SimDisk};
    use isotherm_keyspace::Slot;
    use isotherm_tier::{Log, LogConfig, Stream};

    #[test]
    fn a_value_is_read_by_its_key_alone_and_a_freed_one_is_not() {
        let disk: Arc<dyn Disk> = Arc::new(SimDisk::new(7, Plan::default()));
        let config = LogConfig::of_bytes(1 << 30);
        let files = Files::open(Arc::clone(&disk), Path::new("cold"), config.segments_max()).unwrap();
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
        assert!(matches!(files.read(place, b"kex"), Err(ReadError::OtherKey | ReadError::Damaged(_))));
        let beside = Place::new(place.segment(), place.offset() + 16, 7);
        assert!(files.read(beside, b"key").is_err());
        files.remove(place.segment()).unwrap();
        assert!(matches!(files.read(place, b"key"), Err(ReadError::NoFile)));
        // The folder is this one's.
        assert!(
            Files::open(Arc::clone(&disk), Path::new("cold"), 4).is_err_and(|why| why.contains("in use"))
        );
    }
}
