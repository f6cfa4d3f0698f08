//! Looking closer at some commands: all of them where slots are counted, one of many for the keys that are used most.
//!
//! Every command counts one number down and goes on; whoever reaches 0 is looked at, and says when the next one is.

use isotherm_commands::spec::key_positions;
use isotherm_keyspace::{Db, Slot};
use isotherm_resp::Args;

use crate::observe::hot_keys::Use;
use crate::request::dispatch::Dispatcher;
use crate::request::registry::Entry;

/// Of a command with many keys so many are counted as used.
const KEYS_MAX: usize = 16;

/// When the next command is looked at.
pub struct Sampler {
    /// Commands until then.
    left: u32,
    /// Of those that are looked at: until one is a sample of the keys.
    until_sample: u32,
}

impl Default for Sampler {
    fn default() -> Sampler {
        Sampler { left: 1, until_sample: 0 }
    }
}

impl Sampler {
    #[inline]
    pub fn is_due(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// The configuration has changed: the next command decides anew.
    pub fn restart(&mut self) {
        *self = Sampler::default();
    }
}

impl Dispatcher {
    #[inline(never)]
    pub(crate) fn look_closer(
        &mut self,
        db: Db,
        command: &'static Entry,
        args: Args<'_>,
        ticks: u64,
        reply_bytes: usize,
    ) {
        let (counts_slots, ratio) = (self.hot.counts_slots, self.hot.hot_keys_ratio);
        let is_sample = ratio > 0 && self.sampler.until_sample == 1;
        if counts_slots || is_sample {
            self.positions.clear();
            // A command whose keys cannot be told has failed.
            let _ = key_positions(command.spec, args, &mut self.positions);
            if let Some((at, _)) = self.positions.first().filter(|_| counts_slots) {
                let counters = self.stats.slots.of(Slot::of_key(args.get(*at)));
                counters.ticks.add(ticks);
                counters.input_bytes.add(args.wire_bytes() as u64);
                counters.output_bytes.add(reply_bytes as u64);
            }
        }
        if is_sample {
            self.note_uses(db, args, ticks, ratio);
        }
        self.plan_next(counts_slots, ratio, is_sample);
    }

    fn note_uses(&self, db: Db, args: Args<'_>, ticks: u64, ratio: u32) {
        let keys = self.positions.len().min(KEYS_MAX);
        for (at, _) in &self.positions[..keys] {
            let name = args.get(*at);
            let hash = self.node.keyspace.key(name).identity();
            let ticks = ticks / keys as u64;
            self.stats.hot_keys.note(Use { db, name, hash, ticks }, ratio);
        }
    }

    /// Distances are drawn: `ratio` in the mean.
    fn plan_next(&mut self, counts_slots: bool, ratio: u32, was_sample: bool) {
        let sampler = &mut self.sampler;
        if ratio == 0 {
            sampler.until_sample = 0;
        } else if was_sample || sampler.until_sample == 0 {
            sampler.until_sample = 1 + self.prng.below(2 * u64::from(ratio) - 1) as u32;
        } else {
            sampler.until_sample -= 1;
        }
        // While slots are counted every command is looked at; else only the sample.
        sampler.left = match (counts_slots, ratio) {
            (true, _) => 1,
            (false, 0) => u32::MAX,
            (false, _) => std::mem::replace(&mut sampler.until_sample, 1),
        };
    }
}
