//! The tests of TLS: all clients of the suite speak it, with certificates that Valkey's script makes. Needs
//! `openssl`, and the package tcl-tls of Debian; comparing (`--valkey`) needs a Valkey that is built with
//! TLS.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::list::Unit;
use super::{Options, Outcome, Places, run_unit_with};
use crate::Fallible;
use crate::bounded;

/// The name of its list.
pub const LIST: &str = "tls";

const SCRIPT: &str = "utils/gen-test-certs.sh";
const SCRIPT_TIME: Duration = Duration::from_secs(120);

pub fn run_unit(scratch: &Path, unit: &Unit, places: &Places, options: &Options) -> Fallible<Outcome> {
    if !scratch.join("tests/tls/ca-dir").exists() {
        let script = places.source.join(SCRIPT);
        let mut command = Command::new("bash");
        command.arg(&script).current_dir(scratch);
        let ended = bounded::run(&mut command, b"", SCRIPT_TIME)?;
        if !scratch.join("tests/tls/ca-dir").exists() {
            return Err(format!("{}: {}", script.display(), ended.errors));
        }
    }
    run_unit_with(&["--tls"], scratch, unit, places, options)
}
