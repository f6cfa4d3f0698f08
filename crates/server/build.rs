//! Commit that the server is built from, for INFO and `--version`: a figure belongs to a binary, and the
//! binary says which.
//!
//! Asked again when the checkout moves to another commit, and when a file changes that goes into the server:
//! then it would be compiled again anyway. Without git, or outside of a repository, the commit is eight
//! zeros, as Valkey writes it.

use std::path::Path;
use std::process::Command;

/// What the server is made of, seen from this folder.
const SOURCES: [&str; 28] = [
    "../acl",
    "../allocator",
    "../arena",
    "../cluster",
    "../codec",
    "../commands",
    "../config",
    "../disk",
    "../durability",
    "../engine",
    "../keyspace",
    "../log",
    "../membership",
    "../node",
    "../persist",
    "../reactor",
    "../replicas",
    "../replication",
    "../resp",
    "../runtime",
    "../script",
    "../server",
    "../stdx",
    "../swap",
    "../tier",
    "../tls",
    "../../Cargo.toml",
    "../../Cargo.lock",
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (mut commit, mut changed) = ("00000000".to_string(), false);
    if let Some(id) = git(&["rev-parse", "--short=8", "HEAD"]) {
        commit = id;
        changed = git(&[&["status", "--porcelain", "--"], &SOURCES[..]].concat()).is_some();
        SOURCES.into_iter().flat_map(watched).for_each(|path| println!("cargo::rerun-if-changed={path}"));
        where_head_is().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    }
    println!("cargo::rustc-env=ISOTHERM_COMMIT={commit}");
    println!("cargo::rustc-env=ISOTHERM_CHANGED={}", u8::from(changed));
}

/// A crate's tests are not in the server; a change of them builds nothing.
fn watched(source: &str) -> impl Iterator<Item = String> {
    let within = if source.contains("Cargo") { &[""][..] } else { &["/src", "/Cargo.toml"] };
    within.iter().map(move |rest| format!("{source}{rest}"))
}

/// The files that change with a commit or a checkout. The branch has one of its own, or stands among the
/// packed ones.
fn where_head_is() -> impl Iterator<Item = String> {
    let branch = git(&["symbolic-ref", "--quiet", "HEAD"]);
    let files = ["HEAD".to_string(), "packed-refs".to_string()].into_iter().chain(branch);
    // Cargo takes a file that is missing for one that has changed.
    files.filter_map(|name| git(&["rev-parse", "--git-path", &name])).filter(|path| Path::new(path).exists())
}

/// What git says; nothing if it fails or says nothing.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string()).filter(|text| !text.is_empty())
}
