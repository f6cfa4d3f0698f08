//! Fields about the swap log in the head of the base in force. They are read before anything else: the secret
//! of the key hash depends on them, and so does the part of the folder that is kept.
//!
//! ```text
//!   the manifest  -->  the base  -->  [swap-log]          which log, its segments  (`process::swap_start`)
//!                                     [swap-key-secret]   of a base with bundles   (`process::start`: the keyspace is made with it)
//! ```
//! Bundles have sixteen bits of the hash of each key, and lie where hashes put them. A start that hashed
//! otherwise would have to read them all.

use isotherm_disk::Disk;
use isotherm_persist::Limits;
use isotherm_persist::rdb::file::{FileReader, Item, MAGIC_BYTES, Options, SWAP_KEY_SECRET, SWAP_LOG, Step};
use isotherm_tier::{CHECKPOINT_BYTES_MAX, Checkpoint};
use std::path::Path;
use std::sync::Arc;

use super::settings;
use crate::persistence::load::{FilePortions, KeySecret, LoadFailure, Portions};
use isotherm_config::Config;
use isotherm_node::aof::files::Logged;
use isotherm_runtime::log::os_text;

/// A base that refers.
pub struct BaseHead {
    pub checkpoint: Checkpoint,
    /// Secret that the keys are hashed with, of a base with bundles.
    pub key_secret: Option<KeySecret>,
}

pub struct Found {
    pub has_manifest: bool,
    /// True if the manifest names a base that is missing, or of which not even the first bytes are right: it
    /// may have referred to the folder.
    pub lacks_base: bool,
    /// Head of the base; `None` if there is no base, or it has all values.
    pub base: Option<BaseHead>,
}

/// First bytes of a base.
enum Head {
    Refers(BaseHead),
    HasAll,
    Unknown,
}

/// Returns the secret that the keys of the base are hashed with, if the base depends on it.
pub fn key_secret(disk: &Arc<dyn Disk>, config: &Config) -> Result<Option<KeySecret>, String> {
    if !config.swaps() {
        return Ok(None);
    }
    Ok(find(disk, config)?.base.and_then(|base| base.key_secret))
}

pub fn find(disk: &Arc<dyn Disk>, config: &Config) -> Result<Found, String> {
    let mut files = settings::files_on(disk, config);
    let unreadable = |Logged| {
        "The append-only file cannot be read, and may refer to values in swap-dir. Exiting.".to_string()
    };
    let listed = files.manifest().map_err(unreadable)?;
    let has_manifest = listed.is_some();
    let head = match listed.and_then(|manifest| manifest.base) {
        Some(base) => read(&**disk, &files.path(&base.name))?,
        None => Head::HasAll,
    };
    let lacks_base = matches!(head, Head::Unknown);
    let base = if let Head::Refers(base) = head { Some(base) } else { None };
    Ok(Found { has_manifest, lacks_base, base })
}

/// Reads the head of a base.
fn read(disk: &dyn Disk, path: &Path) -> Result<Head, String> {
    let of_file =
        |what: &str| format!("Can't use the base of the append-only file {}: {what}", path.display());
    let opened = FilePortions::open_on(disk, path.to_path_buf());
    let opened = opened.map_err(|LoadFailure(lines)| lines.join(" "))?;
    // The load says that it is missing, or what is wrong with it.
    let Some(mut portions) = opened else { return Ok(Head::Unknown) };
    let head = portions.head::<MAGIC_BYTES>().map_err(|error| of_file(&os_text(&error)))?;
    if !head.starts_with(b"ISOTHERM") {
        let is_snapshot = head.starts_with(b"REDIS") || head.starts_with(b"VALKEY");
        // A base of commands may be empty.
        let is_known = is_snapshot || path.extension().is_some_and(|extension| extension == "aof");
        return Ok(if is_known { Head::HasAll } else { Head::Unknown });
    }
    let limits = Limits { text_bytes_max: CHECKPOINT_BYTES_MAX as u64, ..Limits::default() };
    let options = Options { limits, strict_version: false, checksum: false, references: true };
    let mut reader = FileReader::new(options);
    let mut portion = vec![0; 64 << 10];
    let (mut checkpoint, mut key_secret) = (None, None);
    // The fields stand in front of all else.
    loop {
        match reader.step().map_err(|error| of_file(&error.cause.to_string()))? {
            Step::Item(Item::Aux { name, value }) if name == SWAP_LOG.as_bytes() => {
                checkpoint = Some(Checkpoint::parse(value).map_err(|error| of_file(&error.to_string()))?);
            }
            Step::Item(Item::Aux { name, value }) if name == SWAP_KEY_SECRET.as_bytes() => {
                key_secret = value.try_into().ok();
            }
            Step::Item(Item::Aux { .. }) => {}
            Step::Item(_) | Step::End => break,
            Step::NeedsMore => {
                match portions.read(&mut portion).map_err(|error| of_file(&os_text(&error)))? {
                    0 => reader.end(),
                    count => reader.feed(&portion[..count]),
                }
            }
        }
    }
    let checkpoint = checkpoint.ok_or_else(|| of_file("it does not say to which log it refers"))?;
    if reader.version().has_bundles() && key_secret.is_none() {
        return Err(of_file("it does not say what its keys are hashed with"));
    }
    Ok(Head::Refers(BaseHead { checkpoint, key_secret }))
}
