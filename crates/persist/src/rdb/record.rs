//! Keys and their values, one behind the other, as the body of an RDB file has them.
//!
//! ```text
//! [0xfe][db] [0xfc][expiry i64, ms] [type][key][value]  ...  [0xff]
//!  at the first key of each database
//!             if the key has one
//! ```

use super::decode;
use super::kind::RdbType;
use super::read::{Limits, RdbError, Reader, Result};
use super::value::RdbValue;

pub const EXPIRE_MS: u8 = 0xfc;
pub const SELECT_DB: u8 = 0xfe;
pub const EOF: u8 = 0xff;

/// A key as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub db: u64,
    pub key: Vec<u8>,
    pub expiry_ms: Option<i64>,
    /// The type byte.
    pub code: u8,
    pub value: RdbValue,
}

/// Reads records until the end mark. What is read comes from outside: the first error is the last answer.
pub struct Records<'a> {
    bytes: &'a [u8],
    version: u16,
    limits: Limits,
    db: u64,
}

impl<'a> Records<'a> {
    pub fn new(bytes: &'a [u8], version: u16, limits: Limits) -> Records<'a> {
        Records { bytes, version, limits, db: 0 }
    }

    /// `None` at the end mark.
    pub fn read(&mut self) -> Result<Option<Record>> {
        let read = self.read_one();
        if !matches!(read, Ok(Some(_))) {
            self.bytes = &[EOF];
        }
        read
    }

    fn read_one(&mut self) -> Result<Option<Record>> {
        let mut reader = Reader::new(self.bytes, &self.limits);
        let mut expiry_ms = None;
        loop {
            match reader.byte()? {
                EOF => return Ok(None),
                SELECT_DB => self.db = reader.number()?,
                EXPIRE_MS => expiry_ms = Some(reader.milliseconds()?),
                code => {
                    let kind = RdbType::new(code, self.version).ok_or(RdbError::UnknownType(code))?;
                    let key = reader.text()?.into_owned();
                    let value = decode::value(kind, &mut reader)?;
                    self.bytes = &self.bytes[self.bytes.len() - reader.left()..];
                    return Ok(Some(Record { db: self.db, key, expiry_ms, code, value }));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_in_their_order() {
        let bytes = b"\xfe\x03\x00\x01a\x01x\xfc\x09\0\0\0\0\0\0\0\x00\x01b\xc0\x07\xfe\x00\x00\x01c\x00\xff";
        let mut records = Records::new(bytes, 11, Limits::default());
        let mut all = Vec::new();
        while let Some(record) = records.read().expect("it is sound") {
            let RdbValue::String(text) = record.value else { panic!("it is a string") };
            all.push((record.db, record.key, record.expiry_ms, text));
        }
        let expected = [(3, "a", None, "x"), (3, "b", Some(9), "7"), (0, "c", None, "")];
        let expected = expected.map(|(db, key, at, text)| (db, key.into(), at, text.into()));
        assert_eq!(all, expected);
        for end in 0..bytes.len() {
            let mut records = Records::new(&bytes[..end], 11, Limits::default());
            let error = loop {
                match records.read() {
                    Ok(Some(_)) => {}
                    other => break other,
                }
            };
            assert_eq!(error, Err(RdbError::Short), "{end} bytes");
            assert_eq!(records.read(), Ok(None), "an error is the last answer");
        }
        assert_eq!(Records::new(b"\x08\x01k", 11, Limits::default()).read(), Err(RdbError::UnknownType(8)));
    }
}
