//! COMMAND and its subcommands: what the declarations say, for clients.

use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_commands::{Flags, Outcome};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::{glob_match, steps};

use super::{AdminCall, AdminHandler};
use isotherm_node::request::entry::Entry;
use isotherm_node::request::registry::Commands;

const COMMAND: Spec = Spec {
    name: "command",
    summary: "Returns the arity, flags and keys of every command.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N), N all commands",
    arity: -1,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command {
    spec: COMMAND,
    handler: Some(all),
    subcommands: &[
        Command::new(COMMAND_COUNT, count),
        Command::new(COMMAND_DOCS, docs),
        Command::new(COMMAND_GETKEYS, get_keys),
        Command::new(COMMAND_GETKEYSANDFLAGS, get_keys_and_flags),
        Command::new(COMMAND_HELP, help),
        Command::new(COMMAND_INFO, info),
        Command::new(COMMAND_LIST, list),
    ],
}];

fn all(call: &mut AdminCall<'_>) -> Outcome {
    let commands = &call.node.commands;
    call.reply.array(commands.top().count());
    commands.top().for_each(|entry| write_info(call.reply, entry));
    Outcome::Done
}

const COMMAND_COUNT: Spec = Spec {
    name: "count",
    summary: "Returns how many commands this server has.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

fn count(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(call.node.commands.top().count() as i64);
    Outcome::Done
}

const COMMAND_INFO: Spec = Spec {
    name: "info",
    summary: "Returns the arity, flags and keys of the named commands, or of all; null for unknown names.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N), N the named commands",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    history: &[("7.0.0", "Without arguments it describes all commands.")],
    arguments: &[Argument::string("command-name").optional().multiple()],
    ..Spec::BASE
};

fn info(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.args.from(2);
    if names.is_empty() {
        return all(call);
    }
    call.reply.array(names.len());
    for name in names.iter() {
        match by_full_name(&call.node.commands, name) {
            Some(entry) => write_info(call.reply, entry),
            None => call.reply.null(),
        }
    }
    Outcome::Done
}

const COMMAND_DOCS: Spec = Spec {
    name: "docs",
    summary: "Returns summaries and arguments of the named commands, or of all.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N), N the named commands",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::string("command-name").optional().multiple()],
    ..Spec::BASE
};

fn docs(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.args.from(2);
    let commands = &call.node.commands;
    let entries: Vec<&Entry> = if names.is_empty() {
        commands.top().collect()
    } else {
        names.iter().filter_map(|name| by_full_name(commands, name)).collect()
    };
    call.reply.map(entries.len());
    for entry in entries {
        call.reply.bulk(entry.name.as_bytes());
        write_docs(call.reply, entry);
    }
    Outcome::Done
}

/// "get", or "config|get".
fn by_full_name(commands: &Commands, name: &[u8]) -> Option<&'static Entry> {
    steps::note(1);
    let mut parts = name.split(|&byte| byte == b'|');
    let entry = commands.find(parts.next()?)?;
    let found = match parts.next() {
        Some(subcommand) => entry.subcommand(subcommand)?,
        None => entry,
    };
    parts.next().is_none().then_some(found)
}

// ---- LIST ----

enum ListFilter<'a> {
    None,
    Category(Option<AclCategories>),
    Pattern(&'a [u8]),
    /// Filter by module. It matches no command, as there are no modules.
    Module,
}

const COMMAND_LIST: Spec = Spec {
    name: "list",
    summary: "Returns the names of all commands, or of those that fit a filter.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N), N all commands",
    arity: -2,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    tips: &["nondeterministic_output_order"],
    arguments: &[Argument::one_of(
        "filterby",
        &[
            Argument::string("module-name").token("MODULE"),
            Argument::string("category").token("ACLCAT"),
            Argument::pattern("pattern").token("PATTERN"),
        ],
    )
    .token("FILTERBY")
    .optional()],
    ..Spec::BASE
};

fn list(call: &mut AdminCall<'_>) -> Outcome {
    let args = call.args.from(2);
    let is = |at: usize, word: &str| args.get(at).eq_ignore_ascii_case(word.as_bytes());
    let filter = match args.len() {
        0 => ListFilter::None,
        3 if is(0, "filterby") && is(1, "module") => ListFilter::Module,
        3 if is(0, "filterby") && is(1, "aclcat") => {
            ListFilter::Category(AclCategories::by_name(args.get(2)))
        }
        3 if is(0, "filterby") && is(1, "pattern") => ListFilter::Pattern(args.get(2)),
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    };
    let fits = |entry: &&'static Entry| match &filter {
        ListFilter::None => true,
        ListFilter::Category(category) => {
            category.is_some_and(|asked| entry.spec.acl_categories().has(asked))
        }
        ListFilter::Pattern(pattern) => glob_match(pattern, entry.name.as_bytes(), true),
        ListFilter::Module => false,
    };
    let found: Vec<_> = call.node.commands.listed().filter(fits).collect();
    call.reply.array(found.len());
    found.iter().for_each(|entry| call.reply.bulk(entry.name.as_bytes()));
    Outcome::Done
}

// ---- GETKEYS ----

const COMMAND_GETKEYS: Spec = Spec {
    name: "getkeys",
    summary: "Returns the keys in a full command line.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(N), N the words of the command line",
    arity: -3,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    ..Spec::BASE
};

fn get_keys(call: &mut AdminCall<'_>) -> Outcome {
    find_keys(call, false)
}

const COMMAND_GETKEYSANDFLAGS: Spec = Spec {
    name: "getkeysandflags",
    summary: "Returns the keys in a full command line and how each is used.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N), N the words of the command line",
    arity: -3,
    flags: Flags::LOADING.or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("command"), Argument::string("arg").optional().multiple()],
    ..Spec::BASE
};

fn get_keys_and_flags(call: &mut AdminCall<'_>) -> Outcome {
    find_keys(call, true)
}

fn find_keys(call: &mut AdminCall<'_>, with_flags: bool) -> Outcome {
    let args = call.args.from(2);
    let commands = &call.node.commands;
    let entry = commands.find(args.get(0)).and_then(|entry| match args.try_get(1) {
        Some(subcommand) if entry.is_container() => entry.subcommand(subcommand),
        _ => Some(entry),
    });
    let Some(entry) = entry else {
        call.reply.error("ERR Invalid command specified");
        return Outcome::Done;
    };
    let is_key = |key_spec: &KeySpec| !key_spec.flags.has(KeyFlags::NOT_KEY);
    if entry.spec.key_positions.is_none() && !entry.spec.key_specs.iter().any(is_key) {
        call.reply.error("ERR The command has no key arguments");
    } else if !entry.spec.takes(args.len()) {
        call.reply.error("ERR Invalid number of arguments specified for command");
    } else {
        let mut found = Vec::new();
        let complete = key_positions(entry.spec, args, &mut found).is_ok() && !found.is_empty();
        if !complete && !entry.spec.flags.has(Flags::NO_MANDATORY_KEYS) {
            call.reply.error("ERR Invalid arguments specified for command");
            return Outcome::Done;
        }
        call.reply.array(found.len());
        for (at, flags) in found {
            steps::note(1);
            if with_flags {
                call.reply.array(2);
            }
            call.reply.bulk(args.get(at));
            if with_flags {
                write_set(call.reply, flags.names());
            }
        }
    }
    Outcome::Done
}

// ---- INFO ----

fn write_info(reply: &mut Reply, entry: &Entry) {
    let spec = entry.spec;
    let (first, last, step) = first_key_range(spec).unwrap_or_default();
    reply.array(10);
    reply.bulk(entry.name.as_bytes());
    reply.integer(spec.arity.into());
    write_set(reply, spec.shown_flags().names());
    reply.integer(first.into());
    reply.integer(last.into());
    reply.integer(step.into());
    write_set(reply, spec.acl_categories().names().map(|name| format!("@{name}")));
    reply.set(spec.tips.len());
    spec.tips.iter().for_each(|tip| reply.bulk(tip.as_bytes()));
    reply.set(spec.key_specs.len());
    spec.key_specs.iter().for_each(|key_spec| write_key_spec(reply, key_spec));
    let subcommands = entry.known_subcommands();
    reply.array(subcommands.len());
    subcommands.iter().for_each(|subcommand| write_info(reply, subcommand));
}

fn write_key_spec(reply: &mut Reply, key_spec: &KeySpec) {
    reply.map(3 + usize::from(!key_spec.notes.is_empty()));
    if !key_spec.notes.is_empty() {
        reply.bulk(b"notes");
        reply.bulk(key_spec.notes.as_bytes());
    }
    reply.bulk(b"flags");
    write_set(reply, key_spec.flags.names());
    reply.bulk(b"begin_search");
    match key_spec.begin {
        Begin::Index(index) => write_search(reply, "index", &[("index", index)]),
        Begin::Unknown => write_search(reply, "unknown", &[]),
        Begin::Keyword { keyword, start_from } => {
            write_search_type(reply, "keyword", 2);
            reply.bulk(b"keyword");
            reply.bulk(keyword.as_bytes());
            reply.bulk(b"startfrom");
            reply.integer(start_from.into());
        }
    }
    reply.bulk(b"find_keys");
    match key_spec.find {
        Find::Range { last, step, limit } => {
            write_search(reply, "range", &[("lastkey", last), ("keystep", step), ("limit", limit)]);
        }
        Find::KeyNum { at, first, step } => {
            write_search(reply, "keynum", &[("keynumidx", at), ("firstkey", first), ("keystep", step)]);
        }
        Find::Unknown => write_search(reply, "unknown", &[]),
    }
}

fn write_search(reply: &mut Reply, kind: &str, numbers: &[(&str, i32)]) {
    write_search_type(reply, kind, numbers.len());
    for (name, number) in numbers {
        reply.bulk(name.as_bytes());
        reply.integer((*number).into());
    }
}

fn write_search_type(reply: &mut Reply, kind: &str, fields: usize) {
    reply.map(2);
    reply.bulk(b"type");
    reply.bulk(kind.as_bytes());
    reply.bulk(b"spec");
    reply.map(fields);
}

/// Simple strings as a set.
fn write_set<T: AsRef<str>>(reply: &mut Reply, words: impl Iterator<Item = T> + Clone) {
    reply.set(words.clone().count());
    words.for_each(|word| reply.simple(word.as_ref()));
}

// ---- DOCS ----

fn write_docs(reply: &mut Reply, entry: &Entry) {
    let spec = entry.spec;
    let open = reply.defer();
    let mut fields = Fields { reply, count: 0 };
    fields.text("summary", Some(spec.summary).filter(|text| !text.is_empty()));
    fields.text("since", Some(spec.since));
    fields.text("group", Some(spec.group.name()));
    fields.text("complexity", Some(spec.complexity).filter(|text| !text.is_empty()));
    if !spec.doc_flags.is_empty() {
        write_set(fields.name("doc_flags"), spec.doc_flags.iter());
    }
    fields.text("deprecated_since", spec.deprecated_since);
    fields.text("replaced_by", spec.replaced_by);
    if !spec.history.is_empty() {
        let reply = fields.name("history");
        reply.set(spec.history.len());
        for (since, change) in spec.history {
            reply.array(2);
            reply.bulk(since.as_bytes());
            reply.bulk(change.as_bytes());
        }
    }
    if !spec.arguments.is_empty() {
        write_arguments(fields.name("arguments"), spec.arguments);
    }
    if entry.is_container() {
        let reply = fields.name("subcommands");
        let subcommands = entry.known_subcommands();
        reply.map(subcommands.len());
        for subcommand in subcommands {
            reply.bulk(subcommand.name.as_bytes());
            write_docs(reply, subcommand);
        }
    }
    let count = fields.count;
    reply.close_map(open, count);
}

fn write_arguments(reply: &mut Reply, arguments: &[Argument]) {
    reply.array(arguments.len());
    for argument in arguments {
        write_argument(reply, argument);
    }
}

fn write_argument(reply: &mut Reply, argument: &Argument) {
    let has_parts = matches!(argument.kind, ArgumentKind::OneOf | ArgumentKind::Block);
    let open = reply.defer();
    let mut fields = Fields { reply, count: 0 };
    fields.text("name", Some(argument.name));
    fields.text("type", Some(argument.kind.name()));
    if !has_parts {
        fields.text("display_text", argument.display.or(Some(argument.name)));
    }
    if let Some(index) = argument.key_spec_index {
        fields.name("key_spec_index").integer(index.into());
    }
    fields.text("token", argument.token);
    fields.text("summary", argument.summary);
    fields.text("since", argument.since);
    fields.text("deprecated_since", argument.deprecated_since);
    let flags = [
        (argument.optional, "optional"),
        (argument.multiple, "multiple"),
        (argument.multiple_token, "multiple_token"),
    ];
    let set = flags.iter().filter(|(is, _)| *is).map(|(_, name)| name);
    if set.clone().count() > 0 {
        write_set(fields.name("flags"), set);
    }
    if has_parts {
        write_arguments(fields.name("arguments"), argument.arguments);
    }
    let count = fields.count;
    reply.close_map(open, count);
}

/// Writes the fields of a map and counts them.
struct Fields<'r> {
    reply: &'r mut Reply,
    count: usize,
}

impl Fields<'_> {
    fn name(&mut self, name: &str) -> &mut Reply {
        self.count += 1;
        self.reply.bulk(name.as_bytes());
        self.reply
    }

    fn text(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.name(name).bulk(value.as_bytes());
        }
    }
}

const COMMAND_HELP: Spec =
    Spec { since: "5.0.0", group: Group::Server, acl: AclCategories::CONNECTION, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "(no subcommand)",
            "    Return name, arity, flags and keys of every command.",
            "COUNT",
            "    Return how many commands there are.",
            "LIST",
            "    Return the names of all commands.",
            "INFO [<command-name> ...]",
            "    Return name, arity, flags and keys of the named commands, by default of all.",
            "    Unknown names give null.",
            "DOCS [<command-name> ...]",
            "    Return summary, arguments and history of the named commands, by default of all.",
            "    Unknown names are left out.",
            "GETKEYS <full-command>",
            "    Return the words of this command line that are keys.",
            "GETKEYSANDFLAGS <full-command>",
            "    Return the words of this command line that are keys, each with its flags.",
        ],
    )
}
