//! The picture in the log at start: lines of equal warmth. Some scripts find the port and the process id in
//! it.

use std::io::{IsTerminal, stdout};

use isotherm_config::Config;
use isotherm_config::file::VERSION;
use isotherm_node::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_runtime::log;

/// Shows the logo if standard output is a terminal and there is no log file, or if the configuration asks for
/// it.
pub fn show(config: &Config) {
    if config.always_show_logo() || (config.log_file().is_none() && stdout().is_terminal()) {
        log::raw(&picture(config.mode(), config.port(), std::process::id()));
    }
}

fn picture(mode: &str, port: u16, pid: u32) -> String {
    let bits = usize::BITS;
    format!(
        r"
       .-----------.
    .-'  .-------.  '-.       Isotherm {VERSION} {bits} bit
   /   .'  .---.  '.   \
  |   |   |  *  |   |   |     Running in {mode} mode
   \   '.  '---'  .'   /      Port: {port}
    '-.  '-------'  .-'       PID: {pid}
       '-----------'

"
    )
}

/// Returns the text of LOLWUT: the lines of the logo, the isotherms of a hot spot. Clients that only know
/// Valkey or Redis look for its name.
pub fn lolwut(config: &Config) -> String {
    // COMPAT(observability): LOLWUT draws one picture, whatever its arguments, and names the version that
    // HELLO reports. Why: tools read the version from it.
    const LINES: &str = r"
       .-----------.
    .-'  .-------.  '-.
   /   .'  .---.  '.   \
  |   |   |  *  |   |   |
   \   '.  '---'  .'   /
    '-.  '-------'  .-'
       '-----------'
";
    let (name, version) = match config.extended_redis_compatibility() {
        true => ("Redis", REDIS_VERSION),
        false => ("Valkey", VALKEY_VERSION),
    };
    format!("{LINES}\nIsotherm ver. {VERSION}, which answers as {name} ver. {version}\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_port_and_process() {
        let picture = super::picture("standalone", 6379, 4711);
        assert!(picture.contains(" Port: 6379\n") && picture.contains(" PID: 4711\n"));
    }
}
