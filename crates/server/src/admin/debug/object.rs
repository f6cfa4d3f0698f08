//! DEBUG OBJECT: how a value is stored, as Valkey would say it. One that is not in memory is read before it
//! runs, as for any command that reads.

use isotherm_codec::{ListNodes, list_nodes, saved_bytes};
use isotherm_keyspace::{Entry, Limits, Lookup};
use isotherm_resp::errors;

use super::AdminCall;

pub fn object(call: &mut AdminCall<'_>) {
    let (db, name, node) = (call.session.db, call.args.get(2), call.node);
    let is_fast = call.args.try_get(3).is_some_and(|word| word.eq_ignore_ascii_case(b"fast"));
    let is_lfu = node.config.evicts_by_lfu();
    let limits = node.config.collection_limits();
    let key = node.keyspace.key(name);
    let mut txn = call.debug_txn();
    let Some(entry) = txn.find(db, &key, Lookup::Silent) else {
        call.reply.error(errors::NO_SUCH_KEY);
        return;
    };
    let lengths = Lengths::of(&entry, &limits, is_fast);
    // Entries move when memory is compacted, so the address shown is one that stays: that of the key's name.
    // COMPAT(debug): DEBUG OBJECT derives the address from the name of the key. Why: entries move in memory.
    let address = isotherm_stdx::crc64::crc64(0, name) >> 16;
    let mut text = format!("Value at:0x{address:x} refcount:1 encoding:{}", entry.encoding().name());
    if !is_fast {
        text.push_str(&format!(" serializedlength:{}", lengths.saved_bytes));
    }
    let (idle, frequency) = (entry.idle_seconds(), entry.frequency());
    text.push_str(&if is_lfu {
        format!(" lfu_freq:{frequency} lfu_access_time_minutes:0")
    } else {
        format!(" lru:0 lru_seconds_idle:{idle}")
    });
    // COMPAT(debug): DEBUG OBJECT of a list shows the nodes (`ql_nodes`, `ql_avg_node`,
    // `ql_uncompressed_size`) that a file has of it; those of Valkey depend on how the list became what it
    // is. Why: a list has no such nodes in memory here.
    if let Some(ListNodes { nodes, elements, bytes }) = lengths.list {
        let mean = elements as f64 / nodes as f64;
        let most = limits.list_max_listpack_size;
        text.push_str(&format!(
            " ql_nodes:{nodes} ql_avg_node:{mean:.2} ql_listpack_max:{most} ql_compressed:0"
        ));
        if !is_fast {
            text.push_str(&format!(" ql_uncompressed_size:{bytes}"));
        }
    }
    call.reply.simple(&text);
}

/// Figures that need a look at the whole value.
struct Lengths {
    /// 0: nothing asks for it.
    saved_bytes: usize,
    list: Option<ListNodes>,
}

impl Lengths {
    fn of(entry: &Entry<'_>, limits: &Limits, is_fast: bool) -> Lengths {
        let saved_bytes = if is_fast { 0 } else { saved_bytes(entry, limits) };
        Lengths { saved_bytes, list: list_nodes(entry, limits) }
    }
}
