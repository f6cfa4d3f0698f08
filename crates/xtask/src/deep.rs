//! The checks that go deeper: fuzz targets for a bounded time and the rooms of `unsafe` under Miri, which need a nightly
//! compiler, and the interleavings of the locks and of the log.
//!
//! Each installs what it needs if it can (a toolchain through rustup, cargo-fuzz into the target folder) and otherwise says
//! what it skips and why. The same harnesses also run as seeded tests on the stable compiler, so a skip loses depth only.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{Fallible, place, run, testing};

/// Packages with unsafe rooms, and which of their tests Miri runs. Its interpreter is some hundred times slower than the
/// machine: these are the tests that shorten themselves under it.
const MIRI_ROOMS: [(&str, &[&str]); 2] = [
    ("isotherm-arena", &["--lib", "--test", "model", "--test", "threads"]),
    ("isotherm-keyspace", &["--lib", "--", "page::", ZSET, LIST, STREAM]),
];
/// Of each layout above the pages one model test, which goes through all that the structure does with its nodes.
const ZSET: &str = "zset::tree::tests::random_operations_agree_with_a_model";
const LIST: &str = "list::tests::a_list_is_a_deque_of_strings";
const STREAM: &str = "stream::tests::a_stream_is_a_map_that_grows_at_its_end";

/// All targets, or those that are named.
pub fn fuzz(args: &[String]) -> Fallible {
    let (seconds, named) = match args {
        [flag, number, rest @ ..] if flag == "--seconds" => {
            (number.parse::<u64>().map_err(|_| format!("'{number}' is no number of seconds"))?, rest)
        }
        named => (30, named),
    };
    let known = fuzz_targets()?;
    if let Some(unknown) = named.iter().find(|name| !known.contains(name)) {
        return Err(format!("no fuzz target {unknown}; usage: cargo xtask fuzz [--seconds N] [TARGET ..]"));
    }
    let targets = if named.is_empty() { known } else { named.to_vec() };
    if targets.is_empty() {
        return Err("fuzz/Cargo.toml names no target".to_string());
    }
    let cargo_fuzz = match nightly(&[]).and_then(|()| cargo_fuzz()) {
        Ok(program) => program,
        Err(why) => {
            println!("skipped: fuzz targets {}: {why}", targets.join(", "));
            return Ok(());
        }
    };
    for target in targets {
        run::step(&format!("fuzz {target}"), || {
            run::loud(
                on_nightly()
                    .arg(&cargo_fuzz)
                    // ASan keeps what it notes of the frames of each stack that scripts have run on.
                    .env("ASAN_OPTIONS", "detect_stack_use_after_return=0")
                    .args(["fuzz", "run", &target, "--"])
                    .arg(format!("-max_total_time={seconds}"))
                    .args(["-rss_limit_mb=4096", "-print_final_stats=1", "-verbosity=0"]),
            )
        })?;
    }
    Ok(())
}

pub fn miri() -> Fallible {
    if let Err(why) = nightly(&["miri", "rust-src"]) {
        println!("skipped: Miri over the rooms of unsafe: {why}");
        return Ok(());
    }
    for (package, tests) in MIRI_ROOMS {
        run::step(&format!("miri {package} {}", tests.join(" ")), || {
            let passed = testing::run_tests(
                on_nightly()
                    .args(["cargo", "miri", "test", "--package", package])
                    .args(tests)
                    .env("MIRIFLAGS", "-Zmiri-disable-isolation -Zmiri-permissive-provenance"),
            )?;
            if passed == 0 { Err(format!("no test of {package} was run")) } else { Ok(()) }
        })?;
    }
    Ok(())
}

/// The locks of the keyspace, and the log behind them, under interleavings that shuttle chooses. All is built with another
/// mutex, so elsewhere.
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

/// A program under the nightly toolchain. The cargo that runs us has put itself and its toolchain into the environment.
fn on_nightly() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly"])
        .current_dir(place::root())
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Makes sure of a nightly toolchain with these components.
fn nightly(components: &[&str]) -> Fallible {
    if place::in_path("rustup").is_none() {
        return Err("no rustup on this machine".to_string());
    }
    if run::quiet(Command::new("rustup").args(["run", "nightly", "rustc", "--version"])).is_err() {
        run::quiet(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))
            .map_err(|why| format!("no nightly toolchain: {why}"))?;
    }
    if components.is_empty() {
        return Ok(());
    }
    run::quiet(Command::new("rustup").args(["component", "add", "--toolchain", "nightly"]).args(components))
        .map(drop)
        .map_err(|why| format!("no component {}: {why}", components.join(", ")))
}

/// cargo-fuzz from PATH, or from the target folder, or built into it.
fn cargo_fuzz() -> Fallible<PathBuf> {
    if let Some(program) = place::in_path("cargo-fuzz") {
        return Ok(program);
    }
    let program = place::tools().join("bin/cargo-fuzz");
    if !program.is_file() {
        run::loud(
            run::cargo().args(["install", "cargo-fuzz", "--locked", "--quiet", "--root"]).arg(place::tools()),
        )
        .map_err(|why| format!("no cargo-fuzz: {why}"))?;
    }
    Ok(program)
}

/// The names under `[[bin]]` of the fuzz workspace.
fn fuzz_targets() -> Fallible<Vec<String>> {
    let file = place::root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    Ok(names_of_bins(&text))
}

fn names_of_bins(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    bins.filter_map(|part| part.lines().find_map(|line| line.trim().strip_prefix("name = ")))
        .map(|name| name.trim_matches('"').to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn finds_the_targets_of_a_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n[[bin]]\npath = \"b.rs\"\nname = \"b\"\n";
        assert_eq!(super::names_of_bins(manifest), ["a", "b"]);
    }
}
