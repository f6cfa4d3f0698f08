//! `isotherm-check-aof`: whether an append-only file can be loaded; cuts its end where it cannot, if asked.

use std::ffi::OsString;
use std::io::{BufWriter, stdin, stdout};
use std::path::PathBuf;
use std::process::ExitCode;

use isotherm_check::aof::{Options, Repair, check};
use isotherm_check::{Ended, Report, VERSION};
use isotherm_stdx::number::parse_i64;

enum Asked {
    Check(Options),
    Version,
    Usage,
    BadTimestamp,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let mut out = BufWriter::new(stdout().lock());
    let mut report = Report(&mut out);
    let ended = match parse(&words.collect::<Vec<_>>()) {
        Asked::Check(options) => check(&mut report, &options, &mut stdin().lock()),
        Asked::Version => report.line(format!("isotherm-check-aof {VERSION}")),
        Asked::BadTimestamp => report.fail("Invalid timestamp, aborting..."),
        // COMPAT(tools): isotherm-check-aof has an option more, `--swap-dir`, and names it when it is called
        // wrongly. Why: bases of Isotherm alone refer to values in such a folder.
        Asked::Usage => report.fail(format!(
            "Usage: {} [--swap-dir $folder] [--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>",
            program.to_string_lossy()
        )),
    };
    match ended.and(report.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended(code)) => ExitCode::from(code),
    }
}

fn parse(words: &[OsString]) -> Asked {
    let (swap_dir, words) = match words {
        [word, folder, rest @ ..] if word == "--swap-dir" => (Some(PathBuf::from(folder)), rest),
        _ => (None, words),
    };
    let options = |path: &OsString, repair| {
        Asked::Check(Options { path: path.clone(), repair, swap_dir: swap_dir.clone() })
    };
    match words {
        [word] if word == "-v" || word == "--version" => Asked::Version,
        [path] => options(path, Repair::None),
        [word, path] if word == "--fix" => options(path, Repair::Fix),
        [word, seconds, path] if word == "--truncate-to-timestamp" => {
            match parse_i64(seconds.as_encoded_bytes()) {
                // Zero is Valkey's word for no timestamp.
                Some(0) => options(path, Repair::None),
                Some(seconds) => options(path, Repair::TruncateToTimestamp(seconds)),
                None => Asked::BadTimestamp,
            }
        }
        _ => Asked::Usage,
    }
}
