//! The four binaries of this program, one an allocator, and cases run by them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Fallible;
use crate::figures::Figures;
use crate::options::Options;

pub struct Variants {
    binaries: BTreeMap<&'static str, PathBuf>,
    /// Those that cannot be had here, and why.
    pub missing: Vec<(&'static str, String)>,
}

impl Variants {
    /// Builds one for each allocator that is wanted.
    pub fn build(options: &Options) -> Fallible<Variants> {
        Variants::build_by(options, |allocator| build("isotherm-memlab", "isotherm-memlab", allocator))
    }

    /// The same for binaries of another kind.
    pub fn build_by(options: &Options, build: fn(&str) -> Fallible<PathBuf>) -> Fallible<Variants> {
        let mut variants = Variants { binaries: BTreeMap::new(), missing: Vec::new() };
        for (at, allocator) in options.allocators.iter().enumerate() {
            progress("building", at, options.allocators.len(), allocator);
            match build(allocator) {
                Ok(binary) => drop(variants.binaries.insert(allocator, binary)),
                Err(why) => variants.missing.push((allocator, why)),
            }
        }
        if variants.binaries.is_empty() {
            let (_, why) = variants.missing.first().ok_or("no allocator was asked for")?;
            return Err(why.clone());
        }
        Ok(variants)
    }

    pub fn names(&self) -> Vec<&'static str> {
        self.binaries.keys().copied().collect()
    }

    pub fn has(&self, allocator: &str) -> bool {
        self.binaries.contains_key(allocator)
    }

    pub fn binary(&self, allocator: &str) -> Fallible<&Path> {
        let found = self.binaries.get(allocator).map(PathBuf::as_path);
        found.ok_or_else(|| format!("no binary with {allocator}"))
    }

    /// Runs one case and reads what it tells.
    pub fn run(&self, allocator: &str, case: &[String], malloc_conf: &str) -> Fallible<Figures> {
        let binary = self.binary(allocator)?;
        let mut command = Command::new(binary);
        command.arg("--work").args(case).env("MALLOC_CONF", malloc_conf).stderr(Stdio::inherit());
        let output = command.output().map_err(|why| format!("cannot run {}: {why}", binary.display()))?;
        if !output.status.success() {
            return Err(format!(
                "the case {} under {allocator} ended with {}",
                case.join(" "),
                output.status
            ));
        }
        Figures::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// What is said below a table of what it lacks.
    pub fn notes(&self) -> Vec<String> {
        self.missing.iter().map(|(name, why)| format!("Skipped: {name}: {why}")).collect()
    }
}

/// The server with this allocator.
pub fn build_server(allocator: &str) -> Fallible<PathBuf> {
    build("isotherm", "isotherm-server", allocator)
}

/// Builds a program with an allocator, and puts it where the next build does not overwrite it.
fn build(package: &str, program: &str, allocator: &str) -> Fallible<PathBuf> {
    let here = std::env::current_exe().map_err(|why| format!("cannot tell where this program is: {why}"))?;
    let folder = here.parent().unwrap_or(Path::new(".")).to_path_buf();
    let kept = folder.join(format!("{program}-{allocator}"));
    let cargo =
        std::env::var_os("CARGO").ok_or("run by `cargo run`: it builds a program for each allocator")?;
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let output = Command::new(cargo)
        .args(["build", "--quiet", "--locked", "--package", package, "--no-default-features"])
        .args(["--profile", profile, "--features", allocator, "--target-dir"])
        .arg(folder.join("memlab"))
        .output()
        .map_err(|why| format!("cannot run cargo: {why}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.contains("error")).unwrap_or("cargo failed");
        let hint =
            if allocator == "tcmalloc" { " (Debian: apt-get install libgoogle-perftools-dev)" } else { "" };
        return Err(format!("{}{hint}", line.trim()));
    }
    let part = if profile == "dev" { "debug" } else { profile };
    std::fs::copy(folder.join("memlab").join(part).join(program), &kept)
        .map_err(|why| format!("cannot keep {}: {why}", kept.display()))?;
    Ok(kept)
}

/// One line on standard error that is written over: what is done of what there is to do.
pub fn progress(what: &str, done: usize, all: usize, now: &str) {
    use std::io::{IsTerminal, Write};
    const CELLS: usize = 24;
    let mut out = std::io::stderr();
    if !out.is_terminal() {
        return;
    }
    let full = done * CELLS / all.max(1);
    let (bar, rest) = ("#".repeat(full), ".".repeat(CELLS - full));
    let _ = write!(out, "\r\x1b[K{what} [{bar}{rest}] {done}/{all} {now}");
    if done == all {
        let _ = writeln!(out);
    }
    let _ = out.flush();
}
