//! Any bytes as MessagePack: an error or values, and what is packed of them comes to rest.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod script;
use script::{as_text, call, text, walked};

fn again(packed: &[u8]) -> Option<Vec<u8>> {
    let (values, count) = walked(&call("cmsgpack", "unpack", &text(packed), 1)?);
    Some(as_text(&call("cmsgpack", "pack", &values, count)?).to_vec())
}

fuzz_target!(|input: &[u8]| {
    let [limit, offset, bytes @ ..] = input else { return };
    let mut args = text(bytes);
    for number in [limit, offset] {
        isotherm_script::tape::Writer::new(&mut args).number(f64::from(*number as i8));
    }
    call("cmsgpack", "unpack_limit", &args, 3);
    // A table deeper than pack goes becomes nil, which is no key, and no element once more: from the second
    // time on all stays.
    let Some(written) = again(bytes).and_then(|written| again(&written)) else { return };
    assert_eq!(again(&written), Some(written));
});
