//! A value that was read for a command and is kept in addition to its entry: its bytes in memory, and its
//! uses.

use crate::layout::kind::Db;
use isotherm_stdx::{SteadyMs, UnixMs};
use std::any::Any;
use std::cell::Cell;

/// Uses of a lent value from which on it is worth its place in memory.
const HOME_USES_MIN: u32 = 2;

/// A way through the bytes of a lent value.
pub(crate) trait LentImage: Send {
    fn memory_bytes(&self) -> usize;
    fn as_any(&self) -> &dyn Any;
}

/// A value that was read, or could not be.
pub(crate) struct Lent {
    pub db: Db,
    pub key: Box<[u8]>,
    /// Bytes of the value; `None` if the keeper cannot read it.
    pub value: Option<Box<[u8]>>,
    /// Image of a stream, which leads through its bytes.
    pub(super) image: Option<Box<dyn LentImage>>,
    pub(super) since: SteadyMs,
    pub(super) uses: Cell<u32>,
    /// True if there was no room for the value: it goes when it was used.
    pub(super) is_passing: bool,
}

impl Lent {
    pub fn new(db: Db, key: &[u8], value: Option<&[u8]>, now: UnixMs) -> Lent {
        let value = value.map(Into::into);
        Lent {
            db,
            key: key.into(),
            value,
            image: None,
            since: SteadyMs::of(now),
            uses: Cell::new(0),
            is_passing: false,
        }
    }

    /// Adds a way through its bytes.
    pub fn with_image(self, image: Option<Box<dyn LentImage>>) -> Lent {
        Lent { image, ..self }
    }

    /// Marks it to be dropped when its command has used it, or not.
    pub fn passing(self, is_passing: bool) -> Lent {
        Lent { is_passing: is_passing && self.value.is_some(), ..self }
    }

    pub fn is_wanted_home(&self) -> bool {
        self.value.is_some() && self.uses.get() >= HOME_USES_MIN
    }

    fn image_bytes(&self) -> usize {
        self.image.as_ref().map_or(0, |image| image.memory_bytes())
    }

    /// Bytes that it takes, with its place in the tables, about.
    pub(super) fn bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| value.len());
        self.key.len() + value + self.image_bytes() + 128
    }

    /// Bytes of the heap that its key and its value take.
    pub(super) fn heap_bytes(&self) -> usize {
        let value = self.value.as_ref().map_or(0, |value| rounded(value.len()));
        rounded(self.key.len()) + value + self.image_bytes()
    }
}

/// Rounds as allocators do: four sizes to each doubling.
fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of((bytes.next_power_of_two() / 8).max(16))
}
