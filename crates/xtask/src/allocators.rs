//! The server under each of its allocators: built, started, filled and emptied.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Fallible, peers, place, run, testing};

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
    let variables: Vec<(&str, &Path)> = library
        .iter()
        .flat_map(|folder| [("TCMALLOC_DIR", folder.as_path()), ("LD_LIBRARY_PATH", folder.as_path())])
        .collect();
    run::step(&format!("the server with {feature}"), || {
        let features =
            ["--locked", "--profile", testing::PROFILE, "--no-default-features", "--features", feature];
        let mut own = run::cargo();
        own.args(["test", "--package", "isotherm-allocator", "--lib"]).args(features);
        if testing::run_tests(own.envs(variables.iter().copied()))? == 0 {
            return Err("no test of the allocator was run".to_string());
        }
        let mut build = run::cargo();
        build.args(["build", "--package", "isotherm", "--bin", "isotherm-server"]).args(features);
        run::loud(build.envs(variables.iter().copied()))?;
        let server = keep(feature)?;
        // The tests are those of the usual build, and so is the server that it leaves.
        let tests = testing::everything()?;
        let it = tests.iter().find(|program| program.name == testing::SERVER_TESTS).ok_or("no tests")?;
        let mut variables: Vec<(&str, &str)> =
            variables.iter().filter_map(|(name, folder)| Some((*name, folder.to_str()?))).collect();
        variables.push(("ISOTHERM_SERVER", server.to_str().ok_or("a path that is no text")?));
        let of_programs = ["allocator::", "accounting::"].map(str::to_string).to_vec();
        let arguments = testing::Arguments { of_programs, ..testing::Arguments::default() };
        let ran = testing::run_program(it, &arguments, None, &variables);
        match ran.tally.passed {
            _ if !ran.is_good => Err(format!("tests of the server with {feature} failed")),
            0 => Err("no test of the server was run".to_string()),
            _ => Ok(()),
        }
    })
}

/// Copies the server that was built, whose place the next build takes.
fn keep(feature: &str) -> Fallible<PathBuf> {
    let built = place::target().join(testing::PROFILE).join("isotherm-server");
    let kept = built.with_file_name(format!("isotherm-server-{feature}"));
    fs::copy(&built, &kept).map_err(|why| format!("cannot copy {}: {why}", built.display()))?;
    Ok(kept)
}

/// The path of tcmalloc's library; `None` if the linker finds it by itself.
fn tcmalloc() -> Fallible<Option<PathBuf>> {
    const FILE: &str = "libtcmalloc_minimal.so";
    let found = run::quiet(Command::new("cc").arg(format!("-print-file-name={FILE}")))?;
    // A file that is not found is printed as it was asked for.
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
