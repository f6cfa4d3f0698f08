//! Write amplification of cleaning: bytes that go to disk for each byte that leaves memory, by how full the
//! log is.
//!
//! `cargo run --release -p isotherm-tier --example amplification`
//!
//! Values of 400 B are overwritten at random, each at once again on disk. The bytes are those of files, with
//! heads and padding. No disk is needed: the contents are kept in a list for each segment. The tests of
//! `policy` do the same without bytes, and with bounds.

use isotherm_stdx::{Prng, Slot};
use isotherm_tier::{
    Cleaning, Log, LogConfig, Place, Record, SEGMENT_BYTES, SegmentNumber, Snapshots, Stream, Written,
    record_bytes,
};
use std::collections::HashMap;

const SEGMENTS: u64 = 100;
/// Share of the log that is not for values.
const RESERVE_PERCENT: u64 = 5;
const KEY_BYTES: usize = 8;
const PAYLOAD: [u8; 400] = [7; 400];

struct World {
    log: Log,
    places: Vec<Place>,
    contents: HashMap<SegmentNumber, Vec<(Place, u32)>>,
    written_bytes: u64,
    /// Current cleaning, and the values of its segment that were not looked at.
    cleaning: Option<(Cleaning, Vec<(Place, u32)>)>,
}

impl World {
    fn append(&mut self, stream: Stream, key: u32, before: Option<Place>) {
        let bytes = u64::from(key).to_le_bytes();
        let record =
            Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: &bytes, payload: &PAYLOAD };
        let place = self.log.append(stream, &record, before).expect("cleaning keeps room");
        self.contents.entry(place.segment()).or_default().push((place, key));
        self.log.live().retire(self.places[key as usize]);
        self.places[key as usize] = place;
        self.write();
    }

    fn write(&mut self) {
        while let Some(write) = self.log.next_write() {
            self.written_bytes += write.bytes.len() as u64;
            let ticket = write.ticket;
            assert!(matches!(self.log.written(ticket, true), Written::Done(_)));
        }
    }

    fn clean_if_due(&mut self) {
        while self.log.is_cleaning_due(1, self.cleaning.as_ref().map(|(cleaning, _)| cleaning)) {
            let (mut cleaning, mut rest) = self.cleaning.take().unwrap_or_else(|| {
                let cleaning = self.log.begin_cleaning().expect("something is dead");
                let records = self.contents.remove(&cleaning.segment()).unwrap_or_default();
                (cleaning, records)
            });
            let Some(stretch) = cleaning.next_read() else {
                self.log.seal(Stream::Survivors);
                self.write();
                self.log.end_cleaning(cleaning);
                self.log.collect(Snapshots::default());
                continue;
            };
            // As if it had been read.
            cleaning.skip();
            let end = stretch.offset + stretch.bytes as u64;
            let passed = rest.partition_point(|(place, _)| place.offset() < end);
            for (place, key) in rest.drain(..passed) {
                if self.places[key as usize] == place {
                    self.append(Stream::Survivors, key, Some(place));
                }
            }
            self.cleaning = Some((cleaning, rest));
        }
    }
}

fn amplification(live_percent: u64, mut draw: impl FnMut(&mut Prng, u64) -> u64) -> f64 {
    let bytes = record_bytes(KEY_BYTES, PAYLOAD.len()) as u64;
    let usable = SEGMENTS * SEGMENT_BYTES * (100 - RESERVE_PERCENT) / 100;
    let keys = usable * live_percent / 100 / bytes;
    let log = Log::new(LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES));
    let mut world =
        World { log, places: Vec::new(), contents: HashMap::new(), written_bytes: 0, cleaning: None };
    for key in 0..keys as u32 {
        let bytes = u64::from(key).to_le_bytes();
        let record =
            Record { form: 0, expiry: None, database: 0, slot: Slot::new(0), key: &bytes, payload: &PAYLOAD };
        let place = world.log.append(Stream::Fresh, &record, None).expect("there is room");
        world.contents.entry(place.segment()).or_default().push((place, key));
        world.places.push(place);
        world.write();
    }
    let mut random = Prng::new(1);
    let mut measured = 0.0;
    // Three times over to settle, then once to measure.
    for round in 0..4 {
        let before = world.written_bytes;
        for _ in 0..keys {
            let key = draw(&mut random, keys) as u32;
            world.append(Stream::Fresh, key, None);
            if world.log.is_writing() {
                world.write();
            }
            world.clean_if_due();
        }
        measured = (world.written_bytes - before) as f64 / (keys * bytes) as f64;
        println!("  {live_percent} % live, round {round}: {measured:.2}");
    }
    measured
}

/// Zipf of exponent 0.99 by inversion, about; its ranks are strewn over the keys.
fn zipf() -> impl FnMut(&mut Prng, u64) -> u64 {
    let mut order: Vec<u32> = Vec::new();
    let exponent = 1.0 - 0.99;
    move |random, keys| {
        if order.is_empty() {
            order = (0..keys as u32).collect();
            (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
        }
        let unit = random.next_u64() as f64 / u64::MAX as f64;
        let rank = ((keys as f64).powf(exponent) * unit + (1.0 - unit)).powf(1.0 / exponent) as usize;
        u64::from(order[rank.clamp(1, order.len()) - 1])
    }
}

fn main() {
    for live_percent in [70, 85] {
        println!("uniform");
        amplification(live_percent, |random, keys| random.below(keys));
        println!("zipf 0.99");
        amplification(live_percent, zipf());
    }
}
