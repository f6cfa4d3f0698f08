//! ACL: users are made, shown, asked about and removed.

mod log;
mod specs;

use isotherm_acl::{Selector, User};
use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_keyspace::{Held, Survey};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;
use std::path::PathBuf;
use std::sync::Arc;

use super::{AdminCall, AdminHandler, errand};
use isotherm_engine::request::resolve::{Found, resolve};
use isotherm_node::request::entry::Entry;
use isotherm_node::session::Attention;
use isotherm_node::users::{changes, file, is_default, permission};
use isotherm_runtime::random::random_bytes;

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    specs::ACL,
    &[
        Command::new(specs::ACL_CAT, cat),
        Command::new(specs::ACL_DELUSER, del_user),
        Command::new(specs::ACL_DIGEST, digest),
        Command::new(specs::ACL_DRYRUN, dry_run),
        Command::new(specs::ACL_GENPASS, gen_pass),
        Command::new(specs::ACL_GETUSER, get_user),
        Command::new(specs::ACL_HELP, help),
        Command::new(specs::ACL_LIST, list),
        Command::new(specs::ACL_LOAD, load),
        Command::new(specs::ACL_LOG, log::log),
        Command::new(specs::ACL_SAVE, save),
        Command::new(specs::ACL_SETUSER, set_user),
        Command::new(specs::ACL_USERS, users),
        Command::new(specs::ACL_WHOAMI, who_am_i),
    ],
)];

// ---- changes ----

fn set_user(call: &mut AdminCall<'_>) -> Outcome {
    let name = call.args.get(2);
    if isotherm_acl::has_spaces(name) {
        call.reply.error("ERR Usernames can't contain spaces or null characters");
        return Outcome::Done;
    }
    let rules: Vec<&[u8]> = call.args.from(3).iter().collect();
    match changes::set(call.node, name, rules) {
        Ok(()) => {
            settle(call, false);
            call.reply.ok();
        }
        Err(error) => call.reply.error([b"ERR ", &error.text()[..]].concat()),
    }
    Outcome::Done
}

fn del_user(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.args.from(2);
    if names.iter().any(is_default) {
        call.reply.error("ERR The 'default' user cannot be removed");
        return Outcome::Done;
    }
    let (removed, is_me) = changes::remove(call.node, names.iter(), call.session.id());
    if removed > 0 {
        settle(call, is_me);
    }
    call.reply.integer(removed as i64);
    Outcome::Done
}

/// Users have changed, and their sessions are marked. When this is over nothing runs by the old rules; this
/// session itself goes by the new ones, or ends after its reply.
fn settle(call: &mut AdminCall<'_>, is_removed: bool) {
    call.survey().pass();
    let stays = call.session.look_up_user(&call.node.users);
    call.session.close_after_reply |= is_removed || !stays;
}

const NO_FILE: &str = "ERR This instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER \
    command and then issue a CONFIG REWRITE (assuming you have a configuration file set) in order to store users in the \
    configuration.";

/// The ACL file; the error is written if there is none.
fn acl_file(call: &mut AdminCall<'_>) -> Option<PathBuf> {
    let path = file::path_of(&call.node.config);
    if path.is_none() {
        call.reply.error(NO_FILE);
    }
    path
}

fn load(call: &mut AdminCall<'_>) -> Outcome {
    let Some(path) = acl_file(call) else { return Outcome::Done };
    let (node, client) = (call.node, Arc::clone(&call.session.shared));
    let in_exec = call.session.in_exec;
    let outcome = errand::run(call, move |reply| match file::load(node, &path) {
        Ok(users) => {
            if changes::replace(node, users, client.id) {
                // It is no user's connection any more, and ends after its reply.
                client.ask(Attention::KILL);
            }
            if !in_exec {
                Survey::new(&mut Held::new(&node.keyspace)).pass();
            }
            reply.ok();
        }
        Err(errors) => reply.error([b"ERR ", &errors[..]].concat()),
    });
    if in_exec {
        settle(call, false);
    }
    outcome
}

fn save(call: &mut AdminCall<'_>) -> Outcome {
    let Some(path) = acl_file(call) else { return Outcome::Done };
    let node = call.node;
    errand::run(call, move |reply| {
        match file::save(node, &path) {
        true => reply.ok(),
        false => reply.error(
            "ERR There was an error trying to save the ACLs. Please check the server logs for more information",
        ),
    }
    })
}

// ---- shown ----

fn list(call: &mut AdminCall<'_>) -> Outcome {
    show_users(call, User::line)
}

fn users(call: &mut AdminCall<'_>) -> Outcome {
    show_users(call, |user| user.name.to_vec())
}

fn show_users(call: &mut AdminCall<'_>, show: impl Fn(&User) -> Vec<u8>) -> Outcome {
    let users = call.node.users.all();
    call.reply.array(users.len());
    users.iter().for_each(|user| call.reply.bulk(&show(user)));
    Outcome::Done
}

// COMPAT(users): ACL DIGEST is a command of Valkey 9.2, made by its description and not compared: the XOR of
// the SHA-256 of the lines of ACL LIST. The roles of 9.2 (SETROLE and its kin) are missing. Why: there was no
// server of 9.2 to compare with.
fn digest(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.bulk(call.node.users.digest().as_bytes());
    Outcome::Done
}

fn who_am_i(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.bulk(&call.session.user.name);
    Outcome::Done
}

fn get_user(call: &mut AdminCall<'_>) -> Outcome {
    let Some(user) = call.node.users.get(call.args.get(2)) else {
        call.reply.null();
        return Outcome::Done;
    };
    let reply = &mut *call.reply;
    reply.map(7);
    reply.bulk(b"flags");
    reply.set(user.flags().count());
    user.flags().for_each(|flag| reply.bulk(flag.as_bytes()));
    reply.bulk(b"passwords");
    reply.array(user.password_count());
    user.passwords().for_each(|password| reply.bulk(password.hex().as_bytes()));
    write_selector(reply, user.root());
    reply.bulk(b"selectors");
    reply.array(user.other_selectors().len());
    for selector in user.other_selectors() {
        reply.map(4);
        write_selector(reply, selector);
    }
    Outcome::Done
}

fn write_selector(reply: &mut Reply, selector: &Selector) {
    for (name, shown) in [
        (&b"commands"[..], selector.show_commands()),
        (b"keys", selector.show_keys()),
        (b"channels", selector.show_channels()),
        (b"databases", selector.show_databases()),
    ] {
        reply.bulk(name);
        reply.bulk(&shown);
    }
}

fn cat(call: &mut AdminCall<'_>) -> Outcome {
    match call.args.len() {
        2 => {
            call.reply.array(AclCategories::ALL.len());
            AclCategories::ALL.iter().for_each(|(_, name)| call.reply.bulk(name.as_bytes()));
        }
        3 => match AclCategories::by_name(call.args.get(2)) {
            Some(category) => {
                let is_in = |entry: &&&Entry| entry.spec.acl_categories().has(category) && !entry.is_hidden();
                let found: Vec<_> = call.node.commands.all().iter().filter(is_in).collect();
                call.reply.array(found.len());
                found.iter().for_each(|entry| call.reply.bulk(entry.name.as_bytes()));
            }
            None => {
                let name = call.args.get(2);
                let shown = &name[..name.len().min(128)];
                call.reply.error(errors::with_bytes("ERR Unknown category '", shown, "'"));
            }
        },
        _ => unknown_form(call),
    }
    Outcome::Done
}

/// Too many arguments.
fn unknown_form(call: &mut AdminCall<'_>) {
    call.reply.error(errors::subcommand_syntax(call.args));
}

// ---- asked ----

fn dry_run(call: &mut AdminCall<'_>) -> Outcome {
    let (node, words) = (call.node, call.args.from(3));
    let Some(user) = node.users.get(call.args.get(2)) else {
        call.reply.error(errors::with_bytes("ERR User '", call.args.get(2), "' not found"));
        return Outcome::Done;
    };
    match resolve(&node.commands, &node.keyspace, words).found {
        Found::Command(command) => {
            let db = permission::database_of(call.session);
            match permission::check(node, &user, command, words, db) {
                Ok(()) => call.reply.ok(),
                Err(denial) => call.reply.bulk(&permission::text(&user, command, words, denial, true)),
            }
        }
        Found::WrongArity(command) => call.reply.error(errors::wrong_arity(&command.name)),
        Found::Unknown | Found::UnknownSubcommand => {
            call.reply.error(errors::with_bytes("ERR Command '", words.get(0), "' not found"));
        }
    }
    Outcome::Done
}

fn gen_pass(call: &mut AdminCall<'_>) -> Outcome {
    const BITS_MAX: i64 = 4096;
    let bits = match call.args.len() {
        2 => Some(256),
        3 => parse_i64(call.args.get(2)),
        _ => {
            unknown_form(call);
            return Outcome::Done;
        }
    };
    let Some(bits) = bits else {
        call.reply.error(errors::NOT_AN_INTEGER);
        return Outcome::Done;
    };
    if !(1..=BITS_MAX).contains(&bits) {
        call.reply.error(format!(
            "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to {BITS_MAX}"
        ));
        return Outcome::Done;
    }
    match random_bytes::<{ BITS_MAX as usize / 8 }>() {
        Ok(random) => {
            let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            call.reply.bulk(&digits.as_bytes()[..(bits as usize).div_ceil(4)]);
        }
        Err(why) => call.reply.error(format!("ERR {why}")),
    }
    Outcome::Done
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "CAT [<category>]",
            "    Return the commands in <category>, or without one the names of all categories.",
            "DELUSER <username> [<username> ...]",
            "    Remove these users and close their connections. Return how many existed.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Say whether this user may run <command>, which is not run.",
            "GETUSER <username>",
            "    Return flags, passwords and rules of a user.",
            "GENPASS [<bits>]",
            "    Return a random password of <bits> bits in hex digits (default: 256).",
            "LIST",
            "    Return all users as lines of an ACL file.",
            "LOAD",
            "    Replace all users by those of the ACL file.",
            "LOG [<count> | RESET]",
            "    Return the latest <count> refusals (default: 10), or clear the log.",
            "SAVE",
            "    Write all users to the ACL file.",
            "SETUSER <username> <rule> [<rule> ...]",
            "    Apply the rules in turn to this user, who is created when there is none.",
            "USERS",
            "    Return the names of all users.",
            "WHOAMI",
            "    Return the name of this connection's user.",
        ],
    )
}
