//! CONFIG and its subcommands.

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_resp::{Args, ArgsBuf, Reply, errors};
use std::cell::RefCell;
use std::time::Duration;

use super::client::maintenance;
use super::{AdminCall, AdminHandler, errand};
use crate::admin;
use crate::process::descriptors;
use crate::process::start_options;
use crate::process::swap_start;
use isotherm_allocator as allocator;
use isotherm_config::file::Origin;
use isotherm_config::rewrite::Others;
use isotherm_config::{Apply, Reason, Writing, find, is_sensitive};
use isotherm_durability::aof;
use isotherm_engine::request::beside_locks::RIGHT_MAX;
use isotherm_engine::request::eviction;
use isotherm_engine::request::gates::server_name;
use isotherm_engine::request::gating;
use isotherm_node::Node;
use isotherm_node::mail::message::ControlMessage;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::request::entry::Entry;
use isotherm_node::request::registry::Commands;
use isotherm_node::tier::copies;
use isotherm_node::tls;
use isotherm_node::users;
use isotherm_runtime::log;

const CONFIG: Spec = Spec {
    name: "config",
    summary: "Reads and changes parameters of the configuration.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    CONFIG,
    &[
        Command::new(CONFIG_GET, get),
        Command::new(CONFIG_HELP, help),
        Command::new(CONFIG_RESETSTAT, reset_stat),
        Command::new(CONFIG_REWRITE, rewrite),
        Command::new(CONFIG_SET, set),
    ],
)];

const CONFIG_GET: Spec = Spec {
    name: "get",
    summary: "Returns parameters with their values, by names or patterns.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N), N the given parameters",
    arity: -3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    history: &[("7.0.0", "Several patterns in one call.")],
    arguments: &[Argument::string("parameter").multiple()],
    ..Spec::BASE
};

fn get(call: &mut AdminCall<'_>) -> Outcome {
    let patterns: Vec<&[u8]> = call.args.from(2).iter().collect();
    let found = call.node.config.get(&patterns);
    call.reply.map(found.len());
    for (name, value) in &found {
        call.reply.bulk(name);
        call.reply.bulk(value);
    }
    Outcome::Done
}

/// The value of a parameter that is a secret.
fn is_sensitive_value(args: Args<'_>, at: usize) -> bool {
    at > 2 && at % 2 == 1 && find(args.get(at - 1)).is_some_and(|(id, _)| is_sensitive(id))
}

const CONFIG_SET: Spec = Spec {
    name: "set",
    secrets: Some(is_sensitive_value),
    summary: "Changes parameters: all of them, or none after an error.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(N), N the given parameters",
    arity: -4,
    flags: Flags::STOPS_ALL.or(Flags::ADMIN).or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    history: &[("7.0.0", "Several parameters in one call.")],
    arguments: &[
        Argument::block("data", &[Argument::string("parameter"), Argument::string("value")]).multiple()
    ],
    ..Spec::BASE
};

// COMPAT(server): CONFIG SET waits a second for another client's that is under way (for a disk, or a script),
// then it is an error. Valkey runs one command at a time. Why: no worker waits for a disk.
/// Error while another change waits for a disk, or for a script.
const ANOTHER_WRITES: &str =
    "ERR CONFIG SET failed - another CONFIG SET is under way and does not come to its end";

pub fn writes(command: &Entry) -> bool {
    &*command.name == "config|set"
}

/// The parameters and values of a CONFIG SET.
fn pairs_of(args: Args<'_>) -> Vec<(&[u8], &[u8])> {
    (2..args.len()).step_by(2).map(|at| (args.get(at), args.get(at + 1))).collect()
}

fn set(call: &mut AdminCall<'_>) -> Outcome {
    if call.args.len() % 2 == 1 {
        call.reply.error(errors::SYNTAX);
        return Outcome::Done;
    }
    let pairs = pairs_of(call.args);
    let (node, in_exec) = (call.node, call.session.in_exec);
    let may_protected = node.config.protected_permission().allows(call.session.shared.is_local());
    let may_wait = |name: &[u8]| find(name).is_some_and(|(id, _)| node.config.may_wait(id));
    let transaction = &call.exec.transaction;
    let own = match transaction.writing {
        None if in_exec || !pairs.iter().any(|(name, _)| may_wait(name)) => {
            node.config.begin_writing(Duration::ZERO)
        }
        _ => None,
    };
    match transaction.writing.as_ref().or(own.as_ref()) {
        Some(writing) => set_now(node, writing, call.args, (may_protected, in_exec), call.reply),
        None if in_exec => call.reply.error(ANOTHER_WRITES),
        None => {
            let args = ArgsBuf::from(call.args);
            return errand::run(call, move |reply| match node.config.begin_writing(RIGHT_MAX) {
                Some(writing) => set_now(node, &writing, args.args(), (may_protected, false), reply),
                None => reply.error(ANOTHER_WRITES),
            });
        }
    }
    Outcome::Done
}

fn set_now(
    node: &'static Node,
    writing: &Writing<'_>,
    args: Args<'_>,
    (may_protected, in_exec): (bool, bool),
    reply: &mut Reply,
) {
    let pairs = pairs_of(args);
    let waits_for_data =
        |name: &[u8]| name.eq_ignore_ascii_case(b"dir") || name.eq_ignore_ascii_case(b"appendonly");
    if node.mail.tasks().has(Tasks::LOADING) && pairs.iter().any(|(name, _)| waits_for_data(name)) {
        return reply.error(errors::is_loading(server_name(node.config.extended_redis_compatibility())));
    }
    match node.config.set(writing, &pairs, may_protected, &mut |kind| apply(node, kind, in_exec)) {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.text()),
    }
}

/// Does what a change of the configuration asks of the process. `in_exec`: partitions may be locked, so
/// what has to lock them is left to the control thread.
fn apply(node: &'static Node, kind: Apply, in_exec: bool) -> Result<(), Reason> {
    match kind {
        Apply::Nothing => {}
        Apply::Aof if in_exec => node.mail.post_control(ControlMessage::Aof),
        Apply::Aof => aof::switch::apply(node)?,
        Apply::Folder => aof::settings::refuse_folder(node)?,
        Apply::ReplyGate if in_exec => node.mail.post_control(ControlMessage::ReplyGate),
        Apply::ReplyGate => gating::apply(node),
        Apply::Cluster => node.cluster.get().into_iter().for_each(|member| member.bus.configured(!in_exec)),
        // Interpreters are made anew.
        Apply::LuaApi => node.scripts.flush(),
        Apply::LogMemory => limit_log(node),
        Apply::Maintenance => maintenance::configure(node),
        Apply::Tls => {
            if tls::is_used(&node.config) {
                node.tls.configure(&node.config)?;
            }
            node.cluster.get().into_iter().for_each(|member| member.bus.configured(!in_exec));
        }
        Apply::Listen | Apply::Bind | Apply::TlsPort => {
            if kind == Apply::TlsPort && node.tls.contexts().is_none() {
                node.tls.configure(&node.config)?;
            }
            node.process.listeners.open(&node.config).map_err(|why| {
                log::warning(why);
                match kind {
                    Apply::Bind => "Failed to bind to specified addresses.",
                    _ => "Unable to listen on this port. Check server logs.",
                }
            })?;
            node.process.listeners.note_changed();
            // Other nodes are given another port.
            node.cluster.get().into_iter().for_each(|member| member.bus.configured(!in_exec));
        }
        Apply::Swap => swap_start::configure(node)?,
        Apply::Allocator => allocator::return_freed_pages(node.config.returns_freed_pages())?,
        Apply::Decay => start_options::set_decay(&node.config)?,
        Apply::LogFormat => {
            let (format, timestamp) = node.config.log_format();
            log::set_format(format, timestamp);
        }
        Apply::LogLevel => log::set_level(node.config.log_level()),
        Apply::MaxClients => return check_max_clients(node),
        Apply::MaxMemory => {
            warn_of_little_memory(node);
            follow_maxmemory(node);
        }
        Apply::EvictionPolicy if in_exec => node.mail.post_control(ControlMessage::EvictionPolicy),
        Apply::EvictionPolicy => eviction::apply_policy(node),
        Apply::Password => users::changes::set_default_password(node, &node.config.password()),
        // The cron reads them each time it runs.
        Apply::Timers => {}
        Apply::TrackedKeys => node.trackers.forget_some(&node.mail, &node.config),
        Apply::Workers if node.config.workers() != node.worker_count() => log::notice(format!(
            "io-threads: there are {} workers until the next start. CONFIG REWRITE keeps the new number.",
            node.worker_count()
        )),
        Apply::Workers => {}
        // After a failure it is applied again, with the values of before.
        Apply::Metrics if node.config.metrics_address() != node.process.metrics => {
            return Err("the port for metrics can only be set at start".into());
        }
        Apply::Metrics => {}
    }
    Ok(())
}

fn check_max_clients(node: &Node) -> Result<(), Reason> {
    let segment_files = node.tier().map_or(0, |tier| tier.files.open_files().1);
    descriptors::check_clients(&node.config, segment_files).map_err(|possible| {
        format!(
            "The operating system is not able to handle the specified number of clients, try with {possible}"
        )
        .into()
    })
}

fn limit_log(node: &Node) {
    node.log.set_limit_bytes(node.config.log_memory_bytes());
    if node.mail.is_log_full() && node.log.has_room() {
        node.mail.set_log_full(false);
    }
}

/// Limits of what does not count for maxmemory follow it, unless they are set.
fn follow_maxmemory(node: &Node) {
    limit_log(node);
    if node.keyspace.is_snapshot_active() {
        node.keyspace.limit_kept(node.config.snapshot_memory_bytes(node.used_memory_bytes()));
    }
    if let Some(tier) = node.tier() {
        copies::bound(node, tier);
    }
}

fn warn_of_little_memory(node: &Node) {
    let (limit, used) = (node.config.maxmemory_bytes(), node.used_memory_bytes());
    if limit != 0 && limit < used {
        log::warning(format!(
            "WARNING: the new maxmemory value set via CONFIG SET ({limit}) is smaller than the current memory usage \
             ({used}). This will result in key eviction and/or the inability to accept new write commands depending on \
             the maxmemory-policy."
        ));
    }
}

const CONFIG_RESETSTAT: Spec = Spec {
    name: "resetstat",
    summary: "Sets the counters of INFO back to 0.",
    since: "2.0.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

fn reset_stat(call: &mut AdminCall<'_>) -> Outcome {
    call.node.scripts.reset_stats();
    call.node.stats.reset();
    call.node.keyspace.reset_lazy_frees();
    call.node.users.denied().reset();
    call.node.replication.primary.counts.reset();
    if let Some(member) = call.node.cluster.get() {
        member.bus.reset_counts();
    }
    call.reply.ok();
    Outcome::Done
}

const CONFIG_REWRITE: Spec = Spec {
    name: "rewrite",
    summary: "Writes the current parameters to the configuration file and keeps its comments.",
    since: "2.8.0",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:all_succeeded"],
    ..Spec::BASE
};

fn rewrite(call: &mut AdminCall<'_>) -> Outcome {
    let node = call.node;
    match &node.process.config_file {
        Some(file) => errand::run(call, move |reply| rewrite_now(node, file, false, reply)),
        None => {
            call.reply.error(NO_CONFIG_FILE);
            Outcome::Done
        }
    }
}

const NO_CONFIG_FILE: &str = "ERR The server is running without a config file";

/// Writes the file on this thread, for DEBUG. `all`: every parameter gets a line, also with its default
/// (DEBUG CONFIG-REWRITE-FORCE-ALL).
pub(super) fn rewrite_here(call: &mut AdminCall<'_>, all: bool) {
    match &call.node.process.config_file {
        Some(file) => rewrite_now(call.node, file, all, call.reply),
        None => call.reply.error(NO_CONFIG_FILE),
    }
}

fn rewrite_now(node: &'static Node, file: &Origin, all: bool, reply: &mut Reply) {
    let commands = RefCell::new(Commands::build(admin::COMMANDS));
    let table = || users::command_table(&commands.borrow());
    let mut others = Others {
        check_user: admin::check_user_line,
        user_lines: &|included| users::file::lines(node, included),
        rename: &mut |from, to| commands.borrow_mut().rename(from, to),
        check_users: &|tried| users::file::check_lines(tried, &table()),
    };
    match node.config.rewrite(file, all, &mut others) {
        Ok(()) => {
            log::notice("CONFIG REWRITE executed with success.");
            reply.ok();
        }
        Err(why) => {
            log::warning(format!("CONFIG REWRITE failed: {why}"));
            reply.error(format!("ERR Rewriting config file: {why}"));
        }
    }
}

const CONFIG_HELP: Spec = Spec { since: "5.0.0", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "GET <pattern>",
            "    Return the parameters with names that fit <pattern>, with their values.",
            "SET <directive> <value>",
            "    Give the parameter <directive> this <value> until the server ends.",
            "RESETSTAT",
            "    Set the counters of INFO to zero.",
            "REWRITE",
            "    Write the values in use to the configuration file.",
        ],
    )
}
