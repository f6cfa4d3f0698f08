//! A sketch as the bytes of a string: its header, and its registers in one of two forms.

use super::hash::place;
use super::sparse::{self, Corrupted, Raised};
use super::{Histogram, Registers, dense};

pub(super) const HEADER_BYTES: usize = 16;
pub(super) const DENSE_BYTES: usize = HEADER_BYTES + dense::BYTES;
const MAGIC: &[u8; 4] = b"HYLL";
const ENCODING_AT: usize = 4;
const ESTIMATE_AT: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Dense = 0,
    Sparse = 1,
}

/// The form of the sketch that `bytes` are; `None` if they are none.
pub(super) fn form_of(bytes: &[u8]) -> Option<Form> {
    if bytes.len() < HEADER_BYTES || !bytes.starts_with(MAGIC) {
        return None;
    }
    match bytes[ENCODING_AT] {
        0 if bytes.len() == DENSE_BYTES => Some(Form::Dense),
        1 => Some(Form::Sparse),
        _ => None,
    }
}

/// A sketch without elements.
pub(super) fn new() -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    bytes[..MAGIC.len()].copy_from_slice(MAGIC);
    bytes[ENCODING_AT] = Form::Sparse as u8;
    bytes.extend(sparse::EMPTY);
    bytes
}

/// The estimate that is stored, if it is that of the registers.
pub(super) fn stored_estimate(bytes: &[u8]) -> Option<u64> {
    let stored = bytes[ESTIMATE_AT..HEADER_BYTES].try_into().expect("eight bytes");
    Some(u64::from_le_bytes(stored)).filter(|estimate| estimate >> 63 == 0)
}

pub(super) fn store_estimate(bytes: &mut [u8], estimate: u64) {
    bytes[ESTIMATE_AT..HEADER_BYTES].copy_from_slice(&estimate.to_le_bytes());
}

/// The registers are others now.
pub(super) fn outdate(bytes: &mut [u8]) {
    bytes[HEADER_BYTES - 1] |= 0x80;
}

pub(super) fn histogram(bytes: &[u8], form: Form) -> Result<Histogram, Corrupted> {
    match form {
        Form::Dense => Ok(dense::histogram(&bytes[HEADER_BYTES..])),
        Form::Sparse => sparse::histogram(&bytes[HEADER_BYTES..]),
    }
}

pub(super) fn merge(bytes: &[u8], form: Form, into: &mut Registers) -> Result<(), Corrupted> {
    match form {
        Form::Dense => {
            dense::merge(&bytes[HEADER_BYTES..], into);
            Ok(())
        }
        Form::Sparse => sparse::merge(&bytes[HEADER_BYTES..], into),
    }
}

/// Adds an element to a dense sketch. Returns whether a register has changed.
pub(super) fn add_dense(bytes: &mut [u8], element: &[u8]) -> bool {
    let (index, value) = place(element);
    dense::raise(&mut bytes[HEADER_BYTES..], index, value)
}

/// Adds an element. Returns whether a register has changed.
pub(super) fn add(bytes: &mut Vec<u8>, element: &[u8], sparse_bytes_max: usize) -> Result<bool, Corrupted> {
    let (index, value) = place(element);
    raise(bytes, index, value, sparse_bytes_max)
}

/// Offers a number to a register; the sketch becomes dense if it has to. Returns whether the register has
/// changed.
pub(super) fn raise(
    bytes: &mut Vec<u8>,
    index: usize,
    value: u8,
    sparse_bytes_max: usize,
) -> Result<bool, Corrupted> {
    if bytes[ENCODING_AT] == Form::Dense as u8 {
        return Ok(dense::raise(&mut bytes[HEADER_BYTES..], index, value));
    }
    match sparse::raise(bytes, HEADER_BYTES, index, value, sparse_bytes_max)? {
        Raised::Changed => {
            outdate(bytes);
            Ok(true)
        }
        Raised::Same => Ok(false),
        Raised::NoRoom => {
            make_dense(bytes)?;
            Ok(dense::raise(&mut bytes[HEADER_BYTES..], index, value))
        }
    }
}

/// Makes a sparse sketch dense; the stored estimate stays.
pub(super) fn make_dense(bytes: &mut Vec<u8>) -> Result<(), Corrupted> {
    let mut registers = [0; super::REGISTERS];
    sparse::merge(&bytes[HEADER_BYTES..], &mut registers)?;
    bytes.resize(DENSE_BYTES, 0);
    dense::pack(&registers, &mut bytes[HEADER_BYTES..]);
    bytes[ENCODING_AT] = Form::Dense as u8;
    Ok(())
}

/// Replaces the registers of a dense sketch.
pub(super) fn pack(bytes: &mut [u8], registers: &Registers) {
    dense::pack(registers, &mut bytes[HEADER_BYTES..]);
}

/// Returns a register of a dense sketch.
pub(super) fn register(bytes: &[u8], index: usize) -> u8 {
    dense::get(&bytes[HEADER_BYTES..], index)
}

/// The runs of a sparse sketch.
pub(super) fn runs(bytes: &[u8]) -> impl Iterator<Item = sparse::Run> {
    sparse::each(&bytes[HEADER_BYTES..])
}
