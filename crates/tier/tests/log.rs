//! Rare cases of a random course: writes to a segment in which no record lives any more.

use isotherm_stdx::Slot;
use isotherm_tier::{
    Full, Log, LogConfig, Place, Record, SEGMENT_BYTES, SegmentNumber, SegmentState, Snapshots, Stream,
    Ticket, Written,
};

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
    assert_eq!(log.collect(Snapshots::default()), [], "and would write to the next segment of that number");
    assert!(matches!(log.written(tickets[0], true), Written::Done(_)));
    assert_eq!(log.collect(Snapshots::default()), [first]);
    log.check_invariants();
}

/// The segment that was filled last can be cleaned although no other takes its place: it is a large part of a
/// small log.
#[test]
fn a_segment_that_is_exhausted_is_cleaned() {
    let mut log = Log::new(LogConfig::of_bytes(4 * SEGMENT_BYTES));
    let payload = vec![1; 1 << 20];
    let record =
        Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: b"key", payload: &payload };
    let mut places = Vec::new();
    loop {
        match log.append(Stream::Fresh, &record, None) {
            Ok(place) => places.push(place),
            Err(Full::Writes) => {
                for ticket in begin_writes(&mut log) {
                    assert!(matches!(log.written(ticket, true), Written::Done(_)));
                }
            }
            Err(Full::Segments) => break,
        }
    }
    for ticket in begin_writes(&mut log) {
        assert!(matches!(log.written(ticket, true), Written::Done(_)));
    }
    let last = places.last().expect("there are some").segment();
    let in_last = places.iter().filter(|place| place.segment() == last);
    in_last.skip(1).for_each(|place| log.live().retire(*place));
    assert_eq!((log.has_room(), log.lacking_bytes()), (false, SEGMENT_BYTES / 16 * 15), "of three");
    assert!(log.cleanable_bytes() > SEGMENT_BYTES / 2);
    assert_eq!(log.begin_cleaning().expect("it is full").segment(), last);
    log.check_invariants();
}

#[test]
fn snapshots_back_to_back_let_segments_go() {
    let mut log = Log::new(LogConfig::of_bytes(8 * SEGMENT_BYTES));
    let (live, payload) = (log.live(), vec![1; 8 << 20]);
    let mut places = Vec::new();
    while log.segments(SegmentState::Full) < 2 {
        places.push(append(&mut log, &payload));
    }
    for ticket in begin_writes(&mut log) {
        assert!(matches!(log.written(ticket, true), Written::Done(_)));
    }
    let (first, second) = (SegmentNumber(0), SegmentNumber(1));
    let mut snapshots = Snapshots { begun: 7, oldest: Some(7) };
    places.iter().filter(|place| place.segment() == first).for_each(|place| live.retire(*place));
    assert_eq!(log.collect(snapshots), [], "the seventh may read it");
    // The next one begins at once.
    snapshots = Snapshots { begun: 8, oldest: Some(8) };
    places.iter().filter(|place| place.segment() == second).for_each(|place| live.retire(*place));
    assert_eq!(log.collect(snapshots), [first]);
    assert_eq!(log.collect(snapshots), []);
    snapshots = Snapshots { begun: 9, oldest: Some(9) };
    assert_eq!(log.collect(snapshots), [second]);
    log.check_invariants();
}

/// A base does not name the holes of failed writes: what is cleaned after a restart meets them unprepared.
#[test]
fn a_segment_with_a_hole_is_cleaned_after_a_restart() {
    let config = LogConfig::of_bytes(8 * SEGMENT_BYTES);
    let mut log = Log::new(config);
    let mut disk = vec![0; 0];
    let mut places = Vec::new();
    // The second group fails, those that were sealed with it do not.
    for number in 0..4 {
        places.push(append(&mut log, &[number; 300_000]));
        log.seal(Stream::Fresh);
    }
    let segment = places[0].segment();
    let mut tickets = Vec::new();
    while let Some(write) = log.next_write() {
        if tickets.len() != 1 {
            disk.resize(write.offset as usize, 0);
            disk.extend_from_slice(write.bytes);
        }
        tickets.push(write.ticket);
    }
    for (number, ticket) in tickets.into_iter().enumerate() {
        assert_eq!(matches!(log.written(ticket, number != 1), Written::Done(_)), number != 1);
    }
    let named = log
        .name(Snapshots::default())
        .into_iter()
        .find(|named| named.segment == segment)
        .expect("it is there");
    let mut log = Log::restored(config, &[named]);
    let living = [places[0], places[2], places[3]];
    living.iter().for_each(|place| log.live().add(*place));

    // Without room for what lives it is no damaged one: it is cleaned another time.
    let mut cleaning = log.begin_cleaning().expect("its hole counts as dead");
    let stretch = cleaning.next_read().expect("it has groups");
    cleaning.records(&disk[..stretch.bytes]);
    assert!(cleaning.is_damaged() && cleaning.next_read().is_some());
    log.end_cleaning(cleaning);

    let mut cleaning = log.begin_cleaning().expect("it was not gone through");
    let mut found = Vec::new();
    while let Some(stretch) = cleaning.next_read() {
        let bytes = &disk[stretch.offset as usize..][..stretch.bytes];
        for (place, record) in cleaning.records(bytes) {
            let to = log.append(Stream::Survivors, &record, Some(place)).expect("there is room");
            found.push((place, to));
        }
    }
    assert_eq!(found.iter().map(|(place, _)| *place).collect::<Vec<_>>(), living);
    log.seal(Stream::Survivors);
    for ticket in begin_writes(&mut log) {
        assert!(matches!(log.written(ticket, true), Written::Done(_)));
    }
    living.iter().for_each(|place| log.live().retire(*place));
    log.end_cleaning(cleaning);
    // The base that named it is no longer in force.
    log.unnamed();
    assert_eq!(log.collect(Snapshots::default()), [segment]);
}

/// Values from memory take one segment of the reserve, and the one that was filled first gives it back as
/// fast as they come.
#[test]
fn a_full_log_drops_as_much_as_comes() {
    let mut log = Log::new(LogConfig::of_bytes(8 * SEGMENT_BYTES));
    let (live, payload) = (log.live(), vec![1; 8 << 20]);
    let mut places = Vec::new();
    let append = |log: &mut Log| {
        let record =
            Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: b"key", payload: &payload };
        let place = log.append(Stream::Fresh, &record, None);
        log.seal(Stream::Fresh);
        for ticket in begin_writes(log) {
            assert!(matches!(log.written(ticket, true), Written::Done(_)));
        }
        place
    };
    while log.segments(SegmentState::Full) < 3 || log.has_room() {
        places.extend(append(&mut log));
    }
    let free = log.free_segments();
    for round in 0..3 {
        while let Ok(place) = append(&mut log) {
            places.push(place);
        }
        let mut cleaning = log.begin_dropping().expect("the reserve has one to lend");
        let first = cleaning.segment();
        assert_eq!(first, places[0].segment(), "the oldest");
        let mut came = 0;
        while cleaning.next_read().is_some() {
            assert!(!log.is_dropping_due(&cleaning), "not before more comes");
            places.push(append(&mut log).expect("there is room as long as it lasts"));
            came += payload.len() as u64;
            while log.is_dropping_due(&cleaning) && cleaning.next_read().is_some() {
                cleaning.skip();
            }
        }
        assert!(came <= SEGMENT_BYTES + payload.len() as u64, "{came} in round {round}");
        let is_first = |place: &Place| place.segment() == first;
        places.iter().filter(|place| is_first(place)).for_each(|place| live.retire(*place));
        places.retain(|place| !is_first(place));
        log.end_cleaning(cleaning);
        assert_eq!(log.collect(Snapshots::default()), [first]);
        assert!(log.free_segments() + 1 >= free, "{} in round {round}", log.free_segments());
        log.check_invariants();
    }
}

/// While a snapshot may read what was dropped nothing more is: it would win no space.
#[test]
fn what_was_dropped_and_waits_is_waited_for() {
    let mut log = Log::new(LogConfig::of_bytes(8 * SEGMENT_BYTES));
    let (live, payload) = (log.live(), vec![1; 8 << 20]);
    let snapshots = Snapshots { begun: 1, oldest: Some(1) };
    let append = |log: &mut Log| {
        let record =
            Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: b"key", payload: &payload };
        let place = log.append(Stream::Fresh, &record, None);
        log.seal(Stream::Fresh);
        for ticket in begin_writes(log) {
            assert!(matches!(log.written(ticket, true), Written::Done(_)));
        }
        place
    };
    let (mut places, mut dropped) = (Vec::new(), Vec::new());
    loop {
        while let Ok(place) = append(&mut log) {
            places.push(place);
        }
        let Some(mut cleaning) = log.begin_dropping() else { break };
        let segment = cleaning.segment();
        places.push(append(&mut log).expect("one of the reserve"));
        while cleaning.next_read().is_some() {
            cleaning.skip();
        }
        places.iter().filter(|place| place.segment() == segment).for_each(|place| live.retire(*place));
        log.end_cleaning(cleaning);
        assert_eq!(log.collect(snapshots), []);
        dropped.push(segment);
        assert_eq!(dropped.len(), 1);
    }
    assert_eq!(log.collect(Snapshots::default()), dropped);
    assert!(log.begin_dropping().is_some(), "and goes on then");
}
