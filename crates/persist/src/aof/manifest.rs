//! The manifest: which files make the AOF, one a line.
//!
//! ```text
//!   file appendonly.aof.2.base.rdb seq 2 type b                    b: the base, at most one
//!   file appendonly.aof.3.incr.aof seq 3 type h                    h: history, to be deleted
//!   file "a name.4.incr.aof" seq 4 type i                          i: in their order, numbers rising
//!   #isotherm replid 8371445ee47ffb2b7dc8... incr 4 start 901 len 77120       ours, in comments: Valkey skips them
//!                                            where the file begins in the log, and its bytes
//!   #isotherm run 5ee47ffb2b837144           number in RDB files (`LogMark`), while the log is written
//!   #isotherm ended 1764316800 rdb 176-8371445ee47ffb2b log 5ee47ffb2b837144  switched off then
//!                                            the RDB file beside it; the number in RDB files (`LogMark`)
//! ```
//! A name is quoted, with escapes, where it has blanks or bytes that do not print. Fields that are not known
//! are skipped, as Valkey does; so are comments. A line, with its end, has 1024 bytes at most: the rest of a
//! longer comment counts as a line.
//!
//! A list that Valkey accepts is accepted, and one that it refuses is refused in its words. A comment of ours
//! that does not parse is refused: without it a file would be read beyond its end.

use isotherm_stdx::args_split::{Dialect, args_split};
use isotherm_stdx::number::parse_i64;
use std::fmt::{self, Write};

const LINE_BYTES_MAX: usize = 1024;

/// More is not read: some 300,000 files.
pub const MANIFEST_BYTES_MAX: usize = 16 << 20;

const REPLID_BYTES: usize = 40;

/// Beginning of our own comments.
pub(super) const OURS: &[u8] = b"#isotherm ";

/// The text of a manifest without files: an empty one is refused.
const NOTHING: &[u8] = b"# Nothing is listed yet.\n";

/// Position of a file's commands in the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The offset of the first one.
    pub start: u64,
    /// Length of a complete file in bytes. Bytes after it are not part of the log.
    pub len: Option<u64>,
}

/// The end of a log that was switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Unix time. An RDB file that was begun at it or later is newer, if it is not the one below.
    pub seconds: i64,
    pub rdb: RdbMark,
    /// Number of the log in the RDB files that were begun since it was switched on, if they have one.
    pub log: Option<u64>,
}

/// The RDB file at that moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RdbMark {
    None,
    /// Not readable, or about to be replaced.
    Unknown,
    /// A file by its length and its last eight bytes, the checksum.
    File {
        bytes: u64,
        sum: u64,
    },
}

impl RdbMark {
    fn parse(word: &[u8]) -> Option<RdbMark> {
        match word {
            b"none" => Some(RdbMark::None),
            b"unknown" => Some(RdbMark::Unknown),
            _ => {
                let (bytes, sum) = std::str::from_utf8(word).ok()?.split_once('-')?;
                Some(RdbMark::File { bytes: bytes.parse().ok()?, sum: u64::from_str_radix(sum, 16).ok()? })
            }
        }
    }
}

impl fmt::Display for RdbMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RdbMark::None => f.write_str("none"),
            RdbMark::Unknown => f.write_str("unknown"),
            RdbMark::File { bytes, sum } => write!(f, "{bytes}-{sum:016x}"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AofFile {
    pub name: Vec<u8>,
    pub seq: i64,
    /// Position of an incr file in the log, if the manifest states it.
    pub place: Option<Place>,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Manifest {
    pub base: Option<AofFile>,
    pub history: Vec<AofFile>,
    /// Their numbers rise.
    pub incr: Vec<AofFile>,
    /// The replication id of the log that the places count.
    pub replid: Option<[u8; REPLID_BYTES]>,
    /// Number of the log, from its first list to the note of its end, which has it then.
    pub run: Option<u64>,
    /// End of a log that is not written any more.
    pub ended: Option<Ended>,
}

/// Why a manifest cannot be read, as Valkey logs it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManifestError {
    /// The number of the line, and the line as far as it was read.
    pub line: Option<(usize, Vec<u8>)>,
    pub what: &'static str,
}

impl fmt::Display for ManifestError {
    /// The lines that follow `*** FATAL AOF MANIFEST FILE ERROR ***`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((number, line)) = &self.line {
            writeln!(f, "Reading the manifest file, at line {number}")?;
            writeln!(f, ">>> '{}'", String::from_utf8_lossy(line))?;
        }
        f.write_str(self.what)
    }
}

impl Manifest {
    pub fn parse(bytes: &[u8]) -> Result<Manifest, ManifestError> {
        let without_line = |what| ManifestError { line: None, what };
        if bytes.is_empty() {
            return Err(without_line("Found an empty AOF manifest"));
        }
        if bytes.len() > MANIFEST_BYTES_MAX {
            return Err(without_line("The AOF manifest file is too long"));
        }
        let mut manifest = Manifest::default();
        let mut places = Vec::new();
        let (mut rest, mut number) = (bytes, 0);
        while !rest.is_empty() {
            number += 1;
            let line;
            (line, rest) = rest.split_at(line_end(rest));
            if !line.starts_with(b"#") && line.iter().find(|byte| matches!(byte, 0 | b'\n')) != Some(&b'\n') {
                return Err(without_line("The AOF manifest file contains too long line"));
            }
            let line = trimmed(line);
            let read = if line.starts_with(b"#") {
                manifest.read_comment(line, &mut places)
            } else {
                manifest.read_line(line)
            };
            read.map_err(|what| ManifestError { line: Some((number, line.to_vec())), what })?;
        }
        for (seq, place) in places {
            // The file may be history by now.
            if let Ok(at) = manifest.incr.binary_search_by_key(&seq, |file| file.seq) {
                manifest.incr[at].place = Some(place);
            }
        }
        Ok(manifest)
    }

    /// Returns whether no data counts.
    pub fn lists_nothing(&self) -> bool {
        self.base.is_none() && self.incr.is_empty()
    }

    fn read_line(&mut self, line: &[u8]) -> Result<(), &'static str> {
        const INVALID: &str = "Invalid AOF manifest file format";
        let words = args_split(line, Dialect::File).map_err(|_| INVALID)?;
        if words.len() < 6 || words.len() % 2 != 0 {
            return Err(INVALID);
        }
        let (mut name, mut seq, mut kind) = (None, 0, 0);
        for [key, value] in words.as_chunks::<2>().0 {
            // C's strings end at a NUL, which an escape may write.
            let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
            match key.to_ascii_lowercase().as_slice() {
                b"file" if value.iter().any(|byte| matches!(byte, b'/' | b'\\')) => {
                    return Err("File can't be a path, just a filename");
                }
                b"file" => name = Some(value.to_vec()),
                b"seq" => seq = leading_number(value),
                b"type" => kind = value.first().copied().unwrap_or(0),
                _ => {}
            }
        }
        let (Some(name), true, true) = (name, seq != 0, kind != 0) else { return Err(INVALID) };
        let file = AofFile { name, seq, place: None };
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => self.base = Some(file),
            b'h' => self.history.push(file),
            b'i' if seq <= self.incr.last().map_or(0, |last| last.seq) => {
                return Err("Found a non-monotonic sequence number");
            }
            b'i' => self.incr.push(file),
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    fn read_comment(&mut self, line: &[u8], places: &mut Vec<(i64, Place)>) -> Result<(), &'static str> {
        const INVALID: &str = "Invalid comment in the AOF manifest";
        let Some(ours) = line.strip_prefix(OURS) else { return Ok(()) };
        let number =
            |word: &[u8]| parse_i64(word).and_then(|number| u64::try_from(number).ok()).ok_or(INVALID);
        let words: Vec<&[u8]> = ours.split(|byte| *byte == b' ').collect();
        let mut rest = words.as_slice();
        while let [name, value, behind @ ..] = rest {
            rest = behind;
            match (*name, behind) {
                (b"replid", _) => self.replid = Some((*value).try_into().map_err(|_| INVALID)?),
                (b"run", _) => self.run = Some(log_number(value).ok_or(INVALID)?),
                (b"ended", [b"rdb", mark, behind @ ..]) => {
                    rest = behind;
                    let seconds = parse_i64(value).ok_or(INVALID)?;
                    let mut log = None;
                    if let [b"log", id, behind @ ..] = rest {
                        log = Some(log_number(id).ok_or(INVALID)?);
                        rest = behind;
                    }
                    let rdb = RdbMark::parse(mark).ok_or(INVALID)?;
                    self.ended = Some(Ended { seconds, rdb, log });
                }
                (b"incr", [b"start", start, behind @ ..]) => {
                    rest = behind;
                    let mut len = None;
                    if let [b"len", bytes, behind @ ..] = rest {
                        len = Some(number(bytes)?);
                        rest = behind;
                    }
                    let seq = parse_i64(value).ok_or(INVALID)?;
                    places.push((seq, Place { start: number(start)?, len }));
                }
                // A line that was appended to ours, which has no end.
                (b"incr" | b"ended" | b"file", _) => return Err(INVALID),
                // An addition of a later version.
                _ => {}
            }
        }
        if rest.is_empty() { Ok(()) } else { Err(INVALID) }
    }

    /// The text: base, history, incr files, as Valkey orders them, then our comments.
    pub fn write(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let files = self.base.iter().map(|file| (file, 'b'));
        let files = files.chain(self.history.iter().map(|file| (file, 'h')));
        for (file, kind) in files.chain(self.incr.iter().map(|file| (file, 'i'))) {
            text.extend_from_slice(b"file ");
            push_name(&mut text, &file.name);
            text.extend_from_slice(format!(" seq {} type {kind}\n", file.seq).as_bytes());
        }
        for line in self.comments() {
            text.extend_from_slice(&line);
            text.push(b'\n');
        }
        if text.is_empty() {
            text.extend_from_slice(NOTHING);
        }
        let is_ours = self.replid.is_some() || self.run.is_some() || self.ended.is_some();
        if text.len() > 1 && (is_ours || self.incr.iter().any(|file| file.place.is_some())) {
            // The last comment has no line end: a program that counts lines finds those of Valkey.
            text.pop();
        }
        text
    }

    /// Returns our own comments, in as few lines as hold them.
    fn comments(&self) -> Vec<Vec<u8>> {
        let replid = self.replid.iter().map(|replid| [b"replid ", &replid[..]].concat());
        let run = self.run.map(|id| format!("run {id:016x}").into_bytes());
        let ended = self.ended.map(|Ended { seconds, rdb, log }| {
            let log = log.map_or(String::new(), |id| format!(" log {id:016x}"));
            format!("ended {seconds} rdb {rdb}{log}").into_bytes()
        });
        let places = self.incr.iter().filter_map(|file| {
            let Place { start, len } = file.place?;
            let mut words = format!("incr {} start {start}", file.seq);
            if let Some(len) = len {
                write!(words, " len {len}").expect("to a string");
            }
            Some(words.into_bytes())
        });
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for words in replid.chain(run).chain(ended).chain(places) {
            match lines.last_mut() {
                Some(line) if line.len() + 1 + words.len() + 1 < LINE_BYTES_MAX => {
                    line.push(b' ');
                    line.extend_from_slice(&words);
                }
                _ => lines.push([OURS, &words].concat()),
            }
        }
        lines
    }

    /// Adds an incr file after the others.
    pub fn add_incr(&mut self, names: &Names, seq: i64, place: Option<Place>) {
        assert!(seq > self.incr.last().map_or(0, |last| last.seq), "numbers rise");
        self.incr.push(AofFile { name: names.incr(seq), seq, place });
    }

    /// A new base; the old one is history.
    pub fn replace_base(&mut self, names: &Names, seq: i64, is_rdb: bool) {
        let base = AofFile { name: names.base(seq, is_rdb), seq, place: None };
        if let Some(old) = self.base.replace(base) {
            self.history.insert(0, old);
        }
    }

    /// The incr files before this number are history.
    pub fn retire_incr(&mut self, before: i64) {
        let kept = self.incr.partition_point(|file| file.seq < before);
        for mut file in self.incr.drain(..kept) {
            file.place = None;
            self.history.insert(0, file);
        }
    }

    pub fn check_invariants(&self) {
        assert!(self.incr.is_sorted_by(|a, b| a.seq < b.seq));
        assert!(self.incr.iter().all(|file| file.seq > 0));
        let files = self.base.iter().chain(&self.history).chain(&self.incr);
        for file in files {
            assert!(file.seq != 0 && !file.name.iter().any(|byte| matches!(byte, 0 | b'/' | b'\\')));
        }
    }
}

/// The names that begin with `appendfilename`.
pub struct Names {
    prefix: Vec<u8>,
}

impl Names {
    pub fn new(append_filename: &[u8]) -> Names {
        Names { prefix: append_filename.to_vec() }
    }

    fn with(&self, before: &str, after: &str) -> Vec<u8> {
        [before.as_bytes(), &self.prefix, after.as_bytes()].concat()
    }

    pub fn base(&self, seq: i64, is_rdb: bool) -> Vec<u8> {
        self.with("", &format!(".{seq}.base.{}", if is_rdb { "rdb" } else { "aof" }))
    }

    pub fn incr(&self, seq: i64) -> Vec<u8> {
        self.with("", &format!(".{seq}.incr.aof"))
    }

    /// The number in the name of a base, of either form.
    pub fn number_of_base(&self, name: &[u8]) -> Option<i64> {
        self.number(name, b".base.rdb").or_else(|| self.number(name, b".base.aof"))
    }

    /// The number in the name of a log file.
    pub fn number_of_incr(&self, name: &[u8]) -> Option<i64> {
        self.number(name, b".incr.aof")
    }

    fn number(&self, name: &[u8], after: &[u8]) -> Option<i64> {
        let digits = name.strip_prefix(&self.prefix[..])?.strip_prefix(b".")?.strip_suffix(after)?;
        let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) && digits[0] != b'0';
        is_number.then(|| std::str::from_utf8(digits).ok()?.parse().ok()).flatten()
    }

    pub fn manifest(&self) -> Vec<u8> {
        self.with("", ".manifest")
    }

    pub fn temp_manifest(&self) -> Vec<u8> {
        self.with("temp-", ".manifest")
    }

    /// Returns the name of the next log file while it is prepared.
    pub fn temp_prepared(&self) -> Vec<u8> {
        self.with("temp-", ".prepared")
    }

    /// Returns the name of the file for commands that are written while the first base is made.
    pub fn temp_incr(&self) -> Vec<u8> {
        self.with("temp-", ".incr")
    }
}

/// Returns the end of a line, its line end included, as C's `fgets` finds it with a buffer of one byte more.
fn line_end(rest: &[u8]) -> usize {
    let most = rest.len().min(LINE_BYTES_MAX);
    rest[..most].iter().position(|byte| *byte == b'\n').map_or(most, |at| at + 1)
}

fn log_number(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()
}

fn trimmed(line: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
    let start = line.iter().position(|byte| !is_blank(byte)).unwrap_or(line.len());
    let end = line.iter().rposition(|byte| !is_blank(byte)).map_or(start, |at| at + 1);
    &line[start..end]
}

/// C's `atoll`: blanks, a sign, digits, and whatever follows; it stops at the ends of the range.
fn leading_number(text: &[u8]) -> i64 {
    let text = text.trim_ascii_start();
    let (is_negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    let magnitude =
        digits.fold(0_i64, |sum, digit| sum.saturating_mul(10).saturating_add(i64::from(digit - b'0')));
    if is_negative { -magnitude } else { magnitude }
}

/// A name as it is, or quoted if it could not be read back otherwise.
fn push_name(text: &mut Vec<u8>, name: &[u8]) {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'\\' | b'"');
    if !name.is_empty() && name.iter().all(is_plain) && !name.contains(&b'\'') {
        text.extend_from_slice(name);
        return;
    }
    text.push(b'"');
    for byte in name {
        match byte {
            b'\\' | b'"' => text.extend_from_slice(&[b'\\', *byte]),
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\r' => text.extend_from_slice(b"\\r"),
            b'\t' => text.extend_from_slice(b"\\t"),
            7 => text.extend_from_slice(b"\\a"),
            8 => text.extend_from_slice(b"\\b"),
            b' '..=b'~' => text.push(*byte),
            _ => text.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    text.push(b'"');
}

#[cfg(test)]
mod tests;
