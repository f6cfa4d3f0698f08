//! Any bytes as the record of keys that left memory with their values, and as its name: refused, or the same
//! bytes when written again.
#![no_main]

use isotherm_keyspace::{BundleName, fuzz_bundle};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Some(name) = BundleName::of_bytes(&bytes[..bytes.len().min(5)]) {
        assert_eq!(name.as_bytes(), &bytes[..5]);
    }
    if let Some(again) = fuzz_bundle(bytes) {
        assert_eq!(again, bytes);
    }
});
