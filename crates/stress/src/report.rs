//! The outcome of a run: a few lines for people, and, if it failed, a folder with the requests and the state
//! of the server.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use isotherm_probe::Server;

use crate::Fallible;
use crate::world::{Fault, Severity, World};

/// Faults that are printed; the folder has all.
const PRINTED_MAX: usize = 8;

pub fn print_faults(faults: &[Fault]) {
    let mut faults: Vec<&Fault> = faults.iter().collect();
    faults.sort_by_key(|fault| std::cmp::Reverse(fault.severity));
    for fault in faults.iter().take(PRINTED_MAX) {
        println!("  FAULT {}", line(fault));
    }
    if faults.len() > PRINTED_MAX {
        println!("  ... and {} more", faults.len() - PRINTED_MAX);
    }
}

fn line(fault: &Fault) -> String {
    let kind = match fault.severity {
        Severity::Late => "late",
        Severity::Wrong => "wrong",
    };
    format!("({kind}) after {:.1} s, {}: {}", fault.at.as_secs_f64(), fault.whose, fault.what)
}

/// The folder of a run that fails.
pub fn folder(into: &Path, seed: u64) -> PathBuf {
    into.join(format!("seed-{seed}-{}", std::process::id()))
}

/// Leaves everything in the folder of the run.
pub fn keep(world: &World, server: &Server, command: &str) -> Fallible {
    let folder = &world.folder;
    let failed = |why: std::io::Error| format!("cannot write into {}: {why}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let mut summary = format!("{}\n{command}\n\n", world.plan);
    for fault in world.faults() {
        let _ = writeln!(summary, "{}", line(&fault));
    }
    fs::write(folder.join("run.txt"), summary).map_err(failed)?;
    fs::write(folder.join("server.log"), server.log()).map_err(failed)?;
    for (name, text) in world.evidence() {
        fs::write(folder.join(format!("{name}.txt")), text).map_err(failed)?;
    }
    for record in world.records() {
        let file = folder.join(format!("{}.txt", record.name));
        let mut out =
            BufWriter::new(fs::OpenOptions::new().create(true).append(true).open(file).map_err(failed)?);
        record.write(&mut out).and_then(|()| out.flush()).map_err(failed)?;
    }
    Ok(())
}
