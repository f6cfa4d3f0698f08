//! Reading a file whose bytes come in pieces.
//!
//! ```text
//! feed(bytes) --> [understood | not yet] <-- step(): an item, or: more bytes are needed, or: the end
//!                              ^ at
//! ```
//! An item that cannot be read because it is not all there is tried again when twice as many bytes are there:
//! reading takes time in proportion to the file, however small its pieces are. `end` says that no more come;
//! from then on an item that is short is an error. The first error is the last answer.

use std::ops::Range;

use isotherm_stdx::crc64::crc64;

use super::super::decode;
use super::super::kind::RdbType;
use super::super::read::{Limits, RdbError, Reader};
use super::super::value::RdbValue;
use super::bundle::{Bundle, FoundBundle};
use super::error::{FileCause, FileError};
use super::opcode;
use super::pieces::{self, Pieces};
use super::version::{FileVersion, MAGIC_BYTES};

/// Result of a step of the reader.
#[derive(Debug)]
pub enum Step<'a> {
    /// Feed more, or say that there is no more.
    NeedsMore,
    Item(Item<'a>),
    /// The file has ended, and its sum is right.
    End,
}

#[derive(Debug)]
pub enum Item<'a> {
    Aux {
        name: &'a [u8],
        value: &'a [u8],
    },
    /// A library of functions.
    Function(&'a [u8]),
    /// The keys that follow are of this database.
    Database(u64),
    /// Number of keys of the database, and number of those that expire: a hint.
    Sizes {
        keys: u64,
        volatile: u64,
    },
    /// A value, or a piece of a large one.
    Piece(Piece<'a>),
    /// A key whose value lies in the swap log: how its bytes are to be read, and where they are.
    Cold {
        key: Key<'a>,
        form_number: u8,
        reference: u64,
        /// Earliest expiry of a field, for a hash whose fields have expiries.
        due_ms: Option<i64>,
    },
    /// Keys that lie in the swap log with their values.
    Bundle(Bundle<'a>),
    /// A key with a collection without elements: it is skipped.
    Empty(Key<'a>),
    /// The file has no sum, though its version knows one.
    NoChecksum,
}

#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub db: u64,
    pub name: &'a [u8],
    pub expiry_ms: Option<i64>,
    pub idle_seconds: Option<u64>,
    pub frequency: Option<u8>,
}

/// A value, or a part of one: the pieces of a key come one after the other.
#[derive(Debug)]
pub struct Piece<'a> {
    pub key: Key<'a>,
    /// The type byte.
    pub code: u8,
    pub value: PieceValue<'a>,
    /// Number of elements that the file states, for a value that comes in pieces.
    pub total: u64,
    pub is_first: bool,
    pub is_last: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum PieceValue<'a> {
    Text(&'a [u8]),
    Collection(&'a RdbValue),
}

pub struct FileReader {
    buffer: Vec<u8>,
    /// Up to here the buffer is understood.
    at: usize,
    /// Offset in the file at which the buffer begins.
    offset: u64,
    /// The sum of what was before the buffer.
    sum: u64,
    is_ended: bool,
    /// With fewer bytes nothing is tried.
    wanted: usize,
    state: State,
    version: FileVersion,
    options: Options,
    db: u64,
    head: KeyHead,
    key: Vec<u8>,
    code: u8,
    pieces: Option<Pieces>,
    /// A whole value, and a string that does not lie in the buffer.
    value: Option<RdbValue>,
    rooms: [Vec<u8>; 2],
    error: Option<FileError>,
}

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub limits: Limits,
    /// `rdb-version-check strict`
    pub strict_version: bool,
    /// `rdbchecksum`
    pub checksum: bool,
    /// The file may refer to values that it does not have.
    pub references: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Magic,
    Body,
    /// The pieces of a value are read; one may have been handed out.
    Pieces {
        is_lent: bool,
    },
    Checksum,
    End,
}

/// Attributes that stand in front of a key.
#[derive(Clone, Copy, Default)]
struct KeyHead {
    expiry_ms: Option<i64>,
    idle_seconds: Option<u64>,
    frequency: Option<u8>,
}

/// Result of an attempt, without the bytes.
enum Found {
    Nothing,
    Aux(Place, Place),
    Function(Place),
    Database,
    Sizes(u64, u64),
    Text(Place),
    Cold(u8, u64, Option<i64>),
    /// And where in the buffer it ends.
    Bundle(FoundBundle, usize),
    Whole,
    Piece,
    Empty,
    NoChecksum,
    End,
}

/// Place of a string: in the buffer, or in a room of its own.
enum Place {
    Buffer(Range<usize>),
    Room(usize),
}

impl Found {
    /// Returns whether the item ends a key, so that the attributes in front of it belonged to that key.
    fn ends_key(&self) -> bool {
        use Found::{Bundle, Cold, Empty, Text, Whole};
        matches!(self, Text(_) | Cold(..) | Bundle(..) | Whole | Empty)
    }
}

type Attempt = Result<Found, FileCause>;

impl FileReader {
    pub fn new(options: Options) -> FileReader {
        FileReader {
            buffer: Vec::new(),
            at: 0,
            offset: 0,
            sum: 0,
            is_ended: false,
            wanted: MAGIC_BYTES,
            state: State::Magic,
            version: FileVersion::PLAIN,
            options,
            db: 0,
            head: KeyHead::default(),
            key: Vec::new(),
            code: 0,
            pieces: None,
            value: None,
            rooms: [Vec::new(), Vec::new()],
            error: None,
        }
    }

    /// The bytes that come next.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.forget_understood();
        self.buffer.extend_from_slice(bytes);
    }

    /// No more bytes come.
    pub fn end(&mut self) {
        self.is_ended = true;
    }

    /// Returns the offset up to which the file was understood.
    pub fn offset(&self) -> u64 {
        self.offset + self.at as u64
    }

    pub fn version(&self) -> FileVersion {
        self.version
    }

    /// The type byte of the current value, or of the last one.
    pub fn type_code(&self) -> u8 {
        self.code
    }

    /// Bytes after the end, which were fed and do not belong to the file.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.at..]
    }

    fn forget_understood(&mut self) {
        if self.at > 0 {
            if self.options.checksum && self.state != State::End {
                self.sum = crc64(self.sum, &self.buffer[..self.at]);
            }
            self.offset += self.at as u64;
            self.buffer.drain(..self.at);
            self.at = 0;
        }
        // One long string is no reason to keep as much for the rest of the file.
        if self.buffer.is_empty() && self.buffer.capacity() > BUFFER_BYTES_KEPT_MAX {
            self.buffer = Vec::new();
        }
    }

    /// The next item.
    pub fn step(&mut self) -> Result<Step<'_>, FileError> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        loop {
            let left = self.buffer.len() - self.at;
            if left < self.wanted && !self.is_ended {
                return Ok(Step::NeedsMore);
            }
            match self.attempt() {
                Ok(Found::Nothing) => self.wanted = 0,
                Ok(Found::End) => return Ok(Step::End),
                Ok(found) => {
                    self.wanted = 0;
                    return Ok(Step::Item(self.show(&found)));
                }
                Err(FileCause::Value(RdbError::Short)) if !self.is_ended => {
                    // An attempt may have got some way.
                    let left = self.buffer.len() - self.at;
                    self.wanted = left + left.max(1);
                    return Ok(Step::NeedsMore);
                }
                Err(cause) => return Err(self.fail(cause)),
            }
        }
    }

    fn fail(&mut self, cause: FileCause) -> FileError {
        let is_of_key = self.pieces.is_some() || !self.key.is_empty();
        let key = (is_of_key && self.state != State::Checksum).then(|| std::mem::take(&mut self.key));
        let error = FileError { offset: self.offset(), db: self.db, key, cause };
        self.error = Some(error.clone());
        error
    }

    fn attempt(&mut self) -> Attempt {
        match self.state {
            State::Magic => self.magic(),
            State::Body => self.body(),
            State::Pieces { is_lent } => self.piece(is_lent),
            State::Checksum => self.checksum(),
            State::End => Ok(Found::End),
        }
    }

    fn reader(&self) -> Reader<'_> {
        Reader::new(&self.buffer[self.at..], &self.options.limits)
    }

    fn magic(&mut self) -> Attempt {
        let magic: [u8; MAGIC_BYTES] = self.reader().array()?;
        if magic.starts_with(b"VCS") {
            return Err(FileCause::Envelope);
        }
        let version = FileVersion::of_magic(&magic).ok_or(FileCause::Signature(magic))?;
        if !version.is_readable(self.options.strict_version) {
            return Err(FileCause::Version(version));
        }
        if version.references > 0 && !self.options.references {
            return Err(FileCause::Refers);
        }
        self.version = version;
        self.at += MAGIC_BYTES;
        self.state = State::Body;
        Ok(Found::Nothing)
    }

    // ---- the body ----

    fn body(&mut self) -> Attempt {
        self.key.clear();
        self.value = None;
        loop {
            let mut reader = Reader::new(&self.buffer[self.at..], &self.options.limits);
            let code = reader.byte()?;
            match code {
                opcode::EXPIRE_MS => self.head.expiry_ms = Some(reader.milliseconds()?),
                opcode::EXPIRE_SECONDS => {
                    let seconds = i32::from_le_bytes(reader.array()?);
                    self.head.expiry_ms = Some(i64::from(seconds) * 1000);
                }
                opcode::IDLE => self.head.idle_seconds = Some(reader.number()?),
                opcode::FREQ => self.head.frequency = Some(reader.byte()?),
                opcode::EOF => {
                    self.at += 1;
                    self.state = State::Checksum;
                    return Ok(Found::Nothing);
                }
                _ if code >= opcode::SLOT_IMPORT => return self.opcode(code),
                opcode::COLD | opcode::COLD_TIMED if self.version.references > 0 => return self.cold(code),
                opcode::BUNDLE if self.version.has_bundles() => return self.bundle(),
                _ => return self.record(code),
            }
            self.at = self.buffer.len() - reader.left();
        }
    }

    /// Reads an item that stands between the keys.
    fn opcode(&mut self, code: u8) -> Attempt {
        let FileReader { buffer, at, rooms: [first, second], options, .. } = self;
        let mut reader = Reader::new(&buffer[*at + 1..], &options.limits);
        let found = match code {
            opcode::SELECT_DB => {
                self.db = reader.number()?;
                Found::Database
            }
            opcode::RESIZE_DB => Found::Sizes(reader.number()?, reader.number()?),
            opcode::SLOT_INFO => {
                for _ in ["slot", "keys", "volatile keys"] {
                    reader.number()?;
                }
                Found::Nothing
            }
            opcode::AUX => {
                let name = place(&mut reader, buffer.len(), first, 0)?;
                let value = place(&mut reader, buffer.len(), second, 1)?;
                Found::Aux(name, value)
            }
            opcode::FUNCTION2 => Found::Function(place(&mut reader, buffer.len(), first, 0)?),
            opcode::FUNCTION_PRE_GA => return Err(FileCause::OldFunctions),
            opcode::MODULE_AUX => return Err(FileCause::ModuleAux(decode::module_name(reader.number()?))),
            _ if self.version.is_valkey => return Err(FileCause::SlotImport),
            _ if self.version.number >= 13 => return Err(FileCause::KeyMetadata),
            _ => return Err(FileCause::UnreadType { code, name: None, version: self.version }),
        };
        *at = buffer.len() - reader.left();
        if let Found::Aux(name, value) = &found
            && self.text(name).eq_ignore_ascii_case(b"slot-info")
            && !is_slot_info(self.text(value))
        {
            return Err(FileCause::SlotInfo);
        }
        Ok(found)
    }

    /// A key, and where its value is.
    fn cold(&mut self, code: u8) -> Attempt {
        let mut reader = Reader::new(&self.buffer[self.at + 1..], &self.options.limits);
        self.code = code;
        reader.text_into(&mut self.key)?;
        let (form, reference) = (reader.byte()?, u64::from_le_bytes(reader.array()?));
        let due_ms =
            if code == opcode::COLD_TIMED { Some(i64::from_le_bytes(reader.array()?)) } else { None };
        let found = Found::Cold(form, reference, due_ms);
        self.at = self.buffer.len() - reader.left();
        Ok(found)
    }

    fn bundle(&mut self) -> Attempt {
        let mut reader = Reader::new(&self.buffer[self.at + 1..], &self.options.limits);
        let found = FoundBundle::read(&mut reader)?;
        self.at = self.buffer.len() - reader.left();
        Ok(Found::Bundle(found, self.at))
    }

    /// A key and its value, or the beginning of its value.
    fn record(&mut self, code: u8) -> Attempt {
        let version = self.version;
        let kind = version.type_of(code).ok_or(FileCause::UnreadType {
            code,
            name: version.name_of_unread(code),
            version,
        })?;
        let mut reader = Reader::new(&self.buffer[self.at + 1..], &self.options.limits);
        self.code = code;
        reader.text_into(&mut self.key)?;
        let found = if kind == RdbType::String {
            Found::Text(place(&mut reader, self.buffer.len(), &mut self.rooms[0], 0)?)
        } else if pieces::comes_in_pieces(kind) {
            self.pieces = Some(Pieces::begin(kind, &mut reader)?);
            self.state = State::Pieces { is_lent: false };
            Found::Nothing
        } else {
            match decode::value(kind, &mut reader) {
                Ok(value) => {
                    self.value = Some(value);
                    Found::Whole
                }
                Err(RdbError::Empty) => Found::Empty,
                Err(error) => return Err(error.into()),
            }
        };
        self.at = self.buffer.len() - reader.left();
        Ok(found)
    }

    /// The next piece of the current value.
    fn piece(&mut self, is_lent: bool) -> Attempt {
        let FileReader { buffer, at, options, state, .. } = self;
        let pieces = self.pieces.as_mut().expect("a value is read in pieces");
        if is_lent {
            if pieces.is_last() {
                self.pieces = None;
                self.head = KeyHead::default();
                *state = State::Body;
                return Ok(Found::Nothing);
            }
            pieces.begin_next();
            *state = State::Pieces { is_lent: false };
        }
        let mut is_full = pieces.is_last();
        while !is_full {
            let mut reader = Reader::new(&buffer[*at..], &options.limits);
            is_full = pieces.read_unit(&mut reader)?;
            *at = buffer.len() - reader.left();
        }
        if pieces.is_empty() {
            self.pieces = None;
            *state = State::Body;
            return Ok(Found::Empty);
        }
        *state = State::Pieces { is_lent: true };
        Ok(Found::Piece)
    }

    // ---- the end ----

    fn checksum(&mut self) -> Attempt {
        self.key.clear();
        if !self.version.has_checksum() {
            self.state = State::End;
            return Ok(Found::End);
        }
        let stored = u64::from_le_bytes(self.reader().array()?);
        let computed = match self.options.checksum {
            true => crc64(self.sum, &self.buffer[..self.at]),
            false => stored,
        };
        if stored != computed && stored != 0 {
            return Err(FileCause::Checksum { stored, computed });
        }
        self.at += size_of::<u64>();
        self.state = State::End;
        Ok(if stored == 0 && self.options.checksum { Found::NoChecksum } else { Found::End })
    }

    // ---- handing out ----

    fn text(&self, place: &Place) -> &[u8] {
        match place {
            Place::Buffer(range) => &self.buffer[range.clone()],
            Place::Room(number) => &self.rooms[*number],
        }
    }

    fn show(&mut self, found: &Found) -> Item<'_> {
        // Pieces of the same key follow a piece: they have the same head.
        let head = match self.pieces {
            Some(_) => self.head,
            None if found.ends_key() => std::mem::take(&mut self.head),
            None => self.head,
        };
        let KeyHead { expiry_ms, idle_seconds, frequency } = head;
        let key = Key { db: self.db, name: &self.key, expiry_ms, idle_seconds, frequency };
        let whole = |value| {
            let piece = Piece { key, code: self.code, value, total: 1, is_first: true, is_last: true };
            Item::Piece(piece)
        };
        match found {
            Found::Aux(name, value) => Item::Aux { name: self.text(name), value: self.text(value) },
            Found::Function(code) => Item::Function(self.text(code)),
            Found::Database => Item::Database(self.db),
            Found::Sizes(keys, volatile) => Item::Sizes { keys: *keys, volatile: *volatile },
            Found::Text(text) => whole(PieceValue::Text(self.text(text))),
            Found::Cold(form_number, reference, due_ms) => {
                Item::Cold { key, form_number: *form_number, reference: *reference, due_ms: *due_ms }
            }
            Found::Bundle(found, end) => Item::Bundle(found.show(key.db, expiry_ms, &self.buffer[..*end])),
            Found::Whole => whole(PieceValue::Collection(self.value.as_ref().expect("a value was read"))),
            Found::Piece => {
                let pieces = self.pieces.as_ref().expect("a piece was read");
                let Pieces { total, is_first, value, .. } = pieces;
                Item::Piece(Piece {
                    key,
                    code: self.code,
                    value: PieceValue::Collection(value),
                    total: *total,
                    is_first: *is_first,
                    is_last: pieces.is_last(),
                })
            }
            Found::Empty => Item::Empty(key),
            Found::NoChecksum => Item::NoChecksum,
            Found::Nothing | Found::End => unreachable!("there is nothing to show"),
        }
    }
}

/// The buffer does not stay larger than this.
const BUFFER_BYTES_KEPT_MAX: usize = 1 << 20;

/// A string, and where it was found in a buffer of `buffer_bytes` bytes.
fn place(
    reader: &mut Reader<'_>,
    buffer_bytes: usize,
    room: &mut Vec<u8>,
    number: usize,
) -> Result<Place, RdbError> {
    let found = reader.text_or_in(room)?;
    let end = buffer_bytes - reader.left();
    Ok(found.map_or(Place::Room(number), |text| Place::Buffer(end - text.len()..end)))
}

/// `slot,keys,volatile keys` and more that later versions may add.
fn is_slot_info(text: &[u8]) -> bool {
    let numbers = text.split(|&byte| byte == b',').take(3);
    let is_number = |field: &[u8]| isotherm_stdx::parse_i64(field.trim_ascii_start()).is_some();
    numbers.clone().count() == 3 && numbers.into_iter().all(is_number)
}
