//! The log, line by line as Valkey writes it, because scripts wait for some of the lines.
//!
//! ```text
//! 4711:M 21 Nov 2026 02:33:41.017 * Ready to accept connections tcp
//! pid  role      local time       level
//! ```
//! Levels: `.` debug, `-` verbose, `*` notice, `#` warning. The formats logfmt and json say the same by name:
//! `{"pid":4711,"role":"primary","timestamp":"...","level":"notice","message":"..."}`. Writing is done by the
//! thread that logs, one `write` a line, so that lines of several threads never mix. Standard output may be a
//! pipe that is full: lines that it does not take within [`PIPE_PATIENCE`] are dropped and counted, so that
//! no thread waits for its reader.

use isotherm_stdx::Slot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Level {
    Debug,
    Verbose,
    Notice,
    Warning,
    Nothing,
}

/// Most bytes of a message, whose rest is cut off. Arguments of commands stand in some (a parameter, an
/// address), and one is as long as `proto-max-bulk-len` permits, 512 MB. Valkey's have 1,023 bytes at most.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Most bytes of the name of a key in a message. Each is up to 4 there, and the text around it is short.
const KEY_BYTES_MAX: usize = MESSAGE_BYTES_MAX / 4 / 2;

/// Bytes that a pipe takes as a whole once it is reported as writable: PIPE_BUF on Linux.
const PIPE_BYTES: usize = 4096;
/// Wait for the reader of a pipe that is full. Afterwards lines do not wait until it has read.
const PIPE_PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Lines that standard output did not take since it took the last one.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Lines below it are not written.
static LEVEL: AtomicU8 = AtomicU8::new(Level::Notice as u8);
/// The node follows another.
static FOLLOWS: AtomicBool = AtomicBool::new(false);
/// The numbers are those of the words of `log-format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Format {
    Legacy,
    Logfmt,
    Json,
}

/// The numbers are those of the words of `log-timestamp-format`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Timestamp {
    Legacy,
    Iso8601,
    Milliseconds,
}

static FORMAT: AtomicU8 = AtomicU8::new(Format::Legacy as u8);
static TIMESTAMP: AtomicU8 = AtomicU8::new(Timestamp::Legacy as u8);

/// Path of the log file; `None` for standard output.
static FILE: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Sets whether the lines are those of a replica or of a primary.
pub fn set_role(follows: bool) {
    FOLLOWS.store(follows, Ordering::Relaxed);
}

pub fn set_level(level: Level) {
    LEVEL.store(level as u8, Ordering::Relaxed);
}

pub fn set_format(format: Format, timestamp: Timestamp) {
    FORMAT.store(format as u8, Ordering::Relaxed);
    TIMESTAMP.store(timestamp as u8, Ordering::Relaxed);
}

fn format() -> (Format, Timestamp) {
    let format = [Format::Legacy, Format::Logfmt, Format::Json][usize::from(FORMAT.load(Ordering::Relaxed))];
    let timestamps = [Timestamp::Legacy, Timestamp::Iso8601, Timestamp::Milliseconds];
    (format, timestamps[usize::from(TIMESTAMP.load(Ordering::Relaxed))])
}

/// Lines go to this file from now on; without one, to standard output. Opened once here to learn whether it
/// can be.
pub fn set_file(path: Option<&Path>) -> io::Result<()> {
    let path = path.map(PathBuf::from);
    if let Some(path) = &path {
        open(path)?;
    }
    *FILE.lock().unwrap_or_else(PoisonError::into_inner) = path;
    Ok(())
}

pub fn is_on(level: Level) -> bool {
    level as u8 >= LEVEL.load(Ordering::Relaxed)
}

pub fn debug(message: impl AsRef<str>) {
    line(Level::Debug, message.as_ref());
}
pub fn verbose(message: impl AsRef<str>) {
    line(Level::Verbose, message.as_ref());
}
pub fn notice(message: impl AsRef<str>) {
    line(Level::Notice, message.as_ref());
}
pub fn warning(message: impl AsRef<str>) {
    line(Level::Warning, message.as_ref());
}

/// Writes a text of this process, however long, at the level notice.
pub fn report(message: &str) {
    uncut_line(Level::Notice, message);
}

fn line(level: Level, message: &str) {
    if is_on(level) {
        uncut_line(level, &cut(message));
    }
}

fn cut(message: &str) -> Cow<'_, str> {
    match message.floor_char_boundary(MESSAGE_BYTES_MAX) {
        end if end < message.len() => Cow::Owned(format!("{}...", &message[..end])),
        _ => Cow::Borrowed(message),
    }
}

fn uncut_line(level: Level, message: &str) {
    if is_on(level) {
        write(&shown(level, message));
    }
}

/// Returns the line of a message of this moment.
fn shown(level: Level, message: &str) -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (format, timestamp) = format();
    let moment = moment(timestamp, since.as_secs() as i64, since.subsec_millis());
    let who = (std::process::id(), FOLLOWS.load(Ordering::Relaxed));
    formatted(format, level, &moment, who, message)
}

fn moment(format: Timestamp, unix_seconds: i64, millis: u32) -> String {
    match format {
        Timestamp::Legacy => format!("{}.{millis:03}", local_time(unix_seconds)),
        Timestamp::Iso8601 => {
            let (year, month, day) = civil_date(unix_seconds.div_euclid(86_400));
            let (hour, minute, second) = time_of_day(unix_seconds);
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}+00:00")
        }
        Timestamp::Milliseconds => format!("{}", unix_seconds * 1000 + i64::from(millis)),
    }
}

/// `who`: the process, and whether it follows another.
fn formatted(format: Format, level: Level, moment: &str, who: (u32, bool), message: &str) -> String {
    const SIGNS: [char; 5] = ['.', '-', '*', '#', '#'];
    const NAMES: [&str; 5] = ["debug", "info", "notice", "warning", "warning"];
    let (sign, name) = (SIGNS[level as usize], NAMES[level as usize]);
    let (pid, initial, role) = match who {
        (pid, false) => (pid, 'M', "primary"),
        (pid, true) => (pid, 'S', "replica"),
    };
    match format {
        Format::Legacy => format!("{pid}:{initial} {moment} {sign} {message}\n"),
        Format::Logfmt => {
            let message = message.replace('"', "'").replace(['\n', '\r'], " ");
            format!("pid={pid} role={role} timestamp=\"{moment}\" level={name} message=\"{message}\"\n")
        }
        Format::Json => {
            let message = json_string(message);
            format!(
                "{{\"pid\":{pid},\"role\":\"{role}\",\"timestamp\":\"{moment}\",\"level\":\"{name}\",\"message\":{message}}}\n"
            )
        }
    }
}

fn json_string(text: &str) -> String {
    let mut out = String::from('"');
    for character in text.chars() {
        match character {
            '\\' | '"' => out.extend(['\\', character]),
            '\n' => out.push_str("\\n"),
            '\x0c' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            ..='\x1f' => out.push_str(&format!("\\u{:04x}", character as u32)),
            _ => out.push(character),
        }
    }
    out.push('"');
    out
}

/// Returns the words that name a key in a line: by its slot, if its name is to stay out of the log
/// (`hide-user-data-from-log`).
pub fn name_of_key(hides: bool, key: &[u8]) -> String {
    match hides {
        true => format!("a key of slot {}", Slot::of_key(key).get()),
        false => match key.split_at_checked(KEY_BYTES_MAX) {
            Some((first, rest)) if !rest.is_empty() => format!("key '{}...'", first.escape_ascii()),
            _ => format!("key '{}'", key.escape_ascii()),
        },
    }
}

/// "Address already in use", without the number that Rust adds.
pub fn os_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_string()
}

/// Writes `text` as it is, at the level notice.
pub fn raw(text: &str) {
    if is_on(Level::Notice) {
        write(text);
    }
}

fn write(text: &str) {
    let path = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    // A log that cannot be written has no reader.
    let _ = match path.as_ref() {
        // Opened for each line, so that a file moved away by logrotate is made anew.
        Some(path) => open(path).and_then(|mut file| file.write_all(text.as_bytes())),
        None => write_to_stdout(text),
    };
}

// COMPAT(server): Lines of the log that a full pipe at standard output does not take within 100 ms are
// dropped and counted; Valkey waits for its reader. Why: no client, and no end of the process, waits for it.
fn write_to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    let dropped = DROPPED.load(Ordering::Relaxed);
    let patience = if dropped == 0 { PIPE_PATIENCE } else { Timespec::default() };
    let takes = |stdout: &io::StdoutLock<'_>, patience: &Timespec| {
        !matches!(poll(&mut [PollFd::new(stdout, PollFlags::OUT)], Some(patience)), Ok(0))
    };
    if !takes(&stdout, &patience) {
        DROPPED.store(dropped + 1, Ordering::Relaxed);
        return Ok(());
    }
    if dropped > 0 {
        DROPPED.store(0, Ordering::Relaxed);
        let message = format!("{dropped} lines of the log are missing: standard output was full");
        stdout.write_all(shown(Level::Warning, &message).as_bytes())?;
        stdout.flush()?;
    }
    for piece in text.as_bytes().chunks(PIPE_BYTES) {
        if !takes(&stdout, &PIPE_PATIENCE) {
            DROPPED.fetch_add(1, Ordering::Relaxed);
            break;
        }
        stdout.write_all(piece)?;
        // Without it the rest of a line without an end stays in the buffer.
        stdout.flush()?;
    }
    Ok(())
}

fn open(path: &PathBuf) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// "21 Nov 2026 02:33:41" in UTC.
fn local_time(unix_seconds: i64) -> String {
    // COMPAT(server): Times in the log are in UTC, in every format; Valkey writes local time. Why: a log
    // without time zone is ambiguous twice a year.
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (year, month, day) = civil_date(unix_seconds.div_euclid(86_400));
    let (hour, minute, second) = time_of_day(unix_seconds);
    format!("{day:02} {} {year} {hour:02}:{minute:02}:{second:02}", MONTHS[month as usize - 1])
}

fn time_of_day(unix_seconds: i64) -> (i64, i64, i64) {
    let second = unix_seconds.rem_euclid(86_400);
    (second / 3600, second / 60 % 60, second % 60)
}

/// The date `days` days after 1970-01-01. Years are counted from March, so that the leap day is a year's
/// last; 400 years have 146097 days.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats() {
        let check = |format, message, expected: &str| {
            assert_eq!(formatted(format, Level::Verbose, "NOW", (7, false), message), expected);
        };
        check(Format::Legacy, "a \"b\"", "7:M NOW - a \"b\"\n");
        let logfmt = "pid=7 role=primary timestamp=\"NOW\" level=info message=\"a 'b' c\"\n";
        check(Format::Logfmt, "a \"b\"\nc", logfmt);
        let json = "{\"pid\":7,\"role\":\"primary\",\"timestamp\":\"NOW\",\"level\":\"info\",\"message\":\"a \\\"\\n\\u0001\"}\n";
        check(Format::Json, "a \"\n\x01", json);
    }

    #[test]
    fn long_messages_are_cut() {
        let check = |message: &str, expected: &str| assert_eq!(cut(message), expected);
        let longest = "x".repeat(MESSAGE_BYTES_MAX);
        check("short", "short");
        check(&longest, &longest);
        check(&format!("{longest}x"), &format!("{longest}..."));
        // Not within a character.
        let odd = format!("{}\u{e9}", &longest[1..]);
        check(&odd, &format!("{}...", &longest[1..]));
        let key = [b'\x01'; KEY_BYTES_MAX + 1];
        let of_key = |bytes: usize, dots: &str| format!("key '{}{dots}'", "\\x01".repeat(bytes));
        assert_eq!(name_of_key(false, &key), of_key(KEY_BYTES_MAX, "..."));
        assert_eq!(name_of_key(false, &key[1..]), of_key(KEY_BYTES_MAX, ""));
        assert_eq!(cut(&name_of_key(false, &key)).len(), KEY_BYTES_MAX * 4 + "key '...'".len());
    }

    #[test]
    fn timestamps() {
        assert_eq!(moment(Timestamp::Iso8601, 951_782_400, 7), "2000-02-29T00:00:00.007+00:00");
        assert_eq!(moment(Timestamp::Milliseconds, 951_782_400, 7), "951782400007");
        assert_eq!(moment(Timestamp::Legacy, 951_782_400, 7), "29 Feb 2000 00:00:00.007");
    }

    #[test]
    fn dates() {
        let check = |seconds, expected: &str| assert_eq!(local_time(seconds), expected);
        check(0, "01 Jan 1970 00:00:00");
        check(951_782_400, "29 Feb 2000 00:00:00");
        check(1_795_228_421, "21 Nov 2026 02:33:41");
        check(4_107_542_399, "28 Feb 2100 23:59:59");
        check(4_107_542_400, "01 Mar 2100 00:00:00");
        check(-1, "31 Dec 1969 23:59:59");
    }
}
