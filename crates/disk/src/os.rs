//! The machine's own file system.

use crate::direct::DirectFile;
use crate::{Disk, File, Lock, Mode, RawFile};
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

/// Files of the operating system.
#[derive(Clone, Copy, Default, Debug)]
pub struct OsDisk;

struct OsFile(fs::File);

fn options(mode: Mode) -> fs::OpenOptions {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(mode != Mode::Read);
    match mode {
        Mode::Read | Mode::Update => {}
        Mode::Create => _ = options.create(true),
        Mode::Truncate => _ = options.create(true).truncate(true),
        Mode::CreateNew => _ = options.create_new(true),
    }
    options
}

impl Disk for OsDisk {
    fn open(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        Ok(Arc::new(OsFile(options(mode).open(path)?)))
    }

    fn open_direct(&self, path: &Path, mode: Mode) -> io::Result<Arc<dyn File>> {
        let flag = rustix::fs::OFlags::DIRECT.bits().cast_signed();
        Ok(Arc::new(DirectFile(options(mode).custom_flags(flag).open(path)?)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<String>> {
        let names = fs::read_dir(folder_or_here(folder))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<io::Result<Vec<String>>>()?;
        names.sort_unstable();
        Ok(names)
    }

    fn create_dir(&self, folder: &Path) -> io::Result<()> {
        fs::create_dir(folder)
    }

    fn sync_dir(&self, folder: &Path) -> io::Result<()> {
        fs::File::open(folder_or_here(folder))?.sync_all()
    }

    fn free_bytes(&self, folder: &Path) -> io::Result<u64> {
        let figures = rustix::fs::statvfs(folder_or_here(folder))?;
        Ok(figures.f_bavail.saturating_mul(figures.f_frsize))
    }

    fn lock(&self, path: &Path) -> io::Result<Box<dyn Lock>> {
        let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.try_lock()?;
        Ok(Box::new(OsLock { _file: file }))
    }
}

/// The system releases the lock when the file is closed.
struct OsLock {
    _file: fs::File,
}

impl Lock for OsLock {}

/// The parent of a plain name is the empty path, which the system does not take for the current folder.
fn folder_or_here(folder: &Path) -> &Path {
    if folder.as_os_str().is_empty() { Path::new(".") } else { folder }
}

impl File for OsFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<usize> {
        self.0.read_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        self.0.write_at(bytes, at)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn allocate(&self, at: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), at, len)?)
    }

    fn raw(&self) -> Option<RawFile<'_>> {
        Some(RawFile { descriptor: self.0.as_fd(), is_direct: false })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}
