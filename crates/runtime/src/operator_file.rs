//! A file of an operator that the server writes again: it stays theirs.
//!
//! ```text
//! follow links  ->  FILE.<pid>-<n> beside it, with its mode and owner  ->  sync  ->  rename  ->  sync the folder
//!                                 |                                                 |
//!                   its owner cannot be given to another file          it is mounted by itself (EBUSY)
//!                                 '--------------> write in place, sync <-----------'
//! ```
//! Renamed, it is the old text or the new one whatever happens meanwhile. Written in place, the file next to
//! it has the new text until the file itself has it too: the state after a crash or a full disk can be mended
//! by hand. A file that is mounted in a read-only folder has none next to it.

use rustix::fs::{Gid, Mode, Uid, fchmod, fchown};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Mode of a file that was not there, before the umask.
const NEW_MODE: u32 = 0o644;
/// Bits of `st_mode` that are the mode.
const MODE_BITS: u32 = 0o7777;

/// Part of the way that failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Open,
    Write,
    Sync,
    Rename,
    SyncFolder,
}

// COMPAT(server): CONFIG REWRITE and ACL SAVE keep the mode and the owner of their file, follow links, and
// write in place what is mounted by itself. Valkey's file becomes 0644, a link becomes a file, and a mounted
// one is an error. Why: both have passwords.
/// Writes `text` to the file, durably. An error says which step failed: the file is as it was then, or has
/// the new text and may not be durable.
pub fn replace(path: &Path, text: &[u8]) -> Result<(), (Step, io::Error)> {
    let path = &fs::canonicalize(path).or_else(|_| end_of_link(path)).unwrap_or_else(|_| path.into());
    let beside = &beside(path);
    let renamed = match write_beside(beside, fs::metadata(path).ok().as_ref(), text) {
        Ok(true) => fs::rename(beside, path).map_err(|error| (Step::Rename, error)),
        Ok(false) => Err((Step::Rename, io::ErrorKind::ResourceBusy.into())),
        Err(error) => Err(error),
    };
    match renamed {
        Ok(()) => return sync_folder(path).map_err(|error| (Step::SyncFolder, error)),
        // A failure here leaves the file next to it.
        Err((step, error)) if is_mounted_alone(step, &error) => {
            write_in_place(path, text).map_err(|(_, error)| (step, error))?;
        }
        Err(error) => {
            let _ = fs::remove_file(beside);
            return Err(error);
        }
    }
    let _ = fs::remove_file(beside);
    Ok(())
}

/// Returns the file that a link names, which is not there yet.
fn end_of_link(path: &Path) -> io::Result<PathBuf> {
    let end = fs::read_link(path)?;
    Ok(path.parent().unwrap_or(Path::new("")).join(end))
}

/// Returns whether what failed shows that the file is a mount of its own: nothing takes its place.
fn is_mounted_alone(step: Step, error: &io::Error) -> bool {
    match step {
        Step::Open => error.kind() == io::ErrorKind::ReadOnlyFilesystem,
        Step::Rename => error.kind() == io::ErrorKind::ResourceBusy,
        _ => false,
    }
}

/// Returns a name that no other call uses: two administrators may save at once.
fn beside(path: &Path) -> PathBuf {
    static CALLS: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{}", std::process::id(), CALLS.fetch_add(1, Relaxed)));
    PathBuf::from(name)
}

/// Returns whether the file that was written can take the place of the one that was there.
fn write_beside(beside: &Path, before: Option<&Metadata>, text: &[u8]) -> Result<bool, (Step, io::Error)> {
    // No other user reads it before it has the rights of the one that it replaces.
    let mode = if before.is_some() { 0o600 } else { NEW_MODE };
    let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(beside);
    let mut file = opened.map_err(|error| (Step::Open, error))?;
    let is_alike = before.is_none_or(|before| take_over(&file, before).is_ok());
    file.write_all(text).map_err(|error| (Step::Write, error))?;
    file.sync_all().map_err(|error| (Step::Sync, error))?;
    Ok(is_alike)
}

/// Gives a file the owner and the mode of another.
fn take_over(file: &File, before: &Metadata) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        fchown(file, Some(Uid::from_raw(before.uid())), Some(Gid::from_raw(before.gid())))?;
    }
    fchmod(file, Mode::from_raw_mode(before.mode() & MODE_BITS))?;
    Ok(())
}

fn write_in_place(path: &Path, text: &[u8]) -> Result<(), (Step, io::Error)> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(|error| (Step::Rename, error))?;
    let written = file.write_all(text).and_then(|()| file.set_len(text.len() as u64));
    written.map_err(|error| (Step::Write, error))?;
    file.sync_all().map_err(|error| (Step::Sync, error))
}

fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("isotherm-operator-file-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & MODE_BITS
    }

    #[test]
    fn it_keeps_its_mode_and_links_to_it_stay() {
        let folder = Folder::new("mode");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        replace(&file, b"new").unwrap();
        assert_eq!(mode(&file) & !NEW_MODE, 0);
        for bits in [0o600, 0o640, 0o666] {
            fs::set_permissions(&file, fs::Permissions::from_mode(bits)).unwrap();
            replace(&file, b"secret").unwrap();
            assert_eq!(mode(&file), bits);
        }
        symlink("file", &link).unwrap();
        replace(&link, b"other").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"other");
        let ahead = folder.0.join("ahead");
        symlink("later", &ahead).unwrap();
        replace(&ahead, b"first").unwrap();
        assert_eq!(fs::read(folder.0.join("later")).unwrap(), b"first");
        assert!(fs::symlink_metadata(&ahead).unwrap().is_symlink());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 4, "nothing is left beside it");
    }

    #[test]
    fn in_place_nothing_of_the_old_text_is_left() {
        let folder = Folder::new("place");
        let file = folder.0.join("file");
        for text in ["a long text", "short", ""] {
            fs::write(&file, "a longer text than that").unwrap();
            write_in_place(&file, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert_eq!(write_in_place(&folder.0.join("none"), b"").unwrap_err().0, Step::Rename);
    }

    #[test]
    fn two_at_once_leave_one_text_or_the_other() {
        let folder = Folder::new("two");
        let file = folder.0.join("file");
        let texts = ["a".repeat(100_000), "b".repeat(50_000)];
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| (0..20).for_each(|_| replace(&file, text.as_bytes()).unwrap()));
            }
        });
        let found = fs::read_to_string(&file).unwrap();
        assert!(texts.contains(&found), "{} bytes", found.len());
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let folder = Folder::new("none");
        assert_eq!(replace(&folder.0.join("no/file"), b"").unwrap_err().0, Step::Open);
    }
}
