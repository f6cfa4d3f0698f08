//! CLUSTER and its relatives where there is no cluster: what a lone server can tell of slots, and the words by which a
//! client learns that there is none (valkey-cli sends READONLY before it looks for big keys, and goes on only if it is
//! refused).

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::{Command, Reach, Spec};
use isotherm_keyspace::Slot;
use isotherm_resp::errors;

use super::slot_stats::slot_stats;
use super::{AdminCall, AdminHandler, specs};

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(specs::ASKING, no_cluster),
    Command::container(
        specs::CLUSTER,
        &[
            // COMPAT(observability): Without a cluster, CLUSTER subcommands that read its state (INFO, NODES, SLOTS,
            // ...) answer that cluster support is disabled, as in Valkey; those that change it are unknown
            // subcommands. CLUSTER HELP lists what works. Why: there is no cluster yet.
            Command::new(specs::CLUSTER_COUNTKEYSINSLOT, no_cluster),
            Command::new(specs::CLUSTER_GETKEYSINSLOT, no_cluster),
            Command::new(specs::CLUSTER_HELP, help),
            Command::new(specs::CLUSTER_INFO, no_cluster),
            Command::new(specs::CLUSTER_KEYSLOT, key_slot),
            Command::new(specs::CLUSTER_MYID, no_cluster),
            Command::new(specs::CLUSTER_NODES, no_cluster),
            Command::new(specs::CLUSTER_SHARDS, no_cluster),
            Command::new(Spec { reach: Reach::Each, ..specs::CLUSTER_SLOT_STATS }, slot_stats),
            Command::new(specs::CLUSTER_SLOTS, no_cluster),
        ],
    ),
    Command::new(specs::READONLY, no_cluster),
    Command::new(specs::READWRITE, no_cluster),
];

fn no_cluster(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.error(errors::CLUSTER_DISABLED);
    Outcome::Done
}

fn key_slot(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.integer(i64::from(Slot::of_key(call.args.get(2)).get()));
    Outcome::Done
}

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        "CLUSTER",
        &[
            "KEYSLOT <key>",
            "    Return the hash slot for <key>.",
            "SLOT-STATS",
            "    Return an array of slot usage statistics for slots assigned to the current node.",
        ],
    );
    Outcome::Done
}
