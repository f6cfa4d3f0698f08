//! Certificates that sign themselves, one for each kind of key. Needs `openssl`, since ring makes no keys of
//! RSA.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Fallible;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    Rsa,
    Ecdsa,
}

pub const KINDS: [KeyKind; 2] = [KeyKind::Rsa, KeyKind::Ecdsa];

impl KeyKind {
    pub fn name(self) -> &'static str {
        match self {
            KeyKind::Rsa => "RSA 2048",
            KeyKind::Ecdsa => "ECDSA P-256",
        }
    }

    fn file(self) -> &'static str {
        match self {
            KeyKind::Rsa => "rsa",
            KeyKind::Ecdsa => "ecdsa",
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            KeyKind::Rsa => &["-newkey", "rsa:2048"],
            KeyKind::Ecdsa => &["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"],
        }
    }
}

pub struct Files {
    folder: PathBuf,
}

impl Files {
    pub fn make(scratch: &Path) -> Fallible<Files> {
        let folder = scratch.join("certificates");
        fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let files = Files { folder };
        for kind in KINDS {
            let mut command = Command::new("openssl");
            command.args(["req", "-x509", "-nodes", "-days", "30", "-subj", "/CN=localhost"]);
            command.args(kind.options()).arg("-keyout").arg(files.key(kind));
            command.arg("-out").arg(files.certificate(kind)).stderr(Stdio::null());
            match command.status() {
                Ok(status) if status.success() => {}
                Ok(status) => return Err(format!("openssl makes no certificate ({status})")),
                Err(why) => return Err(format!("cannot run openssl: {why}")),
            }
        }
        Ok(files)
    }

    pub fn certificate(&self, kind: KeyKind) -> PathBuf {
        self.folder.join(format!("{}.crt", kind.file()))
    }

    pub fn key(&self, kind: KeyKind) -> PathBuf {
        self.folder.join(format!("{}.key", kind.file()))
    }
}
