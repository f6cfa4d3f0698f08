//! Owner of the folder of `swap-dir`: a file in it says which log it has, and which append-only file refers
//! to that.
//!
//! ```text
//!   isotherm swap log
//!   id 8371445ee47ffb2b7dc81f60a2b9d1c5
//!   manifest /var/lib/isotherm/appendonlydir/appendonly.aof.manifest
//! ```
//! The file is written before the first base that refers to the log is in force. It is removed when a base is
//! in force that has all values itself. So a folder without it is scratch. A folder with it is emptied only
//! by a process whose own manifest shows that nothing is referred to any more. A folder that was restored
//! without its append-only file, or the other way round, is refused, and so is one of another server.

use isotherm_disk::{Disk, Mode, read_exact_at, write_all_at};
use isotherm_tier::{Checkpoint, LogId, OWNER_BYTES_MAX, OWNER_FILE_NAME};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

const FIRST_LINE: &str = "isotherm swap log";
const TEMPORARY_NAME: &str = "temp-owner";

/// Claim of this server's append-only file to the folder.
pub struct Claim {
    /// Checkpoint that its base in force refers to.
    pub checkpoint: Option<Checkpoint>,
    /// Name for a log that is begun.
    pub new_log: LogId,
    pub manifest: PathBuf,
    pub has_manifest: bool,
    /// True if its base is missing, or is none.
    pub lacks_base: bool,
}

#[cfg(debug_assertions)]
impl Claim {
    /// Makes the claim of a server without an append-only file.
    pub fn of_nothing() -> Claim {
        Claim {
            checkpoint: None,
            new_log: LogId([7; 16]),
            manifest: PathBuf::from("manifest"),
            has_manifest: false,
            lacks_base: false,
        }
    }
}

pub fn path(folder: &Path) -> PathBuf {
    folder.join(OWNER_FILE_NAME)
}

/// Owner of a folder, by what its file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    None,
    /// True for this server. `is_moved`: the manifest was elsewhere when that was written.
    Us {
        is_moved: bool,
    },
}

/// Returns the owner of the folder. Fails if that is not this server, or if the folder is not what its base
/// refers to.
pub fn check(disk: &dyn Disk, folder: &Path, claim: &Claim) -> Result<Owner, String> {
    let unreadable = |error: io::Error| format!("Can't read {}: {error}", path(folder).display());
    let text = read(disk, folder).map_err(unreadable)?;
    let Some(checkpoint) = &claim.checkpoint else {
        let Some(text) = text else { return Ok(Owner::None) };
        let is_ours = claim.has_manifest && names(&text, &claim.manifest);
        return match is_ours {
            // Without its base nothing says that the values are not needed.
            true if claim.lacks_base => Err(lost_base(folder)),
            true => Ok(Owner::Us { is_moved: false }),
            false => Err(foreign(folder, &text)),
        };
    };
    let Some(text) = text else {
        return Err(refusal(folder, "the folder has no log that a base refers to"));
    };
    let is_meant = text.lines().any(|line| line == checkpoint.log.owner_line());
    match is_meant {
        true => Ok(Owner::Us { is_moved: !names(&text, &claim.manifest) }),
        false => Err(refusal(folder, "the folder has another log")),
    }
}

/// Returns whether the owner's file names this manifest.
fn names(text: &str, manifest: &Path) -> bool {
    text.lines().any(|line| line == manifest_line(manifest))
}

/// Returns the error for a folder without the values that the base refers to.
pub fn refusal(folder: &Path, why: &str) -> String {
    format!(
        "The base of the append-only file refers to values in the folder '{}' of swap-dir, which are not there: {why}. Nothing was \
         changed. Both have to be of one server and of one moment: put the folder back that belongs to this append-only file",
        folder.display()
    )
}

/// A folder of this server's append-only file, whose base is not there.
fn lost_base(folder: &Path) -> String {
    format!(
        "The folder '{}' of swap-dir has values that the append-only file refers to, and the base of that is missing or damaged. Nothing \
         was changed. Put the base back, or, if the data is no longer needed, remove {}",
        folder.display(),
        path(folder).display()
    )
}

/// A folder that an append-only file elsewhere refers to.
fn foreign(folder: &Path, text: &str) -> String {
    let manifest =
        text.lines().find_map(|line| line.strip_prefix("manifest ")).unwrap_or("one that it does not name");
    format!(
        "The folder '{}' of swap-dir has values that an append-only file refers to, whose manifest is {manifest}, and the append-only \
         file of this server does not. Nothing was changed. Choose another swap-dir, put the append-only file back, or, if its data is \
         no longer needed, remove {}",
        folder.display(),
        path(folder).display()
    )
}

fn manifest_line(manifest: &Path) -> String {
    format!("manifest {}", manifest.as_os_str().as_bytes().escape_ascii())
}

fn read(disk: &dyn Disk, folder: &Path) -> io::Result<Option<String>> {
    let file = match disk.open(&path(folder), Mode::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()?.min(OWNER_BYTES_MAX) as usize];
    read_exact_at(&*file, &mut bytes, 0)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Writes the owner's file. Its name is durable when the folder is synced.
pub fn write(disk: &dyn Disk, folder: &Path, log: LogId, manifest: &Path) -> io::Result<()> {
    let text = format!("{FIRST_LINE}\n{}\n{}\n", log.owner_line(), manifest_line(manifest));
    let beside = folder.join(TEMPORARY_NAME);
    let file = disk.open(&beside, Mode::Truncate)?;
    write_all_at(&*file, text.as_bytes(), 0).map_err(|error| error.error)?;
    file.sync_all()?;
    disk.rename(&beside, &path(folder))
}
