//! The checks that go deeper: the rooms of `unsafe` under Miri, which needs a nightly compiler, and the
//! interleavings of the locks and of the log.
//!
//! The same harnesses also run as seeded tests on the stable compiler, so a skip loses depth only.

use crate::{Fallible, nightly, place, run, testing};

/// Packages with unsafe rooms, and which of their tests Miri runs. Its interpreter is some hundred times
/// slower than the machine: these are the tests that shorten themselves under it.
const MIRI_ROOMS: [(&str, &[&str]); 2] = [
    ("isotherm-arena", &["--lib", "--test", "model", "--test", "threads"]),
    ("isotherm-keyspace", &["--lib", "--", "page::", ZSET, LIST, STREAM]),
];
/// Model tests, one of each layout above the pages, which goes through all that the structure does with its
/// nodes.
const ZSET: &str = "zset::tree::tests::random_operations_agree_with_a_model";
const LIST: &str = "list::tests::a_list_is_a_deque_of_strings";
const STREAM: &str = "stream::tests::a_stream_is_a_map_that_grows_at_its_end";

pub fn miri() -> Fallible {
    if let Err(why) = nightly::ensure(&["miri", "rust-src"]) {
        println!("skipped: Miri over the rooms of unsafe: {why}");
        return Ok(());
    }
    for (package, tests) in MIRI_ROOMS {
        run::step(&format!("miri {package} {}", tests.join(" ")), || {
            let passed = testing::run_tests(
                nightly::command()
                    .args(["cargo", "miri", "test", "--package", package])
                    .args(tests)
                    .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance"),
            )?;
            if passed == 0 { Err(format!("no test of {package} was run")) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// The locks of the keyspace, and the log behind them, under interleavings that shuttle chooses. All is built
/// with another mutex, so elsewhere.
pub fn locks() -> Fallible {
    run::step("interleavings of the locks and of the log", || {
        let passed = testing::run_tests(
            run::cargo()
                .args(["test", "--locked", "--package", "isotherm-keyspace"])
                .args(["--package", "isotherm-log"])
                .args(["--test", "shuttle"])
                .env("RUSTFLAGS", "--cfg shuttle")
                .env("CARGO_TARGET_DIR", place::target().join("shuttle")),
        )?;
        if passed == 0 { Err("no interleaving was run".to_string()) } else { Ok(()) }
    })
}
