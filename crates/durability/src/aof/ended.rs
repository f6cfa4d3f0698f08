//! The end of a log that was switched off, and whether the RDB file next to it is newer.
//!
//! ```text
//!   CONFIG SET appendonly no           the manifest notes when, and which RDB file is there
//!   a start with appendonly yes        the same RDB file, or none      --> the append-only file is loaded
//!                                      another one, begun later        --> the RDB file is loaded, and becomes the first base
//!                                      another one, begun before       --> refused: a clock was set, or it was put there
//!   a start with appendonly no         a warning, unless the RDB file is newer
//! ```
//! An RDB file says beside which log it was begun, or behind whose end (`LogMark`), and a copy keeps that.
//! The log's number is drawn for each process that writes it, and stands in its lists, in the note of its end
//! and in each RDB file that is begun while it is written or afterwards. Where the two have one number, no
//! clock is asked. Files of other servers and of earlier versions have none: these are compared by when they
//! were begun (`ctime`).
//!
//! The note may be missing: the disk was full, or did not answer. Then an RDB file that was begun behind the
//! end of this very log is newer. Otherwise a log without a note has all that an RDB file of this server has.

use isotherm_disk::{Disk, Mode, read_exact_at};
use isotherm_persist::Limits;
use isotherm_persist::aof::manifest::{Ended, Manifest, RdbMark};
use isotherm_persist::rdb::file::{FileReader, Item, LOG_MARK, LogMark, Options, Step};
use isotherm_stdx::parse_i64;
use std::io;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;

use super::settings;
use crate::persistence::load::{FilePortions, LoadFailure, Portions};
use isotherm_node::Node;
use isotherm_node::aof::request::Moment;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::Job;
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::random::random_bytes;
use isotherm_runtime::time::unix_now;

/// The one of two that has more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Newest {
    Log,
    Rdb,
}

/// Takes the current moment. No command that writes runs, and no save begins.
pub fn moment(store: Store<'_>) -> Moment {
    let saving = store.state.saving();
    let job = saving.running.map(|running| running.job);
    let is_saving = matches!(job, Some(Job::Save(_) | Job::BackgroundSave));
    let replaced = store.state.replaced.load(SeqCst);
    // The clock may have been set back since the cut.
    let cut_seconds = if is_saving { saving.cut_seconds } else { 0 };
    let log = saving.log.map(|log| log.id);
    Moment { seconds: cut_seconds.max(unix_now().0 / 1000), replaced, is_saving, log }
}

/// Returns what the manifest is to say of an end at that moment, later.
///
/// A save that was under way had its cut before the end: its file has less than the log, as the file before
/// it, and the log's number distinguishes it from a later one.
pub fn note(moment: Moment, store: Store<'_>) -> Ended {
    let Moment { seconds, is_saving, log, .. } = moment;
    let found = mark(&*store.state.disk, &store.file());
    // A cut before the end was in this second at the latest.
    let seconds = if is_saving || found.is_err() { seconds + 1 } else { seconds };
    let has_less = store.state.replaced.load(SeqCst) - moment.replaced <= u64::from(is_saving);
    let rdb = match found {
        Ok(rdb) if has_less && (!is_saving || log.is_some()) => rdb,
        // It cannot be recognized; or it is of a save that has begun since, and what is begun in the same
        // second counts as newer.
        _ => RdbMark::Unknown,
    };
    Ended { seconds, rdb, log }
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

/// Returns which has more: the log of this manifest, or the RDB file. An error says why that is not known.
pub fn newest(store: Store<'_>, manifest: &Manifest) -> Result<Newest, String> {
    match (&manifest.ended, manifest.run) {
        (Some(ended), _) => newest_behind(store, ended),
        (None, Some(run)) => Ok(newest_unnoted(store, run)),
        (None, None) => Ok(Newest::Log),
    }
}

/// Returns which has more, if the end of the log with this number is not noted.
fn newest_unnoted(store: Store<'_>, run: u64) -> Newest {
    let path = store.file();
    match begun(&*store.state.disk, &path) {
        Ok(begun) => compare_unnoted(begun, run),
        // Rarely does it matter, and the log has all that is known to be.
        Err(why) => {
            log::warning(format!(
                "Can't see whether the RDB file {} is newer than the append-only file: {why}",
                path.display()
            ));
            Newest::Log
        }
    }
}

fn compare_unnoted(begun: Begun, run: u64) -> Newest {
    match begun.log {
        Some(LogMark { id, is_over: true }) if id == run => Newest::Rdb,
        _ => Newest::Log,
    }
}

/// Returns which has more: the log that ended so, or the RDB file.
fn newest_behind(store: Store<'_>, ended: &Ended) -> Result<Newest, String> {
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
    compare(begun(disk, &path).map_err(|why| of_file(&why))?, ended).map_err(of_file)
}

/// Returns which has more, where the RDB file is not the one that was there at the end. An error says why
/// that is not known.
fn compare(begun: Begun, ended: &Ended) -> Result<Newest, &'static str> {
    match (begun.log, begun.seconds) {
        (Some(log), _) if ended.log == Some(log.id) => {
            Ok(if log.is_over { Newest::Rdb } else { Newest::Log })
        }
        (_, Some(seconds)) if seconds >= ended.seconds => Ok(Newest::Rdb),
        (_, Some(_)) if ended.rdb == RdbMark::Unknown => Ok(Newest::Log),
        (_, Some(_)) => Err("the RDB file came behind the end, and says that it was begun before"),
        (_, None) => Err("the RDB file does not say when it was begun"),
    }
}

/// The beginning of an RDB file, as far as it says something of that.
#[derive(Clone, Copy, Default)]
struct Begun {
    /// Unix time.
    seconds: Option<i64>,
    log: Option<LogMark>,
}

fn begun(disk: &dyn Disk, path: &Path) -> Result<Begun, String> {
    let mut begun = Begun::default();
    let opened = FilePortions::open_on(disk, path.to_path_buf());
    let opened = opened.map_err(|LoadFailure(lines)| lines.join(" "))?;
    let Some(mut portions) = opened else { return Ok(begun) };
    let options =
        Options { limits: Limits::default(), strict_version: false, checksum: false, references: false };
    let mut reader = FileReader::new(options);
    let mut portion = vec![0; 4 << 10];
    // The fields stand in front of all else.
    loop {
        match reader.step().map_err(|error| error.cause.to_string())? {
            Step::Item(Item::Aux { name, value }) if name == b"ctime" => begun.seconds = parse_i64(value),
            Step::Item(Item::Aux { name, value }) if name == LOG_MARK.as_bytes() => {
                begun.log = LogMark::parse(value);
            }
            Step::Item(Item::Aux { .. }) => {}
            Step::Item(_) | Step::End => return Ok(begun),
            Step::NeedsMore => match portions.read(&mut portion).map_err(|error| os_text(&error))? {
                0 => reader.end(),
                count => reader.feed(&portion[..count]),
            },
        }
    }
}

/// Draws the number of a log. Without random bytes it has none, and clocks decide.
pub fn draw() -> Option<u64> {
    random_bytes().map(u64::from_le_bytes).map_err(log::warning).ok()
}

/// Notes that a start reads the log with this number from now on: RDB files are said to be begun beside it.
pub fn begin(store: Store<'_>, run: Option<u64>) {
    store.state.saving().log = run.map(|id| LogMark { id, is_over: false });
}

/// RDB files say from now on that they are begun behind the end of the log with this number.
pub fn follow(store: Store<'_>, log: Option<u64>) {
    store.state.saving().log = log.map(|id| LogMark { id, is_over: true });
}

/// RDB files say from now on that they are begun behind the end of the log, if that is `for_good`; while it
/// only rests they say nothing. Everything is held.
pub fn end(store: Store<'_>, is_for_good: bool) {
    let mut saving = store.state.saving();
    saving.log = saving.log.filter(|_| is_for_good).map(|log| LogMark { is_over: true, ..log });
}

/// Warns, at a start with the RDB file, of an append-only file that may have more.
pub fn warn_beside(node: &Node) {
    let mut files = settings::files(node);
    // One that cannot be read is of no interest to this start.
    let Ok(Some(manifest)) = files.read() else { return };
    if manifest.lists_nothing() {
        return;
    }
    let which = match newest(node.store(), &manifest) {
        Ok(Newest::Rdb) => {
            // What it has, the files that this process saves have too.
            follow(node.store(), manifest.ended.map_or(manifest.run, |ended| ended.log));
            return;
        }
        _ if manifest.ended.is_none() => "was not switched off",
        Ok(Newest::Log) => "is newer than the RDB file",
        Err(_) => "may be newer than the RDB file",
    };
    log::warning(format!(
        "WARNING: 'appendonly' is off, and the append-only file in {} {which}: what only that has is not loaded. To have it, end this \
         process with SHUTDOWN NOSAVE and start with appendonly yes.",
        files.folder().display()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_decides_and_otherwise_a_clock() {
        const END: i64 = 1000;
        let of = |id: u64, is_over: bool| Some(LogMark { id, is_over });
        let check = |log: Option<LogMark>, seconds: Option<i64>, rdb: RdbMark, expected: Option<Newest>| {
            let ended = Ended { seconds: END, rdb, log: Some(7) };
            assert_eq!(compare(Begun { seconds, log }, &ended).ok(), expected, "{log:?} {seconds:?} {rdb:?}");
        };
        for rdb in [RdbMark::None, RdbMark::Unknown, RdbMark::File { bytes: 176, sum: 0x83 }] {
            for seconds in [Some(END - 1), Some(END), Some(END + 1), None] {
                // A clock that was set back hides nothing, and one that stands makes nothing newer.
                check(of(7, true), seconds, rdb, Some(Newest::Rdb));
                check(of(7, false), seconds, rdb, Some(Newest::Log));
            }
            // The log is another one, or the file is another server's.
            for log in [of(8, true), of(8, false), None] {
                check(log, Some(END), rdb, Some(Newest::Rdb));
                let before = (rdb == RdbMark::Unknown).then_some(Newest::Log);
                check(log, Some(END - 1), rdb, before);
                check(log, None, rdb, None);
            }
        }
        // Without a note nothing but the end of this very log counts.
        for (log, expected) in [
            (of(7, true), Newest::Rdb),
            (of(7, false), Newest::Log),
            (of(8, true), Newest::Log),
            (None, Newest::Log),
        ] {
            let begun = Begun { seconds: Some(i64::MAX), log };
            assert_eq!(compare_unnoted(begun, 7), expected, "{log:?}");
        }
        let unnumbered = Ended { seconds: END, rdb: RdbMark::Unknown, log: None };
        let begun = Begun { seconds: Some(END - 1), log: of(7, true) };
        assert_eq!(compare(begun, &unnumbered), Ok(Newest::Log));
    }
}
