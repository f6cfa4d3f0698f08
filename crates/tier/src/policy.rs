//! Policy of cleaning: the choice of the segment, the time, and the destination of survivors. All of these
//! decide how many bytes are written for a byte that left memory.
//!
//! ```text
//!   room       = free segments + what is left in segments of survivors
//!   opened     values from memory begin a segment only while room >= the reserve, about
//!   due        room + what is left in the segment of values from memory + what was passed of the one being cleaned  <  reserve + ahead + 3 groups
//! ```
//! **When.** Bytes that cleaning has passed count as won already. So each group from memory makes as much
//! cleaning due as wins its space again, and no more: cleaning proceeds in small steps during the writing,
//! and whenever a new segment has to be begun, there is one. With `ahead` of one segment that happens at the
//! latest moment, and all the space outside the reserve holds values.
//!
//! **Which.** The segment with the most space won for each byte that is read and copied, weighted by age:
//! values that have outlived others will go on living. Rosenblum and Ousterhout, "The Design and
//! Implementation of a Log-Structured File System" (1991), section 3.4 have (1 - u) x age / (1 + u). Here the
//! weight is the root of the age: theirs lets segments of middle age wait too long while values that are
//! written often are spread thin over them.
//!
//! **Where.** Values that were copied once lie apart from those that were copied more often (`Generation`):
//! fewer of the latter die, and the deaths of others in their segment do not cause them to be copied again.

use crate::cleaning::Cleaning;
use crate::group::GROUP_BYTES;
use crate::live::Live;
use crate::place::SegmentNumber;
use crate::segments::{Generation, SegmentState, Segments};

/// Groups that are being filled take room only when they are full.
const FILLED_BYTES: u64 = (Generation::ALL.len() * GROUP_BYTES) as u64;
/// Divisor of a segment: this part of one may be missing from the reserve. In the smallest log that was full
/// of living values, half become room when half of them are deleted, and padding does not decide whether.
const SPARED_DIVISOR: u64 = 16;

impl Segments {
    /// Returns the room that survivors can still take.
    fn room_bytes(&self) -> u64 {
        u64::from(self.free_count()) * self.segment_bytes + self.open_room(&Generation::SURVIVORS)
    }

    /// Returns whether a segment can be begun.
    pub fn may_open(&self, generation: Generation, reserve: u32) -> bool {
        let keeps_reserve = self.lacking_bytes(reserve) == 0;
        self.free_count() > 0 && (generation != Generation::Fresh || (keeps_reserve && self.may_grow))
    }

    /// Returns how much room has to be won before values from memory may begin a segment. 0: there is enough.
    pub fn lacking_bytes(&self, reserve: u32) -> u64 {
        // Two have to be whole: after the one that is begun any segment can still be copied.
        let spared_bytes = if reserve > 2 { self.segment_bytes / SPARED_DIVISOR } else { 0 };
        (u64::from(reserve) * self.segment_bytes).saturating_sub(self.room_bytes() + spared_bytes)
    }

    /// Returns whether cleaning is due so that the reserve and `ahead` segments stay free. `cleaning`: the
    /// cleaning in progress.
    pub fn is_cleaning_due(&self, reserve: u32, ahead: u32, cleaning: Option<&Cleaning>) -> bool {
        let passed_bytes = cleaning.map_or(0, Cleaning::passed_bytes);
        let soon_bytes = self.room_bytes() + self.open_room(&[Generation::Fresh]) + passed_bytes;
        soon_bytes < u64::from(reserve + ahead) * self.segment_bytes + FILLED_BYTES
    }

    pub(crate) fn best_victim(
        &self,
        live: &Live,
        is_written_to: impl Fn(SegmentNumber) -> bool,
    ) -> Option<SegmentNumber> {
        let candidates =
            self.all().filter(|(_, segment)| segment.state == SegmentState::Full && !segment.is_damaged);
        let scored = candidates.filter_map(|(number, segment)| {
            let living = live.units(number);
            let used = f64::from(living) / f64::from(segment.units.max(living).max(1));
            let age = (self.sealed - segment.sequence) as f64;
            let can_win = living < segment.units && !is_written_to(number);
            can_win.then(|| (number, (1.0 - used) * age.sqrt() / (1.0 + used)))
        });
        scored.max_by(|a, b| a.1.total_cmp(&b.1)).map(|(number, _)| number)
    }
}

#[cfg(test)]
mod tests {
    //! Simulation of the bytes that are written for a byte that leaves memory. It has no bytes: a record is a
    //! place.
    //!
    //! `RECORDS=155000 cargo test --profile fast -p isotherm-tier --lib amplification -- --nocapture` for
    //! values of 400 B. With fewer values, the most often written ones are a larger part, and separating them
    //! is the purpose of cleaning them apart: bounds of Zipf are wider.

    use super::*;
    use crate::config::LogConfig;
    use crate::place::{ADDRESS_UNIT_BYTES, Place, SEGMENT_BYTES};
    use crate::record::HEAD_BYTES;
    use crate::segments::Snapshots;
    use isotherm_stdx::Prng;

    const SEGMENTS: u64 = 100;
    /// Share of the log that is not for values: an aim of the design.
    const RESERVE_PERCENT: u64 = 5;
    /// Number of steps of cleaning a segment.
    const STEPS: u64 = 64;
    const ROUNDS: u64 = 6;
    const ROUNDS_MEASURED: u64 = 3;

    struct World {
        config: LogConfig,
        segments: Segments,
        live: Live,
        records_per_segment: u64,
        places: Vec<Option<Place>>,
        /// Keys whose values were written to each segment.
        keys: Vec<Vec<u32>>,
        filling: [Option<SegmentNumber>; 3],
        cleaning: Option<Cleaning>,
        written: u64,
        /// Number of segments that were begun after cleaning that was not done in time.
        late: u64,
    }

    impl World {
        fn new(records_per_segment: u64) -> World {
            let config = LogConfig::of_bytes(SEGMENTS * SEGMENT_BYTES);
            World {
                config,
                segments: Segments::new(config),
                live: Live::new(config.segments_max()),
                records_per_segment,
                places: Vec::new(),
                keys: vec![Vec::new(); SEGMENTS as usize],
                filling: [None; 3],
                cleaning: None,
                written: 0,
                late: 0,
            }
        }

        fn record_bytes(&self) -> u64 {
            SEGMENT_BYTES / self.records_per_segment / ADDRESS_UNIT_BYTES * ADDRESS_UNIT_BYTES
        }

        fn open(&mut self, generation: Generation) -> SegmentNumber {
            while !self.segments.may_open(generation, self.config.reserve_segments()) {
                self.late += 1;
                self.clean_step();
            }
            let next = self.segments.open(generation).expect("one is free");
            let full = self.filling[generation as usize].replace(next);
            full.into_iter().for_each(|full| self.segments.close(full));
            next
        }

        fn append(&mut self, generation: Generation, key: u32) {
            let bytes = self.record_bytes();
            let filling = self.filling[generation as usize];
            let has_room = |number: &SegmentNumber| self.segments.bytes(*number) + bytes <= SEGMENT_BYTES;
            let segment = filling.filter(has_room).unwrap_or_else(|| self.open(generation));
            let place = Place::new(segment, self.segments.bytes(segment), bytes as usize - HEAD_BYTES);
            self.segments.grow(segment, bytes as usize);
            self.segments.note_appended(place);
            self.live.add(place);
            let before = self.places[key as usize].replace(place);
            before.into_iter().for_each(|before| self.live.retire(before));
            self.keys[segment.0 as usize].push(key);
            self.written += 1;
        }

        /// Cleans as much as is due when a group comes from memory.
        fn clean_if_due(&mut self) {
            while self.segments.is_cleaning_due(self.config.reserve_segments(), 1, self.cleaning.as_ref()) {
                self.clean_step();
            }
        }

        fn clean_step(&mut self) {
            let mut cleaning = self.cleaning.take().unwrap_or_else(|| {
                let segment = self.segments.victim(&self.live, |_| false).expect("something is dead");
                Cleaning::new(segment, SEGMENT_BYTES, Vec::new())
            });
            let segment = cleaning.segment();
            let from = cleaning.passed_bytes() / self.record_bytes();
            cleaning.pass(SEGMENT_BYTES / STEPS);
            let to = cleaning.passed_bytes() / self.record_bytes();
            let generation = self.segments.generation(segment).next();
            for at in from..to.min(self.keys[segment.0 as usize].len() as u64) {
                let key = self.keys[segment.0 as usize][at as usize];
                let lives =
                    |place: Place| place.segment() == segment && place.offset() == at * self.record_bytes();
                if self.places[key as usize].is_some_and(lives) {
                    self.append(generation, key);
                }
            }
            if !cleaning.is_through() {
                self.cleaning = Some(cleaning);
                return;
            }
            self.segments.cleaned(segment, false);
            for freed in self.segments.collect(&self.live, Snapshots::default(), |_| false) {
                self.keys[freed.0 as usize].clear();
            }
        }
    }

    /// Written for each record from memory, when the values that are written over take this percentage of the
    /// usable space; and the steps of cleaning that were waited for.
    fn amplification(
        records_per_segment: u64,
        live_percent: u64,
        mut draw: impl FnMut(&mut Prng, u64) -> u64,
    ) -> (f64, u64) {
        let mut world = World::new(records_per_segment);
        let usable = SEGMENTS * records_per_segment * (100 - RESERVE_PERCENT) / 100;
        let keys = usable * live_percent / 100;
        world.places = vec![None; keys as usize];
        (0..keys as u32).for_each(|key| world.append(Generation::Fresh, key));
        let mut random = Prng::new(1);
        let (mut before, mut late) = (0, 0);
        for round in 0..ROUNDS {
            if round == ROUNDS - ROUNDS_MEASURED {
                (before, late) = (world.written, world.late);
            }
            for number in 0..keys {
                if number.is_multiple_of(records_per_segment / STEPS) {
                    world.clean_if_due();
                }
                let key = draw(&mut random, keys) as u32;
                world.append(Generation::Fresh, key);
            }
        }
        world.segments.check_invariants(&world.live);
        let measured = (world.written - before) as f64 / (ROUNDS_MEASURED * keys) as f64;
        println!("{live_percent} % live: {measured:.2}");
        (measured, world.late - late)
    }

    /// Zipf of exponent 0.99 by inversion, about; its ranks are strewn over the keys.
    fn zipf(keys: u64) -> impl FnMut(&mut Prng, u64) -> u64 {
        let mut order: Vec<u32> = (0..keys as u32).collect();
        let mut random = Prng::new(2);
        (1..order.len()).for_each(|at| order.swap(at, random.below(at as u64 + 1) as usize));
        let exponent = 1.0 - 0.99;
        move |random, keys| {
            let unit = random.next_u64() as f64 / u64::MAX as f64;
            let rank = ((keys as f64).powf(exponent) * unit + (1.0 - unit)).powf(1.0 / exponent) as usize;
            u64::from(order[rank.clamp(1, order.len()) - 1])
        }
    }

    fn records_per_segment() -> u64 {
        std::env::var("RECORDS").map_or(4096, |text| text.parse().expect("RECORDS=155000"))
    }

    fn assert_uniform(live_percent: u64, at_most: f64) {
        let (measured, late) =
            amplification(records_per_segment(), live_percent, |random, keys| random.below(keys));
        assert!(measured <= at_most, "{measured} at {live_percent} %");
        assert!(late == 0, "{late} steps of cleaning were waited for");
    }

    fn assert_zipf(live_percent: u64, at_most: f64) {
        let records = records_per_segment();
        let keys = SEGMENTS * records * (100 - RESERVE_PERCENT) / 100 * live_percent / 100;
        let (measured, late) = amplification(records, live_percent, zipf(keys));
        assert!(measured <= at_most, "{measured} at {live_percent} %");
        assert!(late == 0, "{late} steps of cleaning were waited for");
    }

    #[test]
    fn amplification_of_uniform_writes() {
        assert_uniform(70, 2.0);
        assert_uniform(85, 3.6);
    }

    #[test]
    fn amplification_of_zipf_writes() {
        assert_zipf(70, 1.75);
        assert_zipf(85, 2.65);
    }
}
