//! Collections that lie in one string: intsets, ziplists, zipmaps, and a listpack with no elements.

/// An entry of a ziplist. Servers took the narrowest integer that the digits fit.
pub enum Entry<'a> {
    Text(&'a str),
    /// 0 to 12.
    Int4(u8),
    Int8(i8),
    Int16(i16),
    Int24(i32),
    Int32(i32),
    Int64(i64),
}

impl Entry<'_> {
    fn bytes(&self) -> Vec<u8> {
        match *self {
            Entry::Text(text) => [text_head(text.len()), text.into()].concat(),
            Entry::Int4(value) => vec![0xf1 + value],
            Entry::Int8(value) => [&[0xfe][..], &value.to_le_bytes()].concat(),
            Entry::Int16(value) => [&[0xc0][..], &value.to_le_bytes()].concat(),
            Entry::Int24(value) => [&[0xf0][..], &value.to_le_bytes()[..3]].concat(),
            Entry::Int32(value) => [&[0xd0][..], &value.to_le_bytes()].concat(),
            Entry::Int64(value) => [&[0xe0][..], &value.to_le_bytes()].concat(),
        }
    }
}

/// `00LLLLLL`, `01LLLLLL LLLLLLLL`, or `0x80` and a u32, big endian.
fn text_head(len: usize) -> Vec<u8> {
    match len {
        ..64 => vec![len as u8],
        64..16_384 => vec![0x40 | (len >> 8) as u8, len as u8],
        _ => [&[0x80][..], &(len as u32).to_be_bytes()].concat(),
    }
}

/// `[bytes u32][place of the last entry u32][entries u16]{[bytes of the entry before][entry]} 0xff`. Bytes
/// before: one byte below 254, else 254 and a u32.
pub fn ziplist(entries: &[Entry<'_>]) -> Vec<u8> {
    const HEAD_BYTES: usize = 10;
    let (mut body, mut last_at, mut before) = (Vec::new(), HEAD_BYTES, 0);
    for entry in entries {
        last_at = HEAD_BYTES + body.len();
        match before {
            ..254 => body.push(before as u8),
            _ => body.extend([&[254][..], &(before as u32).to_le_bytes()].concat()),
        }
        body.extend(entry.bytes());
        before = HEAD_BYTES + body.len() - last_at;
    }
    let bytes = (HEAD_BYTES + body.len() + 1) as u32;
    let count = entries.len() as u16;
    [&bytes.to_le_bytes()[..], &(last_at as u32).to_le_bytes(), &count.to_le_bytes(), &body, &[0xff]].concat()
}

/// A field of a zipmap, its value, and the bytes that lie unused after the value since a longer one was
/// overwritten.
pub struct Pair<'a>(pub &'a str, pub &'a str, pub &'a [u8]);

/// `[pairs u8, from 254 on not counted]{[length][field][length][unused bytes u8][value][unused bytes]} 0xff`.
/// Length: one byte below 254, else 254 and a u32, little endian.
pub fn zipmap(pairs: &[Pair<'_>]) -> Vec<u8> {
    let len = |text: &str| match text.len() {
        short @ ..254 => vec![short as u8],
        long => [&[254][..], &(long as u32).to_le_bytes()].concat(),
    };
    let mut bytes = vec![pairs.len().min(254) as u8];
    for Pair(field, value, unused) in pairs {
        bytes.extend([len(field), (*field).into()].concat());
        bytes.extend([len(value), vec![unused.len() as u8], (*value).into(), unused.to_vec()].concat());
    }
    bytes.push(0xff);
    bytes
}

/// `[bytes of a member u32][members u32]{member}`, the members in ascending order.
fn intset<const WIDTH: usize>(members: impl ExactSizeIterator<Item = [u8; WIDTH]>) -> Vec<u8> {
    let head = [(WIDTH as u32).to_le_bytes(), (members.len() as u32).to_le_bytes()];
    [head.concat(), members.flatten().collect()].concat()
}

pub fn intset16(members: &[i16]) -> Vec<u8> {
    intset(members.iter().map(|member| member.to_le_bytes()))
}

pub fn intset32(members: &[i32]) -> Vec<u8> {
    intset(members.iter().map(|member| member.to_le_bytes()))
}

pub fn intset64(members: &[i64]) -> Vec<u8> {
    intset(members.iter().map(|member| member.to_le_bytes()))
}

/// `[bytes u32][elements u16] 0xff`.
pub fn empty_listpack() -> Vec<u8> {
    let bytes = 7_u32;
    [&bytes.to_le_bytes()[..], &0_u16.to_le_bytes(), &[0xff]].concat()
}
