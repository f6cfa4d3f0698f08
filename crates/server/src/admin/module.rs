//! MODULE: there are no modules, and none can be loaded; what asks for that is answered as Valkey answers
//! where the file is not there.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;

use super::{AdminCall, AdminHandler};
use isotherm_runtime::log;

const MODULE: Spec = Spec {
    name: "module",
    summary: "Answers as a server without modules; none can be loaded.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command {
    spec: MODULE,
    handler: None,
    subcommands: &[
        Command::new(HELP, help),
        Command::new(LIST, list),
        Command::new(LOAD, load),
        Command::new(LOADEX, load),
        Command::new(UNLOAD, unload),
    ],
}];

const HELP: Spec = Spec { since: "5.0.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "LIST",
            "    Return an empty list: there are no modules here.",
            "LOAD <path> [<arg> ...]",
            "    Answer with an error.",
            "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
            "    Answer with an error.",
            "UNLOAD <name>",
            "    Answer with an error.",
        ],
    );
    Outcome::Done
}

const LIST: Spec = Spec {
    name: "list",
    summary: "Returns an empty list: there are no modules.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(N), N the modules",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT),
    tips: &["nondeterministic_output_order"],
    ..Spec::BASE
};

fn list(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.array(0);
    Outcome::Done
}

/// Flags of the subcommands that would change the set of modules.
const CHANGES: Flags = Flags::NO_ASYNC_LOADING.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::PROTECTED);

const LOAD: Spec = Spec {
    name: "load",
    summary: "Answers with an error: modules cannot be loaded.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -3,
    flags: CHANGES,
    arguments: &[Argument::string("path"), Argument::string("arg").optional().multiple()],
    ..Spec::BASE
};

const LOADEX: Spec = Spec {
    name: "loadex",
    summary: "Answers with an error: modules cannot be loaded, with or without parameters.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: -3,
    flags: CHANGES,
    arguments: &[
        Argument::string("path"),
        Argument::block("configs", &[Argument::string("name"), Argument::string("value")])
            .token("CONFIG")
            .optional()
            .multiple()
            .multiple_token(),
        Argument::string("args").token("ARGS").optional().multiple(),
    ],
    ..Spec::BASE
};

// COMPAT(server): MODULE LOAD and LOADEX answer as if the file were not there, whatever it is. Why: the C
// interface of modules is not there.
fn load(call: &mut AdminCall<'_>) -> Outcome {
    let path = String::from_utf8_lossy(call.args.get(2));
    log::warning(format!("Module {path} failed to load: there is no interface for modules"));
    call.reply.error("ERR Error loading the extension. Please check the server logs.");
    Outcome::Done
}

const UNLOAD: Spec = Spec {
    name: "unload",
    summary: "Answers with an error: no module is loaded.",
    since: "4.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: CHANGES,
    arguments: &[Argument::string("name")],
    ..Spec::BASE
};

fn unload(call: &mut AdminCall<'_>) -> Outcome {
    const NO_SUCH_MODULE: &str = "no such module with that name";
    let name = String::from_utf8_lossy(call.args.get(2));
    log::warning(format!("Error unloading module {name}: {NO_SUCH_MODULE}"));
    call.reply.error(format!("ERR Error unloading module: {NO_SUCH_MODULE}"));
    Outcome::Done
}
