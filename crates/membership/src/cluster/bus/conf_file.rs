//! nodes.conf on disk: locked for as long as the process runs, and replaced as a whole by a file that is
//! synced before it has the name.
//!
//! Invariant: whatever is under the name after a power failure is one of the files that were written, whole.
//! An unsynced file would take the place of what is known to be on disk: a vote, or this node's id.

use isotherm_disk::{Disk, File, Mode, read_exact_at, write_all_at};
use rustix::fs::{FlockOperation, flock};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use isotherm_runtime::log::os_text;

pub struct ConfFile {
    disk: Arc<dyn Disk>,
    pub path: PathBuf,
    /// Locked, since two processes with one file would be one node twice.
    locked: Arc<dyn File>,
    /// Set when there was none of this name.
    pub is_new: bool,
}

impl ConfFile {
    /// Says why the process cannot have it.
    pub fn open(disk: &Arc<dyn Disk>, path: PathBuf) -> Result<ConfFile, String> {
        let (opened, is_new) = match disk.open(&path, Mode::Update) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => (disk.open(&path, Mode::Create), true),
            opened => (opened, false),
        };
        let locked = opened.map_err(|error| {
            format!("Can't open {} in order to acquire a lock: {}", path.display(), os_text(&error))
        })?;
        lock(&*locked).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => format!(
                "Sorry, the cluster configuration file {} is already used by a different Cluster node. Please make sure that \
                 different nodes use different cluster configuration files.",
                path.display()
            ),
            _ => format!("Impossible to lock {}: {}", path.display(), os_text(&error)),
        })?;
        Ok(ConfFile { disk: Arc::clone(disk), path, locked, is_new })
    }

    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.locked.len()? as usize];
        read_exact_at(&*self.locked, &mut bytes, 0)?;
        Ok(bytes)
    }

    /// Replaces the file. `is_durable`: when this returns, the name stands for the new file whatever happens;
    /// else a power failure may bring the old one back.
    pub fn write(&mut self, text: &str, is_durable: bool) -> io::Result<()> {
        let mut beside = self.path.as_os_str().to_os_string();
        beside.push(format!(".tmp-{}", std::process::id()));
        let beside = Path::new(&beside);
        let written = self
            .write_beside(beside, text)
            .and_then(|file| self.disk.rename(beside, &self.path).map(|()| file));
        if written.is_err() {
            let _ = self.disk.remove(beside);
        }
        self.locked = written?;
        if is_durable {
            self.disk.sync_dir(self.path.parent().unwrap_or(Path::new("")))?;
        }
        Ok(())
    }

    fn write_beside(&self, path: &Path, text: &str) -> io::Result<Arc<dyn File>> {
        let file = self.disk.open(path, Mode::Truncate)?;
        // Before it has the name that another process would open.
        lock(&*file)?;
        write_all_at(&*file, text.as_bytes(), 0).map_err(|failed| failed.error)?;
        file.sync_data()?;
        Ok(file)
    }
}

/// Locks a file of the machine. A simulated one is one process's.
fn lock(file: &dyn File) -> io::Result<()> {
    let Some(raw) = file.raw() else { return Ok(()) };
    Ok(flock(raw.descriptor, FlockOperation::NonBlockingLockExclusive)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_disk::{Damage, Plan, SimDisk};

    /// The power fails at each call of a save that is waited for and one that is not.
    #[test]
    fn after_a_power_failure_one_of_the_files_is_there_whole() {
        const TEXTS: [&str; 3] = ["the first one", "the second one, which is longer", "the third"];
        let damage = Damage::ALL;
        let mut crashes = 0;
        for seed in 0..20 {
            for crash_at in 1.. {
                let sim = SimDisk::new(seed, Plan::default());
                let disk: Arc<dyn Disk> = Arc::new(sim.clone());
                let mut file = ConfFile::open(&disk, "nodes.conf".into()).expect("no one has it");
                file.write(TEXTS[0], true).expect("nothing fails yet");
                sim.set_plan(Plan { crash_at: Some(crash_at), damage, ..Plan::default() });
                let done = [file.write(TEXTS[1], true), file.write(TEXTS[2], false)].map(|done| done.is_ok());
                let is_over = !sim.is_stopped();
                drop(file);
                sim.restart(Plan::default());
                let found = ConfFile::open(&disk, "nodes.conf".into()).expect("it is free again");
                let text = String::from_utf8(found.read().expect("it is there")).expect("whole");
                let which = TEXTS.iter().position(|known| *known == text);
                assert!(!found.is_new && which >= Some(usize::from(done[0])), "{seed} {crash_at} {text:?}");
                if is_over {
                    break;
                }
                crashes += 1;
            }
        }
        assert!(crashes > 100, "{crashes}");
    }
}
