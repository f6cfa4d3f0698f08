//! A commit: what one write adds to an AOF file, after a comment that shows whether the write was torn.
//!
//! ```text
//!   #isotherm commit AT LEN SYNCED CRC\r\n  [whole frames, LEN bytes]
//!                    |  |   |      |
//!                    |  |   |      of the line before it, and of the frames; 16 hex digits
//!                    |  |   so many bytes of the file were durable when this was written
//!                    |  of the frames
//!                    where the line begins in the file: an old block's line says otherwise
//! ```
//! **Why.** After a power failure a sector that was not synced may be missing while a later one is there.
//! Where that sector lies inside a value, the commands still parse, and a wrong value would be served. The
//! line stands before its frames, so it is there whenever any of what it covers is looked at; if it is
//! missing itself, zeros stand where a command should begin, or in a comment, where they are as bad.
//!
//! **A commit within one sector needs no line**: the end of its last frame is missing if any of it is. So a
//! file that is written command by command holds what Valkey would have written.
//!
//! **No commit ends where a sector does** (a comment before its frames moves it), so what begins a sector is
//! within a commit that has a line. In place of a sector that was not written there may be what its block
//! held before, such as commands of a log file that was removed; these would parse. It is not seen of a
//! file's first sector: that has a line only where its commit is large.
//!
//! **A prepared file** was filled and synced before it is written, so that a commit changes no length and no
//! block that holds something durable: each commit begins a sector, ends by a comment that fills its last
//! one, and has its line. A crash leaves of a sector the filling, the commit, or the beginning of the commit
//! before the end of the filling.
//!
//! ```text
//!   #isotherm prepared BYTES...  |  commit, #....\r\n  |  commit, #....\r\n  |  #isotherm unused....  |  #isotherm unused....
//! ```
//! The sectors of a prepared file are used in their order: after the first unused one there is nothing, up to
//! BYTES, where a server that knows nothing of this may have appended.
//!
//! **Torn or damaged.** A bad commit at the end of what was written is cut off, like any truncated tail. If a
//! later commit says that the bad one was durable, the file was damaged afterwards: that is never cut off
//! silently.

use super::stream::{Item, timestamp};
use isotherm_stdx::crc64::crc64;
use isotherm_stdx::number::parse_i64;

const SECTOR_BYTES: u64 = 512;

const MARK: &str = "#isotherm commit";
const PREPARED: &str = "#isotherm prepared";
const UNUSED: &str = "#isotherm unused";

/// A sector, as long as what is written at once.
pub type Sector = [u8; SECTOR_BYTES as usize];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Header {
    at: u64,
    len: u64,
    synced: u64,
    crc: u64,
    /// The sum of the line before `crc`.
    line_crc: u64,
}

/// Returns whether frames of this length, written at this place, have to be a commit with a line.
pub fn needs_header(at: u64, len: u64) -> bool {
    at % SECTOR_BYTES + len >= SECTOR_BYTES
}

fn crosses_sectors(at: u64, len: u64) -> bool {
    at % SECTOR_BYTES + len > SECTOR_BYTES
}

/// A comment that stands before the frames of a commit with a line, so that it does not end where a sector
/// does; mostly nothing.
pub fn filler(at: u64, synced: u64, frames_bytes: u64) -> &'static [u8] {
    let end = at + header_bytes(at, synced, frames_bytes) + frames_bytes;
    if end.is_multiple_of(SECTOR_BYTES) { b"#\r\n" } else { b"" }
}

/// The line of a commit that is about to be written at `at`. `pieces`: its frames. `synced`: how much of the
/// file is durable.
pub fn header<'p>(at: u64, synced: u64, pieces: impl Iterator<Item = &'p [u8]> + Clone) -> Vec<u8> {
    let len: u64 = pieces.clone().map(|piece| piece.len() as u64).sum();
    let mut line = format!("{MARK} {at} {len} {synced} ").into_bytes();
    let crc = pieces.fold(crc64(0, &line), crc64);
    line.extend_from_slice(format!("{crc:016x}\r\n").as_bytes());
    line
}

/// The length of that line.
fn header_bytes(at: u64, synced: u64, len: u64) -> u64 {
    let digits = |number: u64| u64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    MARK.len() as u64 + 4 + digits(at) + digits(len) + digits(synced) + 16 + 2
}

/// The first sector of a prepared file of `file_bytes` bytes.
pub fn prepared_head(file_bytes: u64) -> Sector {
    comment_sector(&format!("{PREPARED} {file_bytes} "))
}

/// Returns the content of every other sector of a prepared file until it is written.
pub fn unused_sector() -> Sector {
    comment_sector(&format!("{UNUSED} "))
}

fn comment_sector(text: &str) -> Sector {
    let mut sector = [b'.'; SECTOR_BYTES as usize];
    sector[..text.len()].copy_from_slice(text.as_bytes());
    sector[SECTOR_BYTES as usize - 2..].copy_from_slice(b"\r\n");
    sector
}

/// The comments, mostly one, that follow frames of this length and make whole sectors of the commit: frames,
/// comments and line.
pub fn padding(at: u64, synced: u64, frames_bytes: u64) -> Vec<u8> {
    const COMMENT_BYTES_MIN: u64 = 3;
    let mut len = 0;
    loop {
        let total = header_bytes(at, synced, frames_bytes + len) + frames_bytes + len;
        if total.is_multiple_of(SECTOR_BYTES) && (len == 0 || len >= COMMENT_BYTES_MIN) {
            break;
        }
        // A digit more in the line, or a comment of fewer bytes than there are, makes another round.
        len += match SECTOR_BYTES - total % SECTOR_BYTES {
            SECTOR_BYTES => 1,
            missing => missing,
        };
    }
    let mut comments = vec![b'.'; len as usize];
    // Two, if one would be too long.
    let (first, second) =
        comments.split_at_mut(if len > 2 * SECTOR_BYTES - 8 { SECTOR_BYTES as usize } else { 0 });
    for comment in [first, second] {
        if let [first, .., before_last, last] = comment {
            (*first, *before_last, *last) = (b'#', b'\r', b'\n');
        }
    }
    comments
}

impl Header {
    /// Parses a comment without its line end; none if it is no commit's line, or not a sound one.
    fn parse(comment: &[u8]) -> Option<Header> {
        let fields = comment.strip_prefix(MARK.as_bytes())?.strip_prefix(b" ")?;
        let crc_at = comment.len().checked_sub(16)?;
        let mut words = fields.split(|byte| *byte == b' ');
        let mut number = || words.next().and_then(parse_i64).and_then(|number| u64::try_from(number).ok());
        let (at, len, synced) = (number()?, number()?, number()?);
        let crc = std::str::from_utf8(words.next()?).ok().filter(|digits| digits.len() == 16)?;
        let crc = u64::from_str_radix(crc, 16).ok()?;
        let line_crc = crc64(0, &comment[..crc_at]);
        words.next().is_none().then_some(Header { at, len, synced, crc, line_crc })
    }
}

/// A commit that is not what was written: the file is sound up to its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadCommit {
    pub at: u64,
}

struct Open {
    at: u64,
    /// Bytes that are still to come.
    left: u64,
    crc: u64,
    expected: u64,
}

/// Checks the commits of a file, item by item. The contents of a commit are not to be believed before the
/// commit has ended: a reader that applies commands gives the check the rest of a commit (`rest_bytes`)
/// before it parses it.
pub struct CommitCheck {
    open: Option<Open>,
    lines: Lines,
    has_seen_line: bool,
    is_foreign: bool,
    /// The length of a prepared file, as long as nothing else was found in it.
    prepared_bytes: Option<u64>,
    /// Offset at which its unused sectors begin.
    unused_from: Option<u64>,
}

/// Content of a prepared file at a place where a commit may begin.
enum Found {
    Unused,
    /// A commit, or what is left of one.
    Commit,
    /// Data that another server has appended.
    Other,
}

/// The length of a prepared file that begins with this.
fn prepared_bytes(first: &[u8]) -> Option<u64> {
    let text = first.strip_prefix(PREPARED.as_bytes())?.strip_prefix(b" ")?;
    let digits = text.split(|byte| *byte == b' ').next()?;
    let file_bytes = parse_i64(digits).and_then(|number| u64::try_from(number).ok())?;
    (first == prepared_head(file_bytes)).then_some(file_bytes)
}

/// Commits of a file that have a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lines {
    /// Commits that need a line; Valkey may have written others.
    WhereNeeded,
    /// All commits: a command outside of them is old content of a block. For files whose blocks were written
    /// before.
    All,
}

impl CommitCheck {
    pub fn new(lines: Lines) -> CommitCheck {
        CommitCheck {
            open: None,
            lines,
            has_seen_line: false,
            is_foreign: false,
            prepared_bytes: None,
            unused_from: None,
        }
    }

    /// The next item of the file: where it begins, and all its bytes.
    pub fn item(&mut self, at: u64, bytes: &[u8], item: Item) -> Result<(), BadCommit> {
        if self.open.is_some() {
            return self.feed(bytes);
        }
        if let Some(file_bytes) = self.prepared_bytes {
            match self.sector(at, bytes, file_bytes)? {
                Found::Unused => return Ok(()),
                Found::Commit => {}
                Found::Other => self.prepared_bytes = None,
            }
        } else if at == 0 {
            self.prepared_bytes = prepared_bytes(bytes);
            self.has_seen_line |= self.prepared_bytes.is_some();
        }
        match item {
            Item::Comment { line_bytes } => self.comment(at, bytes, line_bytes)?,
            _ if self.lines == Lines::All => return Err(BadCommit { at }),
            _ => self.is_foreign |= crosses_sectors(at, bytes.len() as u64),
        }
        Ok(())
    }

    /// Returns what begins at the end of a commit of a prepared file.
    fn sector(&mut self, at: u64, bytes: &[u8], file_bytes: u64) -> Result<Found, BadCommit> {
        if bytes == unused_sector() {
            self.unused_from.get_or_insert(at);
            return Ok(Found::Unused);
        }
        // A torn sector begins as the filling does.
        let is_ours = bytes.starts_with(b"#isotherm ");
        match self.unused_from {
            None if is_ours => Ok(Found::Commit),
            None => Ok(Found::Other),
            Some(_) if !is_ours && at == file_bytes => {
                self.unused_from = None;
                Ok(Found::Other)
            }
            Some(unused) => Err(BadCommit { at: unused }),
        }
    }

    /// Returns the end of a prepared file without the trailing sectors that were never written, if there are
    /// such.
    pub fn unused_from(&self) -> Option<u64> {
        self.unused_from
    }

    /// The next bytes of the commit that has begun.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), BadCommit> {
        let Some(open) = &mut self.open else { return Ok(()) };
        let bad = BadCommit { at: open.at };
        open.left = open.left.checked_sub(bytes.len() as u64).ok_or(bad)?;
        open.crc = crc64(open.crc, bytes);
        if open.left == 0 {
            let is_sound = open.crc == open.expected;
            self.open = None;
            return if is_sound { Ok(()) } else { Err(bad) };
        }
        Ok(())
    }

    /// Returns the number of bytes still to come of the open commit; 0 between commits.
    pub fn rest_bytes(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.left)
    }

    /// Another source says that the file was written with lines, from its beginning on.
    pub fn expect_lines(&mut self) {
        self.has_seen_line = true;
    }

    /// Returns whether the part that was read last was written with lines, as far as that can be seen. If so,
    /// a tail that makes no sense was torn.
    pub fn has_lines(&self) -> bool {
        self.has_seen_line && !self.is_foreign
    }

    /// A comment outside of a commit.
    fn comment(&mut self, at: u64, bytes: &[u8], line_bytes: usize) -> Result<(), BadCommit> {
        let line = &bytes[..line_bytes];
        // The beginning of a commit's line, zeros, and the end of a later one would be one long comment.
        if !line.iter().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(BadCommit { at });
        }
        if line.starts_with(MARK.as_bytes()) {
            let header = Header::parse(line).filter(|header| header.at == at && header.len > 0);
            let Header { len, crc, line_crc, .. } = header.ok_or(BadCommit { at })?;
            (self.has_seen_line, self.is_foreign) = (true, false);
            self.open = Some(Open { at, left: len, crc: line_crc, expected: crc });
        } else if self.prepared_bytes.is_some() && at > 0 {
            // The beginning of a commit's line, and the end of the filling.
            return Err(BadCommit { at });
        } else if self.has_lines() && crosses_sectors(at, bytes.len() as u64) && timestamp(line).is_none() {
            // The beginning of a commit's line, and the old bytes of the next block.
            return Err(BadCommit { at });
        }
        Ok(())
    }

    /// At the end of the file, or where it cannot be parsed: the line of a commit that has not ended.
    pub fn end(&self) -> Option<BadCommit> {
        self.open.as_ref().map(|open| BadCommit { at: open.at })
    }

    /// All that was checked is sound.
    pub fn is_between_commits(&self) -> bool {
        self.open.is_none()
    }
}

/// A line is shorter: the mark, three numbers, the sum, blanks and its end.
pub const LINE_BYTES_MAX: usize = 128;

/// Returns how far the file was durable according to the commits in `rest`, the bytes of the file from
/// `rest_at` on; none without a commit. A bad part before that place was sound once.
pub fn durable_by(rest: &[u8], rest_at: u64) -> Option<u64> {
    let (mut from, mut durable) = (0, None);
    while let Some(found) = find(&rest[from..], MARK.as_bytes()) {
        let start = from + found;
        let line = &rest[start..rest.len().min(start + LINE_BYTES_MAX)];
        if let Some(end) = line.iter().position(|byte| *byte == b'\r')
            && let Some(header) = Header::parse(&line[..end])
            && header.at == rest_at + start as u64
        {
            durable = durable.max(Some(header.synced));
        }
        from = start + MARK.len();
    }
    durable
}

/// Returns whether a commit in `rest` says that the file was durable beyond `at`.
pub fn proves_durable(rest: &[u8], rest_at: u64, at: u64) -> bool {
    durable_by(rest, rest_at).is_some_and(|durable| durable > at)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let mut from = 0;
    // One byte first: comparing at each place would be slow in files of gigabytes.
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == what[0]) {
        if bytes[from + at..].starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests;
