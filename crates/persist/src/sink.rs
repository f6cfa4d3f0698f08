//! Destination of encoded bytes: a vector, or anything that takes one run of bytes after the other.

/// Takes bytes in their order. It does not fail: one that writes to a disk or a socket keeps its first error
/// and ignores what follows, and its owner asks for the error at the end.
pub trait Sink {
    fn put(&mut self, bytes: &[u8]);
}

impl Sink for Vec<u8> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Gathers small runs of bytes into chunks of at most `CHUNK_BYTES` and hands them to a function. A longer
/// run is handed on as it is, so the buffer never grows.
pub struct Chunks<F: FnMut(&[u8])> {
    buffer: Vec<u8>,
    take: F,
}

/// 16 pages of the kernel: some hundred values of 16 B a call, or an element of a large one.
pub const CHUNK_BYTES: usize = 64 << 10;

impl<F: FnMut(&[u8])> Chunks<F> {
    pub fn new(take: F) -> Chunks<F> {
        Chunks { buffer: Vec::with_capacity(CHUNK_BYTES), take }
    }

    /// Hands over what is left.
    pub fn flush(&mut self) {
        if !self.buffer.is_empty() {
            (self.take)(&self.buffer);
            self.buffer.clear();
        }
    }
}

impl<F: FnMut(&[u8])> Sink for Chunks<F> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.buffer.len() + bytes.len() > CHUNK_BYTES {
            self.flush();
            if bytes.len() > CHUNK_BYTES {
                return (self.take)(bytes);
            }
        }
        self.buffer.extend_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_keep_the_order_and_the_limit() {
        let (mut all, mut chunks) = (Vec::new(), 0);
        let mut expected = Vec::new();
        let mut sink = Chunks::new(|bytes: &[u8]| {
            all.extend_from_slice(bytes);
            chunks += 1;
        });
        for len in [0, 1, 7, CHUNK_BYTES - 8, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3, 10 * CHUNK_BYTES, 5] {
            let run = vec![len as u8; len];
            sink.put(&run);
            expected.extend(run);
            assert_eq!(sink.buffer.capacity(), CHUNK_BYTES);
        }
        sink.flush();
        sink.flush();
        drop(sink);
        assert!(all == expected);
        assert_eq!(chunks, 7);
    }
}
