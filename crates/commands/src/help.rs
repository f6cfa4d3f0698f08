//! Reply of a container's HELP.

use isotherm_resp::{Args, Reply};

use crate::Outcome;

/// Replies to the request `args`, which names the container: a line of each subcommand as Valkey prints it,
/// and sentences about it, indented. The lines of HELP itself are added.
pub fn write_help(reply: &mut Reply, args: Args<'_>, lines: &[&str]) -> Outcome {
    const LAST: [&str; 2] = ["HELP", "    Return these lines."];
    reply.array(1 + lines.len() + LAST.len());
    let container = String::from_utf8_lossy(args.get(0)).to_uppercase().replace(['\r', '\n'], " ");
    reply.simple(&format!("{container} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:"));
    lines.iter().chain(&LAST).for_each(|line| reply.simple(line));
    Outcome::Done
}
