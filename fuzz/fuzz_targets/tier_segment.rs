//! A segment of the log of cold values that was damaged in any way, as cleaning and readers meet it: no
//! panic, a walk that ends, and no record that was not written there. Then the same bytes as what a base says
//! of the log.
//!
//! ```text
//!   count  [key length, payload length, seal?] x count   [place, place, place, deed, byte] ...
//!          what is written                               what then becomes of it
//! ```
#![no_main]

use isotherm_stdx::{Slot, UnixMs};
use isotherm_tier::{
    BLOCK_BYTES, Checkpoint, Log, LogConfig, Named, Place, Record, SegmentNumber, Stream, record_bytes,
};
use libfuzzer_sys::fuzz_target;

const CONFIG_BYTES: u64 = 256 << 20;
const RECORDS_MAX: usize = 32;

struct Written {
    place: Place,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// A segment as it is on disk, and what was written to it.
fn write(shapes: &[[u8; 3]]) -> (Vec<u8>, Vec<Written>) {
    let mut log = Log::new(LogConfig::of_bytes(CONFIG_BYTES));
    let (mut bytes, mut written) = (Vec::new(), Vec::new());
    let mut drain = |log: &mut Log| {
        log.seal(Stream::Fresh);
        while let Some(write) = log.next_write() {
            assert_eq!((write.segment, write.offset), (SegmentNumber(0), bytes.len() as u64));
            bytes.extend_from_slice(write.bytes);
            let ticket = write.ticket;
            log.written(ticket, true);
        }
    };
    for (number, [key, payload, seal]) in shapes.iter().enumerate() {
        let key = vec![number as u8; usize::from(*key)];
        let payload = vec![*payload; usize::from(*payload) * usize::from(*payload) + 1];
        let (form, expiry) = (seal / 2, (seal % 3 == 0).then_some(UnixMs(i64::from(*seal))));
        let record =
            Record { form, expiry, database: 3, slot: Slot::of_key(&key), key: &key, payload: &payload };
        let place = log.append(Stream::Fresh, &record, None).expect("there is room");
        written.push(Written { place, key, payload });
        if seal % 2 == 0 {
            drain(&mut log);
        }
    }
    drain(&mut log);
    (bytes, written)
}

fn damage(bytes: &mut Vec<u8>, changes: &[[u8; 5]]) {
    for [high, middle, low, deed, byte] in changes {
        let at = u32::from_be_bytes([0, *high, *middle, *low]) as usize;
        if at >= bytes.len() {
            continue;
        }
        let block = at / BLOCK_BYTES * BLOCK_BYTES;
        match deed % 4 {
            0 => bytes[at] ^= (*byte).max(1),
            // A write that was cut, one that hit another place, and blocks that were never written.
            1 => bytes.truncate(block),
            2 => {
                let from = usize::from(*byte) * BLOCK_BYTES % bytes.len();
                bytes.copy_within(from..from + BLOCK_BYTES, block);
            }
            _ => bytes[block..block + BLOCK_BYTES].fill(*byte),
        }
    }
}

/// Each record that a walk finds is one that was written at its place.
fn walk(bytes: &[u8], written: &[Written]) {
    let named = Named { segment: SegmentNumber(0), bytes: bytes.len() as u64 };
    let mut log = Log::restored(LogConfig::of_bytes(CONFIG_BYTES), &[named]);
    let mut cleaning = log.begin_cleaning().expect("nothing is known to live in it");
    let mut reads = 0;
    while let Some(stretch) = cleaning.next_read() {
        let from = stretch.offset as usize;
        for (place, record) in cleaning.records(&bytes[from..from + stretch.bytes]) {
            let known = written.iter().find(|known| known.place == place).expect("it was written");
            assert_eq!((record.key, record.payload), (&known.key[..], &known.payload[..]));
        }
        reads += 1;
        assert!(reads <= 2 * bytes.len() / BLOCK_BYTES + 2, "the walk ends");
    }
    log.end_cleaning(cleaning);
    log.check_invariants();
}

fuzz_target!(|input: &[u8]| {
    let _ = Checkpoint::parse(input);
    let [count, rest @ ..] = input else { return };
    let shapes = rest.as_chunks::<3>().0;
    let count = (usize::from(*count) % RECORDS_MAX + 1).min(shapes.len());
    let (mut bytes, written) = write(&shapes[..count]);
    let changes = rest[count * 3..].as_chunks().0;
    damage(&mut bytes, changes);
    if !bytes.is_empty() {
        walk(&bytes, &written);
    }
    for known in &written {
        let (start, length) =
            (known.place.offset() as usize, record_bytes(known.key.len(), known.payload.len()));
        let Some(bytes) = bytes.get(start..start + length) else { continue };
        match Record::read(known.place, bytes) {
            Ok(record) => assert_eq!((record.key, record.payload), (&known.key[..], &known.payload[..])),
            Err(_) => assert!(!changes.is_empty(), "what was not damaged is read"),
        }
    }
});
