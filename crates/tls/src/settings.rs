//! Settings of TLS: files and words, as a user gives them.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::certificate;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    pub own: Identity,
    /// Shown where this side is the client; without it `own` is.
    pub as_client: Option<Identity>,
    pub authorities: Authorities,
    /// Versions, such as `TLSv1.2 TLSv1.3`; the default if empty.
    pub protocols: String,
    /// Suites of TLS 1.2 in OpenSSL's language; the default if empty.
    pub ciphers: String,
    /// Suites of TLS 1.3 by name; the default if empty.
    pub suites: String,
    pub prefers_own_order: bool,
    pub resumption: Option<Resumption>,
    /// At least some peers' certificates have to be checked.
    pub needs_authorities: bool,
}

/// A certificate with those above it, and its key.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    pub password: Option<Vec<u8>>,
}

/// Authorities whose signatures are trusted.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Authorities {
    pub file: Option<PathBuf>,
    pub folder: Option<PathBuf>,
}

impl Authorities {
    pub fn are_given(&self) -> bool {
        self.file.is_some() || self.folder.is_some()
    }
}

/// Number of earlier sessions that are remembered, and time for which they can be resumed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resumption {
    pub sessions_max: usize,
    pub lifetime_s: u32,
}

/// State of the files, to find out whether they have to be read again. Certificates are compared by their
/// bytes, keys and a folder by number and time of change, as in Valkey.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Materials {
    certificates: [Option<Vec<u8>>; 3],
    changed: [Option<(u64, i64)>; 3],
}

impl Materials {
    pub fn of(settings: &Settings) -> Materials {
        let client = settings.as_client.as_ref();
        let first = |path: Option<&PathBuf>| -> Option<Vec<u8>> {
            Some(certificate::read_all(&fs::read(path?).ok()?)?.first()?.to_vec())
        };
        let changed = |path: Option<&PathBuf>| path.and_then(|path| changed(path));
        Materials {
            certificates: [
                first(settings.own.certificate.as_ref()),
                first(client.and_then(|client| client.certificate.as_ref())),
                first(settings.authorities.file.as_ref()),
            ],
            changed: [
                changed(settings.own.key.as_ref()),
                changed(client.and_then(|client| client.key.as_ref())),
                changed(settings.authorities.folder.as_ref()),
            ],
        }
    }
}

fn changed(path: &Path) -> Option<(u64, i64)> {
    fs::metadata(path).ok().map(|found| (found.ino(), found.mtime()))
}
