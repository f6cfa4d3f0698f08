//! Request: its arguments as ranges into the bytes that arrived.
//!
//! ```text
//! bytes   *3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n
//!                     ^^^          ^          ^^^^^
//! spans               8+3         17+1        24+5
//! ```
//! No argument is copied: it takes 8 bytes in addition to the read buffer, and lives as long as the buffer
//! stays in place.

use std::fmt;
use std::ops::Index;

/// Place of an argument, counted from the request's first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Span {
    pub start: u32,
    pub len: u32,
}

const _: () = assert!(size_of::<Span>() == 8, "a million arguments cost 8 MB, not more");

impl Span {
    #[inline]
    pub fn range(self) -> std::ops::Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }
}

/// The arguments of one request, the command's name first.
#[derive(Clone, Copy, Default)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// `bytes` begins with the request's first byte; it may extend beyond its last.
    #[inline]
    pub fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// The bytes, and where in them each argument lies.
    #[inline]
    pub fn parts(&self) -> (&'a [u8], &'a [Span]) {
        (self.bytes, self.spans)
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.spans.len()
    }

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// The argument number `i`. Panics if there are fewer: arity has been checked before.
    #[inline]
    pub fn get(&self, i: usize) -> &'a [u8] {
        &self.bytes[self.spans[i].range()]
    }

    #[inline]
    pub fn try_get(&self, i: usize) -> Option<&'a [u8]> {
        self.spans.get(i).map(|span| &self.bytes[span.range()])
    }

    #[inline]
    pub fn first(&self) -> Option<&'a [u8]> {
        self.try_get(0)
    }

    /// The arguments from number `from` on; none if there are fewer.
    #[inline]
    pub fn from(&self, from: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(from..).unwrap_or_default() }
    }

    /// The first `count` arguments, or all if there are fewer.
    #[inline]
    pub fn up_to(&self, count: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(..count).unwrap_or(self.spans) }
    }

    #[inline]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &'a [u8]> + ExactSizeIterator + Clone + use<'a> {
        let bytes = self.bytes;
        self.spans.iter().map(move |span| &bytes[span.range()])
    }

    /// Returns the end of the last argument, counted from the request's first byte.
    #[inline]
    pub fn end(&self) -> usize {
        self.spans.last().map_or(0, |span| span.range().end)
    }

    /// The request as it came, if it came as an array of strings: these are the bytes in which any server
    /// would write these arguments, since the parser takes no other form of a number.
    #[inline]
    pub fn wire(&self) -> Option<&'a [u8]> {
        const LINE_END: usize = 2;
        let is_array = self.bytes.first() == Some(&b'*') && self.spans.first()?.start > 0;
        let wire = is_array.then(|| self.bytes.get(..self.end() + LINE_END))?;
        debug_assert!(wire.is_none_or(|wire| wire.len() == self.wire_bytes()), "{self:?}");
        wire
    }

    /// The length of a request of these arguments, each with its length.
    pub fn wire_bytes(&self) -> usize {
        const LINE_END: usize = 2;
        let header = |number: usize| 1 + number.checked_ilog10().unwrap_or(0) as usize + 1 + LINE_END;
        header(self.len())
            + self
                .spans
                .iter()
                .map(|span| header(span.len as usize) + span.len as usize + LINE_END)
                .sum::<usize>()
    }

    /// The length of the request as it came: in an array, or in a line without quotes. Else that of an array
    /// of these arguments.
    pub fn request_bytes(&self) -> usize {
        let end = self.end();
        match self.bytes.get(end) {
            Some(b'\r') => end + 2,
            Some(b'\n') => end + 1,
            _ => self.wire_bytes(),
        }
    }

    /// The sum of the arguments' lengths.
    pub fn bytes_total(&self) -> usize {
        self.spans.iter().map(|span| span.len as usize).sum()
    }
}

impl Index<usize> for Args<'_> {
    type Output = [u8];

    #[inline]
    fn index(&self, i: usize) -> &[u8] {
        self.get(i)
    }
}

impl fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// A request that owns its bytes: what MULTI queues, what a test writes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ArgsBuf {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

impl ArgsBuf {
    pub fn new() -> ArgsBuf {
        ArgsBuf::default()
    }

    pub fn from_slices(arguments: &[&[u8]]) -> ArgsBuf {
        arguments.iter().copied().collect()
    }

    pub fn args(&self) -> Args<'_> {
        Args { bytes: &self.bytes, spans: &self.spans }
    }

    /// Appends an argument. All come from one request, whose spans lie in a buffer of less than 4 GB, or
    /// their sum is bounded by their maker.
    pub fn push(&mut self, argument: &[u8]) {
        let end = self.bytes.len() + argument.len();
        assert!(
            end <= crate::limits::REQUEST_BYTES_MAX,
            "a request of {end} bytes is made, and no reader takes it"
        );
        self.spans.push(Span { start: self.bytes.len() as u32, len: argument.len() as u32 });
        self.bytes.extend_from_slice(argument);
    }

    /// Empties it and keeps its memory for the next request.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
    }

    /// Returns the bytes that the request takes in addition to itself. `class_bytes` returns the bytes that
    /// the allocator has for a request of a given size.
    pub fn memory_bytes(&self, class_bytes: impl Fn(usize) -> usize) -> usize {
        let parts = [self.bytes.capacity(), self.spans.capacity() * size_of::<Span>()];
        parts.into_iter().filter(|bytes| *bytes > 0).map(class_bytes).sum()
    }
}

impl From<Args<'_>> for ArgsBuf {
    fn from(args: Args<'_>) -> ArgsBuf {
        let mut owned =
            ArgsBuf { bytes: Vec::with_capacity(args.bytes_total()), spans: Vec::with_capacity(args.len()) };
        args.iter().for_each(|argument| owned.push(argument));
        owned
    }
}

impl<'a> FromIterator<&'a [u8]> for ArgsBuf {
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(arguments: I) -> ArgsBuf {
        let mut owned = ArgsBuf::new();
        arguments.into_iter().for_each(|argument| owned.push(argument));
        owned
    }
}

impl fmt::Debug for ArgsBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.args().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_arguments() {
        let owned = ArgsBuf::from_slices(&[b"SET", b"", b"a\0b"]);
        let args = owned.args();
        assert_eq!(args.len(), 3);
        assert_eq!(&args[2], b"a\0b");
        assert_eq!(args.get(1), b"");
        assert_eq!(args.first(), Some(&b"SET"[..]));
        assert_eq!(args.try_get(3), None);
        assert_eq!(args.bytes_total(), 6);
        assert_eq!(args.from(1).iter().collect::<Vec<_>>(), [&b""[..], b"a\0b"]);
        assert!(args.from(4).is_empty());
        assert_eq!(ArgsBuf::from(args), owned);
        assert_eq!(format!("{args:?}"), r#"["SET", "", "a\0b"]"#);
    }

    #[test]
    fn sizes_on_the_wire() {
        let check = |words: &[&[u8]], wire: &str| {
            assert_eq!(ArgsBuf::from_slices(words).args().wire_bytes(), wire.len(), "{words:?}");
        };
        check(&[b"GET", b""], "*2\r\n$3\r\nGET\r\n$0\r\n\r\n");
        check(&[b"ECHO", b"0123456789"], "*2\r\n$4\r\nECHO\r\n$10\r\n0123456789\r\n");
        // As it came, or where that is not known as an array.
        let came = |bytes: &[u8], spans: &[(u32, u32)]| {
            let spans: Vec<Span> = spans.iter().map(|&(start, len)| Span { start, len }).collect();
            Args::new(bytes, &spans).request_bytes()
        };
        assert_eq!(came(b"GET a\r\nGET b\r\n", &[(0, 3), (4, 1)]), 7);
        assert_eq!(came(b"GET a\n", &[(0, 3), (4, 1)]), 6);
        assert_eq!(came(b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1", &[(8, 3), (17, 1)]), 20);
        assert_eq!(came(b"GETa", &[(0, 3), (3, 1)]), 20);
    }
}
