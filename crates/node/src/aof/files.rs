//! The files of the append-only file: their names, and the manifest that lists them.
//!
//! ```text
//!   appendonlydir/
//!     appendonly.aof.manifest         written beside as temp-..., synced, renamed; then the folder is synced
//!     appendonly.aof.2.base.rdb       a snapshot, or nothing yet
//!     appendonly.aof.5.incr.aof       the log from there on
//!     .appendonly.aof.lock            locked by the process that writes the others
//! ```
//! Only what the manifest lists counts; so there is one before any of the other files, with nothing in it at
//! first. A file keeps the name under which it was found; those of the history are removed once a manifest
//! without them is safe.

use isotherm_disk::{Disk, File, Lock, Mode, read_exact_at, write_all_at};
use isotherm_log::LogOffset;
use isotherm_log::writer::{FileId, List, Segment};
use isotherm_persist::aof::manifest::{
    AofFile, Ended, MANIFEST_BYTES_MAX, Manifest, ManifestError, Names, Place,
};
use isotherm_replication::ReplId;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_runtime::log::{self, os_text};

const TEMPORARY_BASE: &str = "temp-rewriteaof-bg-";

/// A failure whose reason is in the log.
#[derive(Debug)]
pub struct Logged;

#[derive(Clone)]
pub struct AofFiles {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    names: Arc<Names>,
    /// `appendfilename`.
    old_name: Vec<u8>,
    /// The base that the manifest lists, the names of its log files, and those that are of no more use.
    base: Option<AofFile>,
    /// Complete bases that are not listed yet. While the list cannot be written, another one may be added.
    bases_next: Vec<AofFile>,
    listed: BTreeMap<u64, Vec<u8>>,
    history: Vec<Vec<u8>>,
    /// The name of the history that the log files are of.
    replid: Option<ReplId>,
    /// Number of the log, and its end, as the manifests have it that are written from now on.
    run: Option<u64>,
    ended: Option<Ended>,
}

/// Why the manifest cannot be had.
#[derive(Debug)]
pub enum ReadError {
    Io(io::Error),
    Manifest(ManifestError),
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> ReadError {
        ReadError::Io(error)
    }
}

impl AofFiles {
    /// `name`: `appendfilename`.
    pub fn new(disk: Arc<dyn Disk>, folder: PathBuf, name: &[u8]) -> AofFiles {
        AofFiles {
            disk,
            folder,
            names: Arc::new(Names::new(name)),
            old_name: name.to_vec(),
            base: None,
            bases_next: Vec::new(),
            listed: BTreeMap::new(),
            history: Vec::new(),
            replid: None,
            run: None,
            ended: None,
        }
    }

    /// Sets the history of the log that manifests name from now on.
    pub fn set_replid(&mut self, id: ReplId) {
        self.replid = Some(id);
    }

    /// Sets the number of the log that manifests have from now on, until one has the log's end.
    pub fn set_run(&mut self, run: Option<u64>) {
        self.run = run;
    }

    pub fn run(&self) -> Option<u64> {
        self.run
    }

    /// Sets what manifests say from now on of the end of the log.
    pub fn set_ended(&mut self, ended: Option<Ended>) {
        self.ended = ended;
    }

    /// The single file of earlier versions, in `dir`.
    pub fn old_name(&self) -> PathBuf {
        PathBuf::from(std::ffi::OsStr::from_bytes(&self.old_name))
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn log_name(&self, file: FileId) -> Vec<u8> {
        self.listed.get(&file.0).cloned().unwrap_or_else(|| self.names.incr(file.0 as i64))
    }

    pub fn disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    /// Returns where the next log file is prepared.
    pub fn prepared_path(&self) -> PathBuf {
        self.path(&self.names.temp_prepared())
    }

    pub fn log_path(&self, file: FileId) -> PathBuf {
        self.path(&self.log_name(file))
    }

    pub fn path(&self, name: &[u8]) -> PathBuf {
        self.folder.join(std::ffi::OsStr::from_bytes(name))
    }

    /// Reads the manifest; `None` if there is none.
    pub fn read(&mut self) -> Result<Option<Manifest>, ReadError> {
        let path = self.path(&self.names.manifest());
        let file = match self.disk.open(&path, Mode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let len = file.len()?;
        if len > MANIFEST_BYTES_MAX as u64 {
            return Err(io::Error::from_raw_os_error(libc::EFBIG).into());
        }
        let mut text = vec![0; len as usize];
        read_exact_at(&*file, &mut text, 0)?;
        let manifest = Manifest::parse(&text).map_err(ReadError::Manifest)?;
        self.base.clone_from(&manifest.base);
        self.replid = manifest.replid.and_then(|id| ReplId::parse(&id));
        self.listed = manifest.incr.iter().map(|file| (file.seq as u64, file.name.clone())).collect();
        self.history = manifest.history.iter().map(|file| file.name.clone()).collect();
        Ok(Some(manifest))
    }

    /// Makes the folder if it is not there. Its name has to be durable, or what is in it is not.
    pub fn prepare(&self) -> io::Result<()> {
        match self.disk.create_dir(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            // It may have been made by a process that got no further.
            Ok(()) | Err(_) => {}
        }
        self.disk.sync_dir(self.folder.parent().unwrap_or(Path::new("")))
    }

    /// Makes the folder, and takes the lock of these files: two processes must not write them. The log says
    /// why not.
    pub fn lock(&self) -> Result<Box<dyn Lock>, Logged> {
        let name = [b".", &self.old_name[..], b".lock"].concat();
        let locked = self.prepare().and_then(|()| self.disk.lock(&self.path(&name)));
        locked.map_err(|error| {
            let folder = self.folder.display();
            if error.kind() == io::ErrorKind::WouldBlock {
                log::warning(format!("Another process writes the append-only file in {folder}."));
            } else {
                log::warning(format!("Can't open or create append-only dir {folder}: {}", os_text(&error)));
            }
            Logged
        })
    }

    pub fn manifest_path(&self) -> PathBuf {
        self.path(&self.names.manifest())
    }

    /// The manifest, if it lists anything; the log says why not.
    pub fn manifest(&mut self) -> Result<Option<Manifest>, Logged> {
        let read = self.read().map(|found| found.filter(|manifest| !manifest.lists_nothing()));
        read.map_err(|error| {
            match error {
                ReadError::Io(error) => log::warning(format!(
                    "Fatal error: can't open the AOF manifest file in {} for reading: {}",
                    self.folder.display(),
                    os_text(&error)
                )),
                ReadError::Manifest(error) => {
                    log::warning("\n*** FATAL AOF MANIFEST FILE ERROR ***\n");
                    log::warning(error.to_string());
                }
            }
            Logged
        })
    }

    // COMPAT(persistence): Base and log files without a manifest are not written over: the start, CONFIG SET
    // appendonly yes and BGREWRITEAOF are refused. Valkey begins anew, under the same names. Why: they are
    // the data, and the manifest may be found again.
    /// Prepares a folder in which nothing counts yet for files that a manifest is to list: until it does, one
    /// says that nothing counts. Files that are there without any manifest may be all the data there is: then
    /// the log says so.
    pub fn begin(&mut self) -> Result<(), Logged> {
        let folder = self.folder.display();
        let found = self.disk.exists(&self.manifest_path()).and_then(|is_there| match is_there {
            true => Ok(None),
            false => Ok(Some(self.disk.list(&self.folder)?)),
        });
        let names = match found {
            Ok(None) => return Ok(()),
            Ok(Some(names)) => names,
            Err(error) => {
                log::warning(format!("Can't look for files in {folder}: {}", os_text(&error)));
                return Err(Logged);
            }
        };
        let is_listed = |name: &&String| {
            let (base, incr) =
                (self.names.number_of_base(name.as_bytes()), self.names.number_of_incr(name.as_bytes()));
            base.or(incr).is_some()
        };
        if let Some(name) = names.iter().find(is_listed) {
            log::warning(format!(
                "There is no manifest of the append-only file in {folder}, but {name}, which it would list, and which would be \
                 written over. Nothing was changed: put the manifest back, or move these files away.",
            ));
            return Err(Logged);
        }
        self.save(&List::default()).map_err(|error| {
            log::warning(format!("Can't write the AOF manifest file: {}", os_text(&error)));
            Logged
        })
    }

    /// Syncs the folder, so that the files that were found in it are still there after a power failure.
    pub fn sync_folder(&self) -> Result<(), Logged> {
        self.disk.sync_dir(&self.folder).map_err(|error| {
            let folder = self.folder.display();
            log::warning(format!("Fail to fsync AOF directory {folder}: {}.", os_text(&error)));
            Logged
        })
    }

    pub fn open_to_read(&self, name: &[u8]) -> io::Result<Arc<dyn File>> {
        self.disk.open(&self.path(name), Mode::Read)
    }

    /// Opens a file whose tail is to be cut off.
    pub fn open_to_cut(&self, name: &[u8]) -> io::Result<Arc<dyn File>> {
        self.disk.open(&self.path(name), Mode::Update)
    }

    /// Creates a file that has only `beginning`, for its first write. Content of an earlier file of that name
    /// does not come back.
    pub fn create(&self, file: FileId, beginning: &[u8]) -> io::Result<Arc<dyn File>> {
        let created = self.disk.open(&self.log_path(file), Mode::Truncate)?;
        write_all_at(&*created, beginning, 0).map_err(|error| error.error)?;
        created.sync_all()?;
        Ok(created)
    }

    pub fn open(&self, file: FileId) -> io::Result<Arc<dyn File>> {
        self.disk.open(&self.log_path(file), Mode::Update)
    }

    pub fn remove(&self, file: FileId) {
        let _ = self.disk.remove(&self.log_path(file));
    }

    /// A file that is listed no more.
    pub fn remove_named(&self, name: &[u8]) {
        let _ = self.disk.remove(&self.path(name));
    }

    /// The name of a base. `is_rdb`: it is a snapshot, not commands.
    pub fn base_file(&self, number: u64, is_rdb: bool) -> AofFile {
        let seq = number as i64;
        AofFile { name: self.names.base(seq, is_rdb), seq, place: None }
    }

    /// A base that a later list may name. Its file is complete.
    pub fn announce_base(&mut self, base: AofFile) {
        self.bases_next.push(base);
    }

    pub fn base_number(&self) -> u64 {
        self.base.as_ref().map_or(0, |base| base.seq as u64)
    }

    /// Returns the number after which log files are numbered. One that was renamed by hand may have another
    /// number in its name than in the manifest, and a new file of that name would replace it.
    pub fn last_log(&self) -> u64 {
        self.last_named(Names::number_of_incr)
    }

    /// Returns the same for bases.
    pub fn last_base(&self) -> u64 {
        self.base_number().max(self.last_named(Names::number_of_base))
    }

    /// Returns the last number in the names that are listed, or 0.
    fn last_named(&self, number: fn(&Names, &[u8]) -> Option<i64>) -> u64 {
        /// No server gets so far. Higher numbers would leave none after them.
        const NUMBER_MAX: i64 = 1 << 62;
        let names = self.listed.values().chain(&self.history).chain(self.base.iter().map(|base| &base.name));
        let numbers = names.filter_map(|name| number(&self.names, name));
        numbers.filter(|number| *number <= NUMBER_MAX).max().map_or(0, |number| number as u64)
    }

    /// Removes what a rewrite, or a change of the list, has left that was killed.
    pub fn remove_leftovers(&self) {
        let names = self.disk.list(&self.folder).unwrap_or_default();
        for name in names.iter().filter(|name| name.starts_with(TEMPORARY_BASE)) {
            let _ = self.disk.remove(&self.folder.join(name));
        }
        let _ = self.disk.remove(&self.path(&self.names.temp_manifest()));
    }

    /// Removes files of an earlier list, which a process has left that ended before it could. Their numbers
    /// are lower than the last that is listed; what has a higher one was never listed, and its name is taken
    /// again.
    pub fn remove_outdated(&self) {
        let base = self.base.as_ref().map(|base| base.seq);
        let incr_last = self.listed.keys().next_back().map(|number| *number as i64);
        let is_below = |number: Option<i64>, listed: Option<i64>| number < listed && number.is_some();
        for name in self.disk.list(&self.folder).unwrap_or_default() {
            let bytes = name.as_bytes();
            let is_listed = self.base.as_ref().is_some_and(|base| base.name == bytes)
                || self.listed.values().chain(&self.history).any(|listed| listed == bytes);
            let is_outdated = is_below(self.names.number_of_base(bytes), base)
                || is_below(self.names.number_of_incr(bytes), incr_last);
            if is_outdated && !is_listed {
                self.remove_named(bytes);
            }
        }
    }

    /// Returns the path at which a base is written before it gets its name.
    pub fn temporary_base(&self) -> PathBuf {
        self.folder.join(format!("{TEMPORARY_BASE}{}.aof", std::process::id()))
    }

    /// Writes the manifest. The files that it lists are in the folder before.
    pub fn save(&mut self, list: &List) -> io::Result<()> {
        let old = self.base.as_ref().map(|base| base.seq as u64);
        let base = match list.base {
            None => None,
            // It keeps the name it was found with.
            Some(number) if old == Some(number) => self.base.clone(),
            Some(number) => {
                let next = self.bases_next.iter().find(|next| next.seq as u64 == number);
                Some(next.expect("a base is announced before it is listed").clone())
            }
        };
        let incr = list.segments.iter().map(|segment| self.listed(segment)).collect();
        let replid = self.replid.map(|id| *id.as_bytes());
        let ended = self.ended;
        let run = self.run.filter(|_| ended.is_none());
        let text = Manifest { base: base.clone(), history: Vec::new(), incr, replid, run, ended }.write();
        let (path, beside) = (self.path(&self.names.manifest()), self.path(&self.names.temp_manifest()));
        let file = self.disk.open(&beside, Mode::Truncate)?;
        write_all_at(&*file, &text, 0).map_err(|error| error.error)?;
        file.sync_all()?;
        self.disk.sync_dir(&self.folder)?;
        self.disk.rename(&beside, &path)?;
        self.disk.sync_dir(&self.folder)?;
        if let Some(gone) =
            self.base.take().filter(|gone| Some(&gone.name) != base.as_ref().map(|base| &base.name))
        {
            let _ = self.disk.remove(&self.path(&gone.name));
        }
        self.base = base;
        let listed = self.base_number();
        // One before it is not listed any more.
        for gone in self.bases_next.extract_if(.., |next| next.seq as u64 <= listed) {
            if gone.seq as u64 != listed {
                let _ = self.disk.remove(&self.folder.join(std::ffi::OsStr::from_bytes(&gone.name)));
            }
        }
        for name in std::mem::take(&mut self.history) {
            let _ = self.disk.remove(&self.path(&name));
        }
        Ok(())
    }

    fn listed(&self, segment: &Segment) -> AofFile {
        let seq = segment.file.0 as i64;
        let place = Place { start: segment.start.0, len: segment.len };
        AofFile { name: self.log_name(segment.file), seq, place: Some(place) }
    }
}

/// The log files of a manifest, as the writer takes them over. `lengths`: how much of each counts.
pub fn segments(manifest: &Manifest, starts: &[LogOffset], lengths: &[u64]) -> Vec<Segment> {
    let files = manifest.incr.iter().zip(starts).zip(lengths);
    files
        .map(|((file, start), len)| Segment { file: FileId(file.seq as u64), start: *start, len: Some(*len) })
        .collect()
}
