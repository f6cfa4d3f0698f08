//! Any bytes as JSON: an error or a value, and what is written of a value is written again when it is read.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod script;
use script::{as_text, call, text, walked};

fn again(json: &[u8]) -> Option<Vec<u8>> {
    let (value, _) = walked(&call("cjson", "decode", &text(json), 1)?);
    Some(as_text(&call("cjson", "encode", &value, 1)?).to_vec())
}

fuzz_target!(|input: &[u8]| {
    let Some(written) = again(input) else { return };
    assert_eq!(again(&written).as_deref(), Some(&written[..]));
});
