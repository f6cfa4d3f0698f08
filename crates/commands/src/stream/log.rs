//! Log records of commands on groups: each change by itself, with its result.

use crate::Call;
use isotherm_keyspace::{ConsumerGroup, Pending, StreamId};

/// Commands that the log gets once the change is done.
#[derive(Default)]
pub(super) struct Log {
    commands: Vec<Vec<Vec<u8>>>,
}

impl Log {
    pub(super) fn push<const N: usize>(&mut self, words: [&[u8]; N]) {
        self.commands.push(words.iter().map(|word| word.to_vec()).collect());
    }

    pub(super) fn push_all(&mut self, words: Vec<Vec<u8>>) {
        self.commands.push(words);
    }

    pub(super) fn len(&self) -> u64 {
        self.commands.len() as u64
    }

    /// Instead of the request, also where nothing was changed that another server has to know.
    pub(super) fn record(self, call: &mut Call<'_, '_, '_>) {
        call.records.replace_request();
        for command in self.commands {
            let words: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
            call.record(&words);
        }
    }
}

fn number(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// `XCLAIM key group consumer 0 id TIME ms RETRYCOUNT count FORCE JUSTID LASTID id`: the same whatever was
/// there before.
pub(super) fn claim(key: &[u8], group: &[u8], last_id: StreamId, pending: &Pending) -> Vec<Vec<u8>> {
    let words: [&[u8]; 5] = [b"XCLAIM", key, group, &pending.consumer, b"0"];
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    words.push(pending.id.to_text());
    words.extend([b"TIME".to_vec(), number(pending.delivered_ms)]);
    words.extend([b"RETRYCOUNT".to_vec(), number(pending.deliveries)]);
    words.extend([b"FORCE".to_vec(), b"JUSTID".to_vec(), b"LASTID".to_vec(), last_id.to_text()]);
    words
}

/// `XGROUP SETID key group id ENTRIESREAD count`
pub(super) fn group_id(key: &[u8], name: &[u8], group: &ConsumerGroup) -> Vec<Vec<u8>> {
    let read = group.entries_read.map_or(-1, |read| read as i64);
    let words: [&[u8]; 4] = [b"XGROUP", b"SETID", key, name];
    let mut words: Vec<Vec<u8>> = words.iter().map(|word| word.to_vec()).collect();
    words.extend([group.last_id.to_text(), b"ENTRIESREAD".to_vec(), number(read)]);
    words
}
