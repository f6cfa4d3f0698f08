//! CLIENT MAINT_NOTIFICATIONS: a client hears of slots that leave this node. The notifications are written in
//! `cluster::herald`.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_resp::{Protocol, errors};

use crate::admin::AdminCall;
use isotherm_config::{Id, id};
use isotherm_node::Node;

// COMPAT(server): With `cluster-maint-notifications yes` a member of a cluster knows CLIENT
// MAINT_NOTIFICATIONS ON|OFF, and sends SMIGRATING and SMIGRATED as Redis Software does. Why: a client that
// is idle, or rarely uses the slots that move, learns of a move without an error. It is unknown by default,
// as it is in Valkey, since clients that are busy load the topology more often with it.
pub const CLIENT_MAINT_NOTIFICATIONS: Spec = Spec {
    name: "maint_notifications",
    summary: "Controls whether the connection hears of slots that leave this node of a cluster.",
    since: "1.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -2,
    flags: Flags::NOSCRIPT.or(Flags::LOADING).or(Flags::STALE),
    acl: AclCategories::CONNECTION,
    arguments: &[
        Argument::one_of("status", &[Argument::pure_token("on", "ON"), Argument::pure_token("off", "OFF")]),
        Argument::string("type").token("MOVING-ENDPOINT-TYPE").optional(),
    ],
    ..Spec::BASE
};

/// Kinds of address by which clients may ask to be called elsewhere. A node of a cluster never does that, so
/// any of them is accepted.
const ENDPOINT_TYPES: [&[u8]; 5] =
    [b"internal-ip", b"internal-fqdn", b"external-ip", b"external-fqdn", b"none"];

const IS_KNOWN: Id = id("cluster-maint-notifications");

/// Makes the command known where it is switched on, and unknown elsewhere: to requests, lists and categories.
pub fn configure(node: &Node) {
    let is_known = node.cluster.get().is_some() && node.config.flag(IS_KNOWN);
    let client = node.commands.find_original(b"client").expect("it is declared");
    client.hide_subcommand(CLIENT_MAINT_NOTIFICATIONS.name.as_bytes(), !is_known);
}

pub fn maint_notifications(call: &mut AdminCall<'_>) -> Outcome {
    let member = call.node.cluster.get().filter(|_| call.node.config.flag(IS_KNOWN));
    // It was known when the request was read.
    let Some(member) = member else {
        call.reply.error(errors::unknown_subcommand(call.args));
        return Outcome::Done;
    };
    match wish(call) {
        Ok(listens) => {
            call.session.listen_to_slots(member, call.audience, listens);
            call.reply.ok();
        }
        Err(text) => call.reply.error(text),
    }
    Outcome::Done
}

/// Returns whether the client wants notifications. An error is the text of the reply.
fn wish(call: &AdminCall<'_>) -> Result<bool, String> {
    let args = call.args;
    if args.len() < 3 {
        return Err(errors::wrong_arity("client|maint_notifications"));
    }
    let on = args.get(2).eq_ignore_ascii_case(b"on");
    let is_option_well = match (args.try_get(3), args.try_get(4)) {
        (None, _) => true,
        (Some(name), Some(value)) => {
            let is = |known: &&[u8]| known.eq_ignore_ascii_case(value);
            name.eq_ignore_ascii_case(b"moving-endpoint-type") && ENDPOINT_TYPES.iter().any(is)
        }
        (Some(_), None) => false,
    };
    if !(on || args.get(2).eq_ignore_ascii_case(b"off")) || !is_option_well || args.len() > 5 {
        return Err(errors::SYNTAX.into());
    }
    if on && call.session.proto != Protocol::Resp3 {
        return Err("ERR CLIENT MAINT_NOTIFICATIONS sends pushes, which need RESP3".into());
    }
    Ok(on)
}
