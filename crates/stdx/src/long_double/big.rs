//! A natural number of any size, with just the operations that reading and printing take.
//!
//! Limbs of 32 bits, the lowest first, so that a limb times a small number plus a carry fits 64 bits.
//! Invariant: the last limb is not zero; zero has no limbs.

use std::cmp::Ordering;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Big {
    limbs: Vec<u32>,
}

impl Big {
    pub(super) fn from_u128(mut value: u128) -> Big {
        let mut limbs = Vec::with_capacity(4);
        while value > 0 {
            limbs.push(value as u32);
            value >>= 32;
        }
        Big { limbs }
    }

    pub(super) fn from_digits(digits: impl Iterator<Item = u8>) -> Big {
        let mut big = Big { limbs: Vec::new() };
        let (mut chunk, mut scale) = (0, 1);
        for digit in digits {
            (chunk, scale) = (chunk * 10 + u32::from(digit - b'0'), scale * 10);
            if scale == TEN_TO_9 {
                big.multiply_add(scale, chunk);
                (chunk, scale) = (0, 1);
            }
        }
        big.multiply_add(scale, chunk);
        big
    }

    pub(super) fn power_of_ten(power: u32) -> Big {
        let mut big = Big::from_u128(1);
        big.multiply_power_of_ten(power);
        big
    }

    pub(super) fn multiply_power_of_ten(&mut self, power: u32) {
        (0..power / 9).for_each(|_| self.multiply_add(TEN_TO_9, 0));
        self.multiply_add(10u32.pow(power % 9), 0);
    }

    fn multiply_add(&mut self, factor: u32, addend: u32) {
        let mut carry = u64::from(addend);
        for limb in &mut self.limbs {
            let product = u64::from(*limb) * u64::from(factor) + carry;
            *limb = product as u32;
            carry = product >> 32;
        }
        if carry > 0 {
            self.limbs.push(carry as u32);
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.limbs.is_empty()
    }

    pub(super) fn bits(&self) -> u32 {
        match self.limbs.last() {
            None => 0,
            Some(last) => self.limbs.len() as u32 * 32 - last.leading_zeros(),
        }
    }

    pub(super) fn shift_left(&mut self, bits: u32) {
        if self.is_zero() {
            return;
        }
        let within = bits % 32;
        if within > 0 {
            let mut carry = 0;
            for limb in &mut self.limbs {
                let shifted = (u64::from(*limb) << within) | carry;
                *limb = shifted as u32;
                carry = shifted >> 32;
            }
            if carry > 0 {
                self.limbs.push(carry as u32);
            }
        }
        self.limbs.splice(0..0, std::iter::repeat_n(0, (bits / 32) as usize));
    }

    /// The first 128 bits, how many bits follow them, and whether any of those is set.
    pub(super) fn first_bits(&self) -> (u128, u32, bool) {
        let limb = |i: usize| u128::from(self.limbs.get(i).copied().unwrap_or(0));
        let bits = self.bits();
        if bits <= 128 {
            return ((0..4).fold(0, |sum, i| sum | (limb(i) << (32 * i))), 0, false);
        }
        let below = bits - 128;
        let (first, within) = ((below / 32) as usize, below % 32);
        let low = (0..4).fold(0, |sum, i| sum | (limb(first + i) << (32 * i)));
        let kept = if within == 0 { low } else { (low >> within) | (limb(first + 4) << (128 - within)) };
        let sticky = self.limbs[..first].iter().any(|&limb| limb != 0)
            || self.limbs[first] & ((1u32 << within) - 1) != 0;
        (kept, below, sticky)
    }

    fn compare(&self, other: &Big) -> Ordering {
        let by_length = self.limbs.len().cmp(&other.limbs.len());
        by_length.then_with(|| self.limbs.iter().rev().cmp(other.limbs.iter().rev()))
    }

    /// Takes away a number that is not larger.
    fn subtract(&mut self, other: &Big) {
        let mut borrow = 0i64;
        for (i, limb) in self.limbs.iter_mut().enumerate() {
            let difference = i64::from(*limb) - i64::from(other.limbs.get(i).copied().unwrap_or(0)) + borrow;
            *limb = difference as u32;
            borrow = difference >> 32;
        }
        assert_eq!(borrow, 0, "only a smaller number may be taken away");
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
    }

    /// `self / divisor` as `quotient x 2^exponent` with at least 67 bits in the quotient, and whether
    /// anything is left. Bit by bit: 68 comparisons and subtractions, whatever the numbers.
    pub(super) fn divide(mut self, mut divisor: Big) -> (u128, i32, bool) {
        const QUOTIENT_BITS: i32 = 68;
        let scale = self.bits() as i32 - divisor.bits() as i32;
        if scale > 0 {
            divisor.shift_left(scale as u32);
        } else {
            self.shift_left(scale.unsigned_abs());
        }
        // Both have the same number of bits now: the first digit of the quotient is 0 or 1.
        let mut quotient = 0u128;
        for _ in 0..QUOTIENT_BITS {
            quotient <<= 1;
            if self.compare(&divisor) != Ordering::Less {
                self.subtract(&divisor);
                quotient |= 1;
            }
            self.shift_left(1);
        }
        (quotient, scale - (QUOTIENT_BITS - 1), !self.is_zero())
    }

    /// Appends the decimal digits.
    pub(super) fn push_digits(mut self, out: &mut Vec<u8>) {
        let mut chunks = Vec::new();
        while !self.is_zero() {
            chunks.push(self.divide_by_ten_to_9());
        }
        let mut chunks = chunks.iter().rev();
        crate::number::push_u64(out, u64::from(chunks.next().copied().unwrap_or(0)));
        for chunk in chunks {
            out.extend_from_slice(format!("{chunk:09}").as_bytes());
        }
    }

    fn divide_by_ten_to_9(&mut self) -> u32 {
        let mut remainder = 0u64;
        for limb in self.limbs.iter_mut().rev() {
            let dividend = (remainder << 32) | u64::from(*limb);
            *limb = (dividend / u64::from(TEN_TO_9)) as u32;
            remainder = dividend % u64::from(TEN_TO_9);
        }
        while self.limbs.last() == Some(&0) {
            self.limbs.pop();
        }
        remainder as u32
    }
}

const TEN_TO_9: u32 = 1_000_000_000;
