//! Patches Lua 5.1.5 and compiles it, with the glue, as one translation unit.
//!
//! ```text
//! lua-src            a crate of others, whose folder lua-5.1.5 is Lua as it was released, with small changes in lapi.c, ldo.c and
//!                    luaconf.h; it builds Lua too, which is not used
//! lua/sources.sha1   the files taken from it, as `sha1sum` lists them
//! lua/patches        what differs here, applied in the order of the names (patches.rs has the format)
//! lua/glue           the binding's side in C
//! ```

use std::path::{Path, PathBuf};
use std::{env, fs};

mod patches;
mod sources;

fn main() {
    println!("cargo::rerun-if-changed=lua");
    println!("cargo::rerun-if-changed=build");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let patched = write_patched(&out).unwrap_or_else(|why| {
        eprintln!("{why}");
        std::process::exit(1)
    });
    compile(&patched);
}

/// Returns the folder of the patched sources.
fn write_patched(out: &Path) -> Result<PathBuf, String> {
    let folder = sources::find(out)?;
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = sources::read(Path::new("lua/sources.sha1"), &folder)?;
    for path in sorted(Path::new("lua/patches")) {
        patches::apply(&path.display().to_string(), &sources::text(&path)?, &mut files)?;
    }
    let patched = out.join("lua");
    fs::create_dir_all(&patched).expect("the folder for output can be made");
    for (name, text) in &files {
        fs::write(patched.join(name), text).expect("a patched source can be written");
    }
    Ok(patched)
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap_or_else(|why| panic!("{}: {why}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    paths.sort();
    paths
}

fn compile(patched: &Path) {
    let mut build = cc::Build::new();
    build.file("lua/glue/all.c").include(patched).include("lua");
    build.opt_level(3).force_frame_pointer(false).flag_if_supported("-fno-math-errno").warnings(false);
    if env::var_os("CARGO_CFG_DEBUG_ASSERTIONS").is_some() {
        build.define("LUA_USE_APICHECK", None).define("lua_assert", "assert");
    }
    // Fuzzing: what C reads and writes is watched as what Rust does.
    if env::var("CARGO_CFG_SANITIZE").is_ok_and(|names| names.split(',').any(|name| name == "address")) {
        build.flag("-fsanitize=address").flag("-fno-omit-frame-pointer");
    }
    build.compile("isotherm_lua");
}
