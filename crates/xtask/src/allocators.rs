//! The server under each of its allocators: built, started, filled and emptied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Fallible, peers, run, testing};

/// Features of crates/allocator; the first is the default, and the last is the first with heap profiles.
const FEATURES: [&str; 5] = ["jemalloc", "mimalloc", "tcmalloc", "system", "profiling"];

/// `cargo xtask allocators [FEATURE ..]`
pub fn command(args: &[String]) -> Fallible {
    if let Some(unknown) = args.iter().find(|name| !FEATURES.contains(&name.as_str())) {
        return Err(format!("'{unknown}' is none of {}", FEATURES.join(", ")));
    }
    let chosen = |feature: &&&str| args.is_empty() || args.iter().any(|name| name == **feature);
    FEATURES.iter().filter(chosen).try_for_each(|feature| smoke(feature))
}

fn smoke(feature: &str) -> Fallible {
    let library = match feature {
        "tcmalloc" => match tcmalloc() {
            Ok(folder) => folder,
            Err(why) => {
                println!("skipped: the server with tcmalloc: {why}");
                return Ok(());
            }
        },
        _ => None,
    };
    run::step(&format!("the server with {feature}"), || {
        for (package, tests) in [
            ("isotherm-allocator", ["--lib", "--", ""]),
            ("isotherm", ["--test", "it", "allocator::"]),
            ("isotherm", ["--test", "it", "accounting::"]),
        ] {
            let mut command = run::cargo();
            command.args([
                "test",
                "--locked",
                "--package",
                package,
                "--no-default-features",
                "--features",
                feature,
            ]);
            if let Some(folder) = &library {
                command.env("TCMALLOC_DIR", folder).env("LD_LIBRARY_PATH", folder);
            }
            if testing::run_tests(command.args(tests))? == 0 {
                return Err(format!("no test of {package} was run"));
            }
        }
        Ok(())
    })
}

/// The path of tcmalloc's library; `None` if the linker finds it by itself.
fn tcmalloc() -> Fallible<Option<PathBuf>> {
    const FILE: &str = "libtcmalloc_minimal.so";
    let found = run::quiet(Command::new("cc").arg(format!("-print-file-name={FILE}")))?;
    // What is not found is printed as it was asked for.
    if found.trim() != FILE {
        return Ok(None);
    }
    let folder = peers::unpack_from_machine("tcmalloc", "libtcmalloc-minimal4")?;
    let library = folder_of(&folder, "libtcmalloc_minimal.so.4").ok_or("the package holds no library")?;
    let link = library.join(FILE);
    if !link.exists() {
        std::os::unix::fs::symlink("libtcmalloc_minimal.so.4", &link)
            .map_err(|why| format!("cannot link {}: {why}", link.display()))?;
    }
    Ok(Some(library))
}

/// The folder at or below `folder` that holds `file`.
fn folder_of(folder: &Path, file: &str) -> Option<PathBuf> {
    if folder.join(file).exists() {
        return Some(folder.to_path_buf());
    }
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| folder_of(&path, file))
}
