//! What prefixes of keys take, as metrics.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::names::Type;
use super::text::{Page, escaped};
use crate::node::Node;

/// Few, since each is a time series.
const PREFIXES_MAX: usize = 16;

/// Adds prefixes of depth 1: the largest, and those that are pinned.
pub fn add(page: &mut Page, node: &Node) {
    let Some(report) = node.keyspace.prefixes(1) else { return };
    let largest = report.prefixes.iter().take(PREFIXES_MAX).map(|share| ("largest", share));
    let shares: Vec<_> = largest.chain(report.pinned.iter().map(|share| ("pinned", share))).collect();
    for (at, what) in ["keys", "bytes"].into_iter().enumerate() {
        let name = format!("isotherm_prefix_{what}");
        // Long names are cut and odd bytes replaced: what looks the same then is one series.
        let mut series: BTreeMap<(&str, String), u64> = BTreeMap::new();
        for (kind, share) in &shares {
            let prefix = escaped(&String::from_utf8_lossy(&share.name));
            *series.entry((*kind, prefix)).or_default() += [share.keys, share.bytes][at];
        }
        for ((kind, prefix), value) in series {
            page.head(&name, "What prefixes of keys take: MEMORY PREFIXES.", Type::Gauge);
            writeln!(page.0, "{name}{{kind=\"{kind}\",prefix=\"{prefix}\"}} {value}")
                .expect("a String takes anything");
        }
    }
}
