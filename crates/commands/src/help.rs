//! What a container's HELP answers.

use isotherm_resp::{Args, Reply};

/// For the request `args`, which names the container; the lines of its subcommands as Valkey prints them, without those of
/// HELP itself.
pub fn write_help(reply: &mut Reply, args: Args<'_>, lines: &[&str]) {
    const LAST: [&str; 2] = ["HELP", "    Print this help."];
    reply.array(1 + lines.len() + LAST.len());
    let container = String::from_utf8_lossy(args.get(0)).to_uppercase().replace(['\r', '\n'], " ");
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().chain(&LAST).for_each(|line| reply.simple(line));
}
