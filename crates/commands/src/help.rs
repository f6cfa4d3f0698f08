//! What a container's HELP answers.

use isotherm_resp::Reply;

/// `container` in upper case; the lines of its subcommands as Valkey prints them, without those of HELP itself.
pub fn write_help(reply: &mut Reply, container: &str, lines: &[&str]) {
    const LAST: [&str; 2] = ["HELP", "    Print this help."];
    reply.array(1 + lines.len() + LAST.len());
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().chain(&LAST).for_each(|line| reply.simple(line));
}
