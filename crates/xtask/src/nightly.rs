//! The nightly toolchain, for what no stable compiler does: sanitizers and Miri. It is installed through
//! rustup where that is possible; callers report the reason otherwise, and skip.

use std::process::Command;

use crate::{Fallible, place, run};

/// A program under the nightly toolchain. The cargo that runs us has put itself and its toolchain into the
/// environment.
pub fn command() -> Command {
    let mut command = Command::new("rustup");
    command
        .args(["run", "nightly"])
        .current_dir(place::root())
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    command
}

/// Makes sure of a nightly toolchain with these components.
pub fn ensure(components: &[&str]) -> Fallible {
    if place::in_path("rustup").is_none() {
        return Err("no rustup on this machine".to_string());
    }
    if run::quiet(command().args(["rustc", "--version"])).is_err() {
        run::quiet(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile", "minimal"]))
            .map_err(|why| format!("no nightly toolchain: {why}"))?;
    }
    if components.is_empty() {
        return Ok(());
    }
    run::quiet(Command::new("rustup").args(["component", "add", "--toolchain", "nightly"]).args(components))
        .map(drop)
        .map_err(|why| format!("no component {}: {why}", components.join(", ")))
}

/// The name of this machine's target, as in `x86_64-unknown-linux-gnu`.
pub fn host() -> Fallible<String> {
    let said = run::quiet(command().args(["rustc", "-vV"]))?;
    let host = said.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| format!("rustc names no host: {said}"))
}
