//! Sources of the bytes of an RDB file: a file, or the connection to a primary.
//!
//! ```text
//!   portions --> FileReader --> keys
//!           [REDIS0011 ... ff sum][behind the end: commands of the log, a mark, nothing]
//!                                  ^ Ended::rest, and what the portions still have
//! ```
//! An RDB file says itself where it ends, so the number of its bytes need not be known. Bytes that were read
//! and lie after the end are handed back.

use isotherm_disk::{Disk, File, Mode, read_exact_at};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::LoadFailure;
use isotherm_node::persistence::Store;
use isotherm_runtime::log::os_text;

/// Source of the bytes of an RDB file: they come in order, from the first byte on.
pub trait Portions {
    /// Fills a part of `room` with what comes next, and says how much: 0 if nothing more comes. It may wait.
    /// An error ends the load, `Interrupted` too.
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize>;

    /// Returns how many bytes come in all, if that is known. The number is shown, and nothing depends on it.
    fn bytes_total(&self) -> Option<u64>;

    /// Returns its name for the log.
    fn name(&self) -> String;

    /// Returns the log line for a failed `read` at this place.
    fn failure(&self, at: u64, why: &io::Error) -> String {
        format!("Error reading the RDB file {} at offset {at}: {}", self.name(), os_text(why))
    }
}

/// An RDB file on disk, or a file that begins with one.
pub struct FilePortions {
    path: PathBuf,
    file: Arc<dyn File>,
    bytes: u64,
    at: u64,
}

impl FilePortions {
    /// The RDB file of this server; `None` if there is none.
    pub fn open(store: Store<'_>) -> Result<Option<FilePortions>, LoadFailure> {
        FilePortions::open_at(store, store.file())
    }

    /// Opens the file at `path`; `None` if there is none.
    pub fn open_at(store: Store<'_>, path: PathBuf) -> Result<Option<FilePortions>, LoadFailure> {
        FilePortions::open_on(&*store.state.disk, path)
    }

    pub fn open_on(disk: &dyn Disk, path: PathBuf) -> Result<Option<FilePortions>, LoadFailure> {
        let opened = disk.open(&path, Mode::Read).and_then(|file| Ok((file.len()?, file)));
        match opened {
            Ok((bytes, file)) => Ok(Some(FilePortions { path, file, bytes, at: 0 })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(LoadFailure(vec![format!(
                "Fatal error: can't open the RDB file {} for reading: {}",
                path.display(),
                os_text(&error)
            )])),
        }
    }

    /// The file has another name by now.
    pub fn renamed(self, path: PathBuf) -> FilePortions {
        FilePortions { path, ..self }
    }

    /// The first bytes, which are read again.
    pub fn head<const N: usize>(&self) -> io::Result<Vec<u8>> {
        let mut head = vec![0; self.bytes.min(N as u64) as usize];
        read_exact_at(&*self.file, &mut head, 0)?;
        Ok(head)
    }
}

impl Portions for FilePortions {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(room, self.at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => {
                    self.at += *read.as_ref().unwrap_or(&0) as u64;
                    return read;
                }
            }
        }
    }

    fn bytes_total(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
