//! What is rare in a random course: writes to a segment in which nothing lives any more.

use isotherm_stdx::Slot;
use isotherm_tier::{Log, LogConfig, Place, Record, SEGMENT_BYTES, SegmentState, Stream, Ticket, Written};

fn append(log: &mut Log, payload: &[u8]) -> Place {
    let record = Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: b"key", payload };
    log.append(Stream::Fresh, &record, None).expect("there is room")
}

fn begin_writes(log: &mut Log) -> Vec<Ticket> {
    std::iter::from_fn(|| log.next_write().map(|write| write.ticket)).collect()
}

#[test]
fn a_segment_that_is_written_to_is_neither_freed_nor_cleaned() {
    let mut log = Log::new(LogConfig::of_bytes(8 * SEGMENT_BYTES));
    let (live, payload) = (log.live(), vec![1; 8 << 20]);
    let mut places = Vec::new();
    while log.segments(SegmentState::Full) == 0 {
        places.push(append(&mut log, &payload));
    }
    let first = places[0].segment();
    let tickets = begin_writes(&mut log);
    places.iter().filter(|place| place.segment() == first).for_each(|place| live.retire(*place));
    for ticket in &tickets[1..] {
        assert!(matches!(log.written(*ticket, true), Written::Done(_)));
    }
    assert!(log.begin_cleaning().is_none(), "the disk may still write to it");
    assert_eq!(log.collect(), [], "and would write to the next segment of that number");
    assert!(matches!(log.written(tickets[0], true), Written::Done(_)));
    assert_eq!(log.collect(), [first]);
    log.check_invariants();
}
