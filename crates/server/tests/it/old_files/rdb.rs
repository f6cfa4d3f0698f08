//! RDB files from named parts, in the encodings that servers wrote from 2010 to 2021. The code shares nothing
//! with the writer and the reader of this server, so that a misreading of the format cannot be in both.
//!
//! ```text
//! "REDIS" or "VALKEY"[version, to nine bytes]{record} 0xff [CRC64, eight bytes, from version 5 on]
//!
//! record   0xfa name value        a field about the file
//!          0xfe database          the keys that follow belong to it
//!          0xfb keys expiring     how many keys follow, and how many of them expire
//!          0xfc i64 / 0xfd i32    the next key expires, in milliseconds or seconds since 1970
//!          type key value         a key
//! ```

/// The type bytes of values.
pub mod kind {
    pub const STRING: u8 = 0;
    pub const LIST: u8 = 1;
    pub const SET: u8 = 2;
    /// Scores are text.
    pub const ZSET: u8 = 3;
    pub const HASH: u8 = 4;
    /// Scores are doubles.
    pub const ZSET_2: u8 = 5;
    pub const HASH_ZIPMAP: u8 = 9;
    pub const LIST_ZIPLIST: u8 = 10;
    pub const SET_INTSET: u8 = 11;
    pub const ZSET_ZIPLIST: u8 = 12;
    pub const HASH_ZIPLIST: u8 = 13;
    /// A list of ziplists.
    pub const LIST_QUICKLIST: u8 = 14;
    pub const HASH_LISTPACK: u8 = 16;
    pub const ZSET_LISTPACK: u8 = 17;
}

/// A file under construction.
pub struct File(Vec<u8>);

impl File {
    /// Begins with magic and version, such as `REDIS0003`.
    pub fn new(magic: &str) -> File {
        assert_eq!(magic.len(), 9, "magic and version take nine bytes");
        File(magic.into())
    }

    fn with(mut self, parts: &[&[u8]]) -> File {
        parts.iter().for_each(|part| self.0.extend_from_slice(part));
        self
    }

    pub fn field(self, name: &str, value: Vec<u8>) -> File {
        self.with(&[&[0xfa], &text(name), &value])
    }

    pub fn database(self, number: u8) -> File {
        self.with(&[&[0xfe], &length(number.into())])
    }

    pub fn sizes(self, keys: usize, expiring: usize) -> File {
        self.with(&[&[0xfb], &length(keys), &length(expiring)])
    }

    /// Gives the next key an expiry as versions 1 and 2 of the format did.
    pub fn expires_at_seconds(self, seconds: i32) -> File {
        self.with(&[&[0xfd], &seconds.to_le_bytes()])
    }

    pub fn expires_at_ms(self, ms: i64) -> File {
        self.with(&[&[0xfc], &ms.to_le_bytes()])
    }

    pub fn key(self, kind: u8, name: &str, value: Vec<u8>) -> File {
        self.with(&[&[kind], &text(name), &value])
    }

    /// Ends as before version 5: with no room for a checksum.
    pub fn end(self) -> Vec<u8> {
        self.with(&[&[0xff]]).0
    }

    /// Ends as under `rdbchecksum no`.
    pub fn end_unsummed(self) -> Vec<u8> {
        self.with(&[&[0xff], &[0; 8]]).0
    }

    pub fn end_summed(self) -> Vec<u8> {
        let file = self.with(&[&[0xff]]);
        let sum = crc64(&file.0);
        file.with(&[&sum.to_le_bytes()]).0
    }
}

/// CRC-64/Jones, bit by bit: the polynomial 0xad93d23594c935a9 with its bits mirrored.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| match sum & 1 {
            1 => sum >> 1 ^ 0x95ac_9329_ac4b_c9b5,
            _ => sum >> 1,
        })
    })
}

/// A length in the fewest bytes: `00LLLLLL`, `01LLLLLL LLLLLLLL`, or `0x80` and a u32, big endian.
pub fn length(len: usize) -> Vec<u8> {
    match len {
        ..64 => vec![len as u8],
        64..16_384 => vec![0x40 | (len >> 8) as u8, len as u8],
        _ => [&[0x80][..], &u32::try_from(len).expect("test data is small").to_be_bytes()].concat(),
    }
}

/// A string as its length and its bytes. Packed collections lie in a file in this form, too.
pub fn text(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [length(bytes.len()), bytes.to_vec()].concat()
}

// ---- strings that are integers ----

pub fn int8(value: i8) -> Vec<u8> {
    [&[0xc0][..], &value.to_le_bytes()].concat()
}

pub fn int16(value: i16) -> Vec<u8> {
    [&[0xc1][..], &value.to_le_bytes()].concat()
}

pub fn int32(value: i32) -> Vec<u8> {
    [&[0xc2][..], &value.to_le_bytes()].concat()
}

// ---- compressed strings ----

/// A step of LZF.
pub enum Lzf<'a> {
    /// 1 to 32 bytes.
    Bytes(&'a [u8]),
    /// `len` bytes, 3 to 264, from `back` bytes before, 1 to 8192. They may reach into what they make.
    Again { len: usize, back: usize },
}

/// A compressed string: `0xc3`, the length of the steps, the length of the text, the steps.
pub fn compressed(text_bytes: usize, steps: &[Lzf<'_>]) -> Vec<u8> {
    let mut packed = Vec::new();
    for step in steps {
        match *step {
            // 000LLLLL: L + 1 bytes follow.
            Lzf::Bytes(bytes) => {
                packed.push(bytes.len() as u8 - 1);
                packed.extend_from_slice(bytes);
            }
            // LLLooooo oooooooo: L + 2 bytes from o + 1 before. With L = 7 a byte stands between, which is
            // added.
            Lzf::Again { len, back } => {
                let (high, low) = (((back - 1) >> 8) as u8, (back - 1) as u8);
                match len - 2 {
                    short @ ..7 => packed.extend([(short as u8) << 5 | high, low]),
                    long => packed.extend([7 << 5 | high, (long - 7) as u8, low]),
                }
            }
        }
    }
    [vec![0xc3], length(packed.len()), length(text_bytes), packed].concat()
}

// ---- collections in plain form ----

/// A length, and that many items. An item of a hash is a field and its value, of a sorted set a member and
/// its score.
pub fn items(items: &[Vec<u8>]) -> Vec<u8> {
    [length(items.len()), items.concat()].concat()
}

pub fn field(name: &str, value: Vec<u8>) -> Vec<u8> {
    [text(name), value].concat()
}

/// A member whose score is text, in a byte of length and digits.
pub fn scored(member: &str, score: &str) -> Vec<u8> {
    let score = match score {
        "nan" => vec![253],
        "inf" => vec![254],
        "-inf" => vec![255],
        digits => [&[digits.len() as u8], digits.as_bytes()].concat(),
    };
    [text(member), score].concat()
}
