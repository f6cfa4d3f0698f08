//! A frame: the records of one command, transaction or step, as the bytes that the AOF, the backlog and
//! replicas share.
//!
//! ```text
//!   one entry                    [SELECT]? [entry]
//!   several                      [MULTI] [SELECT]? [entry] [SELECT of another database]? [entry] ... [EXEC]
//!   several that stand alone     [SELECT]? [entry] [entry] ...           keys that expired, what SCAN met
//!
//!   bytes   |<- room for the head ->| entries                 | EXEC |
//!                  [MULTI] [SELECT] |                                     the head is written from right to left
//! ```
//! The frame before it decides whether a frame needs its first SELECT, so only the tail can say: the frame
//! leaves room, and is contiguous all the same. It is complete otherwise before the tail's lock is
//! taken. SELECT stands after MULTI, as in Valkey.

use isotherm_stdx::{push_i64, push_u64};

/// A database's number.
pub type Database = u32;

const MULTI: &[u8] = b"*1\r\n$5\r\nMULTI\r\n";
const EXEC: &[u8] = b"*1\r\n$4\r\nEXEC\r\n";

/// `*2 $6 SELECT $10 4294967295`, each with its line end: 4 + 4 + 8 + 5 + 12 B.
const SELECT_BYTES_MAX: usize = 33;
const HEAD_BYTES_MAX: usize = MULTI.len() + SELECT_BYTES_MAX;

/// A buffer of this size is kept for the next frame; a larger one is given back.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Current frame of a worker, and the memory for the next.
pub struct Frame {
    bytes: Vec<u8>,
    entries: u32,
    database_first: Database,
    database_last: Database,
    stands_alone: bool,
}

impl Default for Frame {
    fn default() -> Frame {
        Frame {
            bytes: vec![0; HEAD_BYTES_MAX],
            entries: 0,
            database_first: 0,
            database_last: 0,
            stands_alone: false,
        }
    }
}

impl Frame {
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// Returns the bytes of the entries so far.
    pub fn entry_bytes(&self) -> usize {
        self.bytes.len() - HEAD_BYTES_MAX
    }

    /// The entries are no transaction: they need not take effect together.
    pub fn stand_alone(&mut self) {
        self.stands_alone = true;
    }

    /// Adds a command by its words.
    pub fn push<'w>(&mut self, database: Database, words: impl ExactSizeIterator<Item = &'w [u8]>) {
        self.begin_entry(database);
        self.bytes.push(b'*');
        push_u64(&mut self.bytes, words.len() as u64);
        self.bytes.extend_from_slice(b"\r\n");
        for word in words {
            self.bytes.push(b'$');
            push_u64(&mut self.bytes, word.len() as u64);
            self.bytes.extend_from_slice(b"\r\n");
            self.bytes.extend_from_slice(word);
            self.bytes.extend_from_slice(b"\r\n");
        }
    }

    /// Adds a command whose bytes came as a multibulk request: they are what `push` would write.
    #[inline]
    pub fn push_wire(&mut self, database: Database, wire: &[u8]) {
        self.begin_entry(database);
        self.bytes.extend_from_slice(wire);
    }

    #[inline]
    fn begin_entry(&mut self, database: Database) {
        if self.entries == 0 {
            self.database_first = database;
        } else if database != self.database_last {
            push_select(&mut self.bytes, database);
        }
        self.database_last = database;
        self.entries += 1;
    }

    /// Completes the frame but for its head. Nothing may be added afterwards.
    #[inline]
    pub(crate) fn seal(&mut self) {
        debug_assert!(!self.is_empty(), "a frame has entries");
        if self.is_block() {
            self.bytes.extend_from_slice(EXEC);
        }
    }

    fn is_block(&self) -> bool {
        self.entries > 1 && !self.stands_alone
    }

    /// Writes the head of a sealed frame; the frame is what stands from the returned place on.
    #[inline]
    pub(crate) fn write_head(&mut self, before: Option<Database>) -> usize {
        let mut at = HEAD_BYTES_MAX;
        if before != Some(self.database_first) {
            at = self.write_select(at);
        }
        if self.is_block() {
            at -= MULTI.len();
            self.bytes[at..at + MULTI.len()].copy_from_slice(MULTI);
        }
        at
    }

    #[cold]
    fn write_select(&mut self, end: usize) -> usize {
        let mut select = Vec::with_capacity(SELECT_BYTES_MAX);
        push_select(&mut select, self.database_first);
        let at = end - select.len();
        self.bytes[at..end].copy_from_slice(&select);
        at
    }

    #[inline]
    pub(crate) fn database_last(&self) -> Database {
        self.database_last
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes the buffer, for a frame that is too large to be copied; the frame is empty then.
    pub(crate) fn take_bytes(&mut self) -> Vec<u8> {
        std::mem::take(self).bytes
    }

    #[inline]
    pub fn clear(&mut self) {
        self.bytes.truncate(HEAD_BYTES_MAX);
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes.shrink_to(HEAD_BYTES_MAX);
        }
        (self.entries, self.stands_alone) = (0, false);
    }
}

/// The command that selects a database.
pub fn select(database: Database) -> Vec<u8> {
    let mut bytes = Vec::new();
    push_select(&mut bytes, database);
    bytes
}

fn push_select(bytes: &mut Vec<u8>, database: Database) {
    let digits = 1 + i64::from(database.checked_ilog10().unwrap_or(0));
    bytes.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n$");
    push_i64(bytes, digits);
    bytes.extend_from_slice(b"\r\n");
    push_i64(bytes, i64::from(database));
    bytes.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of these entries after one whose database was `before`, as a line of words.
    fn wire(before: Option<Database>, entries: &[(Database, &str)], stands_alone: bool) -> String {
        let mut frame = Frame::default();
        for (database, words) in entries {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            frame.push(*database, words.into_iter());
        }
        if stands_alone {
            frame.stand_alone();
        }
        frame.seal();
        let from = frame.write_head(before);
        let text = String::from_utf8(frame.bytes()[from..].to_vec()).expect("words");
        text.split("\r\n").filter(|line| !line.starts_with(['*', '$'])).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn select_stands_behind_multi_and_only_where_the_database_changes() {
        assert_eq!(wire(Some(0), &[(0, "SET a b")], false), "SET a b ");
        assert_eq!(wire(Some(1), &[(0, "SET a b")], false), "SELECT 0 SET a b ");
        assert_eq!(wire(None, &[(12, "SET a b")], false), "SELECT 12 SET a b ");
        assert_eq!(wire(Some(0), &[(0, "DEL x"), (0, "SET a b")], false), "MULTI DEL x SET a b EXEC ");
        assert_eq!(
            wire(Some(0), &[(3, "DEL x"), (3, "SET a b"), (0, "DEL y")], false),
            "MULTI SELECT 3 DEL x SET a b SELECT 0 DEL y EXEC "
        );
        assert_eq!(wire(Some(0), &[(0, "DEL x"), (1, "DEL y")], true), "DEL x SELECT 1 DEL y ");
    }

    #[test]
    fn words_are_written_as_a_request_has_them() {
        let mut frame = Frame::default();
        frame.push(u32::MAX, [&b"SET"[..], b"", b"\r\n"].into_iter());
        frame.seal();
        let from = frame.write_head(None);
        let select = b"*2\r\n$6\r\nSELECT\r\n$10\r\n4294967295\r\n";
        assert_eq!(
            frame.bytes()[from..],
            [&select[..], b"*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n"].concat()
        );
        assert_eq!(select.len(), SELECT_BYTES_MAX);
    }

    #[test]
    fn the_memory_of_a_large_frame_is_not_kept() {
        let mut frame = Frame::default();
        frame.push_wire(0, &[b'x'; 2 * KEPT_BYTES_MAX]);
        frame.clear();
        assert!(frame.is_empty() && frame.bytes.capacity() <= KEPT_BYTES_MAX);
        frame.push_wire(0, b"y");
        frame.seal();
        let from = frame.write_head(Some(0));
        assert_eq!(frame.bytes()[from..], *b"y");
    }
}
