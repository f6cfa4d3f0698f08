//! The binaries of a program, one an allocator, and cases run by them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use isotherm_probe::Fallible;

use crate::course::{self, Course};
use crate::figures::Figures;
use crate::kept::Kept;
use crate::options::Options;

/// A program that exists once for each allocator.
struct Program {
    package: &'static str,
    name: &'static str,
}

const MEMLAB: Program = Program { package: "isotherm-memlab", name: "isotherm-memlab" };
const SERVER: Program = Program { package: "isotherm", name: "isotherm-server" };

pub struct Variants {
    binaries: BTreeMap<&'static str, PathBuf>,
    /// Allocators that are not available here, and why.
    missing: Vec<(&'static str, String)>,
    pub kept: Kept,
}

impl Variants {
    /// Returns this program under each requested allocator.
    pub fn of_cases(options: &Options) -> Fallible<Variants> {
        Variants::of(&MEMLAB, options)
    }

    /// The server under each.
    pub fn of_server(options: &Options) -> Fallible<Variants> {
        Variants::of(&SERVER, options)
    }

    fn of(program: &Program, options: &Options) -> Fallible<Variants> {
        let kept = Kept::in_folder(options.kept.as_deref())?;
        let mut variants = Variants { binaries: BTreeMap::new(), missing: Vec::new(), kept };
        let mut course = Course::new("building", options.allocators.len());
        for allocator in &options.allocators {
            course.step(allocator)?;
            let binary = match &options.binaries {
                Some(folder) => built(program, folder, allocator),
                None => build(program, allocator),
            };
            match binary {
                Ok(binary) => drop(variants.binaries.insert(allocator, binary)),
                Err(why) => variants.missing.push((allocator, why)),
            }
        }
        course.end();
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

    /// Runs one case and reads what it reports.
    pub fn run(&self, allocator: &str, case: &[String], malloc_conf: &str) -> Fallible<Figures> {
        self.run_round(allocator, case, malloc_conf, 0)
    }

    /// Runs a round of a case that is run more than once, and reads what it reports.
    pub fn run_round(
        &self,
        allocator: &str,
        case: &[String],
        malloc_conf: &str,
        round: usize,
    ) -> Fallible<Figures> {
        let binary = self.binary(allocator)?;
        let words = format!("{allocator} {} round {round} {malloc_conf}", case.join(" "));
        self.kept.figures(binary, &words, || run(binary, allocator, case, malloc_conf))
    }

    /// Returns the notes below a table on missing allocators.
    pub fn notes(&self) -> Vec<String> {
        self.missing.iter().map(|(name, why)| format!("Skipped: {name}: {why}")).collect()
    }
}

fn run(binary: &Path, allocator: &str, case: &[String], malloc_conf: &str) -> Fallible<Figures> {
    let mut command = Command::new(binary);
    command.arg("--work").args(case).env("MALLOC_CONF", malloc_conf);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut worker = command.spawn().map_err(|why| format!("cannot run {}: {why}", binary.display()))?;
    let status = wait(&mut worker)?;
    // A case reports a few hundred bytes at its end: they fit into the pipe while it is waited for.
    let output = worker.wait_with_output().map_err(|why| format!("no word of a case: {why}"))?;
    if !status.success() {
        return Err(format!("the case {} under {allocator} ended with {status}", case.join(" ")));
    }
    Figures::parse(&String::from_utf8_lossy(&output.stdout))
}

/// Waits for a case, and ends it if we are to end.
fn wait(worker: &mut Child) -> Fallible<ExitStatus> {
    const GLANCE: Duration = Duration::from_millis(20);
    loop {
        if let Some(status) = worker.try_wait().map_err(|why| format!("a case is lost: {why}"))? {
            return Ok(status);
        }
        if let Err(stopped) = course::check() {
            let _ = worker.kill();
            let _ = worker.wait();
            return Err(stopped);
        }
        std::thread::sleep(GLANCE);
    }
}

/// A program that was built elsewhere and put into `folder`.
fn built(program: &Program, folder: &Path, allocator: &str) -> Fallible<PathBuf> {
    let file = folder.join(format!("{}-{allocator}", program.name));
    if file.is_file() { Ok(file) } else { Err(format!("no program {}", file.display())) }
}

/// Builds a program with an allocator, and puts it where the next build does not overwrite it.
fn build(program: &Program, allocator: &str) -> Fallible<PathBuf> {
    let here = std::env::current_exe().map_err(|why| format!("cannot find where this program is: {why}"))?;
    let folder = here.parent().unwrap_or(Path::new(".")).to_path_buf();
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(profile) => profile,
    };
    let output = Command::new(cargo()?)
        .args(["build", "--quiet", "--locked", "--package", program.package, "--no-default-features"])
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
    let kept = folder.join(format!("{}-{allocator}", program.name));
    std::fs::copy(folder.join("memlab").join(part).join(program.name), &kept)
        .map_err(|why| format!("cannot keep {}: {why}", kept.display()))?;
    Ok(kept)
}

/// The Cargo that runs us.
pub fn cargo() -> Fallible<PathBuf> {
    let cargo = std::env::var_os("CARGO");
    let why = "run by `cargo run`, which builds a program for each allocator, or with --binaries";
    cargo.map(PathBuf::from).ok_or_else(|| why.to_string())
}
