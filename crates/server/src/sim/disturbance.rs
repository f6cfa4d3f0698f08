//! Disturbances that no call of the disk shows: a routine that makes no progress, and a wall clock that is
//! set.

use std::time::Duration;

use super::machine::Machine;
use isotherm_runtime::routines;
use isotherm_runtime::time::simulated as clock;

/// Longer than the waits of clients, workers and the control thread, 10 s at most.
const HANG_MS_MAX: u64 = 15_000;
/// Steps of the wall clock: of a time server, by hand, by a day.
const CLOCK_STEPS_MS: [u64; 3] = [100, 5_000, 86_400_000];

impl Machine {
    /// Now and then the disk of one routine hangs, or the wall clock is set.
    pub fn disturb(&mut self) {
        match self.prng.below(200) {
            0 => {
                let time = Duration::from_millis(self.prng.below(HANG_MS_MAX));
                let name = routines::simulated::hang(time);
                self.counts.hangs += u64::from(name.is_some());
                self.trace(|| format!("{name:?} hangs for {time:?}"));
            }
            1 => {
                let most_ms = *self.prng.pick(&CLOCK_STEPS_MS);
                let step_ms = self.prng.below(2 * most_ms) as i64 - most_ms as i64;
                clock::step(step_ms);
                self.may_be_unordered |= self.is_off && step_ms < 0;
                self.counts.clock_steps += 1;
                self.trace(|| format!("the wall clock was set by {step_ms} ms"));
            }
            _ => {}
        }
    }
}
