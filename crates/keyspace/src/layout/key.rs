//! A key with what is computed of it once per command: its slot and its keyed hash.
//!
//! The hash is SipHash-1-3 under a secret of this process: a client that chooses the keys cannot choose their
//! pages, so a page stays a page (some 17 entries) whatever is sent. The slot never enters the hash: all keys
//! of a page share it.
//!
//! ```text
//! hash:  63            50 49      42 41    32 31                                0
//!        [ not used     ][ tag 8   ][        ][ page number, low bits first       ]
//! ```

use isotherm_stdx::{SipHash13, Slot};

/// A key as a command meets it.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub slot: Slot,
    pub(crate) hash: u64,
}

impl Key<'_> {
    /// Distinguishes it from other keys of this process, in all likelihood.
    pub fn identity(&self) -> u64 {
        self.hash
    }
}

/// The secret that keys are hashed with.
#[derive(Clone, Copy)]
pub struct KeyHasher {
    hasher: SipHash13,
    #[cfg(any(test, fuzzing))]
    secret: [u8; 16],
}

impl KeyHasher {
    pub fn new(secret: [u8; 16]) -> KeyHasher {
        KeyHasher {
            hasher: SipHash13::new(secret),
            #[cfg(any(test, fuzzing))]
            secret,
        }
    }

    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, slot: Slot::of_key(bytes), hash: self.hash(bytes) }
    }

    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        let hash = self.hasher.hash(bytes);
        #[cfg(any(test, fuzzing))]
        let hash = hash & self.flood_mask();
        hash
    }
}

/// A flood of equal hashes cannot be made from outside; tests ask for one by their secret.
#[cfg(any(test, fuzzing))]
impl KeyHasher {
    const FLOOD: [u8; 8] = *b"flooded:";

    /// The secret of a hasher that keeps only these bits.
    pub fn flooded_secret(mask: u64) -> [u8; 16] {
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&KeyHasher::FLOOD);
        secret[8..].copy_from_slice(&mask.to_le_bytes());
        secret
    }

    fn flood_mask(&self) -> u64 {
        if self.secret[..8] != KeyHasher::FLOOD {
            return u64::MAX;
        }
        u64::from_le_bytes(self.secret[8..].try_into().expect("eight of sixteen bytes"))
    }
}

/// Returns the byte of a hash that a page keeps for each entry. It is never 0.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u8 {
    let tag = (hash >> 42) as u8;
    if tag == 0 { 1 } else { tag }
}

/// Returns the word in front of a blob: the hash's lower 50 bits and the slot (as its place in the whole
/// keyspace).
pub(crate) fn blob_head(key: &Key<'_>) -> u64 {
    key.hash & ((1 << 50) - 1) | u64::from(key.slot.get()) << 50
}

pub(crate) fn slot_of_blob_head(head: u64) -> Slot {
    Slot::new((head >> 50) as u16)
}
