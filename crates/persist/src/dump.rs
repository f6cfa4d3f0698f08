//! The envelope of one value: what DUMP sends and RESTORE takes.
//!
//! ```text
//! [type u8][value][version u16][crc64 of all before it]        little endian
//! ```

use isotherm_stdx::crc64::crc64;

use crate::rdb::{self, Limits, RdbError, RdbType, RdbValue};

const VERSION_BYTES: usize = 2;
const CHECKSUM_BYTES: usize = 8;
const FOOTER_BYTES: usize = VERSION_BYTES + CHECKSUM_BYTES;

/// Parts of a payload's footer that are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checks {
    /// Versions that are not known are refused (`rdb-version-check strict`).
    pub version: bool,
    pub checksum: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Checks { version: true, checksum: true }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DumpError {
    /// The footer is not right.
    VersionOrChecksum,
    /// A type of the other line of the format.
    ForeignType(u8),
    Value(RdbError),
}

/// A payload whose envelope is sound.
#[derive(Clone, Copy, Debug)]
pub struct Dump<'a> {
    code: u8,
    version: u16,
    value: &'a [u8],
}

impl<'a> Dump<'a> {
    pub fn open(payload: &'a [u8], checks: Checks) -> Result<Dump<'a>, DumpError> {
        // COMPAT(transfer): RESTORE refuses a value that extends into the footer of its payload. Why: version
        // and checksum are no part of the value.
        let body = payload.len().checked_sub(FOOTER_BYTES).ok_or(DumpError::VersionOrChecksum)?;
        let (summed, checksum) = payload.split_at(body + VERSION_BYTES);
        let version = u16::from_le_bytes([payload[body], payload[body + 1]]);
        let readable = if checks.version { rdb::is_readable(version) } else { version >= 1 };
        if !readable || (checks.checksum && crc64(0, summed).to_le_bytes() != checksum) {
            return Err(DumpError::VersionOrChecksum);
        }
        let (&code, value) = payload[..body].split_first().ok_or(DumpError::Value(RdbError::Short))?;
        if rdb::is_foreign(version) && rdb::is_object_type(code) && RdbType::new(code, version).is_none() {
            return Err(DumpError::ForeignType(code));
        }
        Ok(Dump { code, version, value })
    }

    /// The type byte.
    pub fn code(&self) -> u8 {
        self.code
    }

    pub fn version(&self) -> u16 {
        self.version
    }

    /// The value, checked to the last byte of it. Bytes after it are not looked at, as in Valkey.
    pub fn value(&self, limits: &Limits) -> Result<RdbValue, DumpError> {
        let decoded = rdb::decode(self.code, self.version, self.value, limits);
        decoded.map(|(value, _)| value).map_err(DumpError::Value)
    }
}

/// Puts the footer after type and value. The version is the lowest that knows the type.
pub fn seal(mut payload: Vec<u8>) -> Vec<u8> {
    let footer = footer([&payload[..]].into_iter());
    payload.reserve_exact(FOOTER_BYTES);
    payload.extend_from_slice(&footer);
    payload
}

/// Returns the bytes that follow type and value. These are in pieces; the first piece is not empty.
pub fn footer<'p>(mut pieces: impl Iterator<Item = &'p [u8]> + Clone) -> [u8; FOOTER_BYTES] {
    let code = pieces.clone().next().and_then(|piece| piece.first());
    let expires = code == Some(&(RdbType::Hash2 as u8));
    let version = if expires { rdb::VERSION_FIELD_EXPIRY } else { rdb::VERSION_PLAIN }.to_le_bytes();
    let checksum = crc64(pieces.by_ref().fold(0, crc64), &version).to_le_bytes();
    let mut footer = [0; FOOTER_BYTES];
    footer[..version.len()].copy_from_slice(&version);
    footer[version.len()..].copy_from_slice(&checksum);
    footer
}

#[cfg(test)]
mod tests {
    use super::*;

    const BAR_222: &[u8] = b"\x00\x03\x62\x61\x72\xde\x00\x0fYUza\xd3\xec\xe0";

    #[test]
    fn a_payload_comes_back() {
        let payload = seal(b"\x00\x03bar".to_vec());
        let dump = Dump::open(&payload, Checks::default()).unwrap();
        assert_eq!(dump.version(), 11);
        assert_eq!(dump.value(&Limits::default()), Ok(RdbValue::String(b"bar".to_vec())));
    }

    #[test]
    fn footers_that_are_not_right() {
        let refused = |payload: &[u8], checks: Checks| {
            assert_eq!(Dump::open(payload, checks).unwrap_err(), DumpError::VersionOrChecksum);
        };
        refused(b"", Checks::default());
        refused(b"...", Checks::default());
        refused(BAR_222, Checks::default());
        let relaxed = Checks { version: false, checksum: true };
        assert!(Dump::open(BAR_222, relaxed).is_ok());
        let mut broken = BAR_222.to_vec();
        broken[2] ^= 1;
        refused(&broken, relaxed);
        assert!(Dump::open(&broken, Checks { version: false, checksum: false }).is_ok());
    }

    #[test]
    fn a_footer_alone_holds_no_value() {
        let payload = seal(Vec::new());
        assert_eq!(Dump::open(&payload, Checks::default()).unwrap_err(), DumpError::Value(RdbError::Short));
    }
}
