//! The end of a log that was switched off, and whether the RDB file next to it is newer.
//!
//! ```text
//!   CONFIG SET appendonly no           the manifest notes when, and which RDB file is there
//!   a start with appendonly yes        the same RDB file, or none      --> the append-only file is loaded
//!                                      another one, begun later        --> the RDB file is loaded, and becomes the first base
//!                                      another one, begun before       --> refused: a clock was set, or it was put there
//!   a start with appendonly no         a warning, unless the RDB file is newer
//! ```
//! The two are compared by what the RDB file says of its beginning (`ctime`), which a copy keeps. A log that
//! was never switched off has all that any RDB file of this server has.

use isotherm_disk::{Disk, Mode, read_exact_at};
use isotherm_persist::Limits;
use isotherm_persist::aof::manifest::{Ended, RdbMark};
use isotherm_persist::rdb::file::{FileReader, Item, Options, Step};
use isotherm_stdx::parse_i64;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

use super::request::Moment;
use super::settings;
use crate::node::Node;
use crate::persistence::Store;
use crate::persistence::load::{FilePortions, LoadFailure, Portions};
use crate::persistence::state::Job;
use crate::process::log::{self, os_text};
use crate::process::time::unix_now;

/// The one of two that has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newest {
    Log,
    Rdb,
}

impl Moment {
    /// Takes the current moment. No command that writes runs, and no save begins.
    pub fn now(store: Store<'_>) -> Moment {
        let saving = store.state.saving();
        let job = saving.running.map(|running| running.job);
        let is_saving = matches!(job, Some(Job::Save(_) | Job::BackgroundSave));
        let replaced = store.state.replaced.load(SeqCst);
        // The clock may have been set back since the cut.
        let cut_seconds = if is_saving { saving.cut_seconds } else { 0 };
        Moment { seconds: cut_seconds.max(unix_now().0 / 1000), replaced, is_saving }
    }

    /// Returns what the manifest is to say of it, later.
    pub fn note(self, store: Store<'_>) -> Ended {
        let found = mark(&*store.state.disk, &store.file());
        match found {
            // By one that has begun since: what is begun in the same second counts as newer.
            Ok(_) if !self.is_saving && store.state.replaced.load(SeqCst) != self.replaced => {
                Ended { seconds: self.seconds, rdb: RdbMark::Unknown }
            }
            Ok(rdb) if !self.is_saving => Ended { seconds: self.seconds, rdb },
            // Its cut was in this second at the latest, and it comes after; or it cannot be recognized.
            _ => Ended { seconds: self.seconds + 1, rdb: RdbMark::Unknown },
        }
    }
}

fn mark(disk: &dyn Disk, path: &Path) -> io::Result<RdbMark> {
    let file = match disk.open(path, Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(RdbMark::None),
        opened => opened?,
    };
    let bytes = file.len()?;
    let mut sum = [0; 8];
    read_exact_at(&*file, &mut sum, bytes.saturating_sub(8))?;
    Ok(RdbMark::File { bytes, sum: u64::from_le_bytes(sum) })
}

/// Returns which has more: the log that ended so, or the RDB file. An error says why that is not known.
pub fn newest(store: Store<'_>, ended: &Ended) -> Result<Newest, String> {
    let (disk, path) = (&*store.state.disk, store.file());
    let of_file = |why: &str| {
        format!(
            "The append-only file was switched off, and which is newer, that or the RDB file {}, is not known: {why}. Nothing was \
             changed. Start with appendonly no to load the RDB file, or move it away to load the append-only file",
            path.display()
        )
    };
    let found = mark(disk, &path).map_err(|error| of_file(&os_text(&error)))?;
    if found == RdbMark::None || found == ended.rdb {
        return Ok(Newest::Log);
    }
    match created_seconds(disk, &path).map_err(|why| of_file(&why))? {
        Some(seconds) if seconds >= ended.seconds => Ok(Newest::Rdb),
        Some(_) if ended.rdb == RdbMark::Unknown => Ok(Newest::Log),
        Some(_) => Err(of_file("the RDB file came behind the end, and says that it was begun before")),
        None => Err(of_file("the RDB file does not say when it was begun")),
    }
}

/// Returns when an RDB file was begun, in Unix time, if it says so.
fn created_seconds(disk: &dyn Disk, path: &Path) -> Result<Option<i64>, String> {
    let opened = FilePortions::open_on(disk, path.to_path_buf());
    let opened = opened.map_err(|LoadFailure(lines)| lines.join(" "))?;
    let Some(mut portions) = opened else { return Ok(None) };
    let options =
        Options { limits: Limits::default(), strict_version: false, checksum: false, references: false };
    let mut reader = FileReader::new(options);
    let mut portion = vec![0; 4 << 10];
    // The fields stand in front of all else.
    loop {
        match reader.step().map_err(|error| error.cause.to_string())? {
            Step::Item(Item::Aux { name, value }) if name == b"ctime" => return Ok(parse_i64(value)),
            Step::Item(Item::Aux { .. }) => {}
            Step::Item(_) | Step::End => return Ok(None),
            Step::NeedsMore => match portions.read(&mut portion).map_err(|error| os_text(&error))? {
                0 => reader.end(),
                count => reader.feed(&portion[..count]),
            },
        }
    }
}

/// Warns, at a start with the RDB file, of an append-only file that may have more.
pub fn warn_beside(node: &Node) {
    let mut files = settings::files(node);
    // One that cannot be read is of no interest to this start.
    let Ok(Some(manifest)) = files.read() else { return };
    let which = match &manifest.ended {
        _ if manifest.lists_nothing() => return,
        None => "was not switched off",
        Some(ended) => match newest(node.store(), ended) {
            Ok(Newest::Rdb) => return,
            Ok(Newest::Log) => "is newer than the RDB file",
            Err(_) => "may be newer than the RDB file",
        },
    };
    log::warning(format!(
        "WARNING: 'appendonly' is off, and the append-only file in {} {which}: what only that has is not loaded. To have it, end this \
         process with SHUTDOWN NOSAVE and start with appendonly yes.",
        files.folder().display()
    ));
}
