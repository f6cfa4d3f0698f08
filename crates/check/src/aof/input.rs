//! A file that is read once from its start, in portions, and the sums of its commits.
//!
//! ```text
//!   [read before | portion: | taken | not yet |] ... not read
//!                                   ^ position
//! ```
//! Every byte that is taken goes to the check of commits, so a commit ends where the last of its bytes is
//! taken.

use isotherm_persist::aof::commit::{BadCommit, CommitCheck, Lines, proves_durable};
use isotherm_persist::aof::stream::{Command, Item};
use std::io::{self, ErrorKind, Read};

const PORTION_BYTES: usize = 128 << 10;
/// A line of a commit is shorter.
const COMMIT_LINE_BYTES_MAX: usize = 128;
/// Beginning of the comments that isotherm-server writes.
const OURS: &[u8] = b"#isotherm ";
/// Words after that in a manifest. One that lists no file is read as a file of old style, as by Valkey's
/// program; its last comment has no line end.
const OF_MANIFESTS: [&[u8]; 3] = [b"replid ", b"incr ", b"ended "];

/// Returns whether a comment is of those that isotherm-server writes between commands.
fn is_of_commits(line: &[u8]) -> bool {
    let text = line.strip_prefix(OURS);
    text.is_some_and(|text| !OF_MANIFESTS.iter().any(|word| text.starts_with(word)))
}

pub struct Input<'f> {
    file: &'f mut dyn Read,
    portion: Vec<u8>,
    /// Number of bytes of the portion that were taken.
    at: usize,
    position: u64,
    /// Bytes of the file that count and were not read yet.
    left: u64,
    commits: CommitCheck,
    bad: Option<BadCommit>,
    /// True if isotherm-server wrote the file. Other servers may write comments of any bytes.
    has_commits: bool,
    is_at_end: bool,
}

impl<'f> Input<'f> {
    /// `file` is read from `position`, to `end` at most.
    pub fn new(file: &'f mut dyn Read, position: u64, end: u64) -> Input<'f> {
        Input {
            file,
            portion: Vec::new(),
            at: 0,
            position,
            left: end.saturating_sub(position),
            commits: CommitCheck::new(Lines::WhereNeeded),
            bad: None,
            has_commits: false,
            is_at_end: false,
        }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    /// Returns whether something was asked for after the last byte.
    pub fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// A commit that is not what was written, as far as the file was taken.
    pub fn bad_commit(&self) -> Option<BadCommit> {
        self.bad
    }

    /// Returns the first bad commit where the reading has ended. A commit that has not ended counts as bad,
    /// too.
    pub fn bad_commit_at_end(&self) -> Option<BadCommit> {
        self.bad.or_else(|| self.commits.end())
    }

    /// Returns the bytes that can be taken next. They are empty at the end.
    fn ahead(&mut self) -> io::Result<&[u8]> {
        if self.at == self.portion.len() {
            let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(PORTION_BYTES);
            self.portion.resize(most, 0);
            self.at = 0;
            let count = loop {
                match self.file.read(&mut self.portion) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    other => break other?,
                }
            };
            self.portion.truncate(count);
            self.left -= count as u64;
            self.is_at_end |= count == 0;
        }
        Ok(&self.portion[self.at..])
    }

    fn take(&mut self, count: usize, item: Item) {
        let bytes = &self.portion[self.at..self.at + count];
        if let Err(bad) = self.commits.item(self.position, bytes, item) {
            self.bad.get_or_insert(bad);
        }
        self.at += count;
        self.position += count as u64;
    }

    /// The next byte, which is not taken.
    pub fn peek(&mut self) -> io::Result<Option<u8>> {
        Ok(self.ahead()?.first().copied())
    }

    /// Takes the bytes to the end of the line, `max` at most: C's `fgets` with one byte more. False at the
    /// end.
    pub fn line(&mut self, max: usize, line: &mut Vec<u8>) -> io::Result<bool> {
        line.clear();
        while line.len() < max {
            let wanted = max - line.len();
            let ahead = self.ahead()?;
            let most = &ahead[..ahead.len().min(wanted)];
            if most.is_empty() {
                break;
            }
            let end = most.iter().position(|byte| *byte == b'\n');
            let count = end.map_or(most.len(), |end| end + 1);
            line.extend_from_slice(&most[..count]);
            self.take(count, Item::Command(Command::Plain));
            if end.is_some() {
                break;
            }
        }
        Ok(!line.is_empty())
    }

    /// A comment, which may announce a commit.
    pub fn comment(&mut self, max: usize, line: &mut Vec<u8>) -> io::Result<bool> {
        if !self.commits.is_between_commits() {
            return self.line(max, line);
        }
        let at = self.position;
        let is_there = self.line(max, line)?;
        self.has_commits |= is_of_commits(line);
        if !self.has_commits {
            return Ok(is_there);
        }
        let line_bytes =
            line.strip_suffix(b"\r\n").or_else(|| line.strip_suffix(b"\n")).unwrap_or(line).len();
        let checked = self.commits.item(at, line, Item::Comment { line_bytes });
        // isotherm-server takes a comment that ends with the file for the beginning of a commit.
        let checked = if line.ends_with(b"\n") { checked } else { Err(BadCommit { at }) };
        if let Err(bad) = checked {
            self.bad.get_or_insert(bad);
        }
        Ok(is_there)
    }

    /// Takes `count` bytes and keeps the first and the last ones; returns how many there were.
    pub fn skip(&mut self, count: u64, first: &mut Vec<u8>, last: &mut Vec<u8>) -> io::Result<u64> {
        const KEPT: usize = 8;
        first.clear();
        last.clear();
        let mut left = count;
        while left > 0 {
            let ahead = self.ahead()?;
            let taken = &ahead[..usize::try_from(left).unwrap_or(usize::MAX).min(ahead.len())];
            if taken.is_empty() {
                break;
            }
            first.extend_from_slice(&taken[..taken.len().min(KEPT - first.len())]);
            last.extend_from_slice(&taken[taken.len().saturating_sub(KEPT)..]);
            last.drain(..last.len().saturating_sub(KEPT));
            let len = taken.len();
            self.take(len, Item::Command(Command::Plain));
            left -= len as u64;
        }
        Ok(count - left)
    }

    /// Returns whether a commit in the rest of the file proves that the file was durable beyond `at`.
    pub fn rest_proves_durable(&mut self, at: u64) -> io::Result<bool> {
        let mut window = Vec::new();
        let mut window_at = self.position;
        loop {
            let ahead = self.ahead()?;
            let len = ahead.len();
            if len == 0 {
                return Ok(false);
            }
            window.extend_from_slice(ahead);
            self.at += len;
            self.position += len as u64;
            if proves_durable(&window, window_at, at) {
                return Ok(true);
            }
            let done = window.len().saturating_sub(COMMIT_LINE_BYTES_MAX);
            window.drain(..done);
            window_at += done as u64;
        }
    }
}
