//! Checking an append-only file: a manifest with its files, or one file of old style.
//!
//! ```text
//!   appendonly.aof.manifest  -->  base (RDB or commands)  -->  incr files in order        only the last one is ever cut
//!   appendonly.aof           -->  commands, perhaps behind an RDB preamble
//! ```
//! `input` reads, `file` checks one file, this file decides which ones are checked.

mod file;
mod input;

use isotherm_persist::aof::begins_as_rdb;
use isotherm_persist::aof::manifest::{AofFile, MANIFEST_BYTES_MAX, Manifest};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::{Checked, Report, bytes_of, c_string, reason};
use file::{Found, Job};

const PATH_BYTES_MAX: usize = 4096;
/// A line of a manifest.
const LINE_BYTES_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub struct Options {
    pub path: OsString,
    pub repair: Repair,
    /// Folder of the values that a base refers to. `None`: they are not checked.
    pub swap_dir: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repair {
    None,
    /// Repair that cuts off the part that cannot be read, after a question.
    Fix,
    /// Repair that cuts off all that was written after this second.
    TruncateToTimestamp(i64),
}

enum Style {
    Commands,
    RdbPreamble,
    MultiPart,
}

/// Checks what the path names. `answers`: what the user replies to questions.
pub fn check(report: &mut Report<'_>, options: &Options, answers: &mut dyn BufRead) -> Checked<()> {
    let path = bytes_of(&options.path);
    if path.len() > PATH_BYTES_MAX {
        return report.fail("Error: filepath is too long (exceeds PATH_MAX)");
    }
    match style_of(report, &options.path)? {
        Style::MultiPart => check_all(report, options, answers),
        style => {
            report.line("Start checking Old-Style AOF")?;
            let job = Job {
                name: path,
                path: &options.path,
                is_last: true,
                repair: options.repair,
                is_rdb: matches!(style, Style::RdbPreamble),
                bytes: None,
                swap_dir: options.swap_dir.as_deref(),
            };
            let found = job.run(report, answers)?;
            show(report, found, path, "AOF", options.repair)
        }
    }
}

fn style_of(report: &mut Report<'_>, path: &OsStr) -> Checked<Style> {
    Ok(if is_manifest(report, path)? {
        Style::MultiPart
    } else if is_rdb(report, path)? {
        Style::RdbPreamble
    } else {
        Style::Commands
    })
}

fn open(report: &mut Report<'_>, path: &OsStr) -> Checked<File> {
    match File::open(path) {
        Ok(file) => Ok(file),
        Err(error) => {
            let error = reason(&error);
            report.fail([b"Cannot open file ", bytes_of(path), b": ", error.as_bytes()].concat())
        }
    }
}

/// Returns whether the first line that is not a comment lists a file.
fn is_manifest(report: &mut Report<'_>, path: &OsStr) -> Checked<bool> {
    let mut file = BufReader::new(open(report, path)?);
    let mut line = Vec::new();
    loop {
        line.clear();
        let portion = file.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line);
        match portion {
            Ok(0) => return Ok(false),
            Ok(_) if line.starts_with(b"#") => {}
            Ok(_) => return Ok(line.starts_with(b"file")),
            Err(_) => return report.fail([b"Cannot read file: ", bytes_of(path)].concat()),
        }
    }
}

fn is_rdb(report: &mut Report<'_>, path: &OsStr) -> Checked<bool> {
    let mut head = Vec::new();
    if open(report, path)?.take(8).read_to_end(&mut head).is_err() {
        return report.fail([b"Cannot read file: ", bytes_of(path)].concat());
    }
    // COMPAT(tools): isotherm-check-aof recognises bases of RDB version 80, which hold hashes whose fields
    // expire; valkey-check-aof takes them for damaged commands. Why: both servers write and load them.
    Ok(head.len() == 8 && (head.starts_with(b"REDIS") || begins_as_rdb(&head)))
}

fn check_all(report: &mut Report<'_>, options: &Options, answers: &mut dyn BufRead) -> Checked<()> {
    report.line("Start checking Multi Part AOF")?;
    let manifest = load_manifest(report, &options.path)?;
    let folder = Path::new(&options.path).parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let total = usize::from(manifest.base.is_some()) + manifest.incr.len();
    if let Some(base) = &manifest.base {
        let path = folder.join(OsStr::from_bytes(&base.name)).into_os_string();
        let is_rdb = is_rdb(report, &path)?;
        let format = if is_rdb { "RDB" } else { "RESP" };
        report.line(format!("Start to check BASE AOF ({format} format)."))?;
        let found = job(base, &path, total == 1, is_rdb, options).run(report, answers)?;
        show(report, found, &base.name, "BASE AOF", options.repair)?;
    }
    if !manifest.incr.is_empty() {
        report.line("Start to check INCR files.")?;
    }
    let first = usize::from(manifest.base.is_some()) + 1;
    for (number, listed) in (first..).zip(&manifest.incr) {
        let path = folder.join(OsStr::from_bytes(&listed.name)).into_os_string();
        let found = job(listed, &path, number == total, false, options).run(report, answers)?;
        show(report, found, &listed.name, "INCR AOF", options.repair)?;
    }
    report.line("All AOF files and manifest are valid")
}

fn job<'j>(
    listed: &'j AofFile,
    path: &'j OsStr,
    is_last: bool,
    is_rdb: bool,
    options: &'j Options,
) -> Job<'j> {
    // Bytes after the listed ones are not part of the log.
    let bytes = listed.place.and_then(|place| place.len);
    let Options { repair, swap_dir, .. } = options;
    let swap_dir = swap_dir.as_deref();
    Job { name: &listed.name, path, is_last, repair: *repair, is_rdb, bytes, swap_dir }
}

fn load_manifest(report: &mut Report<'_>, path: &OsStr) -> Checked<Manifest> {
    let mut bytes = Vec::new();
    let read = open(report, path)?.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes);
    if let Err(error) = read {
        let error = reason(&error);
        return report.fail([b"Cannot read file: ", bytes_of(path), b": ", error.as_bytes()].concat());
    }
    match Manifest::parse(&bytes) {
        Ok(manifest) => Ok(manifest),
        Err(error) => report.fail(format!("\n*** FATAL AOF MANIFEST FILE ERROR ***\n{error}")),
    }
}

/// Reports the result of the check of a file.
fn show(report: &mut Report<'_>, found: Found, name: &[u8], kind: &str, repair: Repair) -> Checked<()> {
    let name = c_string(name);
    let kind = kind.as_bytes();
    match (found, repair) {
        (Found::Sound, _) => report.line([kind, b" ", name, b" is valid"].concat()),
        (Found::Empty, _) => report.line([kind, b" ", name, b" is empty"].concat()),
        (Found::Cut, Repair::TruncateToTimestamp(seconds)) => {
            let to = format!(" to timestamp {seconds}");
            report.line([b"Successfully truncated AOF ", name, to.as_bytes()].concat())
        }
        (Found::Cut, _) => report.line([b"Successfully truncated AOF ", name].concat()),
    }
}
