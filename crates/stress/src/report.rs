//! What became of a run: a few lines for people, and, if it failed, a folder with what was sent and what the server was at.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use isotherm_probe::Server;

use crate::Fallible;
use crate::world::{Fault, Severity, World};

/// Faults that are printed; the folder has all.
const PRINTED_MAX: usize = 8;

pub fn print_faults(faults: &[Fault]) {
    let mut faults: Vec<&Fault> = faults.iter().collect();
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.severity));
    for fault in faults.iter().take(PRINTED_MAX) {
        println!("  FAULT {}", told(fault));
    }
    if faults.len() > PRINTED_MAX {
        println!("  ... and {} more", faults.len() - PRINTED_MAX);
    }
}

fn told(fault: &Fault) -> String {
    let kind = match fault.severity {
        Severity::Late => "late",
        Severity::Wrong => "wrong",
    };
    format!("({kind}) after {:.1} s, {}: {}", fault.at.as_secs_f64(), fault.whose, fault.what)
}

/// Where the server's threads are while it hangs: what each is doing, and what `gdb` says if there is one.
pub fn threads(process: u32) -> String {
    let mut text = String::new();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    for task in tasks.map(|task| task.path()) {
        let read = |name: &str| fs::read_to_string(task.join(name)).unwrap_or_default();
        let state =
            read("stat").rsplit(')').next().and_then(|rest| rest.trim().chars().next()).unwrap_or('?');
        let _ = writeln!(
            text,
            "{:<20} {state} {} {}",
            read("comm").trim(),
            read("wchan"),
            read("schedstat").trim()
        );
    }
    let arguments = ["-p", &process.to_string(), "-batch", "-ex", "thread apply all bt 14"];
    // A debugger is a convenience: without one the states have to do.
    let seconds = Duration::from_secs(20).as_secs().to_string();
    if let Ok(output) = Command::new("timeout").arg(seconds).arg("gdb").args(arguments).output() {
        text += &String::from_utf8_lossy(&output.stdout);
    }
    text
}

/// Leaves everything in a new folder, and says which.
pub fn keep(world: &World, server: &Server, command: &str, threads: &str, into: &Path) -> Fallible<PathBuf> {
    let folder = into.join(format!("seed-{}-{}", world.plan.seed, std::process::id()));
    let failed = |why: std::io::Error| format!("cannot write into {}: {why}", folder.display());
    fs::create_dir_all(&folder).map_err(failed)?;
    let mut summary = format!("{}\n{command}\n\n", world.plan);
    for fault in world.faults() {
        let _ = writeln!(summary, "{}", told(&fault));
    }
    fs::write(folder.join("run.txt"), summary).map_err(failed)?;
    fs::write(folder.join("server.log"), server.log()).map_err(failed)?;
    if !threads.is_empty() {
        fs::write(folder.join("threads.txt"), threads).map_err(failed)?;
    }
    for (name, text) in world.evidence() {
        fs::write(folder.join(format!("{name}.txt")), text).map_err(failed)?;
    }
    for record in world.records() {
        let file = folder.join(format!("{}.txt", record.name));
        let mut out =
            BufWriter::new(fs::OpenOptions::new().create(true).append(true).open(file).map_err(failed)?);
        record.write(&mut out).and_then(|()| out.flush()).map_err(failed)?;
    }
    Ok(folder)
}
