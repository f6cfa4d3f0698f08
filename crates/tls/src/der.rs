//! Reading DER: the few parts of certificates and keys that rustls keeps to itself.
//!
//! ```text
//! tag | length (1 byte, or 0x80 + n and n bytes) | content
//! ```
//! Data that is not as expected is `None`: the caller says what it wanted.

pub const INTEGER: u8 = 0x02;
pub const BOOLEAN: u8 = 0x01;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OID: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// The elements of one content, in their order.
#[derive(Clone, Copy)]
pub struct Der<'a> {
    left: &'a [u8],
}

#[derive(Clone, Copy)]
pub struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// With its tag and length.
    pub whole: &'a [u8],
}

impl<'a> Element<'a> {
    pub fn inner(&self) -> Der<'a> {
        Der::new(self.content)
    }
}

impl<'a> Der<'a> {
    pub fn new(bytes: &'a [u8]) -> Der<'a> {
        Der { left: bytes }
    }

    pub fn next(&mut self) -> Option<Element<'a>> {
        let (&tag, rest) = self.left.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (len, rest) = match first {
            0..0x80 => (usize::from(first), rest),
            _ => {
                let count = usize::from(first - 0x80);
                if !(1..=4).contains(&count) || rest.len() < count {
                    return None;
                }
                let len = rest[..count].iter().fold(0usize, |len, &byte| len << 8 | usize::from(byte));
                (len, &rest[count..])
            }
        };
        let content = rest.get(..len)?;
        let before = self.left;
        self.left = &rest[len..];
        Some(Element { tag, content, whole: &before[..before.len() - self.left.len()] })
    }

    /// The next, which has to have this tag.
    pub fn take(&mut self, tag: u8) -> Option<Element<'a>> {
        self.next().filter(|element| element.tag == tag)
    }

    /// The next, if it has this tag; else nothing is taken.
    pub fn take_if(&mut self, tag: u8) -> Option<Element<'a>> {
        if self.left.first() == Some(&tag) { self.next() } else { None }
    }

    /// The content of a sequence.
    pub fn sequence(&mut self) -> Option<Der<'a>> {
        self.take(SEQUENCE).map(|element| element.inner())
    }

    pub fn small_number(&mut self) -> Option<u32> {
        let content = self.take(INTEGER)?.content;
        let digits = content.strip_prefix(&[0]).unwrap_or(content);
        match digits.len() {
            0..=4 => Some(digits.iter().fold(0, |number, &byte| number << 8 | u32::from(byte))),
            _ => None,
        }
    }
}
