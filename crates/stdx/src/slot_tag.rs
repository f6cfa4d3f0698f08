//! A hash tag for each slot, short enough to stand in a cursor.
//!
//! The tag is the shortest text of `0-9a-zA-Z` that hashes to the slot, and of several the first in that
//! order, so that every server that knows the rule has the same ones: `06S` for slot 0, `Qi` for slot 1.

use crate::crc16::crc16;
use crate::slot::Slot;
use std::sync::OnceLock;

const CHARACTERS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// Enough for every slot.
const BYTES_MAX: usize = 3;

struct Tags {
    /// Shorter ones end with zeros.
    by_slot: Box<[[u8; BYTES_MAX]]>,
    missing: usize,
}

impl Tags {
    /// Some milliseconds of work.
    fn find() -> Tags {
        let mut tags = Tags { by_slot: vec![[0; BYTES_MAX]; Slot::COUNT].into(), missing: Slot::COUNT };
        let mut text = [0; BYTES_MAX];
        (1..=BYTES_MAX).for_each(|len| tags.add_all(&mut text, 0, len));
        assert_eq!(tags.missing, 0, "three characters are enough");
        tags
    }

    /// Adds all texts of `len` characters that begin with the `at` characters chosen so far.
    fn add_all(&mut self, text: &mut [u8; BYTES_MAX], at: usize, len: usize) {
        if self.missing == 0 {
            return;
        }
        if at == len {
            let tag = &mut self.by_slot[usize::from(crc16(&text[..len])) % Slot::COUNT];
            if tag[0] == 0 {
                tag[..len].copy_from_slice(&text[..len]);
                self.missing -= 1;
            }
            return;
        }
        for character in CHARACTERS {
            text[at] = *character;
            self.add_all(text, at + 1, len);
        }
    }
}

impl Slot {
    /// Returns the text between braces in a key of this slot. The first call takes some milliseconds, and 48
    /// KB.
    pub fn tag(self) -> &'static [u8] {
        static TAGS: OnceLock<Tags> = OnceLock::new();
        let tag = &TAGS.get_or_init(Tags::find).by_slot[self.index()];
        let len = tag.iter().position(|byte| *byte == 0).unwrap_or(BYTES_MAX);
        &tag[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_those_that_other_servers_have() {
        let known: [(u16, &str); 8] = [
            (0, "06S"),
            (1, "Qi"),
            (2, "5L5"),
            (50, "4ZG"),
            (80, "avs"),
            (8000, "42"),
            (8192, "8YG"),
            (16383, "6ZJ"),
        ];
        for (slot, tag) in known {
            assert_eq!(Slot::new(slot).tag(), tag.as_bytes(), "{slot}");
        }
        for slot in Slot::all() {
            assert_eq!(Slot::of_key(&[b"x{", slot.tag(), b"}"].concat()), slot);
        }
    }
}
