//! Parts of a reply that are not copied: those that many clients are sent, and large values.

use super::{Reply, SharedPart};
use crate::shared::SharedBytes;
use std::sync::Arc;

/// Less than this is copied: that is cheaper than to write it by itself.
const SHARED_BYTES_MIN: usize = 16 << 10;
/// A value of less is copied. To share one takes two more calls of the system, a tenth of what it takes to
/// write so much.
const SHARED_VALUE_BYTES_MIN: usize = 256 << 10;

impl Reply {
    /// A reply in parts. The first, which may not be empty, is copied, the others only if that is cheaper.
    pub fn share(&mut self, parts: &[Arc<SharedBytes>]) {
        let Some((first, rest)) = parts.split_first() else { return };
        assert!(!first.is_empty(), "a shared part stands behind a byte of its own reply");
        self.raw(first);
        let bytes: usize = rest.iter().map(|part| part.len()).sum();
        if !self.shares || bytes < SHARED_BYTES_MIN {
            return rest.iter().for_each(|part| self.raw(part));
        }
        let at = self.out.len();
        let parts = rest.iter().filter(|part| !part.is_empty());
        self.shared.extend(parts.map(|part| SharedPart { at, bytes: Arc::clone(part) }));
        self.shared_bytes += bytes;
    }

    /// Returns whether a bulk string of `bytes` bytes is not to be copied, if it can be shared.
    #[inline]
    pub fn shares_bulk(&self, bytes: usize) -> bool {
        bytes >= SHARED_VALUE_BYTES_MIN && self.shares
    }

    /// Writes a bulk string without a copy.
    pub fn bulk_shared(&mut self, bytes: Arc<SharedBytes>) {
        self.header(b'$', bytes.len() as i64);
        self.shared_bytes += bytes.len();
        self.shared.push(SharedPart { at: self.out.len(), bytes });
        self.end_line();
    }

    #[inline]
    pub fn has_shared(&self) -> bool {
        self.shared_bytes > 0
    }

    /// Takes out the parts that belong to the replies up to `end`: those of the first replies whose parts are
    /// still there.
    pub fn take_shared(&mut self, end: usize) -> Vec<SharedPart> {
        let count = self.shared.partition_point(|part| part.at <= end);
        let parts: Vec<SharedPart> = self.shared.drain(..count).collect();
        self.shared_bytes -= parts.iter().map(|part| part.bytes.len()).sum::<usize>();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_parts_stand_where_they_were_put() {
        let account = crate::shared::SharedAccount::default();
        let large = |byte: u8| SharedBytes::new(vec![byte; SHARED_BYTES_MIN], &account);
        let parts = [SharedBytes::new(*b"*2\r\n", &account), large(b'a'), large(b'b')];
        let mut copied = Reply::default();
        copied.share(&parts);
        assert_eq!(copied.out, [&parts[0][..], &parts[1], &parts[2]].concat());
        let mut reply = Reply { shares: true, ..Reply::default() };
        reply.share(&[SharedBytes::new(*b"*1\r\n", &account), SharedBytes::new(*b":1\r\n", &account)]);
        assert!(!reply.has_shared(), "it is little");
        let open = reply.defer();
        reply.share(&parts);
        reply.ok();
        let mark = reply.len();
        reply.share(&parts);
        assert_eq!(reply.bytes(), reply.len() + 4 * SHARED_BYTES_MIN);
        reply.truncate(mark);
        assert_eq!(reply.bytes(), reply.len() + 2 * SHARED_BYTES_MIN);
        reply.close_array(open, 100);
        let taken = reply.take_shared(reply.len());
        let text = b"*1\r\n:1\r\n*100\r\n*2\r\n+OK\r\n";
        assert_eq!(reply.out, text);
        assert_eq!(taken.iter().map(|part| part.at).collect::<Vec<_>>(), [text.len() - 5; 2]);
        assert!(!reply.has_shared());
        drop(taken);
        assert_eq!(account.bytes(), 4 + 2 * SHARED_BYTES_MIN, "those of `parts`");
    }

    #[test]
    fn values_are_shared_between_their_head_and_their_end() {
        let value: Arc<[u8]> = Arc::from(*b"0123456789");
        let mut reply = Reply { shares: true, ..Reply::default() };
        assert!(reply.shares_bulk(SHARED_VALUE_BYTES_MIN) && !reply.shares_bulk(SHARED_VALUE_BYTES_MIN - 1));
        reply.array(2);
        reply.bulk_shared(SharedBytes::of_value(Arc::clone(&value), 2..5));
        let mark = reply.len();
        reply.bulk_shared(SharedBytes::of_value(Arc::clone(&value), 0..10));
        assert_eq!((Arc::strong_count(&value), reply.bytes()), (3, reply.len() + 13));
        reply.truncate(mark);
        assert_eq!(Arc::strong_count(&value), 2);
        reply.bulk(b"x");
        assert_eq!(reply.split_off(0), b"*2\r\n$3\r\n234\r\n$1\r\nx\r\n");
        assert!(!reply.has_shared() && Arc::strong_count(&value) == 1);
    }
}
