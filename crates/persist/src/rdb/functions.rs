//! Libraries of functions as FUNCTION DUMP sends them and FUNCTION RESTORE takes them.
//!
//! ```text
//! [f5][code as string] ... [version u16][crc64 of all before it]        little endian
//! ```
//! The payload is the part of an RDB file that has the libraries, with the footer of DUMP. The code is not
//! looked at here.

use isotherm_stdx::crc64::crc64;
use std::borrow::Cow;

use super::file::opcode;
use super::kind::{VERSION_PLAIN, is_readable};
use super::read::{Limits, RdbError, Reader};
use super::write::Writer;

const VERSION_BYTES: usize = 2;
const FOOTER_BYTES: usize = VERSION_BYTES + 8;

/// Why a payload cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FunctionsError {
    VersionOrChecksum,
    /// A library of the format that Redis had before 7.0.
    PreGa,
    /// Something else than a library.
    Type(u8),
    Code(RdbError),
}

/// Every library, in the order given. `compress`: code of more than 20 bytes that gets shorter by it.
pub fn dump<'c>(codes: impl IntoIterator<Item = &'c [u8]>, compress: bool) -> Vec<u8> {
    let mut writer = Writer::new(compress);
    for code in codes {
        writer.byte(opcode::FUNCTION2);
        writer.text(code);
    }
    let mut payload = writer.into_bytes();
    payload.extend_from_slice(&VERSION_PLAIN.to_le_bytes());
    let checksum = crc64(0, &payload);
    payload.extend_from_slice(&checksum.to_le_bytes());
    payload
}

/// The libraries of a payload whose footer is right, one after the other: what is wrong with one is seen only
/// when those before it were taken.
#[derive(Debug)]
pub struct Codes<'p> {
    rest: &'p [u8],
    limits: Limits,
}

impl<'p> Codes<'p> {
    /// `strict`: versions that are not known are refused (`rdb-version-check strict`).
    pub fn open(payload: &'p [u8], limits: Limits, strict: bool) -> Result<Codes<'p>, FunctionsError> {
        let body = payload.len().checked_sub(FOOTER_BYTES).ok_or(FunctionsError::VersionOrChecksum)?;
        let (summed, checksum) = payload.split_at(body + VERSION_BYTES);
        let version = u16::from_le_bytes([payload[body], payload[body + 1]]);
        let is_known = if strict { is_readable(version) } else { version >= 1 };
        if !is_known || crc64(0, summed).to_le_bytes() != checksum {
            return Err(FunctionsError::VersionOrChecksum);
        }
        Ok(Codes { rest: &payload[..body], limits })
    }

    fn take(&mut self) -> Result<Cow<'p, [u8]>, FunctionsError> {
        let (&code, rest) = self.rest.split_first().expect("there is more");
        match code {
            opcode::FUNCTION2 => {}
            opcode::FUNCTION_PRE_GA => return Err(FunctionsError::PreGa),
            other => return Err(FunctionsError::Type(other)),
        }
        let mut reader = Reader::new(rest, &self.limits);
        let text = reader.text().map_err(FunctionsError::Code)?;
        self.rest = &rest[rest.len() - reader.left()..];
        Ok(text)
    }
}

impl<'p> Iterator for Codes<'p> {
    type Item = Result<Cow<'p, [u8]>, FunctionsError>;

    /// Returns the next code. Nothing follows an error.
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let taken = self.take();
        if taken.is_err() {
            self.rest = &[];
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, FunctionsError> {
        Codes::open(payload, Limits::default(), true)?.map(|code| Ok(code?.into_owned())).collect()
    }

    fn sealed(body: &[u8]) -> Vec<u8> {
        let mut payload = [body, &VERSION_PLAIN.to_le_bytes()].concat();
        let checksum = crc64(0, &payload);
        payload.extend_from_slice(&checksum.to_le_bytes());
        payload
    }

    /// A payload that Valkey 9.1.2 has written is read.
    #[test]
    fn a_payload_of_valkey_is_read() {
        let code = b"#!lua name=lib\nserver.register_function('f', function(k,a) return 1 end)";
        let payload = [&b"\xf5@H"[..], code, b"P\x00tf(n\x92\xdd\x068"].concat();
        assert_eq!(read(&payload), Ok(vec![code.to_vec()]));
    }

    #[test]
    fn libraries_come_back() {
        let long = b"#!lua name=a\n".repeat(40);
        let codes: [&[u8]; 4] = [b"#!lua name=a\n", &long, b"12", b""];
        for compress in [false, true] {
            let payload = dump(codes, compress);
            assert_eq!(read(&payload), Ok(codes.map(<[u8]>::to_vec).to_vec()));
        }
        assert!(dump([&long[..]], true).len() < long.len());
        assert_eq!(read(&dump([], true)), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_has_its_own_error() {
        let check = |body: &[u8], expected| assert_eq!(read(&sealed(body)), Err(expected), "{body:?}");
        check(&[246, 1, b'a'], FunctionsError::PreGa);
        check(&[0, 1, b'a'], FunctionsError::Type(0));
        check(&[245], FunctionsError::Code(RdbError::Short));
        check(&[245, 1, b'a', 245, 0x81, 0xff], FunctionsError::Code(RdbError::Short));
        let endless = [&[245, 0x81], &[0xff; 8][..], b"a"].concat();
        check(&endless, FunctionsError::Code(RdbError::TooLarge));
        for len in 0..FOOTER_BYTES {
            assert_eq!(read(&vec![0; len]), Err(FunctionsError::VersionOrChecksum));
        }
        let mut payload = sealed(&[245, 1, b'a']);
        payload[2] ^= 1;
        assert_eq!(read(&payload), Err(FunctionsError::VersionOrChecksum));
    }
}
