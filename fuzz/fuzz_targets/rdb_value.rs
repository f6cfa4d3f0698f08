//! Any bytes as the value of any type: an error, or a value that keeps its promises and comes back when it is written.
#![no_main]

use isotherm_persist::Limits;
use isotherm_persist::rdb::{Encoding, Shape, Writer, decode, encode};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { text_bytes_max: 1 << 20, unfolded_bytes_max: 1 << 22 };

fuzz_target!(|input: &[u8]| {
    let [code, version, bytes @ ..] = input else { return };
    let Ok((value, taken)) = decode(*code, u16::from(*version), bytes, &LIMITS) else { return };
    assert!(taken <= bytes.len());
    value.check_invariants();
    for encoding in [Encoding::Plain, Encoding::Listpack] {
        let mut writer = Writer::new(bytes.len() % 2 == 0);
        encode(&mut writer, &value, encoding, &Shape::default());
        let written = writer.into_bytes();
        let (again, taken) = decode(written[0], 80, &written[1..], &Limits::default()).expect("just written");
        assert_eq!(taken, written.len() - 1);
        assert_eq!(again, value);
    }
});
