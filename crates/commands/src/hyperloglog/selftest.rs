//! Registers and estimates tested inside the process: PFSELFTEST.

use super::sketch::{self, DENSE_BYTES, Form, HEADER_BYTES};
use super::{REGISTERS, dense, estimate};
use crate::spec::*;
use crate::{Call, Handler, Outcome};
use isotherm_stdx::Prng;

pub const PFSELFTEST: Command<Handler> = Command::new(
    Spec {
        name: "pfselftest",
        summary: "Checks the code of HyperLogLogs (internal).",
        since: "2.8.9",
        group: Group::HyperLogLog,
        complexity: "N/A",
        flags: Flags::ADMIN,
        acl: AclCategories::HYPERLOGLOG,
        doc_flags: &["syscmd"],
        ..Spec::BASE
    },
    pfselftest,
);

fn pfselftest(call: &mut Call<'_, '_, '_>) -> Outcome {
    let tested = test_registers(call.prng)
        .and_then(|()| test_estimates(call.prng, call.settings.hll_sparse_bytes_max));
    match tested {
        Ok(()) => call.reply.ok(),
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

/// Registers are set and read without touching their neighbours.
fn test_registers(prng: &mut Prng) -> Result<(), String> {
    const CYCLES: usize = 1000;
    let mut packed = vec![0; dense::BYTES];
    for _ in 0..CYCLES {
        let values: Vec<u8> = (0..REGISTERS).map(|_| prng.below(64) as u8).collect();
        values.iter().enumerate().for_each(|(index, value)| dense::set(&mut packed, index, *value));
        for (index, expected) in values.iter().enumerate() {
            let value = dense::get(&packed, index);
            if value != *expected {
                return Err(format!("ERR TESTFAILED Register {index} should be {expected} but is {value}"));
            }
        }
    }
    Ok(())
}

/// Both forms count the same, and not far from the truth.
fn test_estimates(prng: &mut Prng, sparse_bytes_max: usize) -> Result<(), String> {
    const ELEMENTS: u64 = 10_000_000;
    const STANDARD_ERROR: f64 = 1.04 / 128.0;
    const _: () = assert!(128 * 128 == REGISTERS, "the error is 1.04 / sqrt(registers)");
    let mut sparse = sketch::new();
    let mut packed = vec![0; DENSE_BYTES];
    let seed = prng.next_u64();
    let mut checkpoint = 1;
    for number in 1..=ELEMENTS {
        let element = (number ^ seed).to_le_bytes();
        sketch::add_dense(&mut packed, &element);
        sketch::add(&mut sparse, &element, sparse_bytes_max).expect("it began sound");
        if number != checkpoint {
            continue;
        }
        let form = sketch::form_of(&sparse).expect("it began sound");
        if form != Form::Sparse && number < sparse_bytes_max as u64 / 2 {
            return Err("ERR TESTFAILED sparse encoding not used".to_string());
        }
        let counted = estimate::estimate(&dense::histogram(&packed[HEADER_BYTES..]));
        let histogram = sketch::histogram(&sparse, form).expect("it began sound");
        if counted != estimate::estimate(&histogram) {
            return Err("ERR TESTFAILED dense/sparse disagree".to_string());
        }
        // Of ten elements two may well meet in one register.
        let error_max = if number == 10 { 1 } else { (STANDARD_ERROR * 6.0 * number as f64).ceil() as u64 };
        let error = counted.abs_diff(number);
        if error > error_max {
            return Err(format!("ERR TESTFAILED Too big error. card:{number} abserr:{error}"));
        }
        checkpoint *= 10;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_parts_pass() {
        let mut prng = Prng::new(1);
        assert_eq!(test_registers(&mut prng), Ok(()));
        assert_eq!(test_estimates(&mut prng, 3000), Ok(()));
    }
}
