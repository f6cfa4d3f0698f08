//! Zipmaps, the small hashes of the first servers: strings only, with room left after values that were
//! overwritten.
//!
//! ```text
//! [pairs u8, 254 = count them]{[length][field][length][free u8][value][free bytes]} ... [0xff]
//! length    u8 below 254, or 0xfe and u32, little endian
//! ```

use super::read::{RdbError, Result};
use super::value::Texts;

const END: u8 = 0xff;
const BIG: u8 = 254;

const CORRUPT: RdbError = RdbError::Corrupt("Zipmap integrity check failed.");

/// Fields and values in turn.
pub(crate) fn read(bytes: &[u8], texts: &mut Texts) -> Result<()> {
    let (&stated, mut rest) = bytes.split_first().ok_or(CORRUPT)?;
    let mut pairs = 0u64;
    loop {
        match rest {
            [END] => break,
            [] | [END, ..] => return Err(CORRUPT),
            _ => {}
        }
        let len = length(&mut rest)?;
        texts.push(take(&mut rest, len)?);
        let len = length(&mut rest)?;
        let free = take(&mut rest, 1)?[0];
        texts.push(take(&mut rest, len)?);
        take(&mut rest, usize::from(free))?;
        pairs += 1;
    }
    (stated == BIG || u64::from(stated) == pairs).then_some(()).ok_or(CORRUPT)
}

fn length(rest: &mut &[u8]) -> Result<usize> {
    match take(rest, 1)?[0] {
        END => Err(CORRUPT),
        BIG => {
            let wide = *take(rest, 4)?.first_chunk().expect("four bytes were taken");
            let len = u32::from_le_bytes(wide);
            (len >= u32::from(BIG)).then_some(len as usize).ok_or(CORRUPT)
        }
        short => Ok(usize::from(short)),
    }
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len).ok_or(CORRUPT)?;
    *rest = left;
    Ok(taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(bytes: &[u8]) -> Result<Vec<Vec<u8>>> {
        let mut texts = Texts::default();
        read(bytes, &mut texts)?;
        Ok(texts.iter().map(<[u8]>::to_vec).collect())
    }

    #[test]
    fn two_pairs_byte_by_byte() {
        let pairs = texts(b"\x02\x04keel\x03\x00elm\x04mast\x05\x00cedar\xff").unwrap();
        assert_eq!(pairs, [b"keel".as_slice(), b"elm", b"mast", b"cedar"]);
    }

    #[test]
    fn free_room_and_long_strings() {
        let mut bytes = b"\xfe\x01a\x01\x03vxxx\x01b\xfe\x2c\x01\0\0\x00".to_vec();
        bytes.resize(bytes.len() + 300, b'z');
        bytes.push(END);
        assert_eq!(texts(&bytes).unwrap(), [b"a".as_slice(), b"v", b"b", &[b'z'; 300]]);
    }

    #[test]
    fn what_does_not_add_up() {
        for bytes in [
            b"".as_slice(),
            b"\x00",
            b"\x01\xff",
            b"\x01\x03foo\x03\x00bar",
            b"\x02\x03foo\x03\x00bar\xff",
            b"\x01\x03foo\x03\x09bar\xff",
            b"\x01\xfe\x03\0\0\0foo\x03\x00bar\xff",
            b"\x01\xfe\xff\xff\xff\xfffoo\x03\x00bar\xff",
            b"\x01\x03foo\x03\x00bar\xff\xff",
        ] {
            assert_eq!(texts(bytes), Err(CORRUPT), "{bytes:x?}");
        }
        assert_eq!(texts(b"\x00\xff"), Ok(vec![]), "empty: the caller refuses it");
    }
}
