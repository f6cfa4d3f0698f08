//! Random numbers that a seed replays: xoshiro256**, seeded through splitmix64.
//!
//! Good enough for sampling, eviction and tests; no use as a secret.

#[derive(Clone, Debug)]
pub struct Prng {
    state: [u64; 4],
}

impl Prng {
    pub fn new(seed: u64) -> Prng {
        let mut x = seed;
        Prng { state: std::array::from_fn(|_| split_mix(&mut x)) }
    }

    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number in `0..n`; 0 for `n` = 0. By multiplication: the bias is at most n / 2^64.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Returns a random element of a slice that is not empty.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// True once in `n` calls on average.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// Steps `x` and scrambles it; neighbouring seeds give unrelated states, and never the all-zero one.
fn split_mix(x: &mut u64) -> u64 {
    *x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *x;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_splitmix_sequence() {
        let mut x = 1234567;
        let sequence: Vec<u64> = (0..3).map(|_| split_mix(&mut x)).collect();
        assert_eq!(sequence, [6457827717110365317, 3203168211198807973, 9817491932198370423]);
    }

    #[test]
    fn a_seed_replays_and_another_does_not() {
        let draw = |seed| (0..8).scan(Prng::new(seed), |prng, _| Some(prng.next_u64())).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn below_fills_its_range_evenly() {
        let mut prng = Prng::new(5);
        let mut counts = [0u32; 10];
        for _ in 0..100_000 {
            counts[prng.below(10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
        assert_eq!(prng.below(0), 0);
        assert_eq!(prng.below(1), 0);
    }
}
