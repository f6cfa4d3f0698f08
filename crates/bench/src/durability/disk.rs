//! The time of a sync: of the machine's disk, measured; of a modelled one, as it is defined.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use super::median;
use crate::Fallible;
use crate::options::Options;
use crate::process::Setting;

const MODEL: &str = include_str!("modelled_disk.c");
/// `OVERWRITE_US` of the model.
const MODELLED_OVERWRITE_MS: f64 = 1.1;

/// Disk that the servers of a row write to.
#[derive(Clone)]
pub enum Disk {
    Machine,
    /// The library that stands in for it.
    Modelled(PathBuf),
}

impl Disk {
    /// Compiles the model.
    pub fn modelled(options: &Options) -> Fallible<Disk> {
        Disk::compiled(options, "modelled_disk", &[])
    }

    /// A disk that takes `replace_us` to replace a file, and no time for anything else.
    pub fn slow(options: &Options, replace_us: u32) -> Fallible<Disk> {
        let prices = [format!("-DRENAME_US={replace_us}"), "-DAPPEND_US=0".into(), "-DOVERWRITE_US=0".into()];
        Disk::compiled(options, "slow_disk", &prices)
    }

    fn compiled(options: &Options, name: &str, prices: &[String]) -> Fallible<Disk> {
        let folder = &options.scratch;
        let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        let written = fs::create_dir_all(folder).and_then(|()| fs::write(&source, MODEL));
        written.map_err(|why| format!("cannot write {}: {why}", source.display()))?;
        let mut compiler = Command::new("cc");
        compiler.args(["-O2", "-shared", "-fPIC"]).args(prices);
        compiler.arg("-o").arg(&library).arg(&source).arg("-lpthread");
        match compiler.status() {
            Ok(status) if status.success() => Ok(Disk::Modelled(library)),
            Ok(status) => Err(format!("cc: {status}")),
            Err(why) => Err(format!("cannot run cc, which the modelled disk needs: {why}")),
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Disk::Machine => "this disk",
            Disk::Modelled(_) => "modelled disk",
        }
    }

    pub fn under(&self, mut setting: Setting) -> Setting {
        if let Disk::Modelled(library) = self {
            setting.environment.push(("LD_PRELOAD".to_string(), library.clone()));
        }
        setting
    }

    /// The median time of a sync of blocks that were written before.
    pub fn overwrite_ms(&self, options: &Options) -> Fallible<f64> {
        match self {
            Disk::Modelled(_) => Ok(MODELLED_OVERWRITE_MS),
            Disk::Machine => {
                measured_overwrite_ms(options).map_err(|why| format!("cannot measure the disk: {why}"))
            }
        }
    }
}

const BLOCK_BYTES: usize = 4096;
const BLOCKS: u64 = 1024;
const SYNCS: u64 = 200;

fn measured_overwrite_ms(options: &Options) -> std::io::Result<f64> {
    fs::create_dir_all(&options.scratch)?;
    let path = options.scratch.join("syncs");
    let file = fs::File::create(&path)?;
    for block in 0..BLOCKS {
        file.write_all_at(&[1; BLOCK_BYTES], block * BLOCK_BYTES as u64)?;
    }
    file.sync_all()?;
    let mut times = Vec::new();
    for sync in 0..SYNCS {
        file.write_all_at(&[sync as u8; BLOCK_BYTES], sync % BLOCKS * BLOCK_BYTES as u64)?;
        let start = Instant::now();
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    fs::remove_file(&path)?;
    Ok(median(times).expect("there were syncs"))
}
