//! MIGRATE: keys move to another server (`migration`). The command's declaration, and its beginning.

use isotherm_commands::Outcome;
use isotherm_commands::call::ColdKey;
use isotherm_commands::spec::*;
use isotherm_commands::wait::Wait;
use isotherm_keyspace::{Lookup, Txn, Type, Whereabouts};
use isotherm_resp::errors;
use isotherm_stdx::steps;
use std::sync::Arc;

use super::{AdminCall, AdminHandler};
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::migration::job::Order;
use isotherm_node::migration::request::{Request, find_keys, is_secret};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::new(MIGRATE, migrate)];

const KEY_FLAGS: KeyFlags = KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE);

const MIGRATE: Spec = Spec {
    name: "migrate",
    summary: "Moves keys to another server: they are deleted here once they are stored there.",
    since: "2.6.0",
    complexity: "That of DUMP and DEL here and of RESTORE there, and O(N) to transfer N bytes",
    arity: -6,
    flags: Flags::WRITE.or(Flags::MOVES_SLOTS),
    acl: AclCategories::KEYSPACE.or(AclCategories::DANGEROUS),
    key_specs: &[
        KeySpec::one(3, KEY_FLAGS),
        KeySpec {
            notes: "",
            flags: KEY_FLAGS.or(KeyFlags::INCOMPLETE),
            begin: Begin::Keyword { keyword: "KEYS", start_from: -2 },
            find: Find::Range { last: -1, step: 1, limit: 0 },
        },
    ],
    key_positions: Some(find_keys),
    secrets: Some(is_secret),
    tips: &["nondeterministic_output"],
    history: &[
        ("3.0.0", "New options `COPY` and `REPLACE`."),
        ("3.0.6", "New option `KEYS`."),
        ("4.0.7", "New option `AUTH`."),
        ("6.0.0", "New option `AUTH2`."),
    ],
    arguments: &[
        Argument::string("host"),
        Argument::integer("port"),
        Argument::one_of(
            "key-selector",
            &[Argument::key("key", 0), Argument::pure_token("empty-string", "")],
        ),
        Argument::integer("destination-db"),
        Argument::integer("timeout"),
        Argument::pure_token("copy", "COPY").since("3.0.0").optional(),
        Argument::pure_token("replace", "REPLACE").since("3.0.0").optional(),
        Argument::one_of(
            "authentication",
            &[
                Argument::string("auth").token("AUTH").display("password").since("4.0.7"),
                Argument::block("auth2", &[Argument::string("username"), Argument::string("password")])
                    .token("AUTH2")
                    .since("6.0.0"),
            ],
        )
        .optional(),
        Argument::key("keys", 1).token("KEYS").display("key").since("3.0.6").optional().multiple(),
    ],
    ..Spec::BASE
};

// COMPAT(transfer): MIGRATE does not stop the server: others are served while its keys are on their way. A
// key that changes meanwhile is sent again, and the third time who needs it waits. Why: another server, or
// the way to it, may take as long as it likes.
//
// COMPAT(transfer): MIGRATE of a key that is there is refused in a transaction and in a script. Why: they
// hold what they have locked, and would do so while another server is waited for.
const NOT_ALONE: &str = "ERR MIGRATE is not allowed inside a transaction or a script";

fn migrate(call: &mut AdminCall<'_>) -> Outcome {
    let request = match Request::parse(call.args) {
        Ok(request) => request,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    call.exec.held.take_missing();
    let frozen = frozen_keys(call);
    if !frozen.is_empty() {
        return call.exec.fetch_for_look(frozen, call.reply);
    }
    let names = present(call);
    if call.exec.forget_missing() {
        call.reply.error(errors::UNREADABLE);
        return Outcome::Done;
    }
    if names.is_empty() {
        call.reply.simple("NOKEY");
        return Outcome::Done;
    }
    if call.session.in_exec {
        call.reply.error(NOT_ALONE);
        return Outcome::Done;
    }
    let is_replica = call.node.mail.tasks().has(Tasks::REPLICA);
    call.session.migration = Some(Box::new(Order { request, names, is_replica }));
    let wait = Wait { kind: Type::String, keys: 0..0, deadline: None, on_removal: false, instead: None };
    Outcome::Block(Box::new(wait))
}

/// Keys that are not in memory, which decide what is there. A key that is there with its value on disk is
/// read when it is its turn.
fn frozen_keys(call: &mut AdminCall<'_>) -> Vec<ColdKey> {
    let db = call.session.db;
    if call.node.tier().is_none() {
        return Vec::new();
    }
    let (mut positions, held) = (Vec::new(), &mut call.exec.held);
    find_keys(call.args, &mut positions);
    let names = positions.iter().map(|(at, _)| call.args.get(*at));
    let keyspace = &call.node.keyspace;
    let away = names.filter(|name| {
        let key = keyspace.key(name);
        held.may_be_frozen(db, &key)
            && matches!(held.whereabouts(db, &key, false), Whereabouts::Away(_) | Whereabouts::Frozen(..))
    });
    away.map(|name| ColdKey::of(db, name, Need::All, false)).collect()
}

/// The keys that are there. Those past their time are deleted: who empties a slot asks for its names until
/// there are none.
fn present(call: &mut AdminCall<'_>) -> Vec<Arc<[u8]>> {
    let (mut positions, mut names) = (Vec::new(), Vec::new());
    find_keys(call.args, &mut positions);
    let db = call.session.db;
    let keyspace = call.exec.held.keyspace();
    let looked_before = steps::looked();
    let mut txn = Txn::new(&mut call.exec.held, call.conditions, &mut call.exec.pump);
    for (at, _) in positions {
        let name = call.args.get(at);
        if txn.find(db, &keyspace.key(name), Lookup::Read).is_some() {
            names.push(Arc::from(name));
        }
    }
    let counts = txn.finish();
    // As many as the client has named.
    call.exec.held.exempt(steps::looked().wrapping_sub(looked_before));
    call.exec.note_gate();
    call.exec.stats.count_txn(counts);
    names
}
