//! `isotherm-check-rdb`: whether an RDB file can be loaded, and what is in it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, stdout};
use std::process::ExitCode;

use isotherm_check::progress::Progress;
use isotherm_check::rdb::check;
use isotherm_check::rdb::stats::Format;
use isotherm_check::{Checked, Ended, Report, VERSION, bytes_of, reason};

struct Options {
    file: OsString,
    format: Format,
    stats: bool,
    output: Option<OsString>,
}

enum Asked {
    Check(Options),
    Version,
}

fn main() -> ExitCode {
    let mut words = std::env::args_os();
    let program = words.next().unwrap_or_default();
    let asked = match parse(words.collect()) {
        Some(asked) => asked,
        None => {
            let program = program.to_string_lossy();
            eprintln!(
                "Usage: {program} <rdb-file-name> [--format table|info|csv] [--stats] [--output <file>]"
            );
            return ExitCode::from(1);
        }
    };
    let mut out = BufWriter::new(stdout().lock());
    let mut report = Report(&mut out);
    let ended = match asked {
        Asked::Version => report.line(format!("isotherm-check-rdb {VERSION}")),
        Asked::Check(options) => run(&mut report, &options),
    };
    match ended.and(report.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Ended(code)) => ExitCode::from(code),
    }
}

fn parse(words: Vec<OsString>) -> Option<Asked> {
    let mut words = words.into_iter();
    let file = words.next()?;
    if file == "-v" || file == "--version" {
        return Some(Asked::Version);
    }
    let mut options = Options { file, format: Format::Table, stats: false, output: None };
    while let Some(word) = words.next() {
        match word.to_str()? {
            "--stats" => options.stats = true,
            "--output" => options.output = Some(words.next()?),
            "--format" => {
                options.format = match words.next()?.to_str()? {
                    "table" => Format::Table,
                    "csv" => Format::Csv,
                    "info" => Format::Info,
                    _ => return None,
                }
            }
            _ => return None,
        }
    }
    Some(Asked::Check(options))
}

fn run(report: &mut Report<'_>, options: &Options) -> Checked<()> {
    let name = bytes_of(&options.file);
    let opened = File::open(&options.file).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, mut file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            report.line([b"[offset 0] Checking RDB file ".as_slice(), name].concat())?;
            report.line("[offset 0] Check RDB returned error code 1 (0 means success)")?;
            report.flush()?;
            eprintln!("Cannot open file {}: {}", name.escape_ascii(), reason(&error));
            return Err(Ended(1));
        }
    };
    let outcome = check(report, name, &mut file, &mut Progress::new(name, bytes), options.stats)?;
    if options.stats {
        match &options.output {
            None => outcome.stats.show(report, options.format)?,
            Some(path) => {
                let shown = bytes_of(path).escape_ascii();
                let mut output = match File::create(path) {
                    Ok(file) => BufWriter::new(file),
                    Err(error) => {
                        report.flush()?;
                        eprintln!("Cannot open output file: '{shown}': {}", reason(&error));
                        return Err(Ended(1));
                    }
                };
                let mut written = Report(&mut output);
                outcome.stats.show(&mut written, options.format)?;
                written.flush()?;
            }
        }
    }
    if outcome.is_sound { Ok(()) } else { Err(Ended(1)) }
}
