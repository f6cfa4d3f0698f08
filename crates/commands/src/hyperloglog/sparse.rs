//! Registers as runs of equal ones, while most are zero:
//!
//! ```text
//! 00llllll             1 to 64 zeros
//! 01llllll llllllll    1 to 16384 zeros
//! 1vvvvvll             1 to 4 registers of the value 1 to 32
//! ```
//! A new sketch is one run of zeros. Changing a register splits the run it lies in, and then equal values
//! next to each other are joined, a few runs around: exactly as Valkey does it, for the bytes are seen.

use super::{Histogram, REGISTERS, Registers};

/// Larger values need the dense form.
pub(super) const VALUE_MAX: u8 = 32;
const VALUE_RUN_MAX: usize = 4;
const SHORT_ZEROS_MAX: usize = 64;

/// The runs do not make up 16384 registers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Corrupted;

/// A new sketch: 16384 zeros.
pub(super) const EMPTY: [u8; 2] = long_zeros(REGISTERS);

const fn long_zeros(len: usize) -> [u8; 2] {
    [0x40 | ((len - 1) >> 8) as u8, (len - 1) as u8]
}

const fn values(value: u8, len: usize) -> u8 {
    0x80 | (value - 1) << 2 | (len - 1) as u8
}

/// Run of `len` registers that have the same value, encoded in `bytes` bytes.
#[derive(Clone, Copy)]
pub(super) struct Run {
    pub value: u8,
    pub len: usize,
    pub bytes: usize,
}

/// The run whose bytes begin at `at`.
fn run_at(runs: &[u8], at: usize) -> Run {
    let byte = runs[at];
    let low = usize::from(byte & 0x3f);
    match byte >> 6 {
        0 => Run { value: 0, len: low + 1, bytes: 1 },
        // A byte that was cut off counts as zero.
        1 => {
            let len = (low << 8 | usize::from(runs.get(at + 1).copied().unwrap_or(0))) + 1;
            Run { value: 0, len, bytes: 2 }
        }
        _ => Run { value: (byte >> 2 & 0x1f) + 1, len: usize::from(byte & 3) + 1, bytes: 1 },
    }
}

/// The runs one after the other, whatever they add up to.
pub(super) fn each(runs: &[u8]) -> impl Iterator<Item = Run> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let run = (at < runs.len()).then(|| run_at(runs, at))?;
        at += run.bytes;
        Some(run)
    })
}

/// Calls `visit` with the first register of every run.
fn for_each(runs: &[u8], mut visit: impl FnMut(usize, Run)) -> Result<(), Corrupted> {
    let mut first = 0;
    for run in each(runs) {
        if first + run.len > REGISTERS {
            return Err(Corrupted);
        }
        visit(first, run);
        first += run.len;
    }
    if first == REGISTERS { Ok(()) } else { Err(Corrupted) }
}

pub(super) fn histogram(runs: &[u8]) -> Result<Histogram, Corrupted> {
    let mut histogram = [0; 64];
    for_each(runs, |_, run| histogram[usize::from(run.value)] += run.len as u32)?;
    Ok(histogram)
}

pub(super) fn merge(runs: &[u8], into: &mut Registers) -> Result<(), Corrupted> {
    for_each(runs, |first, run| {
        let registers = &mut into[first..first + run.len];
        registers.iter_mut().for_each(|register| *register = run.value.max(*register));
    })
}

/// Result of an attempt to raise a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Raised {
    Changed,
    /// The register has it already, or a larger one.
    Same,
    /// The value cannot be encoded in this form, or not within the limit of bytes. The sketch is unchanged.
    NoRoom,
}

/// Place of the run of a register.
struct Place {
    at: usize,
    /// Place of the run before it.
    before: Option<usize>,
    /// First register of the run.
    first: usize,
    run: Run,
}

fn locate(runs: &[u8], index: usize) -> Result<Place, Corrupted> {
    let (mut at, mut before, mut first) = (0, None, 0);
    while at < runs.len() {
        let run = run_at(runs, at);
        if index < first + run.len {
            return Ok(Place { at, before, first, run });
        }
        (before, first, at) = (Some(at), first + run.len, at + run.bytes);
    }
    Err(Corrupted)
}

/// Offers `value` to the register `index` of the runs that stand in `bytes` from `start` on; `bytes` may
/// become `bytes_max` long.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    start: usize,
    index: usize,
    value: u8,
    bytes_max: usize,
) -> Result<Raised, Corrupted> {
    if value > VALUE_MAX {
        return Ok(Raised::NoRoom);
    }
    let place = locate(&bytes[start..], index)?;
    if place.run.value >= value {
        return Ok(Raised::Same);
    }
    let parts = split(&place, index, value);
    let end = (place.at + place.run.bytes).min(bytes.len() - start);
    let old_len = end - place.at;
    if parts.len() > old_len && bytes.len() + parts.len() - old_len > bytes_max {
        return Ok(Raised::NoRoom);
    }
    bytes.splice(start + place.at..start + end, parts);
    join(bytes, start, place.before.unwrap_or(0));
    Ok(Raised::Changed)
}

/// The runs that replace one: the part before the register, the register, and the part after it.
fn split(place: &Place, index: usize, value: u8) -> arrayvec::ArrayVec<u8, 5> {
    let mut parts = arrayvec::ArrayVec::new();
    let mut push = |old: u8, len: usize| match (old, len) {
        (_, 0) => {}
        (0, ..=SHORT_ZEROS_MAX) => parts.push((len - 1) as u8),
        (0, _) => parts.extend(long_zeros(len)),
        _ => parts.push(values(old, len)),
    };
    push(place.run.value, index - place.first);
    push(value, 1);
    push(place.run.value, place.first + place.run.len - 1 - index);
    parts
}

/// Joins equal values next to each other, looking at five runs from `at` on.
fn join(bytes: &mut Vec<u8>, start: usize, mut at: usize) {
    const RUNS_MAX: usize = 5;
    for _ in 0..RUNS_MAX {
        let runs = &bytes[start..];
        if at >= runs.len() {
            return;
        }
        let run = run_at(runs, at);
        let next = at + run.bytes;
        if run.value > 0 && next < runs.len() {
            let other = run_at(runs, next);
            if other.value == run.value && run.len + other.len <= VALUE_RUN_MAX {
                bytes[start + next] = values(run.value, run.len + other.len);
                // The joined run may be joined with the one after it.
                bytes.remove(start + at);
                continue;
            }
        }
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_stdx::Prng;

    #[test]
    fn random_registers() {
        for seed in 0..30 {
            let mut prng = Prng::new(seed);
            let (mut bytes, mut model) = (EMPTY.to_vec(), [0u8; REGISTERS]);
            let near = if seed % 2 == 0 { 40 } else { REGISTERS as u64 };
            let mut full = false;
            for _ in 0..2000 {
                let (index, value) = (prng.below(near) as usize, 1 + prng.below(VALUE_MAX.into()) as u8);
                let old = model[index];
                let before = bytes.clone();
                match raise(&mut bytes, 0, index, value, 1000).unwrap() {
                    Raised::Changed => {
                        assert!(value > old);
                        model[index] = value;
                    }
                    Raised::Same => assert!(value <= old && before == bytes),
                    Raised::NoRoom => {
                        assert!(value > old && before == bytes);
                        full = true;
                    }
                }
                assert!(bytes.len() <= 1000);
            }
            assert_eq!(full, near > 1000, "{seed}");
            let mut merged = [0; REGISTERS];
            merge(&bytes, &mut merged).unwrap();
            assert!(merged == model, "{seed}");
            let histogram = histogram(&bytes).unwrap();
            let zeros = model.iter().filter(|value| **value == 0).count();
            assert_eq!(histogram[0], zeros as u32);
        }
    }

    #[test]
    fn values_beside_each_other_are_joined() {
        let mut bytes = EMPTY.to_vec();
        for index in [5, 7, 6, 8, 9] {
            raise(&mut bytes, 0, index, 3, 1000).unwrap();
        }
        assert_eq!(bytes, [4, values(3, 4), values(3, 1), 0x7f, 0xf5]);
    }

    #[test]
    fn what_is_too_large_stays_out() {
        let mut bytes = EMPTY.to_vec();
        assert_eq!(raise(&mut bytes, 0, 1, 33, 1000), Ok(Raised::NoRoom));
        assert_eq!(raise(&mut bytes, 0, 1, 32, 2), Ok(Raised::NoRoom));
        assert_eq!(bytes, EMPTY);
    }

    #[test]
    fn corrupted_runs() {
        for runs in [&[][..], &[0x7f], &[0x7f, 0xff, 0], &[0x7f, 0xfe], &[0x80; 5000], &[0x00]] {
            assert_eq!(histogram(runs).err(), Some(Corrupted), "{runs:?}");
            assert_eq!(merge(runs, &mut [0; REGISTERS]), Err(Corrupted), "{runs:?}");
            for index in [0, 100, REGISTERS - 1] {
                // It may look right as far as one sees; what matters is that nothing is read or written
                // outside.
                let _ = raise(&mut runs.to_vec(), 0, index, 5, 1000);
            }
        }
    }
}
