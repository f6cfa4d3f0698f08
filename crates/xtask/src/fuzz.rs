//! `cargo xtask fuzz`: each fuzz target for a bounded time, as many at a time as there are cores.
//!
//! ```text
//!   fuzz/corpus/NAME.bin --- unpacked --> target/fuzz-corpus/NAME     libFuzzer reads it, and adds inputs that reach more
//!            ^                                     |
//!            +-- packed -- target/fuzz-minimised/NAME                 with `--minimise` only
//!
//!   target/fuzz-artifacts/NAME                                        the last output, and inputs that made the target fail
//! ```
//! Cargo alone builds the targets, all at once, with the flags that cargo-fuzz passes: to install cargo-fuzz
//! takes a clean machine a minute. Each is a program of its own: libFuzzer clears and reads the counters of
//! the whole program for each input, so of one program of all targets the small ones try a third of the
//! inputs, or a tenth. 20 links take 20 s of CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Fallible, child, nightly, place, run};

mod corpus;

const USAGE: &str = "usage: cargo xtask fuzz [--minimise] [--seconds N] [TARGET ..]";
const SECONDS: u64 = 30;
/// Bounds loading of a corpus and the last input: a target that runs for longer than its seconds and this is
/// ended.
const GRACE_SECONDS: u64 = 120;
/// Bounds one input, so that libFuzzer reports and keeps it before its target is ended. It looks at every
/// half of this.
const INPUT_SECONDS_MAX: u64 = 60;
const _: () = assert!(INPUT_SECONDS_MAX * 3 / 2 < GRACE_SECONDS);
/// Output of a failed target that is shown; the file has all of it.
const SHOWN_BYTES_MAX: usize = 32 << 10;

/// Coverage as libFuzzer reads it (edges that count, and the operands of comparisons, which it then tries),
/// branches that stay apart, and AddressSanitizer. Assertions are in the profile of `fuzz/Cargo.toml`.
const RUSTFLAGS: [&str; 9] = [
    "--cfg=fuzzing",
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-sanitizer-coverage-stack-depth",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];
/// ASan would keep what it notes of the frames of each stack that scripts have run on. One definition of a
/// global in two objects is no bug in Rust.
const ASAN_OPTIONS: &str = "detect_stack_use_after_return=0:detect_odr_violation=0";

pub fn fuzz(args: &[String]) -> Fallible {
    let plan = Plan::parse(args, targets()?)?;
    if let Err(why) = nightly::ensure(&[]) {
        println!("skipped: fuzz targets {}: {why}", plan.targets.join(", "));
        return Ok(());
    }
    let mut programs = PathBuf::new();
    run::step("build the fuzz targets", || {
        programs = build()?;
        Ok(())
    })?;
    let name = format!("{} fuzz targets, {} s each", plan.targets.len(), plan.seconds);
    run::step(&name, || plan.run(&programs))?;
    if plan.minimises { corpus::check_sizes() } else { Ok(()) }
}

#[derive(Debug, PartialEq)]
struct Plan {
    seconds: u64,
    minimises: bool,
    targets: Vec<String>,
}

impl Plan {
    /// Takes all targets if none is named.
    fn parse(args: &[String], known: Vec<String>) -> Fallible<Plan> {
        let mut plan = Plan { seconds: SECONDS, minimises: false, targets: Vec::new() };
        let mut rest = args.iter();
        while let Some(arg) = rest.next() {
            match arg.as_str() {
                "--minimise" => plan.minimises = true,
                "--seconds" => {
                    let number =
                        rest.next().and_then(|number| number.parse().ok()).filter(|number| *number > 0);
                    plan.seconds = number.ok_or_else(|| format!("--seconds wants a number; {USAGE}"))?;
                }
                _ if known.contains(arg) => plan.targets.push(arg.clone()),
                _ => return Err(format!("no fuzz target {arg}; {USAGE}")),
            }
        }
        if plan.targets.is_empty() {
            plan.targets = known;
        }
        Ok(plan)
    }

    /// Runs the targets on all cores. One that fails stops no other.
    fn run(&self, programs: &Path) -> Fallible {
        let next = AtomicUsize::new(0);
        let work = || {
            let mut failed = Vec::new();
            while let Some(name) = self.targets.get(next.fetch_add(1, Ordering::Relaxed)) {
                let begun = Instant::now();
                let result = self.run_target(&Target { program: &programs.join(name), name });
                let seconds = begun.elapsed().as_secs_f64();
                // In one piece, for targets end side by side.
                match result {
                    Ok(summary) => println!("== fuzz {name}: ok, {seconds:.1} s, {summary}"),
                    Err(why) => {
                        println!("{why}\n== fuzz {name}: FAILED, {seconds:.1} s");
                        failed.push(name.as_str());
                    }
                }
            }
            failed
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let failed = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
            let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a panic".to_string()));
            joined.collect::<Fallible<Vec<_>>>()
        })?;
        let failed = failed.concat();
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("fuzz targets that failed: {}", failed.join(", ")))
        }
    }

    fn run_target(&self, target: &Target<'_>) -> Fallible<String> {
        let summary = target.search(self.seconds)?;
        if !self.minimises {
            return Ok(summary);
        }
        target.minimise().map(|packed| format!("{summary}; {packed}"))
    }
}

struct Target<'a> {
    program: &'a Path,
    name: &'a str,
}

impl Target<'_> {
    fn folder(&self, of: &str) -> PathBuf {
        place::target().join(format!("fuzz-{of}")).join(self.name)
    }

    /// Searches from the corpus in the tree, and from what was found here before.
    fn search(&self, seconds: u64) -> Fallible<String> {
        let working = self.folder("corpus");
        corpus::unpack_into(self.name, &working)?;
        let output = self.libfuzzer(seconds, |command| {
            command.arg(&working).arg(format!("-max_total_time={seconds}"));
            command.args(["-print_final_stats=1", "-verbosity=0"]);
        })?;
        let (inputs, added) =
            (statistic(&output, "number_of_executed_units"), statistic(&output, "new_units_added"));
        match (inputs, added) {
            (Some(inputs), Some(added)) if inputs > 0 => Ok(format!("{inputs} inputs, {added} of them kept")),
            _ => Err(format!("{output}\nno input was run")),
        }
    }

    /// Keeps a few inputs that reach together what the working corpus reaches, and packs them.
    fn minimise(&self) -> Fallible<String> {
        let (working, minimised) = (self.folder("corpus"), self.folder("minimised"));
        let _ = fs::remove_dir_all(&minimised);
        make_folder(&minimised)?;
        self.libfuzzer(GRACE_SECONDS, |command| {
            command.arg("-set_cover_merge=1").arg(&minimised).arg(&working);
        })?;
        corpus::pack_folder(self.name, &minimised)
    }

    /// Runs the target with these arguments, some `seconds` long, and returns its output, which is the
    /// failure otherwise.
    fn libfuzzer(&self, seconds: u64, arguments: impl FnOnce(&mut Command)) -> Fallible<String> {
        let artifacts = self.folder("artifacts");
        make_folder(&artifacts)?;
        let output = artifacts.join("output");
        let mut command = Command::new(self.program);
        command.env("ASAN_OPTIONS", ASAN_OPTIONS).current_dir(place::root());
        command.arg(format!("-artifact_prefix={}/", artifacts.display()));
        command.arg(format!("-timeout={INPUT_SECONDS_MAX}")).arg("-rss_limit_mb=4096");
        arguments(&mut command);
        let mut text = String::new();
        let ended = child::run(&mut command, Duration::from_secs(seconds + GRACE_SECONDS), |line| {
            text.push_str(line);
            text.push('\n');
            if text.len() > 2 * SHOWN_BYTES_MAX {
                text = text.split_off(text.ceil_char_boundary(text.len() - SHOWN_BYTES_MAX));
            }
        })?;
        // Kept next to the inputs that failed.
        fs::write(&output, &text).map_err(|why| format!("cannot write {}: {why}", output.display()))?;
        if ended.is_success() {
            return Ok(text);
        }
        let again = format!("ASAN_OPTIONS={ASAN_OPTIONS} {} INPUT", self.program.display());
        let why = ended.describe();
        Err(format!("{text}\n{why}\ninputs that fail are in {}; again: {again}", artifacts.display()))
    }
}

fn make_folder(folder: &Path) -> Fallible {
    fs::create_dir_all(folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))
}

/// A number of libFuzzer's final statistics.
fn statistic(output: &str, name: &str) -> Option<u64> {
    let line = output.lines().find_map(|line| line.strip_prefix("stat::")?.strip_prefix(name))?;
    line.trim_start_matches(':').trim().parse().ok()
}

/// Builds the programs, and returns their folder. The machine's target is named, so that no build script gets
/// these flags.
fn build() -> Fallible<PathBuf> {
    let (host, folder) = (nightly::host()?, place::target().join("fuzz"));
    run::loud(
        nightly::command()
            .args([
                "cargo",
                "build",
                "--quiet",
                "--locked",
                "--release",
                "--manifest-path",
                "fuzz/Cargo.toml",
            ])
            .args(["--target", &host, "--target-dir"])
            .arg(&folder)
            .env("RUSTFLAGS", RUSTFLAGS.join(" "))
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    Ok(folder.join(host).join("release"))
}

/// The names under `[[bin]]` of the fuzz workspace.
fn targets() -> Fallible<Vec<String>> {
    let file = place::root().join("fuzz/Cargo.toml");
    let text = fs::read_to_string(&file).map_err(|why| format!("cannot read {}: {why}", file.display()))?;
    let names = names_of_bins(&text);
    if names.is_empty() { Err(format!("{} names no target", file.display())) } else { Ok(names) }
}

fn names_of_bins(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    bins.filter_map(|part| part.lines().find_map(|line| line.trim().strip_prefix("name = ")))
        .map(|name| name.trim_matches('"').to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_string).collect()
    }

    fn plan(args: &str) -> Fallible<Plan> {
        Plan::parse(&words(args), words("a b"))
    }

    #[test]
    fn reads_its_arguments() {
        assert_eq!(plan(""), Ok(Plan { seconds: SECONDS, minimises: false, targets: words("a b") }));
        let named = Plan { seconds: 7, minimises: true, targets: words("b") };
        assert_eq!(plan("--seconds 7 b --minimise"), Ok(named));
        for wrong in ["c", "--seconds", "--seconds x", "--seconds 0", "--second 7"] {
            assert!(plan(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reads_statistics() {
        let output = "Done 7 runs\nstat::number_of_executed_units: 700\nstat::new_units_added:          3\n";
        assert_eq!(statistic(output, "number_of_executed_units"), Some(700));
        assert_eq!(statistic(output, "new_units_added"), Some(3));
        assert_eq!(statistic("Done 7 runs\n", "new_units_added"), None);
    }

    #[test]
    fn finds_the_targets_of_a_manifest() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"a\"\npath = \"a.rs\"\n[[bin]]\npath = \"b.rs\"\nname = \"b\"\n";
        assert_eq!(names_of_bins(manifest), ["a", "b"]);
    }

    #[test]
    fn every_source_of_a_target_is_in_the_manifest() {
        let entries = fs::read_dir(place::root().join("fuzz/fuzz_targets")).expect("it is there");
        let names =
            entries.map(|entry| entry.expect("it can be read").file_name().into_string().expect("a name"));
        let mut sources: Vec<String> =
            names.filter_map(|name| Some(name.strip_suffix(".rs")?.to_string())).collect();
        let mut targets = targets().expect("there are targets");
        sources.sort();
        targets.sort();
        assert_eq!(sources, targets);
    }
}
