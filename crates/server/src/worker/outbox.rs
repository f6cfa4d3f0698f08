//! Replies that a socket did not take, in the order in which they are to be written.
//!
//! ```text
//! chunks   [ written | left ........ ][ left ... ][ left . ]     a large reply is a chunk of its own
//!                                          |
//!                                       shared: the same bytes wait for other clients too
//! ```
//! Large replies are moved in whole, small ones are copied to the end of the last chunk. When as much waits
//! as the owner allows, the outbox is full until half of it is gone: a client that never reads costs that
//! much and one reply more, not all the memory there is.
//!
//! Replies that show what is not durable yet are held: they stand in the outbox like others, and `front` ends
//! before them until the log has come to their offset. Messages stand between them (`say`): which bytes are
//! messages is noted as they come, for one of RESP2, or a line of MONITOR, looks like a reply.
//!
//! Invariants: no chunk is empty; `bytes` is the sum of the chunks less `written`, which lies within the
//! first; `memory_bytes` is what the chunks take; one that is shared is accounted for by its maker.
//! `value_bytes` are those of values of the keyspace: the client that does not read them keeps them, whatever
//! becomes of their keys. All are kept and never counted anew: 32 MB of messages are 2,000 chunks.

use std::collections::VecDeque;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Instant;

use isotherm_allocator::class_bytes;
use isotherm_log::LogOffset;
use isotherm_resp::SharedBytes;
use isotherm_resp::reply_parse::{BadReply, ReplyReader};

/// A chunk of this size is moved rather than copied.
const MOVE_BYTES_MIN: usize = 16 << 10;

#[derive(Debug, Default)]
pub struct Outbox {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are written.
    written: usize,
    /// Bytes that are not.
    bytes: usize,
    memory_bytes: usize,
    value_bytes: usize,
    /// Number of bytes from which on the outbox is full.
    bytes_max: usize,
    full: bool,
    holds: Option<Box<Holds>>,
    /// Since when the soft limit is exceeded.
    pub soft_since: Option<Instant>,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<SharedBytes>),
}

impl Deref for Chunk {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Chunk::Own(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

impl Chunk {
    fn memory_bytes(&self) -> usize {
        match self {
            Chunk::Own(bytes) => class_bytes(bytes.capacity()),
            Chunk::Shared(_) => 0,
        }
    }

    fn value_bytes(&self) -> usize {
        match self {
            Chunk::Shared(bytes) if bytes.is_value() => bytes.len(),
            _ => 0,
        }
    }
}

/// Replies that wait for the log.
#[derive(Debug, Default)]
struct Holds {
    /// Ascending in all.
    list: VecDeque<Hold>,
    /// Bytes that have left since the first of them.
    left: u64,
    /// Messages after the first hold, in places as those of `Hold`. Adjacent ones are one.
    messages: VecDeque<Range<u64>>,
}

impl Holds {
    fn note_message(&mut self, at: u64, len: usize) {
        let end = at + len as u64;
        match self.messages.back_mut() {
            Some(last) if last.end == at => last.end = end,
            _ => self.messages.push_back(at..end),
        }
    }

    /// Forgets messages in front of the first reply that is held.
    fn forget_messages(&mut self) {
        let from = self.list.front().map_or(u64::MAX, |hold| hold.at);
        while self.messages.pop_front_if(|message| message.end <= from).is_some() {}
    }

    /// Returns where the messages end that begin at `at`, if some do.
    fn messages_end(&self, at: u64) -> Option<u64> {
        let next = self.messages.partition_point(|message| message.end <= at);
        self.messages.get(next).filter(|message| message.start <= at).map(|message| message.end)
    }
}

/// Hold on the bytes after the first `at`: they leave once the log has come to `until`.
#[derive(Clone, Copy, Debug)]
struct Hold {
    at: u64,
    until: LogOffset,
    since: Instant,
}

impl Outbox {
    /// Holds back everything that is put in from now on until the log has come to `until`.
    pub fn hold(&mut self, until: LogOffset) {
        let holds = self.holds.get_or_insert_default();
        if holds.list.back().is_none_or(|last| last.until < until) {
            let at = holds.left + self.bytes as u64;
            holds.list.push_back(Hold { at, until, since: Instant::now() });
        }
    }

    /// The log has come to `reached`. Returns whether some of the replies still have to wait.
    pub fn let_go(&mut self, reached: LogOffset) -> bool {
        let Some(holds) = &mut self.holds else { return false };
        while holds.list.pop_front_if(|hold| hold.until <= reached).is_some() {}
        holds.forget_messages();
        if holds.list.is_empty() {
            self.holds = None;
        }
        self.holds.is_some()
    }

    /// Replies that have waited since `before`, for more than `reached`, are replaced by `error` each;
    /// messages, pushes and errors between them leave as they are. How many were replaced.
    pub fn refuse_held(
        &mut self,
        reached: LogOffset,
        before: Instant,
        error: &[u8],
    ) -> Result<usize, BadReply> {
        let Some(holds) = &mut self.holds else { return Ok(0) };
        let is_over = |hold: &Hold| hold.until > reached && hold.since <= before;
        let over = holds.list.iter().take_while(|hold| is_over(hold)).count();
        if over == 0 {
            return Ok(0);
        }
        let mut bytes = Vec::with_capacity(self.bytes);
        for (number, chunk) in self.chunks.iter().enumerate() {
            bytes.extend_from_slice(&chunk[if number == 0 { self.written } else { 0 }..]);
        }
        let place = |hold: &Hold| (hold.at - holds.left) as usize;
        let from = place(&holds.list[0]);
        let to = holds.list.get(over).map_or(bytes.len(), place);
        let mut refused = Vec::new();
        let (mut count, mut at) = (0, from);
        while at < to {
            if let Some(end) = holds.messages_end(holds.left + at as u64) {
                let end = ((end - holds.left) as usize).min(to);
                refused.extend_from_slice(&bytes[at..end]);
                at = end;
                continue;
            }
            let len = ReplyReader::new()
                .find_end(&bytes[at..to])?
                .ok_or(BadReply { reason: "a reply without its end" })?;
            match bytes[at] {
                // An error stays too: it acknowledges nothing.
                b'>' | b'-' => refused.extend_from_slice(&bytes[at..at + len]),
                _ => {
                    refused.extend_from_slice(error);
                    count += 1;
                }
            }
            at += len;
        }
        let (longer, shorter) = (refused.len() as u64, (to - from) as u64);
        holds.list.drain(..over);
        holds.forget_messages();
        holds.list.iter_mut().for_each(|hold| hold.at = hold.at + longer - shorter);
        for message in &mut holds.messages {
            // One that begins among what was replaced counts from its end there.
            *message = (message.start + longer).saturating_sub(shorter)..message.end + longer - shorter;
        }
        if holds.list.is_empty() {
            self.holds = None;
        }
        let all = [&bytes[..from], &refused, &bytes[to..]].concat();
        (self.chunks, self.written, self.bytes) = (VecDeque::new(), 0, 0);
        (self.memory_bytes, self.value_bytes) = (0, 0);
        if !all.is_empty() {
            self.add_chunk(Chunk::Own(all));
        }
        Ok(count)
    }

    /// Takes the part `replies` of `out`. If it is much and ends with `out`, `out` is taken whole, where its
    /// first bytes can be passed over, and is empty afterwards.
    pub fn take(&mut self, out: &mut Vec<u8>, replies: Range<usize>, bytes_max: usize) {
        let is_last = replies.end == out.len() && (replies.start == 0 || self.chunks.is_empty());
        if replies.len() < MOVE_BYTES_MIN || !is_last {
            return self.push(&out[replies], bytes_max);
        }
        self.bytes_max = bytes_max;
        self.add_begun(Chunk::Own(std::mem::take(out)), replies.start);
    }

    /// Puts `bytes` after those that wait, without a copy. The first `written` bytes have left already;
    /// nothing waits if there are any.
    pub fn share(&mut self, bytes: Arc<SharedBytes>, written: usize, bytes_max: usize) {
        assert!(written == 0 || self.chunks.is_empty(), "replies leave in their order");
        self.bytes_max = bytes_max;
        if bytes.len() > written {
            self.add_begun(Chunk::Shared(bytes), written);
        }
    }

    /// Puts messages, which are no replies, after the bytes that wait.
    pub fn push_message(&mut self, bytes: &[u8], bytes_max: usize) {
        if let Some(holds) = &mut self.holds {
            holds.note_message(holds.left + self.bytes as u64, bytes.len());
        }
        self.push(bytes, bytes_max);
    }

    /// Puts a copy of `bytes` after those that wait. A chunk of messages grows to the size from which chunks
    /// are moved, and to no more, so that it fills a class of the allocator.
    pub fn push(&mut self, bytes: &[u8], bytes_max: usize) {
        self.bytes_max = bytes_max;
        if bytes.is_empty() {
            return;
        }
        match self.chunks.back_mut() {
            Some(Chunk::Own(last)) if last.len() + bytes.len() <= MOVE_BYTES_MIN => {
                let (before, len) = (class_bytes(last.capacity()), last.len() + bytes.len());
                if len > last.capacity() {
                    let capacity = (2 * last.capacity()).clamp(len, MOVE_BYTES_MIN);
                    last.reserve_exact(capacity - last.len());
                }
                last.extend_from_slice(bytes);
                self.bytes += bytes.len();
                self.memory_bytes = self.memory_bytes - before + class_bytes(last.capacity());
            }
            _ => self.add_chunk(Chunk::Own(bytes.to_vec())),
        }
        self.full |= self.bytes >= bytes_max;
    }

    /// The first `written` bytes of it have left, or are not to.
    fn add_begun(&mut self, chunk: Chunk, written: usize) {
        self.add_chunk(chunk);
        if written > 0 {
            self.written = written;
            self.bytes -= written;
        }
        self.full |= self.bytes >= self.bytes_max;
    }

    fn add_chunk(&mut self, chunk: Chunk) {
        self.bytes += chunk.len();
        self.memory_bytes += chunk.memory_bytes();
        self.value_bytes += chunk.value_bytes();
        self.chunks.push_back(chunk);
    }

    /// Returns the bytes to write next; `None` if no bytes are left, or none that may leave.
    pub fn front(&self) -> Option<&[u8]> {
        let bytes = self.chunks.front().map(|chunk| &chunk[self.written..])?;
        let bytes = match self.holds.as_ref().and_then(|holds| Some(holds.list.front()?.at - holds.left)) {
            Some(free) if free < bytes.len() as u64 => &bytes[..free as usize],
            _ => bytes,
        };
        Some(bytes).filter(|bytes| !bytes.is_empty())
    }

    /// Returns the offset in the log that the first held reply waits for.
    pub fn held_until(&self) -> Option<LogOffset> {
        Some(self.holds.as_ref()?.list.front()?.until)
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Notes that `count` bytes of `front` are written.
    pub fn advance(&mut self, count: usize) {
        self.written += count;
        self.bytes -= count;
        if let Some(holds) = &mut self.holds {
            holds.left += count as u64;
        }
        if let Some(done) = self.chunks.pop_front_if(|chunk| chunk.len() == self.written) {
            self.memory_bytes -= done.memory_bytes();
            self.value_bytes -= done.value_bytes();
            self.written = 0;
        }
        self.full &= self.bytes > self.bytes_max / 2;
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn is_full(&self) -> bool {
        self.full
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the bytes that the outbox takes, for memory accounting: the sum for all clients agrees with
    /// the allocator's.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Bytes of values that it shares with the keyspace, or has alone by now.
    pub fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    #[cfg(test)]
    fn check_invariants(&self) {
        let of_all = |of_one: fn(&Chunk) -> usize| self.chunks.iter().map(of_one).sum::<usize>();
        assert_eq!(self.bytes, of_all(|chunk| chunk.len()) - self.written);
        assert_eq!(self.memory_bytes, of_all(Chunk::memory_bytes));
        assert_eq!(self.value_bytes, of_all(Chunk::value_bytes));
        assert!(self.chunks.iter().all(|chunk| !chunk.is_empty()));
        assert!(self.chunks.front().is_none_or(|first| self.written < first.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_resp::SharedAccount;

    /// Writes pieces of every size and takes them out again in other pieces.
    #[test]
    fn bytes_leave_as_they_came() {
        let mut prng = isotherm_stdx::Prng::new(7);
        let mut next = 0u8;
        let mut piece = |len: u64| {
            (0..len)
                .map(|_| {
                    next = next.wrapping_add(1);
                    next
                })
                .collect::<Vec<u8>>()
        };
        let account = SharedAccount::default();
        let mut expected = Vec::new();
        let mut first = piece(40_000);
        expected.extend_from_slice(&first[100..]);
        let mut outbox = Outbox::default();
        outbox.take(&mut first, 100..40_000, usize::MAX);
        assert!(first.is_empty(), "it was moved");
        let mut got = Vec::new();
        for _ in 0..500 {
            let mut reply = piece([prng.below(200), prng.below(40_000)][prng.below(2) as usize]);
            expected.extend_from_slice(&reply);
            match prng.below(4) {
                1 => outbox.push(&reply, usize::MAX),
                3 => outbox.share(SharedBytes::of_value(reply.clone(), 0..reply.len()), 0, usize::MAX),
                2 => {
                    let written = if outbox.is_empty() { reply.len() / 3 } else { 0 };
                    got.extend_from_slice(&reply[..written]);
                    outbox.share(SharedBytes::new(reply, &account), written, usize::MAX);
                }
                _ => {
                    let all = 0..reply.len();
                    outbox.take(&mut reply, all, usize::MAX);
                }
            }
            let mut room = prng.below(60_000) as usize;
            while let Some(bytes) = outbox.front().filter(|_| room > 0) {
                let count = bytes.len().min(room);
                got.extend_from_slice(&bytes[..count]);
                room -= count;
                outbox.advance(count);
            }
            outbox.check_invariants();
            assert_eq!(outbox.bytes(), expected.len() - got.len());
        }
        while let Some(bytes) = outbox.front().map(<[u8]>::to_vec) {
            got.extend_from_slice(&bytes);
            outbox.advance(bytes.len());
        }
        assert!(got == expected && outbox.bytes() == 0 && account.bytes() == 0);
    }

    #[test]
    fn messages_fill_their_chunks() {
        let mut outbox = Outbox::default();
        (0..10_000).for_each(|_| outbox.push(&[7; 1057], usize::MAX));
        outbox.check_invariants();
        assert!(outbox.memory_bytes() < outbox.bytes() * 11 / 10, "{}", outbox.memory_bytes());
    }

    #[test]
    fn what_is_shared_costs_its_bytes_once() {
        const BYTES: usize = 1_580_000;
        let account = SharedAccount::default();
        let part = SharedBytes::new(vec![7; BYTES], &account);
        let mut outboxes: Vec<Outbox> = (0..1000).map(|_| Outbox::default()).collect();
        for outbox in &mut outboxes {
            outbox.share(Arc::clone(&part), 1000, BYTES);
            outbox.push(b"+OK\r\n", BYTES);
            outbox.check_invariants();
            assert_eq!(outbox.bytes(), BYTES - 1000 + 5);
            assert!(!outbox.is_full() && outbox.memory_bytes() <= 16);
        }
        drop(part);
        assert_eq!(account.bytes(), BYTES);
        for outbox in &mut outboxes {
            outbox.advance(BYTES - 1000);
            assert_eq!(outbox.front(), Some(&b"+OK\r\n"[..]));
        }
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn held_replies_wait_for_the_log() {
        let mut outbox = Outbox::default();
        outbox.push(b"free", usize::MAX);
        outbox.hold(LogOffset(10));
        outbox.push(b"one", usize::MAX);
        // A reply that shows less stands after one that shows more.
        outbox.hold(LogOffset(5));
        outbox.push(b"two", usize::MAX);
        outbox.hold(LogOffset(20));
        outbox.push(b"three", usize::MAX);
        assert!(outbox.let_go(LogOffset(9)));
        assert_eq!(outbox.front(), Some(&b"free"[..]));
        outbox.advance(3);
        assert_eq!(outbox.front(), Some(&b"e"[..]));
        outbox.advance(1);
        assert_eq!(outbox.front(), None);
        assert!(outbox.let_go(LogOffset(10)));
        assert_eq!(outbox.front(), Some(&b"onetwo"[..]));
        outbox.advance(6);
        assert!(outbox.front().is_none() && !outbox.is_empty());
        assert!(!outbox.let_go(LogOffset(20)));
        assert_eq!(outbox.front(), Some(&b"three"[..]));
        outbox.advance(5);
        assert!(outbox.is_empty());
        outbox.check_invariants();
    }

    #[test]
    fn replies_that_waited_too_long_become_errors() {
        let error = b"-NO\r\n";
        let mut outbox = Outbox::default();
        outbox.push(b"+free\r\n", 1000);
        outbox.hold(LogOffset(10));
        outbox.push(b"$5\r\n+a\r\nb\r\n>1\r\n:7\r\n*2\r\n:1\r\n:2\r\n", 1000);
        outbox.advance(3);
        let before = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        outbox.hold(LogOffset(20));
        outbox.push(b"+later\r\n", 1000);
        let ago = before.checked_sub(std::time::Duration::from_secs(5)).unwrap();
        assert_eq!(outbox.refuse_held(LogOffset(9), ago, error), Ok(0), "not so long");
        assert_eq!(outbox.refuse_held(LogOffset(10), before, error), Ok(0), "acknowledged");
        assert_eq!(outbox.refuse_held(LogOffset(9), before, error), Ok(2));
        assert_eq!(outbox.front(), Some(&b"ee\r\n-NO\r\n>1\r\n:7\r\n-NO\r\n"[..]));
        outbox.advance(outbox.front().unwrap().len());
        assert!(outbox.front().is_none() && !outbox.let_go(LogOffset(20)));
        assert_eq!(outbox.front(), Some(&b"+later\r\n"[..]));
        outbox.check_invariants();
    }

    /// Their form does not say so: an array, a line.
    #[test]
    fn messages_are_no_replies() {
        const MESSAGE: &[u8] = b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n";
        const LINE: &[u8] = b"+17.0 [0 a:1] \"set\"\r\n";
        let error = b"-NO\r\n";
        let mut outbox = Outbox::default();
        outbox.push_message(LINE, 1000);
        outbox.hold(LogOffset(10));
        outbox.push(b"+one\r\n", 1000);
        outbox.push_message(MESSAGE, 1000);
        outbox.push_message(LINE, 1000);
        outbox.push(b"+two\r\n", 1000);
        outbox.advance(LINE.len());
        let first = Instant::now();
        std::thread::sleep(std::time::Duration::from_millis(2));
        outbox.hold(LogOffset(20));
        outbox.push_message(MESSAGE, 1000);
        outbox.push(b"+three\r\n", 1000);
        assert_eq!(outbox.refuse_held(LogOffset(9), first, error), Ok(2));
        let refused = [error, MESSAGE, LINE, error].concat();
        assert_eq!(outbox.front(), Some(&refused[..]), "up to the second hold");
        outbox.advance(refused.len());
        assert_eq!(outbox.refuse_held(LogOffset(19), Instant::now(), error), Ok(1));
        assert_eq!(outbox.front(), Some(&[MESSAGE, error].concat()[..]));
        outbox.check_invariants();
    }

    #[test]
    fn full_until_half_is_gone() {
        const FULL_BYTES: usize = 1000;
        let mut outbox = Outbox::default();
        outbox.take(&mut vec![0; FULL_BYTES], 1..FULL_BYTES, FULL_BYTES);
        assert!(!outbox.is_full());
        outbox.push(&[0], FULL_BYTES);
        assert!(outbox.is_full());
        outbox.advance(FULL_BYTES / 2 - 1);
        assert!(outbox.is_full());
        outbox.advance(1);
        assert!(!outbox.is_full());
    }
}
