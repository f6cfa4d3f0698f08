//! Commit that the server is built from, for INFO and `--version`: a figure belongs to a binary, and the
//! binary says which.
//!
//! Asked again when the checkout moves to another commit, and when a file changes that goes into the server:
//! then it would be compiled again anyway. Without git, or outside of a repository, the commit is eight
//! zeros, as Valkey writes it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let (mut commit, mut changed) = ("00000000".to_string(), false);
    if let Some(id) = git(&["rev-parse", "--short=8", "HEAD"]) {
        let sources = sources();
        let words = ["status", "--porcelain", "--"].into_iter().chain(sources.iter().map(String::as_str));
        commit = id;
        changed = git(&words.collect::<Vec<_>>()).is_some();
        sources.iter().flat_map(|source| watched(source)).for_each(|path| {
            println!("cargo::rerun-if-changed={path}");
        });
        where_head_is().for_each(|path| println!("cargo::rerun-if-changed={path}"));
    }
    println!("cargo::rustc-env=ISOTHERM_COMMIT={commit}");
    println!("cargo::rustc-env=ISOTHERM_CHANGED={}", u8::from(changed));
}

/// Returns the folders of the crates that the server is made of, by their manifests, and the files that say
/// of what else; seen from this folder.
fn sources() -> Vec<String> {
    let mut folders = vec!["../server".to_string()];
    let mut at = 0;
    while let Some(folder) = folders.get(at) {
        let manifest = std::fs::read_to_string(format!("{folder}/Cargo.toml")).unwrap_or_default();
        let built = manifest.split("[dev-dependencies]").next().unwrap_or_default();
        let names = built.lines().filter_map(|line| line.strip_prefix("isotherm-")?.split(['.', ' ']).next());
        for folder in names.map(|name| format!("../{name}")) {
            if !folders.contains(&folder) {
                folders.push(folder);
            }
        }
        at += 1;
    }
    folders.into_iter().chain(["../../Cargo.toml", "../../Cargo.lock"].map(String::from)).collect()
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
