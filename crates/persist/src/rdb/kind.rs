//! The type bytes of values, and which version of the format may use which.
//!
//! Numbers up to 21 mean the same everywhere. From 22 on the two lines of the format gave them different
//! meanings: in Valkey's 80, 22 is a hash with field expiry; in versions 12 to 79, 24 and 25 are. So a type
//! is only known together with the version of the file.

/// Version that DUMP writes, unless the value needs a later one. Every Valkey reads it, and Redis since 7.2.
pub const VERSION_PLAIN: u16 = 11;
/// Hashes whose fields expire need this one.
pub const VERSION_FIELD_EXPIRY: u16 = 80;

/// The last version of the other line that is understood.
const VERSION_FOREIGN_READ: u16 = 12;
const VERSIONS_FOREIGN: std::ops::RangeInclusive<u16> = 12..=79;
/// Below this, foreign numbers mean what ours do.
const TYPE_FOREIGN_MIN: u8 = 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RdbType {
    String = 0,
    List = 1,
    Set = 2,
    /// Scores as text.
    Zset = 3,
    Hash = 4,
    /// Scores as doubles.
    Zset2 = 5,
    ModulePreGa = 6,
    Module2 = 7,
    HashZipmap = 9,
    ListZiplist = 10,
    SetIntset = 11,
    ZsetZiplist = 12,
    HashZiplist = 13,
    ListQuicklist = 14,
    StreamListpacks = 15,
    HashListpack = 16,
    ZsetListpack = 17,
    ListQuicklist2 = 18,
    StreamListpacks2 = 19,
    SetListpack = 20,
    StreamListpacks3 = 21,
    /// Field expiry, version 80.
    Hash2 = 22,
    /// Field expiry in the other line, version 12: expiries relative to the smallest.
    ForeignHashExpiry = 24,
    /// Hash with field expiries as a listpack of field, value, expiry.
    ForeignHashListpackExpiry = 25,
}

impl RdbType {
    pub fn new(code: u8, version: u16) -> Option<RdbType> {
        use RdbType::*;
        const COMMON: [Option<RdbType>; 22] = [
            Some(String),
            Some(List),
            Some(Set),
            Some(Zset),
            Some(Hash),
            Some(Zset2),
            Some(ModulePreGa),
            Some(Module2),
            None,
            Some(HashZipmap),
            Some(ListZiplist),
            Some(SetIntset),
            Some(ZsetZiplist),
            Some(HashZiplist),
            Some(ListQuicklist),
            Some(StreamListpacks),
            Some(HashListpack),
            Some(ZsetListpack),
            Some(ListQuicklist2),
            Some(StreamListpacks2),
            Some(SetListpack),
            Some(StreamListpacks3),
        ];
        match code {
            0..TYPE_FOREIGN_MIN => COMMON[usize::from(code)],
            22 if !is_foreign(version) => Some(Hash2),
            24 if is_foreign(version) => Some(ForeignHashExpiry),
            25 if is_foreign(version) => Some(ForeignHashListpackExpiry),
            _ => None,
        }
    }
}

/// A version of the line that split off: its numbers from 22 on are not Valkey's.
pub fn is_foreign(version: u16) -> bool {
    VERSIONS_FOREIGN.contains(&version)
}

/// Versions that are read without being asked to try (`rdb-version-check strict`). Valkey refuses 12 as well;
/// here its types are known, so moving over from there works.
pub fn is_readable(version: u16) -> bool {
    // COMPAT(transfer): RESTORE accepts payloads of RDB version 12 too, which Valkey refuses. Why: data can
    // move over from Redis 7.4 and later.
    (1..=VERSION_FOREIGN_READ).contains(&version) || version == VERSION_FIELD_EXPIRY
}

/// Returns whether a code could be the type of a value in Valkey's line. Other codes stand for no value at
/// all.
pub fn is_object_type(code: u8) -> bool {
    code <= RdbType::Hash2 as u8 && code != 8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_their_version_says() {
        for code in 0..=255u8 {
            for version in [1, 11, 12, 40, 79, 80] {
                if let Some(known) = RdbType::new(code, version) {
                    assert_eq!(known as u8, code);
                    assert!(is_object_type(code) || is_foreign(version));
                }
            }
        }
        assert_eq!(RdbType::new(22, 80), Some(RdbType::Hash2));
        assert_eq!(RdbType::new(22, 12), None);
        assert_eq!(RdbType::new(24, 80), None);
        assert_eq!(RdbType::new(24, 12), Some(RdbType::ForeignHashExpiry));
        assert_eq!(RdbType::new(8, 11), None);
    }
}
