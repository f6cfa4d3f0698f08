//! Counting acknowledgements: how many replicas have come to a place, and which place enough of them have
//! come to.

use isotherm_log::LogOffset;

/// Returns how many acknowledgements have reached `place`.
pub fn count(acks: impl IntoIterator<Item = LogOffset>, place: LogOffset) -> usize {
    acks.into_iter().filter(|ack| *ack >= place).count()
}

/// The furthest place that `k` of them have come to; `k` is not 0. The beginning of the log if there are
/// fewer. Sorts `acks`.
pub fn kth_highest(acks: &mut [LogOffset], k: usize) -> LogOffset {
    acks.sort_unstable();
    let at = acks.len().checked_sub(k);
    at.map_or(LogOffset(0), |at| acks[at])
}

/// Condition that a client waits for (WAIT, WAITAOF).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Place after the client's last change.
    pub place: LogOffset,
    pub replicas: usize,
    /// True if the replicas, and this node if `here`, must have synced the log up to `place`.
    pub synced: bool,
    pub here: bool,
}

/// Progress towards a wish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reached {
    pub replicas: usize,
    /// True if this node has synced the log up to `place`.
    pub here: bool,
}

impl Wish {
    /// `acks`: what each replica has applied and synced. `durable`: what this node has synced.
    pub fn reached(
        &self,
        acks: impl IntoIterator<Item = (LogOffset, LogOffset)>,
        durable: LogOffset,
    ) -> Reached {
        let of_wish = acks.into_iter().map(|(acked, synced)| if self.synced { synced } else { acked });
        Reached { replicas: count(of_wish, self.place), here: durable >= self.place }
    }

    pub fn is_met(&self, reached: Reached) -> bool {
        reached.replicas >= self.replicas && (reached.here || !self.here)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(of: &[u64]) -> Vec<LogOffset> {
        of.iter().copied().map(LogOffset).collect()
    }

    #[test]
    fn the_kth_highest_is_what_k_have() {
        let mut prng = isotherm_stdx::Prng::new(14);
        for _ in 0..200 {
            let mut acks: Vec<LogOffset> = (0..prng.below(6)).map(|_| LogOffset(prng.below(10))).collect();
            for k in 1..=6 {
                let place = kth_highest(&mut acks, k);
                assert!(count(acks.clone(), place) >= k || place == LogOffset(0));
                assert!(count(acks.clone(), place + 1) < k);
            }
        }
        assert_eq!(kth_highest(&mut offsets(&[7, 3, 5]), 2), LogOffset(5));
    }

    #[test]
    fn wishes() {
        let acks = [(LogOffset(10), LogOffset(5)), (LogOffset(8), LogOffset(8))];
        let wait = Wish { place: LogOffset(9), replicas: 1, synced: false, here: false };
        let reached = wait.reached(acks, LogOffset(0));
        assert_eq!(reached, Reached { replicas: 1, here: false });
        assert!(wait.is_met(reached) && !Wish { replicas: 2, ..wait }.is_met(reached));
        let synced = Wish { place: LogOffset(6), synced: true, here: true, ..wait };
        assert!(!synced.is_met(synced.reached(acks, LogOffset(5))));
        assert!(synced.is_met(synced.reached(acks, LogOffset(6))));
    }
}
