//! A record: one value with the key that it belongs to, able to prove that it is what an entry means.
//!
//! ```text
//!   0       4          7      8          16          20       22          24
//!   [crc u32][bytes u24][form ][expiry i64][database u32][slot u16][klen u16][key][payload][zeros to a multiple of 16]
//!
//!   crc     CRC-32C of the address (8 B), then of all bytes from 4 on, without the zeros
//!   bytes   of the payload
//!   form    what the caller says: how the payload is to be read. 255: the head of a group, see `group`
//!   expiry  Unix ms; i64::MIN: none
//! ```
//! The address is in the checksum: a record that is read from where another one was written does not verify,
//! however whole it is. That is what a reader meets whose segment was freed and written again between its
//! look at the entry and its read.

use crate::place::{ADDRESS_UNIT_BYTES, PAYLOAD_BYTES_MAX, Place};
use isotherm_stdx::format::{FormatPart, number};
use isotherm_stdx::{Slot, UnixMs};

pub const HEAD_BYTES: usize = 24;
/// A longer key stays in memory.
pub const KEY_BYTES_MAX: usize = u16::MAX as usize;
/// The form of the head of a group.
pub(crate) const FORM_OF_GROUP: u8 = 255;
const NO_EXPIRY: i64 = i64::MIN;

/// Rows of `--layout`.
pub(crate) const FORMAT: FormatPart = (
    "swap record",
    &[
        ("head", number(HEAD_BYTES)),
        ("key, most", number(KEY_BYTES_MAX)),
        ("form: head of a group", number(FORM_OF_GROUP as usize)),
    ],
);

/// Contents of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// To 254: the caller's.
    pub form: u8,
    pub expiry: Option<UnixMs>,
    pub database: u32,
    pub slot: Slot,
    pub key: &'a [u8],
    pub payload: &'a [u8],
}

/// Why bytes are no record of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The bytes end within the record.
    Short,
    /// Their lengths are not those of the place, or contradict each other.
    Lengths,
    Checksum,
}

/// The bytes that a record takes in a segment, with its padding.
pub const fn record_bytes(key_bytes: usize, payload_bytes: usize) -> usize {
    (HEAD_BYTES + key_bytes + payload_bytes).next_multiple_of(ADDRESS_UNIT_BYTES as usize)
}

impl<'a> Record<'a> {
    pub fn bytes(&self) -> usize {
        record_bytes(self.key.len(), self.payload.len())
    }

    /// Appends the record as it lies at `place`.
    pub(crate) fn write(&self, place: Place, into: &mut Vec<u8>) {
        assert!(self.key.len() <= KEY_BYTES_MAX && self.payload.len() <= PAYLOAD_BYTES_MAX);
        assert_eq!(place.payload_bytes(), self.payload.len());
        let start = into.len();
        let length = (self.payload.len() as u32).to_le_bytes();
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&[length[0], length[1], length[2], self.form]);
        into.extend_from_slice(&self.expiry.map_or(NO_EXPIRY, UnixMs::get).to_le_bytes());
        into.extend_from_slice(&self.database.to_le_bytes());
        into.extend_from_slice(&self.slot.get().to_le_bytes());
        into.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        into.extend_from_slice(self.key);
        into.extend_from_slice(self.payload);
        let crc = checksum(place, &into[start + 4..]);
        into[start..start + 4].copy_from_slice(&crc.to_le_bytes());
        into.resize(start + self.bytes(), 0);
    }

    /// The record at the start of `bytes`, which were read from `place`.
    pub fn read(place: Place, bytes: &'a [u8]) -> Result<Record<'a>, Damage> {
        let record = Record::unverified(bytes)?;
        if record.payload.len() != place.payload_bytes() {
            return Err(Damage::Lengths);
        }
        record.verify(place, bytes)?;
        Ok(record)
    }

    /// The record at the start of `bytes`, for walks over a segment: only its address is known.
    pub(crate) fn read_at(
        segment: crate::SegmentNumber,
        offset: u64,
        bytes: &'a [u8],
    ) -> Result<(Place, Record<'a>), Damage> {
        let record = Record::unverified(bytes)?;
        let place = Place::new(segment, offset, record.payload.len());
        record.verify(place, bytes)?;
        Ok((place, record))
    }

    fn verify(&self, place: Place, bytes: &[u8]) -> Result<(), Damage> {
        let end = HEAD_BYTES + self.key.len() + self.payload.len();
        let crc = u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
        if crc == checksum(place, &bytes[4..end]) { Ok(()) } else { Err(Damage::Checksum) }
    }

    fn unverified(bytes: &'a [u8]) -> Result<Record<'a>, Damage> {
        let (head, rest) = bytes.split_first_chunk::<HEAD_BYTES>().ok_or(Damage::Short)?;
        let payload_bytes = u32::from_le_bytes([head[4], head[5], head[6], 0]) as usize;
        let expiry = i64::from_le_bytes(head[8..16].try_into().expect("eight bytes"));
        let database = u32::from_le_bytes(head[16..20].try_into().expect("four bytes"));
        let slot = u16::from_le_bytes([head[20], head[21]]);
        let key_bytes = usize::from(u16::from_le_bytes([head[22], head[23]]));
        if usize::from(slot) >= Slot::COUNT {
            return Err(Damage::Lengths);
        }
        if rest.len() < key_bytes + payload_bytes {
            return Err(Damage::Short);
        }
        let (key, payload) = rest[..key_bytes + payload_bytes].split_at(key_bytes);
        let expiry = (expiry != NO_EXPIRY).then_some(UnixMs(expiry));
        Ok(Record { form: head[7], expiry, database, slot: Slot::new(slot), key, payload })
    }
}

fn checksum(place: Place, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&place.address().to_le_bytes()), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::SegmentNumber;

    fn sample<'a>(key: &'a [u8], payload: &'a [u8]) -> Record<'a> {
        let slot = Slot::new(16_383);
        Record { form: 4, expiry: Some(UnixMs(-5)), database: 15, slot, key, payload }
    }

    #[test]
    fn a_record_comes_back() {
        for (key, payload) in [(&b"k"[..], &b"v"[..]), (b"", b""), (b"key of 13 byt", &[7; 4000])] {
            let record = sample(key, payload);
            let place = Place::new(SegmentNumber(9), 160, payload.len());
            let mut bytes = Vec::new();
            record.write(place, &mut bytes);
            assert_eq!(bytes.len(), record.bytes());
            assert_eq!(bytes.len() % 16, 0);
            assert_eq!(Record::read(place, &bytes), Ok(record));
            assert_eq!(Record::read_at(SegmentNumber(9), 160, &bytes), Ok((place, record)));
        }
    }

    #[test]
    fn the_same_bytes_at_another_address_are_no_record() {
        let record = sample(b"key", b"value");
        let mut bytes = Vec::new();
        record.write(Place::new(SegmentNumber(9), 160, 5), &mut bytes);
        for other in [Place::new(SegmentNumber(8), 160, 5), Place::new(SegmentNumber(9), 176, 5)] {
            assert_eq!(Record::read(other, &bytes), Err(Damage::Checksum));
        }
        assert_eq!(Record::read(Place::new(SegmentNumber(9), 160, 6), &bytes), Err(Damage::Lengths));
    }

    #[test]
    fn each_flipped_bit_and_each_cut_is_found() {
        let record = sample(b"key", b"a value of some bytes");
        let place = Place::new(SegmentNumber(1), 4096, record.payload.len());
        let mut bytes = Vec::new();
        record.write(place, &mut bytes);
        let meant = HEAD_BYTES + record.key.len() + record.payload.len();
        for bit in 0..meant * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(Record::read(place, &bytes).is_err(), "bit {bit}");
            assert!(Record::read_at(SegmentNumber(1), 4096, &bytes).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        for cut in 0..meant {
            assert_eq!(Record::read(place, &bytes[..cut]), Err(Damage::Short), "{cut}");
        }
    }
}
