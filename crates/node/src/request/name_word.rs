//! A command's name as two words, so that a lookup compares no bytes.
//!
//! A name of up to 16 bytes, which is nearly all of them, is looked up as two overlapping words, in lower
//! case:
//!
//! ```text
//!   EXPIRE     (exp.. = "expi" | "pire" << 32, 0, length 6)      4..8 bytes: first and last four
//!   INCRBYFLOAT ("incrbyfl", "rbyfloat", length 11)              8..16: first and last eight
//! ```
//! Both words and the length say exactly which name it is, so no bytes are compared after them.

/// A name of 1 to 16 bytes in lower case; equal exactly if the names are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    first: u64,
    last: u64,
    len: u8,
}

impl Word {
    #[inline]
    pub fn of(name: &[u8]) -> Option<Word> {
        let len = name.len();
        let eight = |at: usize| u64::from_le_bytes(name[at..at + 8].try_into().expect("eight bytes"));
        let four =
            |at: usize| u64::from(u32::from_le_bytes(name[at..at + 4].try_into().expect("four bytes")));
        let (first, last) = match len {
            8..=16 => (eight(0), eight(len - 8)),
            4..=7 => (four(0) | four(len - 4) << 32, 0),
            1..=3 => (u64::from(name[0]) | u64::from(name[len / 2]) << 8 | u64::from(name[len - 1]) << 16, 0),
            _ => return None,
        };
        Some(Word { first: lower(first), last: lower(last), len: len as u8 })
    }

    #[inline]
    pub fn hash(self) -> usize {
        let mixed = (self.first ^ self.last.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed >> 48) as usize ^ usize::from(self.len)
    }
}

/// Eight ASCII characters at once in lower case. A byte is a capital if adding 0x3f reaches 0x80 (from 'A'
/// on) and adding 0x25 does not (to 'Z'), looking at seven bits; bytes above 0x7f stay as they are.
#[inline]
fn lower(word: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let seven = word & (EACH * 0x7f);
    let from_a = seven + EACH * 0x3f;
    let past_z = seven + EACH * 0x25;
    let capital = (from_a & !past_z) & !word & (EACH * 0x80);
    word | capital >> 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lower_case_is_that_of_ascii() {
        for byte in 0..=255u8 {
            let expected = u64::from_le_bytes([byte.to_ascii_lowercase(); 8]);
            assert_eq!(lower(u64::from_le_bytes([byte; 8])), expected, "{byte}");
        }
    }

    #[test]
    fn words_distinguish_names() {
        let names =
            ["a", "aa", "aba", "aaa", "abca", "abcda", "get", "getset", "incrbyfloat", "incrbyfloats"];
        for a in names {
            for b in names {
                assert_eq!(
                    Word::of(a.as_bytes()) == Word::of(b.to_uppercase().as_bytes()),
                    a == b,
                    "{a} {b}"
                );
            }
        }
        assert_eq!(Word::of(b""), None);
        assert_eq!(Word::of(&[b'a'; 17]), None);
    }
}
