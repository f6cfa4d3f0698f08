//! A value that is not in memory, as its entry refers to it.
//!
//! ```text
//!   bits  0-39   where it is: means nothing here
//!   bits 40-63   its bytes: 1 to 16 MB
//! ```
//! A reference stands in an entry where an object's number would, in the same 8 B. An object has zeros where
//! the length is, so one is never taken for the other.

use crate::layout::bound::{NEVER, bound_of, moment_of};
use crate::layout::kind::{Db, Form, Type};
use isotherm_stdx::UnixMs;

const LENGTH_SHIFT: u32 = 40;

/// Reference to a value that is not in memory: its place and its length. The keeper of such values makes
/// these references, and gets them back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ColdRef(u64);

impl ColdRef {
    /// Panics if the length in it is zero: no empty value leaves memory.
    pub fn new(raw: u64) -> ColdRef {
        assert!(raw >> LENGTH_SHIFT > 0, "an empty value is not cold");
        ColdRef(raw)
    }

    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Bytes of the value, as it was in memory.
    pub const fn value_bytes(self) -> usize {
        (self.0 >> LENGTH_SHIFT) as usize
    }

    pub(crate) fn of_halves([low, high]: [u32; 2]) -> ColdRef {
        ColdRef::new(u64::from(low) | u64::from(high) << 32)
    }
}

/// A value that is not in memory: its type and length are known, and the place where it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ColdValue {
    pub(crate) form: Form,
    pub reference: ColdRef,
    /// The bound of the first of its fields that comes due; `NEVER` of all but hashes with such fields.
    pub(crate) due: u32,
}

impl ColdValue {
    /// Returns the value outside memory that a file describes, or `None` if there is no such value. `due` is
    /// the earliest moment at which a field is due: it is given for a hash whose fields have times, and for
    /// no other value.
    pub fn of_file(form_number: u8, raw: u64, due: Option<UnixMs>) -> Option<ColdValue> {
        // A value that is stored as an integer never leaves.
        let form = Form::of_number(form_number).filter(|form| *form != Form::Int)?;
        if raw >> LENGTH_SHIFT == 0 || due.is_some() != (form == Form::TimedHash) {
            return None;
        }
        Some(ColdValue { form, reference: ColdRef(raw), due: due.map_or(NEVER, bound_of) })
    }

    /// Returns the earliest moment at which a field is due, as a file keeps it: for a hash whose fields have
    /// times, and for no other value.
    pub fn due(self) -> Option<UnixMs> {
        (self.form == Form::TimedHash).then(|| moment_of(self.due))
    }

    pub fn kind(self) -> Type {
        self.form.kind()
    }

    /// Returns the number of the form, which says how the value's bytes are to be read. The keeper has to
    /// remember it in addition to the bytes.
    pub fn form_number(self) -> u8 {
        self.form as u8
    }

    /// Panics. Called where a value is read that is not in memory: the caller should have fetched it before.
    pub fn not_fetched(self) -> ! {
        panic!("a value that is not in memory was not fetched before it was read: {self:?}")
    }

    /// Bytes of the value: of a string its length.
    pub fn bytes(self) -> usize {
        self.reference.value_bytes()
    }
}

/// Gets references back that no entry has any more. Called under the lock of a partition: it must not wait.
pub trait ColdKeeper: Send + Sync {
    fn retire(&self, reference: ColdRef);

    /// The value of a key, for a command that met one that its declaration does not lead to: under the lock,
    /// which waits for the disk. `None`: it cannot be read.
    fn read(&self, reference: ColdRef, key: &[u8]) -> Option<Vec<u8>>;

    /// Asks for a hash whose fields are due: it should be read, and come back to memory. It is asked for
    /// again until it does. Called under the lock: it must not wait.
    fn fields_are_due(&self, db: Db, key: &[u8]);

    /// Returns whether values that are used often may come back to memory. `hits` counts the uses of lent
    /// values of a partition since the last call for that partition.
    fn takes_home(&self, _hits: u64) -> bool {
        true
    }

    /// Notes how many bytes of memory lent values take more than before, or less if it is negative.
    fn lent_more(&self, _bytes: i64) {}

    /// Returns whether memory has room for values that are only read.
    fn has_room(&self) -> bool {
        true
    }

    /// A value has come back to memory from there.
    fn came_home(&self, _reference: ColdRef) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_comes_back_from_its_halves() {
        for raw in [1 << 40, (1 << 40) | 7, u64::MAX, (400 << 40) | (0xff << 32) | 0xdead_beef] {
            let reference = ColdRef::new(raw);
            let halves = [raw as u32, (raw >> 32) as u32];
            assert_eq!(ColdRef::of_halves(halves), reference);
            assert_ne!(halves[1], 0, "an object has zeros there");
        }
        assert_eq!(ColdRef::new(400 << 40).value_bytes(), 400);
    }

    #[test]
    #[should_panic(expected = "an empty value is not cold")]
    fn no_empty_value_is_cold() {
        ColdRef::new((1 << 40) - 1);
    }
}
