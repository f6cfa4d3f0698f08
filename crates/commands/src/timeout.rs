//! How long a command that blocks waits.

use crate::Call;
use isotherm_stdx::LongDouble;
use isotherm_stdx::float::parse_f64;

/// The seconds at argument `at`, as milliseconds; 0: for ever.
pub(crate) fn timeout(call: &Call<'_, '_, '_>, at: usize) -> Result<i64, &'static str> {
    const NO_FLOAT: &str = "ERR timeout is not a float or out of range";
    const OUT_OF_RANGE: &str = "ERR timeout is out of range";
    let text = call.args.get(at);
    LongDouble::parse(text).ok_or(NO_FLOAT)?;
    // What only the wider type can hold is too much in any case.
    let too_much = if text.starts_with(b"-") { f64::NEG_INFINITY } else { f64::INFINITY };
    let ms = (parse_f64(text).unwrap_or(too_much) * 1000.0).ceil();
    if ms > i64::MAX as f64 {
        return Err(OUT_OF_RANGE);
    }
    checked(call, ms as i64)
}

/// Not negative, and not past the end of time.
pub(crate) fn checked(call: &Call<'_, '_, '_>, ms: i64) -> Result<i64, &'static str> {
    if ms < 0 {
        return Err("ERR timeout is negative");
    }
    call.txn.now().checked_add_ms(ms).map(|_| ms).ok_or("ERR timeout is out of range")
}
