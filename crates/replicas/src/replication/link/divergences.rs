//! Pauses of a replica that asks for all data again because its primary has sent a command that fails here.
//! The command may come again with the next data, so each attempt that ends so is followed by a longer pause:
//! a primary makes one snapshot in ten minutes at most.

use isotherm_log::writer::Ms;

const PAUSE_MS: u64 = 1000;
/// The factor from one pause to the next.
const LONGER: u64 = 4;
const PAUSE_MAX_MS: u64 = 10 * 60 * 1000;
/// Time without a divergence after which the next one begins with the shortest pause again.
const FORGOTTEN_MS: u64 = 60 * 60 * 1000;

/// Divergences from one primary.
#[derive(Default)]
pub struct Divergences {
    last: Option<Ms>,
    pause_ms: u64,
}

impl Divergences {
    /// Notes one. Returns how long the link stays down.
    pub fn note(&mut self, now: Ms) -> u64 {
        let is_forgotten = self.last.is_none_or(|last| now.0.saturating_sub(last.0) > FORGOTTEN_MS);
        self.pause_ms = if is_forgotten { PAUSE_MS } else { (self.pause_ms * LONGER).min(PAUSE_MAX_MS) };
        self.last = Some(now);
        self.pause_ms
    }

    /// Returns the moment before which nothing is asked for.
    pub fn rests_until(&self) -> Ms {
        self.last.map_or(Ms(0), |last| Ms(last.0 + self.pause_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_become_longer_and_are_forgotten() {
        let mut divergences = Divergences::default();
        assert_eq!(divergences.rests_until(), Ms(0));
        let mut now = Ms(5000);
        for expected in [1000, 4000, 16_000, 64_000, 256_000, PAUSE_MAX_MS, PAUSE_MAX_MS] {
            assert_eq!(divergences.note(now), expected);
            assert_eq!(divergences.rests_until(), Ms(now.0 + expected));
            now = Ms(now.0 + expected + 10);
        }
        now = Ms(now.0 + FORGOTTEN_MS);
        assert_eq!(divergences.note(now), 1000);
    }
}
