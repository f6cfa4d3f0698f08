//! Registers of 6 bits, one after the other, from the lowest bit of a byte on:
//!
//! ```text
//! byte        0          1          2
//! register    11000000   22221111   33333322
//! ```

use super::{Histogram, REGISTERS, Registers};

/// 16384 x 6 bits.
pub(super) const BYTES: usize = REGISTERS * 6 / 8;

#[inline]
pub(super) fn get(registers: &[u8], index: usize) -> u8 {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    // The last register ends with the last byte.
    let next = registers.get(byte + 1).copied().unwrap_or(0);
    (u16::from_le_bytes([registers[byte], next]) >> shift) as u8 & 0x3f
}

#[inline]
pub(super) fn set(registers: &mut [u8], index: usize, value: u8) {
    let (byte, shift) = (index * 6 / 8, index * 6 % 8);
    let (keep, add) = (!(0x3fu16 << shift), u16::from(value) << shift);
    registers[byte] = registers[byte] & keep as u8 | add as u8;
    if let Some(next) = registers.get_mut(byte + 1) {
        *next = *next & (keep >> 8) as u8 | (add >> 8) as u8;
    }
}

/// Offers `value` to a register. Returns whether it was larger.
#[inline]
pub(super) fn raise(registers: &mut [u8], index: usize, value: u8) -> bool {
    let is_larger = value > get(registers, index);
    if is_larger {
        set(registers, index, value);
    }
    is_larger
}

/// Calls `visit` with every register in order: three bytes are four of them.
#[inline]
pub(super) fn for_each(registers: &[u8], mut visit: impl FnMut(usize, u8)) {
    for (at, three) in registers.chunks_exact(3).enumerate() {
        let four = u32::from_le_bytes([three[0], three[1], three[2], 0]);
        for place in 0..4 {
            visit(at * 4 + place, (four >> (place * 6)) as u8 & 0x3f);
        }
    }
}

pub(super) fn histogram(registers: &[u8]) -> Histogram {
    let mut histogram = [0; 64];
    for_each(registers, |_, value| histogram[usize::from(value)] += 1);
    histogram
}

pub(super) fn merge(registers: &[u8], into: &mut Registers) {
    for_each(registers, |index, value| into[index] = into[index].max(value));
}

/// Writes all registers.
pub(super) fn pack(from: &Registers, registers: &mut [u8]) {
    for (three, four) in registers.chunks_exact_mut(3).zip(from.chunks_exact(4)) {
        let packed = (0..4).fold(0u32, |packed, place| packed | u32::from(four[place]) << (place * 6));
        three.copy_from_slice(&packed.to_le_bytes()[..3]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn registers_do_not_touch_each_other() {
        let mut prng = Prng::new(5);
        let (mut packed, mut model) = (vec![0; BYTES], [0u8; REGISTERS]);
        for _ in 0..100_000 {
            let (index, value) = (prng.below(REGISTERS as u64) as usize, prng.below(64) as u8);
            set(&mut packed, index, value);
            model[index] = value;
        }
        (0..REGISTERS).for_each(|index| assert_eq!(get(&packed, index), model[index], "{index}"));
        for_each(&packed, |index, value| assert_eq!(value, model[index], "{index}"));
        let mut again = vec![0xff; BYTES];
        pack(&model, &mut again);
        assert_eq!(again, packed);
        let mut merged = [7; REGISTERS];
        merge(&packed, &mut merged);
        (0..REGISTERS).for_each(|index| assert_eq!(merged[index], model[index].max(7)));
        assert_eq!(histogram(&packed).iter().sum::<u32>(), REGISTERS as u32);
    }

    #[test]
    fn only_larger_numbers_are_taken() {
        let mut packed = vec![0; BYTES];
        for (index, value, taken) in
            [(3, 5, true), (3, 5, false), (3, 4, false), (3, 51, true), (16383, 1, true)]
        {
            assert_eq!(raise(&mut packed, index, value), taken);
        }
    }
}
