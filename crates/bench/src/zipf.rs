//! Zipf's law: the k-th most wanted of n keys is asked for in proportion to k^-s.
//!
//! Rejection-inversion after Hörmann and Derflinger (1996): constant time and no table, whatever n is. The
//! density is covered by its integral, a point under it is drawn, and the rare point that falls between the
//! curve and the staircase is drawn again.

use isotherm_stdx::Prng;

pub struct Zipf {
    n: f64,
    exponent: f64,
    /// The integral at the left edge of rank 1, and at the right edge of rank n.
    from: f64,
    to: f64,
    /// Within this distance below its rank a point needs no test.
    sure: f64,
}

impl Zipf {
    pub fn new(n: u64, exponent: f64) -> Zipf {
        assert!(n > 0 && exponent > 0.0 && exponent != 1.0, "the integral has another form at 1");
        let mut zipf = Zipf { n: n as f64, exponent, from: 0.0, to: 0.0, sure: 0.0 };
        zipf.from = zipf.integral(1.5) - 1.0;
        zipf.to = zipf.integral(zipf.n + 0.5);
        zipf.sure = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    /// A rank from 1 to n.
    pub fn draw(&self, prng: &mut Prng) -> u64 {
        loop {
            let unit = (prng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
            let at = self.to + unit * (self.from - self.to);
            let x = self.inverse(at);
            let rank = x.round().clamp(1.0, self.n);
            if rank - x <= self.sure || at >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        x.powf(-self.exponent)
    }

    fn integral(&self, x: f64) -> f64 {
        (x.powf(1.0 - self.exponent) - 1.0) / (1.0 - self.exponent)
    }

    fn inverse(&self, area: f64) -> f64 {
        (1.0 + area * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_come_up_as_the_law_says() {
        let (n, exponent, draws) = (1000, 0.99, 400_000);
        let (zipf, mut prng) = (Zipf::new(n, exponent), Prng::new(7));
        let mut counts = vec![0u32; n as usize + 1];
        for _ in 0..draws {
            counts[zipf.draw(&mut prng) as usize] += 1;
        }
        let whole: f64 = (1..=n).map(|rank| (rank as f64).powf(-exponent)).sum();
        for rank in [1usize, 2, 3, 10, 100] {
            let expected = f64::from(draws) * (rank as f64).powf(-exponent) / whole;
            let off = (f64::from(counts[rank]) - expected).abs() / expected.sqrt();
            assert!(off < 5.0, "rank {rank}: {} instead of {expected:.0}", counts[rank]);
        }
        assert_eq!(counts[0], 0);
    }
}
