//! The checks that go deeper: the rooms of `unsafe` under Miri, which needs a nightly compiler, and the
//! interleavings of the locks and of the log.
//!
//! The harnesses also run as seeded tests on the stable compiler, so a skip loses depth only.

use crate::{Fallible, nightly, place, run, testing};

/// Tests of one package that Miri runs, under a name. Its interpreter is some hundred times slower than the
/// machine: these are the tests that shorten themselves under it.
struct Room {
    name: &'static str,
    package: &'static str,
    tests: &'static [&'static str],
}

/// Modules with unsafe code. Above the pages, one model test of each layout goes through all that the
/// structure does with its nodes.
const MIRI_ROOMS: [Room; 5] = [
    Room { name: "arena", package: ARENA, tests: &["--lib", "--test", "model", "--test", "threads"] },
    Room { name: "page", package: KEYSPACE, tests: &["--lib", "--", "page::"] },
    Room { name: "zset", package: KEYSPACE, tests: &["--lib", "--", ZSET] },
    Room { name: "list", package: KEYSPACE, tests: &["--lib", "--", LIST] },
    Room { name: "stream", package: KEYSPACE, tests: &["--lib", "--", STREAM] },
];
const ARENA: &str = "isotherm-arena";
const KEYSPACE: &str = "isotherm-keyspace";
const ZSET: &str = "zset::tree::tests::random_operations_agree_with_a_model";
const LIST: &str = "list::tests::a_list_is_a_deque_of_strings";
const STREAM: &str = "stream::tests::a_stream_is_a_map_that_grows_at_its_end";

/// Runs the tests of the rooms that `names` lists, of all if it is empty.
pub fn miri(names: &[String]) -> Fallible {
    if let Some(name) = names.iter().find(|name| MIRI_ROOMS.iter().all(|room| room.name != **name)) {
        return Err(format!("no room {name}: they are {}", MIRI_ROOMS.map(|room| room.name).join(", ")));
    }
    if let Err(why) = nightly::ensure(&["miri", "rust-src"]) {
        println!("skipped: Miri over the rooms of unsafe: {why}");
        return Ok(());
    }
    let is_wanted = |room: &&Room| names.is_empty() || names.iter().any(|name| name == room.name);
    for Room { name, package, tests } in MIRI_ROOMS.iter().filter(is_wanted) {
        run::step(&format!("miri {name}: {package} {}", tests.join(" ")), || {
            let passed = testing::run_tests(
                nightly::command()
                    .args(["cargo", "miri", "test", "--package", package])
                    .args(*tests)
                    .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance"),
            )?;
            if passed == 0 { Err(format!("no test of {package} was run")) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// Runs the locks of the keyspace, and the log behind them, under interleavings that shuttle chooses. All is
/// built with another mutex, so in another folder.
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
