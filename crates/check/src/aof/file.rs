//! Checking one file: comments, commands, commits, and where they cease to be sound.
//!
//! ```text
//!   #TS:1700000000 | *3 SET a b | *1 MULTI | *3 SET c d | EOF
//!                               ^ ok_up_to                        a transaction counts when its EXEC is there
//! ```
//! The parser keeps nothing of a command but its name, as far as it may be MULTI or EXEC.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, Seek, SeekFrom};
use std::path::Path;

use super::Repair;
use super::input::Input;
use crate::progress::Progress;
use crate::swap::SwapDir;
use crate::{Checked, Report, bytes_of, c_string, rdb, reason};

/// Valkey's buffers, without their NUL.
const LENGTH_LINE_BYTES_MAX: usize = 127;
const COMMENT_BYTES_MAX: usize = 1023;
const ERROR_BYTES_MAX: usize = 1023;
/// Bytes of a file between two notes of the progress.
const PROGRESS_BYTES: u64 = 1 << 20;

pub enum Found {
    Sound,
    Empty,
    Cut,
}

/// File to be checked, and the options of the check.
pub struct Job<'j> {
    /// Name of the file in the report.
    pub name: &'j [u8],
    pub path: &'j OsStr,
    pub is_last: bool,
    pub repair: Repair,
    /// True if the file begins with an RDB file.
    pub is_rdb: bool,
    /// Number of bytes of the file that count, if its manifest gives one.
    pub bytes: Option<u64>,
    /// Folder of the values that the file refers to.
    pub swap_dir: Option<&'j Path>,
}

// COMPAT(tools): isotherm-check-aof counts the lines of each file from 1; valkey-check-aof goes on counting
// from file to file. Why: the number is to lead to the line.
/// State of the reading.
struct State<'i> {
    input: Input<'i>,
    /// Number of the line that is read next.
    line: u64,
    /// Offset at which the item read last begins.
    at: u64,
    error: Option<Vec<u8>>,
    in_transaction: bool,
    buffer: Vec<u8>,
    last: Vec<u8>,
}

/// Reason why the reading ended.
enum Stop {
    End,
    /// The file is to be cut here.
    Timestamp(u64),
}

impl Job<'_> {
    pub fn run(&self, report: &mut Report<'_>, answers: &mut dyn BufRead) -> Checked<Found> {
        let name = c_string(self.name);
        let mut file = self.open(report)?;
        let len = match file.metadata() {
            Ok(metadata) => metadata.len(),
            Err(_) => return report.fail([b"Cannot stat file: ", name, b", aborting..."].concat()),
        };
        let size = self.bytes.unwrap_or(len);
        if size > len {
            let text = format!(" has {len} bytes of the {size} that its manifest lists");
            return report.fail([b"AOF ", name, text.as_bytes()].concat());
        }
        if size == 0 {
            return Ok(Found::Empty);
        }
        let mut progress = Progress::new(name, size);
        let start = if self.is_rdb { self.preamble(report, &mut file, &mut progress)? } else { 0 };
        let mut state = State::new(Input::new(&mut file, start, size));
        let mut valid_bytes = start;
        let stop = self.read(report, &mut state, &mut valid_bytes, &mut progress);
        progress.clear();
        if let Stop::Timestamp(at) = stop? {
            return match file.set_len(at) {
                Ok(()) => Ok(Found::Cut),
                Err(_) => self.fail_to_truncate(report),
            };
        }
        self.finish_reading(report, &mut state, &mut valid_bytes)?;
        if let Some(error) = &state.error {
            report.line(error)?;
        }
        let line = state.line;
        self.conclude(report, answers, &file, Extent { size, valid_bytes, line })
    }

    fn open(&self, report: &mut Report<'_>) -> Checked<File> {
        let for_writing = self.repair != Repair::None;
        match OpenOptions::new().read(true).write(for_writing).open(self.path) {
            Ok(file) => Ok(file),
            Err(error) => {
                let why = format!(": {}, aborting...", reason(&error));
                report.fail([b"Cannot open file ", bytes_of(self.path), why.as_bytes()].concat())
            }
        }
    }

    /// Checks the RDB file in front; returns where it ends.
    fn preamble(&self, report: &mut Report<'_>, file: &mut File, progress: &mut Progress) -> Checked<u64> {
        let mut swap = self.swap_dir.map(|folder| SwapDir::new(folder.into()));
        let outcome = rdb::check_base(report, bytes_of(self.path), file, progress, swap.as_mut())?;
        if !outcome.is_sound {
            return report.fail("RDB preamble of AOF file is not sane, aborting.");
        }
        if swap.is_some_and(|swap| swap.faults > 0) {
            return report.fail("What the AOF file refers to in the swap-dir is not sane, aborting.");
        }
        report.line("RDB preamble is OK, proceeding with AOF tail...")?;
        match file.seek(SeekFrom::Start(outcome.bytes)) {
            Ok(at) => Ok(at),
            Err(error) => self.fail_to_read(report, &error),
        }
    }

    fn fail_to_read<T>(&self, report: &mut Report<'_>, _: &io::Error) -> Checked<T> {
        report.fail([b"Failed to read from AOF ", c_string(self.name), b", aborting..."].concat())
    }

    fn fail_to_truncate<T>(&self, report: &mut Report<'_>) -> Checked<T> {
        let to = match self.repair {
            Repair::TruncateToTimestamp(seconds) => format!(" to timestamp {seconds}"),
            Repair::None | Repair::Fix => String::new(),
        };
        report.fail([b"Failed to truncate AOF ", c_string(self.name), to.as_bytes()].concat())
    }

    /// Reads as far as the file is sound, and moves `valid_bytes` along.
    fn read(
        &self,
        report: &mut Report<'_>,
        state: &mut State<'_>,
        valid_bytes: &mut u64,
        progress: &mut Progress,
    ) -> Checked<Stop> {
        let mut next_note = 0;
        loop {
            if !state.in_transaction {
                *valid_bytes = state.input.position();
            }
            if state.input.position() >= next_note {
                progress.note(state.input.position());
                next_note = state.input.position() + PROGRESS_BYTES;
            }
            let step = match state.input.peek() {
                Ok(None) => return Ok(Stop::End),
                Ok(Some(b'#')) => match state.comment() {
                    Ok(()) => match self.cut_for_time(report, state)? {
                        Some(at) => return Ok(Stop::Timestamp(at)),
                        None => Ok(true),
                    },
                    Err(error) => Err(error),
                },
                Ok(Some(b'*')) => state.command(bytes_of(self.path)),
                Ok(Some(_)) => {
                    report.line([b"AOF ", c_string(self.name), b" format error"].concat())?;
                    return Ok(Stop::End);
                }
                Err(error) => Err(error),
            };
            match step {
                Ok(true) if state.input.bad_commit().is_none() => {}
                Ok(_) => return Ok(Stop::End),
                Err(error) => return self.fail_to_read(report, &error),
            }
        }
    }

    /// The place after a comment at which the file is to be cut, if the comment was written too late.
    fn cut_for_time(&self, report: &mut Report<'_>, state: &State<'_>) -> Checked<Option<u64>> {
        let Repair::TruncateToTimestamp(to) = self.repair else { return Ok(None) };
        let Some(text) = state.buffer.strip_prefix(b"#TS:") else { return Ok(None) };
        let digits = text.strip_suffix(b"\r\n").and_then(isotherm_stdx::parse_i64);
        let Some(seconds) = digits else { return report.fail("Invalid timestamp annotation") };
        if seconds <= to {
            return Ok(None);
        }
        let path = bytes_of(self.path);
        if state.at == 0 {
            let text = format!(" has nothing before timestamp {to}, aborting...");
            return report.fail([b"AOF ", path, text.as_bytes()].concat());
        }
        if !self.is_last {
            let at = state.at;
            let text = format!(" to timestamp {to} to offset {at} because it is not the last file.");
            report.line([b"Failed to truncate AOF ", path, text.as_bytes()].concat())?;
            return report.fail(
                "If you insist, please delete all files after this file according to the manifest \
                 file and delete the corresponding records in manifest file manually. Then re-run isotherm-check-aof.",
            );
        }
        Ok(Some(state.at))
    }

    // COMPAT(tools): isotherm-check-aof checks the sums of commits that isotherm-server writes, and cuts at a
    // torn one. Why: after a power failure bytes may be missing inside a value, which still parses.
    /// Reports an open transaction or a damaged commit, once the reading has ended.
    fn finish_reading(
        &self,
        report: &mut Report<'_>,
        state: &mut State<'_>,
        valid_bytes: &mut u64,
    ) -> Checked<()> {
        if state.input.is_at_end() && state.in_transaction && state.error.is_none() {
            state.fail("Reached EOF before reading EXEC for MULTI");
        }
        let Some(bad) = state.input.bad_commit_at_end() else { return Ok(()) };
        *valid_bytes = bad.at.min(*valid_bytes);
        if state.error.is_none() {
            state.at = bad.at;
            state.fail("Expected a whole commit, got other bytes than were written");
        }
        match state.input.rest_proves_durable(bad.at) {
            Ok(false) => Ok(()),
            Ok(true) => report.line(
                "The commit was durable once: the file was damaged afterwards, and sound commits follow. Make a backup \
                 before you use --fix, which cuts them off.",
            ),
            Err(error) => self.fail_to_read(report, &error),
        }
    }

    fn conclude(
        &self,
        report: &mut Report<'_>,
        answers: &mut dyn BufRead,
        file: &File,
        extent: Extent,
    ) -> Checked<Found> {
        let name = c_string(self.name);
        let Extent { size, valid_bytes, line } = extent;
        let diff = size - valid_bytes;
        if let (0, Repair::TruncateToTimestamp(seconds)) = (diff, self.repair) {
            let text = format!(" to timestamp {seconds}");
            report.line([b"Truncate nothing in AOF ", name, text.as_bytes()].concat())?;
            return Ok(Found::Sound);
        }
        let text = format!(", size={size}, ok_up_to={valid_bytes}, ok_up_to_line={line}, diff={diff}");
        report.line([b"AOF analyzed: filename=", name, text.as_bytes()].concat())?;
        if diff == 0 {
            return Ok(Found::Sound);
        }
        if self.repair != Repair::Fix {
            let text = b" is not valid. Use the --fix option to try fixing it.";
            return report.fail([b"AOF ".as_slice(), name, text].concat());
        }
        if !self.is_last {
            let text = b" because it is not the last file";
            return report.fail([b"Failed to truncate AOF ".as_slice(), name, text].concat());
        }
        let text = format!(" from {size} bytes, with {diff} bytes, to {valid_bytes} bytes");
        report.line([b"This will shrink the AOF ", name, text.as_bytes()].concat())?;
        report.put("Continue? [y/N]: ")?;
        report.flush()?;
        if !is_yes(answers) {
            return report.fail("Aborting...");
        }
        match file.set_len(valid_bytes).and_then(|()| file.sync_all()) {
            Ok(()) => Ok(Found::Cut),
            Err(_) => self.fail_to_truncate(report),
        }
    }
}

struct Extent {
    size: u64,
    valid_bytes: u64,
    line: u64,
}

fn is_yes(answers: &mut dyn BufRead) -> bool {
    matches!(answers.fill_buf(), Ok([b'y' | b'Y', ..]))
}

impl<'i> State<'i> {
    fn new(input: Input<'i>) -> State<'i> {
        State {
            input,
            line: 1,
            at: 0,
            error: None,
            in_transaction: false,
            buffer: Vec::new(),
            last: Vec::new(),
        }
    }

    fn fail(&mut self, text: impl AsRef<[u8]>) {
        let text = c_string(text.as_ref());
        let text = &text[..text.len().min(ERROR_BYTES_MAX)];
        self.error = Some([format!("0x{:16x}: ", self.at).as_bytes(), text].concat());
    }

    fn comment(&mut self) -> io::Result<()> {
        self.at = self.input.position();
        let State { input, buffer, .. } = self;
        input.comment(COMMENT_BYTES_MAX, buffer).map(|_| ())
    }

    /// A command. False if it cannot be read.
    fn command(&mut self, path: &[u8]) -> io::Result<bool> {
        let Some(count) = self.length(b'*')? else { return Ok(false) };
        // Valkey counts in 32 bits; a count beyond that has no file.
        for index in 0..count.clamp(0, i64::from(i32::MAX)) {
            if !self.argument()? {
                return Ok(false);
            }
            if index == 0 && !self.transaction(path) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// `*3\r\n`: the number. Nothing if it is not there.
    fn length(&mut self, prefix: u8) -> io::Result<Option<i64>> {
        self.at = self.input.position();
        let State { input, buffer, .. } = self;
        if !input.line(LENGTH_LINE_BYTES_MAX, buffer)? {
            return Ok(None);
        }
        if buffer[0] != prefix {
            let text = [b"Expected prefix '", &[prefix][..], b"', got: '", &[buffer[0]], b"'"].concat();
            self.fail(text);
            return Ok(None);
        }
        let (number, digits) = leading_number(&buffer[1..]);
        let end = &buffer[1 + digits..];
        let end = [end.first().copied().unwrap_or(0), end.get(1).copied().unwrap_or(0)];
        Ok(self.newline(end).then_some(number))
    }

    fn newline(&mut self, bytes: [u8; 2]) -> bool {
        if bytes == *b"\r\n" {
            self.line += 1;
            return true;
        }
        // C's characters have a sign.
        let [first, second] = bytes.map(|byte| i32::from(byte as i8));
        self.fail(format!("Expected \\r\\n, got: {first:02x}{second:02x}"));
        false
    }

    /// `$3\r\nSET\r\n`. Its beginning is in the buffer afterwards.
    fn argument(&mut self) -> io::Result<bool> {
        let Some(len) = self.length(b'$')? else { return Ok(false) };
        if !(0..=i64::MAX - 2).contains(&len) {
            self.fail(format!("Expected to read string of {len} bytes, which is not in the suitable range"));
            return Ok(false);
        }
        let wanted = len as u64 + 2;
        self.at = self.input.position();
        let State { input, buffer, last, .. } = self;
        let read = input.skip(wanted, buffer, last)?;
        if read != wanted {
            self.fail(format!("Expected to read {wanted} bytes, got {read} bytes"));
            return Ok(false);
        }
        let end = *self.last.last_chunk().expect("two bytes are there");
        if !self.newline(end) {
            return Ok(false);
        }
        self.buffer.truncate(len as usize);
        Ok(true)
    }

    /// MULTI and EXEC take turns. The name is in the buffer.
    fn transaction(&mut self, path: &[u8]) -> bool {
        let name = c_string(&self.buffer);
        let is_multi = name.eq_ignore_ascii_case(b"multi");
        if !is_multi && !name.eq_ignore_ascii_case(b"exec") {
            return true;
        }
        if is_multi != self.in_transaction {
            self.in_transaction = is_multi;
            return true;
        }
        let name = if is_multi { "MULTI" } else { "EXEC" };
        self.in_transaction = true;
        self.fail([b"Unexpected ", name.as_bytes(), b" in AOF ", path].concat());
        false
    }
}

/// C's `strtol`: the number, and how many bytes belong to it.
fn leading_number(text: &[u8]) -> (i64, usize) {
    let blanks = text.iter().take_while(|byte| isotherm_stdx::number::is_c_space(**byte)).count();
    let signed = &text[blanks..];
    let is_signed = matches!(signed.first(), Some(b'-' | b'+'));
    let digits = &signed[usize::from(is_signed)..];
    let count = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if count == 0 {
        return (0, 0);
    }
    let magnitude = digits[..count]
        .iter()
        .fold(0_i128, |sum, digit| (sum * 10 + i128::from(digit - b'0')).min(i128::from(i64::MAX) + 1));
    let number = if signed[0] == b'-' { -magnitude } else { magnitude };
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    (number, blanks + usize::from(is_signed) + count)
}
