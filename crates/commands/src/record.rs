//! Records: what the log holds for one command, so that played back it makes the same change at any other
//! moment.
//!
//! ```text
//! SET k v                as it came           changes were counted, and nothing else was said
//! SET k v EX 10          its own words        SET k v PXAT 1700000010000
//! SPOP k 2               its own words        SREM k a b
//! XREADGROUP ...         replaced by nothing  where only the reader's own state was looked at
//! GET k                  none                 no change was counted
//! ```
//! The log itself is the server's: at a command's end it takes the records, and puts them after the changes
//! that the keyspace has reported meanwhile (keys that expired under the command). Without a consumer nothing
//! is built.

use crate::Call;
use isotherm_resp::{Args, ArgsBuf};
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64};

/// Elements that go to the log in one command, and bytes of several: with the longest key a
/// request of less than 4 GB.
const ELEMENTS_MAX: usize = 1024;
const ELEMENTS_BYTES_MAX: usize = 1 << 30;

/// Command that the log gets.
#[derive(Clone, Copy)]
pub enum Record<'a> {
    /// The request, word for word: the bytes of the wire will do.
    Verbatim(Args<'a>),
    Words(Args<'a>),
}

impl<'a> Record<'a> {
    pub fn args(self) -> Args<'a> {
        match self {
            Record::Verbatim(args) | Record::Words(args) => args,
        }
    }

    /// Returns the bytes of the command as an array of strings, if they are available.
    #[inline]
    pub fn wire(self) -> Option<&'a [u8]> {
        match self {
            Record::Verbatim(args) => args.wire(),
            Record::Words(_) => None,
        }
    }
}

enum Item {
    Request,
    Words(ArgsBuf),
}

/// The records of the command under way.
#[derive(Default)]
pub struct Records {
    is_wanted: bool,
    /// The request itself is not recorded unless it is among the items.
    is_replaced: bool,
    items: Vec<Item>,
}

impl Records {
    /// Begins the records of a command. `is_wanted`: there is a log.
    #[inline]
    pub fn begin(&mut self, is_wanted: bool) {
        debug_assert!(self.items.is_empty(), "the records of the command before were taken");
        (self.is_wanted, self.is_replaced) = (is_wanted, false);
    }

    /// Returns whether there is a log, so that canonical forms are worth building.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// The log holds what else is recorded, or nothing, instead of the request.
    #[inline]
    pub fn replace_request(&mut self) {
        self.is_replaced = true;
    }

    /// The request as it came, among other records or without a change.
    #[inline]
    pub fn push_request(&mut self) {
        self.is_replaced = true;
        if self.is_wanted {
            self.items.push(Item::Request);
        }
    }

    fn push<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) {
        self.is_replaced = true;
        if self.is_wanted {
            self.items.push(Item::Words(words.into_iter().collect()));
        }
    }

    /// Takes the records of a command that made this number of `changes`.
    #[inline]
    pub fn take(&mut self, request: Args<'_>, changes: u64, mut each: impl FnMut(Record<'_>)) {
        if !self.is_wanted {
            return;
        }
        if changes > 0 && !self.is_replaced {
            each(Record::Verbatim(request));
        }
        for item in self.items.drain(..) {
            match &item {
                Item::Request => each(Record::Verbatim(request)),
                Item::Words(words) => each(Record::Words(words.args())),
            }
        }
    }
}

impl Call<'_, '_, '_> {
    /// The log holds `words` instead of this request.
    #[inline]
    pub fn record(&mut self, words: &[&[u8]]) {
        self.records.push(words.iter().copied());
    }

    /// The log holds this request as it came, in addition to other records, or although no change was
    /// counted.
    #[inline]
    pub fn record_request(&mut self) {
        self.records.push_request();
    }

    /// The log holds the words, and after them a number.
    pub fn record_with_number<const N: usize>(&mut self, words: [&[u8]; N], number: i64) {
        let mut room = [0; I64_BYTES_MAX];
        let number = write_i64(number, &mut room);
        self.records.push(words.into_iter().chain([number]));
    }

    /// The log holds the words that `fill` gives. Without a log nothing is filled.
    pub fn record_words<'w>(&mut self, fill: impl FnOnce(&mut Vec<&'w [u8]>)) {
        let mut words = Vec::new();
        if self.records.is_wanted() {
            fill(&mut words);
        }
        self.records.push(words);
    }

    /// The log holds `words` and after them elements of the keyspace, in several commands where they are many
    /// or long: one that a reader takes ends before 4 GB (`REQUEST_BYTES_MAX`), and elements that were popped
    /// or sorted came in many requests.
    pub fn record_elements(&mut self, words: &[&[u8]], elements: &[Vec<u8>]) {
        let mut rest = elements;
        while !rest.is_empty() {
            let (mut bytes, mut count) = (0, 0);
            for element in rest.iter().take(ELEMENTS_MAX) {
                bytes += element.len();
                if count > 0 && bytes > ELEMENTS_BYTES_MAX {
                    break;
                }
                count += 1;
            }
            let (some, behind) = rest.split_at(count);
            self.records.push(words.iter().copied().chain(some.iter().map(Vec::as_slice)));
            rest = behind;
        }
    }

    /// The log holds the first `words` words of this request: memory ended after them.
    #[cold]
    pub fn record_first(&mut self, words: usize) {
        let args = self.args;
        self.records.push(args.iter().take(words));
    }
}
