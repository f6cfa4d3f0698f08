//! Bytes of prefixes of keys, as metrics. A request has no name and no password, so the prefixes are those
//! that MEMORY PREFIXES shows to the default user; and those that are pinned, as the configuration names
//! them.

use isotherm_keyspace::{PrefixReport, PrefixShare};
use std::collections::BTreeMap;

use super::text::{Page, escaped};
use crate::observe::info::row::Type;
use isotherm_node::Node;
use isotherm_node::users::sight::Sight;

/// Few, since each is a time series.
const PREFIXES_MAX: usize = 16;

/// Adds prefixes of depth 1: the largest, and those that are pinned.
pub fn add(page: &mut Page, node: &Node) {
    let Some(report) = node.keyspace.prefixes(1) else { return };
    let pinned = report.pinned.clone();
    let shown = seen_without_a_name(node, report);
    let largest = shown.iter().take(PREFIXES_MAX).map(|share| ("largest", share));
    let shares: Vec<_> = largest.chain(pinned.iter().map(|share| ("pinned", share))).collect();
    for (at, what) in ["keys", "bytes"].into_iter().enumerate() {
        let name = format!("isotherm_prefix_{what}");
        // Long names are cut and odd bytes replaced: what looks the same then is one series.
        let mut series: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (kind, share) in &shares {
            let prefix = escaped(&String::from_utf8_lossy(&share.name));
            *series.entry((*kind, prefix)).or_default() += [share.keys, share.bytes][at];
        }
        for ((kind, prefix), value) in series {
            let labels = format!("kind=\"{kind}\",prefix=\"{prefix}\"");
            page.add(&name, "What prefixes of keys take: MEMORY PREFIXES.", Type::Gauge, &labels, value);
        }
    }
}

/// The prefixes that the default user may see, if it may enter: whether it needs a password for that is not
/// asked.
fn seen_without_a_name(node: &Node, mut report: PrefixReport) -> Vec<PrefixShare> {
    let user = node.users.default_user();
    let memory = node.commands.find_original(b"memory").expect("it is declared");
    let command = memory.subcommand(b"prefixes").expect("it is declared");
    let sight = Sight::new(node, &user, command);
    match user.is_on {
        true => sight.narrow(&mut report),
        false => report.prefixes.clear(),
    }
    report.prefixes
}
