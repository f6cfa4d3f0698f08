//! Any bytes as the manifest of an AOF: refused, or a list of files that comes back when it is written.
#![no_main]

use isotherm_persist::aof::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(manifest) = Manifest::parse(input) else { return };
    manifest.check_invariants();
    let text = manifest.write();
    if !text.is_empty() {
        // Escapes may make a name longer than a line may be.
        match Manifest::parse(&text) {
            Ok(again) => assert_eq!(again, manifest),
            Err(_) => assert!(text.split(|byte| *byte == b'\n').any(|line| line.len() >= 1024)),
        }
    }
});
