//! Looking closer at some commands: all of them where slots are counted, one of many for the keys that are
//! used most.
//!
//! Every command counts one number down and continues; the command that reaches 0 is sampled, and the next
//! distance is drawn.

use isotherm_commands::spec::{KeyFlags, key_positions, slot_positions};
use isotherm_keyspace::Slot;
use isotherm_stdx::Prng;

use crate::request::cached_config::Hot;
use crate::request::metering::{Part, Timed};
use isotherm_node::Node;
use isotherm_node::observe::hot_keys::Use;
use isotherm_node::observe::slot_stats::SlotsMet;
use isotherm_node::observe::stats::ThreadStats;

/// Most keys of one command that are counted as used.
const KEYS_MAX: usize = 16;
/// Request that begins a transaction.
const MULTI: &[u8] = b"*1\r\n$5\r\nmulti\r\n";

/// Schedule of the commands that are looked at.
pub struct Sampler {
    /// Commands until then.
    left: u32,
    /// Looks until the next one is a sample of the keys.
    until_sample: u32,
    /// Kept for its memory.
    positions: Vec<(usize, KeyFlags)>,
    /// Slots that the commands of a script met. The script has ended and is about to be counted.
    met: SlotsMet,
    /// Slot of the first key in the current transaction.
    transaction: Option<Slot>,
}

impl Default for Sampler {
    fn default() -> Sampler {
        let (met, transaction) = (SlotsMet::None, None);
        Sampler { left: 1, until_sample: 0, positions: Vec::new(), met, transaction }
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

    pub fn note_slots_met(&mut self, met: SlotsMet) {
        self.met = met;
    }
}

impl Sampler {
    #[inline(never)]
    pub fn look_closer(
        &mut self,
        node: &Node,
        stats: &ThreadStats,
        hot: &Hot,
        prng: &mut Prng,
        timed: &Timed<'_>,
    ) {
        let (counts_slots, ratio) = (hot.counts_slots, hot.hot_keys_ratio);
        let is_sample = ratio > 0 && self.until_sample == 1;
        // A command whose keys cannot be found has failed.
        if counts_slots {
            self.positions.clear();
            let _ = slot_positions(timed.command.spec, timed.args, &mut self.positions);
            let first = self.positions.first().map(|(at, _)| Slot::of_key(timed.args.get(*at)));
            self.count_for_slot(stats, timed, first);
        }
        if is_sample {
            self.positions.clear();
            let _ = key_positions(timed.command.spec, timed.args, &mut self.positions);
            note_uses(node, stats, timed, &self.positions, ratio);
        }
        self.plan_next(prng, counts_slots, ratio, is_sample);
    }

    /// `first`: the slot of its first key.
    fn count_for_slot(&mut self, stats: &ThreadStats, timed: &Timed<'_>, first: Option<Slot>) {
        let mut met = std::mem::take(&mut self.met);
        first.into_iter().for_each(|slot| met.note(slot));
        let input_bytes = timed.args.request_bytes() as u64;
        let (earlier_ticks, transaction) = match timed.part {
            Part::Called => return,
            Part::Queued => {
                let Some(slot) = met.one() else { return };
                self.transaction.get_or_insert(slot);
                return stats.slots.of(slot).input_bytes.add(input_bytes);
            }
            Part::Whole => (0, self.transaction.take()),
            Part::Waited(ticks) => (ticks, None),
        };
        let multi_bytes = if transaction.is_some() { MULTI.len() } else { 0 };
        let Some(slot) = met.one().or(transaction) else { return };
        let counters = stats.slots.of(slot);
        counters.ticks.add(earlier_ticks + timed.ticks);
        counters.input_bytes.add(input_bytes + multi_bytes as u64);
        counters.output_bytes.add(timed.reply_bytes as u64);
    }

    /// Distances are drawn: `ratio` in the mean.
    fn plan_next(&mut self, prng: &mut Prng, counts_slots: bool, ratio: u32, was_sample: bool) {
        if ratio == 0 {
            self.until_sample = 0;
        } else if was_sample || self.until_sample == 0 {
            self.until_sample = 1 + prng.below(2 * u64::from(ratio) - 1) as u32;
        } else {
            self.until_sample -= 1;
        }
        // While slots are counted every command is looked at; else only the sample.
        self.left = match (counts_slots, ratio) {
            (true, _) => 1,
            (false, 0) => u32::MAX,
            (false, _) => std::mem::replace(&mut self.until_sample, 1),
        };
    }
}

fn note_uses(
    node: &Node,
    stats: &ThreadStats,
    timed: &Timed<'_>,
    positions: &[(usize, KeyFlags)],
    ratio: u32,
) {
    let keys = positions.len().min(KEYS_MAX);
    for (at, _) in &positions[..keys] {
        let name = timed.args.get(*at);
        let hash = node.keyspace.key(name).identity();
        let ticks = timed.ticks / keys as u64;
        stats.hot_keys.note(Use { db: timed.db, name, hash, ticks }, ratio);
    }
}
