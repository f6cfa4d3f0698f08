//! Commands that are sent to a target at once, and its answers.

use isotherm_allocator::class_bytes;
use isotherm_codec::Payload;
use isotherm_stdx::number::{I64_BYTES_MAX, write_i64, write_u64};

use isotherm_node::migration::sockets::{Lost, Patience, Target};

/// A payload that is longer is not copied.
const COPIED_BYTES_MAX: usize = 64 << 10;

/// Command of a batch that the target answers with one line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// RESTORE of the key with this number.
    Value(usize),
    /// ASKING.
    Leave,
    /// DEL of the key with this number.
    Removal(usize),
}

impl Asked {
    /// Returns whether the target has done it.
    fn is_done(self, line: &[u8]) -> bool {
        match self {
            Asked::Value(_) | Asked::Leave => line == b"+OK",
            Asked::Removal(_) => line.first() == Some(&b':'),
        }
    }
}

/// Commands, as they are written.
#[derive(Default)]
pub struct Batch {
    parts: Vec<Vec<u8>>,
    pub asked: Vec<Asked>,
}

fn push_count(out: &mut Vec<u8>, mark: u8, count: usize) {
    out.push(mark);
    out.extend_from_slice(write_u64(count as u64, &mut [0; I64_BYTES_MAX]));
    out.extend_from_slice(b"\r\n");
}

fn push_words(out: &mut Vec<u8>, words: &[&[u8]]) {
    push_count(out, b'*', words.len());
    words.iter().for_each(|word| push_word(out, word));
}

fn push_word(out: &mut Vec<u8>, word: &[u8]) {
    push_count(out, b'$', word.len());
    out.extend_from_slice(word);
    out.extend_from_slice(b"\r\n");
}

impl Batch {
    fn last(&mut self) -> &mut Vec<u8> {
        if self.parts.is_empty() {
            self.parts.push(Vec::new());
        }
        self.parts.last_mut().expect("there is one")
    }

    pub fn memory_bytes(&self) -> usize {
        let parts: usize = self.parts.iter().map(|part| class_bytes(part.capacity())).sum();
        parts + self.parts.capacity() * size_of::<Vec<u8>>()
    }

    /// RESTORE of a key. `ttl_ms`: 0 for none.
    pub fn value(&mut self, number: usize, words: [&[u8]; 2], ttl_ms: i64, payload: Payload, replace: bool) {
        let [command, key] = words;
        let out = self.last();
        push_count(out, b'*', if replace { 5 } else { 4 });
        push_word(out, command);
        push_word(out, key);
        push_word(out, write_i64(ttl_ms, &mut [0; I64_BYTES_MAX]));
        let bytes: usize = payload.iter().map(Vec::len).sum();
        push_count(out, b'$', bytes);
        match bytes {
            ..=COPIED_BYTES_MAX => payload.iter().for_each(|piece| out.extend_from_slice(piece)),
            _ => {
                self.parts.extend(payload);
                self.parts.push(Vec::new());
            }
        }
        let out = self.last();
        out.extend_from_slice(b"\r\n");
        if replace {
            push_word(out, b"REPLACE");
        }
        self.asked.push(Asked::Value(number));
    }

    /// Adds a DEL of a key, in a cluster after ASKING.
    pub fn removal(&mut self, number: usize, key: &[u8], in_cluster: bool) {
        if in_cluster {
            push_words(self.last(), &[b"ASKING"]);
            self.asked.push(Asked::Leave);
        }
        push_words(self.last(), &[b"DEL", key]);
        self.asked.push(Asked::Removal(number));
    }
}

/// Why an exchange ended early, and what its client is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Connecting,
    Writing(Lost),
    Reading(Lost),
}

impl Fault {
    pub fn text(self) -> &'static str {
        match self {
            Fault::Connecting => "IOERR error or timeout connecting to the client",
            Fault::Writing(_) => "IOERR error or timeout writing to target instance",
            Fault::Reading(_) => "IOERR error or timeout reading to target instance",
        }
    }

    /// A connection that was kept may have been closed by the target since: another one may do.
    pub fn may_be_retried(self) -> bool {
        match self {
            Fault::Connecting => false,
            Fault::Writing(lost) | Fault::Reading(lost) => !lost.is_timeout,
        }
    }
}

/// Result of sending a batch.
#[derive(Default)]
pub struct Exchange {
    /// Commands that the target has done.
    pub done: Vec<Asked>,
    /// Lines of it that were answered.
    pub answered: usize,
    /// The first error, without the mark in front of it.
    pub error: Option<Vec<u8>>,
    pub fault: Option<Fault>,
}

/// Sends a batch and reads what is answered.
pub fn exchange(
    target: &mut Target,
    (auth, db): (&[Box<[u8]>], i64),
    batch: &Batch,
    patience: Patience<'_>,
) -> Exchange {
    let mut exchange = Exchange::default();
    let selects = target.selected != Some(db);
    if let Err(fault) = converse(target, (auth, selects.then_some(db)), batch, patience, &mut exchange) {
        exchange.fault = Some(fault);
    }
    target.selected = (exchange.error.is_none() && exchange.fault.is_none()).then_some(db);
    exchange
}

fn converse(
    target: &mut Target,
    (auth, select): (&[Box<[u8]>], Option<i64>),
    batch: &Batch,
    patience: Patience<'_>,
    exchange: &mut Exchange,
) -> Result<(), Fault> {
    let mut head = Vec::new();
    if !auth.is_empty() {
        let words: Vec<&[u8]> =
            std::iter::once(&b"AUTH"[..]).chain(auth.iter().map(|word| &**word)).collect();
        push_words(&mut head, &words);
    }
    if let Some(db) = select {
        push_words(&mut head, &[b"SELECT", write_i64(db, &mut [0; I64_BYTES_MAX])]);
    }
    let mut parts = &batch.parts[..];
    if let [first, rest @ ..] = parts
        && first.len() <= COPIED_BYTES_MAX
    {
        head.extend_from_slice(first);
        parts = rest;
    }
    for part in std::iter::once(&head).chain(parts) {
        target.send(part, patience).map_err(Fault::Writing)?;
    }
    let mut refusal = None;
    for _ in 0..usize::from(!auth.is_empty()) + usize::from(select.is_some()) {
        let line = target.line(patience).map_err(Fault::Reading)?;
        if refusal.is_none() && line.first() == Some(&b'-') {
            refusal = Some(line);
        }
    }
    // COMPAT(transfer): MIGRATE lets a key leave behind `+OK` only; in Valkey behind any line of the target
    // that does not begin with `-`. Why: what answers may be no server of this protocol.
    for asked in &batch.asked {
        let line = target.line(patience).map_err(Fault::Reading)?;
        exchange.answered += 1;
        if refusal.is_none() && asked.is_done(&line) {
            exchange.done.push(*asked);
        } else if exchange.error.is_none() {
            let line = refusal.as_ref().unwrap_or(&line);
            exchange.error = Some(line.strip_prefix(b"-").unwrap_or(line).to_vec());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_written_as_clients_write_them() {
        let mut batch = Batch::default();
        batch.value(0, [b"RESTORE", b"k"], 0, vec![b"v".to_vec()], false);
        batch.value(1, [b"RESTORE-ASKING", b"long"], 12, vec![vec![b'x'; 35_000]; 2], true);
        batch.removal(2, b"gone", true);
        batch.removal(3, b"gone", false);
        let expected = format!(
            "*4\r\n$7\r\nRESTORE\r\n$1\r\nk\r\n$1\r\n0\r\n$1\r\nv\r\n\
             *5\r\n$14\r\nRESTORE-ASKING\r\n$4\r\nlong\r\n$2\r\n12\r\n$70000\r\n{}\r\n$7\r\nREPLACE\r\n\
             *1\r\n$6\r\nASKING\r\n*2\r\n$3\r\nDEL\r\n$4\r\ngone\r\n*2\r\n$3\r\nDEL\r\n$4\r\ngone\r\n",
            "x".repeat(70_000)
        );
        assert_eq!(String::from_utf8(batch.parts.concat()).unwrap(), expected);
        assert_eq!(batch.parts.len(), 4, "what is long is not copied");
        use Asked::{Leave, Removal, Value};
        assert_eq!(batch.asked, [Value(0), Value(1), Leave, Removal(2), Removal(3)]);
    }
}
