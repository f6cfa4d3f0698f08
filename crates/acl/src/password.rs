//! Passwords: never kept, only their SHA-256.

use ring::digest::{SHA256, digest};

const HASH_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PasswordHash([u8; HASH_BYTES]);

impl PasswordHash {
    pub fn of(password: &[u8]) -> PasswordHash {
        PasswordHash(digest(&SHA256, password).as_ref().try_into().expect("32 bytes"))
    }

    /// Parses a hash as `#` has it: 64 hexadecimal digits in lower case.
    pub fn from_hex(digits: &[u8]) -> Option<PasswordHash> {
        let digits: &[u8; 2 * HASH_BYTES] = digits.try_into().ok()?;
        let value = |digit: u8| match digit {
            b'0'..=b'9' => Some(digit - b'0'),
            b'a'..=b'f' => Some(digit - b'a' + 10),
            _ => None,
        };
        let mut hash = [0; HASH_BYTES];
        for (byte, pair) in hash.iter_mut().zip(digits.chunks(2)) {
            *byte = value(pair[0])? << 4 | value(pair[1])?;
        }
        Some(PasswordHash(hash))
    }

    pub fn hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Takes as long for a nearly right guess as for any other.
    pub fn is_same(&self, other: &PasswordHash) -> bool {
        let differing = self.0.iter().zip(&other.0);
        differing.fold(0, |differing, (a, b)| std::hint::black_box(differing | (a ^ b))) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_sha256() {
        let hash = PasswordHash::of(b"secret");
        assert_eq!(hash.hex(), "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b");
        assert_eq!(PasswordHash::from_hex(hash.hex().as_bytes()), Some(hash));
        assert!(hash.is_same(&PasswordHash::of(b"secret")) && !hash.is_same(&PasswordHash::of(b"secreT")));
        let bad =
            [&hash.hex()[1..], &format!("{}0", hash.hex()), &hash.hex().to_uppercase(), &"g".repeat(64)];
        assert!(bad.iter().all(|digits| PasswordHash::from_hex(digits.as_bytes()).is_none()));
    }
}
