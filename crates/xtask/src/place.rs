//! Places of things: the checkout, what it builds, and what it installs for itself.

use std::path::{Path, PathBuf};

/// The checkout that Cargo runs us in. (Asked at run time: checkouts that share a target folder share this
/// program.)
pub fn root() -> PathBuf {
    let here = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).ancestors().nth(2).expect("crates/xtask lies two folders below the root").to_path_buf()
}

pub fn target() -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root().join(folder),
        None => root().join("target"),
    }
}

/// The servers to compare with: `ISOTHERM_PEERS` shares one installation between checkouts.
pub fn peers() -> PathBuf {
    match std::env::var_os("ISOTHERM_PEERS") {
        Some(folder) => root().join(folder),
        None => target().join("peers"),
    }
}

/// The program called `name` in PATH, if there is one.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
