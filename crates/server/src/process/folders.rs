//! Folders that data is to be written to: whether a file can be made there is found out at start, not by the
//! first save.
//!
//! **What this module does not know:** what is written, and when.

use isotherm_disk::Mode;
use std::io;
use std::path::Path;

use isotherm_durability::aof::settings::{APPEND_ONLY, files_on};
use isotherm_node::Node;
use isotherm_runtime::log::{self, os_text};

/// Warns of each folder in which no file can be made although save points, or the append-only file, need it.
pub fn warn(node: &Node) {
    let (folder, disk) = (node.config.folder(), &node.persistence.disk);
    let warn_of = |folder: &Path, what: &str| {
        if let Err(error) = try_file(node, folder) {
            let (folder, why) = (folder.display(), os_text(&error));
            log::warning(format!(
                "WARNING: no file can be made in '{folder}' ({why}): {what} cannot be written there."
            ));
        }
    };
    if !node.config.save_points().is_empty() {
        warn_of(&folder, "the RDB file of save points");
    }
    if node.config.flag(APPEND_ONLY) {
        let own = files_on(disk, &node.config);
        warn_of(if own.folder().is_dir() { own.folder() } else { &folder }, "the append-only file");
    }
}

/// Makes a file and removes it.
fn try_file(node: &Node, folder: &Path) -> io::Result<()> {
    let disk = &node.persistence.disk;
    let path = folder.join(format!("temp-{}.rdb", std::process::id()));
    drop(disk.open(&path, Mode::Truncate)?);
    disk.remove(&path)
}
