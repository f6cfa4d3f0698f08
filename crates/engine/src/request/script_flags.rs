//! Flags of a command that runs a script or a function: those that the script has declared.

use isotherm_commands::Flags;
use isotherm_resp::Args;

use isotherm_node::Node;
use isotherm_node::request::entry::Entry;
use isotherm_node::scripting::shebang;
use isotherm_node::scripting::shebang::ScriptFlags;

/// EVAL and FCALL are what their script has declared. Of one that declares nothing or does not exist nothing
/// is known.
pub fn flags_of_script(node: &Node, command: &Entry, args: Args<'_>) -> Flags {
    let of_command = command.spec.flags;
    let named = command.spec.arguments.first().map(|argument| argument.name);
    let declared = args.try_get(1).and_then(|word| match named {
        _ if of_command.has(Flags::RUNS_FUNCTION) => node.libraries.flags_of(word),
        Some("sha1") => node.scripts.look_at(word).map(|script| script.flags),
        _ => shebang::read(word).ok().map(|shebang| shebang.flags),
    });
    let Some(declared) = declared.filter(|flags| !flags.has(ScriptFlags::UNDECLARED)) else {
        return of_command;
    };
    let reads = declared.has(ScriptFlags::NO_WRITES);
    let may_grow = reads || declared.has(ScriptFlags::ALLOW_OOM);
    let stale = if declared.has(ScriptFlags::ALLOW_STALE) { Flags(0) } else { Flags::STALE };
    of_command
        .without(Flags::MAY_REPLICATE.or(stale))
        .or(if reads { Flags(0) } else { Flags::WRITE })
        .or(if may_grow { Flags(0) } else { Flags::DENYOOM })
}
