//! What cleaning writes: bytes that go to disk for each byte that leaves memory, by how full the log is.
//!
//! `cargo run --release -p isotherm-tier --example amplification`
//!
//! Values of 400 B, written over at random, each at once again on disk. Bound for uniform writes: cleaning the segment of
//! average use. No disk is needed: what lies where is kept in a list for each segment.

use isotherm_stdx::{Prng, Slot};
use isotherm_tier::{
    Log, LogConfig, Place, Record, SEGMENT_BYTES, SegmentNumber, Stream, Written, record_bytes,
};
use std::collections::HashMap;

const SEGMENTS: u64 = 100;
const KEY_BYTES: usize = 8;
const PAYLOAD: [u8; 400] = [7; 400];

struct World {
    log: Log,
    places: Vec<Place>,
    contents: HashMap<SegmentNumber, Vec<(Place, u32)>>,
    written_bytes: u64,
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

    fn clean(&mut self) {
        let reserve = LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES).reserve_segments();
        while self.log.free_segments() <= reserve {
            let cleaning = self.log.begin_cleaning().expect("something is dead");
            let records = self.contents.remove(&cleaning.segment()).unwrap_or_default();
            for (place, key) in records {
                if self.places[key as usize] == place {
                    self.append(Stream::Survivors, key, Some(place));
                }
            }
            self.log.seal(Stream::Survivors);
            self.write();
            self.log.end_cleaning(cleaning);
            self.log.collect();
        }
    }
}

fn amplification(live_percent: u64, mut draw: impl FnMut(&mut Prng, u64) -> u64) -> f64 {
    let bytes = record_bytes(KEY_BYTES, PAYLOAD.len()) as u64;
    // Of what values may fill: without the reserve of cleaning.
    let usable = SEGMENTS - u64::from(LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES).reserve_segments());
    let keys = usable * SEGMENT_BYTES * live_percent / 100 / bytes;
    let log = Log::new(LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES));
    let mut world = World { log, places: Vec::new(), contents: HashMap::new(), written_bytes: 0 };
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
    // Twice over to settle, then once to measure.
    for round in 0..3 {
        let before = world.written_bytes;
        for _ in 0..keys {
            let key = draw(&mut random, keys) as u32;
            world.append(Stream::Fresh, key, None);
            world.clean();
        }
        measured = (world.written_bytes - before) as f64 / (keys * bytes) as f64;
        println!("  {live_percent} % live, round {round}: {measured:.2}");
    }
    measured
}

/// Approximate Zipf of exponent 0.99 by inversion, its ranks strewn over the keys.
fn zipf(random: &mut Prng, keys: u64) -> u64 {
    let unit = random.next_u64() as f64 / u64::MAX as f64;
    let exponent = 1.0 - 0.99;
    let rank = ((keys as f64).powf(exponent) * unit + (1.0 - unit)).powf(1.0 / exponent) as u64;
    (rank.min(keys) - 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys
}

fn main() {
    for live_percent in [70, 85] {
        println!("uniform");
        amplification(live_percent, |random, keys| random.below(keys));
        println!("zipf 0.99");
        amplification(live_percent, zipf);
    }
}
