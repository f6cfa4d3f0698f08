//! Lines of INFO about the append-only file while it is on.

use std::sync::atomic::Ordering::Relaxed;

use isotherm_node::Node;

pub fn lines(node: &Node) -> Vec<(&'static str, String)> {
    if !node.aof.is_on() {
        return Vec::new();
    }
    let (end, durable) = (node.log.end(), node.aof.durable());
    let rewrites = node.aof.rewrites().clone();
    vec![
        ("aof_current_size", (rewrites.base_bytes + node.aof.log_bytes.load(Relaxed)).to_string()),
        ("aof_base_size", rewrites.size_then_bytes.to_string()),
        ("aof_pending_rewrite", "0".to_string()),
        ("aof_buffer_length", node.log.unwritten_bytes().to_string()),
        ("aof_pending_bio_fsync", u8::from(durable < end).to_string()),
        ("aof_delayed_fsync", "0".to_string()),
        ("aof_commits", node.aof.commits.load(Relaxed).to_string()),
        ("aof_held_replies", node.gate.held().to_string()),
        ("log_durable_offset", durable.to_string()),
    ]
}
