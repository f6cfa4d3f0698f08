//! Finds the crate `lua-src`, and takes from it the files of Lua that are as expected.
//!
//! The crate does not say where it lies: not in its interface, and not through a build script of its own.
//! Cargo knows. But `cargo metadata` for this workspace wants every crate of every member and platform, and a
//! build of one program has downloaded only a part of them. So it is asked for a package, made here, that
//! depends on `lua-src` alone. It does not wait for the cargo that runs this script, downloads nothing, and
//! finds a source replacement (`cargo vendor`) that is configured above this folder or in CARGO_HOME, but
//! none that is given on the command line.
//!
//! `Cargo.lock` has the crate's SHA-256, and cargo compares it when it downloads. The hashes here are for
//! what happens to files after that, and for vendored ones, which cargo does not compare again for a crate
//! that it has compiled. SHA-1, which `stdx` has, finds such changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use isotherm_stdx::sha1::{hex, sha1};

/// Version, equal to the one in the workspace's `Cargo.toml`.
const VERSION: &str = "551.1.0";
const FOLDER: &str = "lua-5.1.5";

/// Returns the crate's folder of Lua 5.1. Works in `out`.
pub fn find(out: &Path) -> Result<PathBuf, String> {
    let cargo = env::var_os("CARGO").expect("cargo sets it");
    let asked = Command::new(cargo)
        .args(["metadata", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(write_package(&out.join("finder")))
        .output()
        .map_err(|why| format!("cargo metadata cannot run: {why}"))?;
    let manifest = manifest_in(&String::from_utf8_lossy(&asked.stdout)).ok_or_else(|| {
        format!(
            "the crate lua-src {VERSION}, whose Lua is built, is not found by `cargo metadata --offline` \
             (crates that are vendored: a .cargo/config.toml above crates/script, or in CARGO_HOME, has to name their folder):\n{}",
            String::from_utf8_lossy(&asked.stderr)
        )
    })?;
    Ok(manifest.with_file_name(FOLDER))
}

/// Returns its manifest. A lock file of an earlier build may name what this machine has no more.
fn write_package(folder: &Path) -> PathBuf {
    let manifest = folder.join("Cargo.toml");
    let text = format!(
        "[workspace]\n[package]\nname = \"finder\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
         [lib]\npath = \"lib.rs\"\n[dependencies]\nlua-src = \"={VERSION}\"\n"
    );
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder).expect("the folder for output can be made");
    fs::write(&manifest, text).expect("a manifest can be written");
    manifest
}

/// The manifest of `lua-src`, from cargo's description of packages in JSON: each begins with its name and its
/// version, which the dependencies of others do not.
fn manifest_in(metadata: &str) -> Option<PathBuf> {
    let (_, package) = metadata.split_once(&format!(r#""name":"lua-src","version":"{VERSION}","#))?;
    let (_, path) = package.split_once(r#""manifest_path":""#)?;
    path.split_once('"').map(|(path, _)| PathBuf::from(path))
}

/// Reads the files on the list, by their names. Each has to have its hash.
pub fn read(list: &Path, folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let list = text(list)?;
    list.lines()
        .map(|line| {
            let (hash, name) = line.split_once("  ").ok_or_else(|| format!("{line}: no line of sha1sum"))?;
            let path = folder.join(name);
            let text = text(&path)?;
            if hex(&sha1(text.as_bytes())) != hash {
                return Err(format!(
                    "{} is not the file of lua-src {VERSION}: {hash} is its SHA-1",
                    path.display()
                ));
            }
            Ok((name.to_owned(), text))
        })
        .collect()
}

pub fn text(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
}
