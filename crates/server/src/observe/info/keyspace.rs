//! Sections Keyspace, Keysizes and Idletimes: how many keys, of which size, idle for how long.

use super::row::{Lines, Metric, Row, Type as Kind, family, metric};
use super::snapshot::Snapshot;
use isotherm_keyspace::{Db, SIZE_BINS, SIZED_TYPES, Type};

pub const KEYSPACE: &[Row] = &[family(
    "db*",
    databases,
    &[
        of_database("redis_db_keys", "Keys of a database.").part("keys", 1.0),
        of_database("redis_db_keys_expiring", "Keys of a database that have a time to live.")
            .part("expires", 1.0),
        of_database("redis_db_avg_ttl_seconds", "Their mean time to live.").part("avg_ttl", 1000.0),
    ],
)];

const fn of_database(name: &'static str, help: &'static str) -> Metric {
    metric(name, Kind::Gauge, help, "db=\"db*\"")
}

fn databases(s: &Snapshot<'_>) -> Lines {
    let used = s.databases.iter().filter(|size| size.keys > 0);
    let line = used.map(|size| {
        let value = format!(
            "keys={},expires={},avg_ttl=0,keys_with_volatile_items={}",
            size.keys, size.volatile, size.timed_hashes
        );
        (size.db.0.to_string(), value)
    });
    line.collect()
}

/// Sizes of keys, as Redis 8 shows them: `db0_distrib_strings_sizes:1=3,2=5,1K=1`.
pub const KEY_SIZES: &[Row] = &[family("db*", key_sizes, &[])];

fn key_sizes(s: &Snapshot<'_>) -> Lines {
    let what = |kind| match kind {
        Type::String => "strings_sizes",
        Type::List => "lists_items",
        Type::Set => "sets_items",
        Type::Zset => "zsets_items",
        _ => "hashes_items",
    };
    let of_types = s.bins.iter().flat_map(|bins| {
        let of_types = SIZED_TYPES.iter().zip(&bins.sizes);
        of_types.filter_map(|(kind, counts)| distribution(bins.db, what(*kind), counts))
    });
    of_types.collect()
}

/// Idle times of the keys that were sampled, in seconds.
pub const IDLE_TIMES: &[Row] = &[family("db*", idle_times, &[])];

fn idle_times(s: &Snapshot<'_>) -> Lines {
    let sampled = s.bins.iter().filter_map(|bins| Some((bins.db, bins.idle.as_ref()?)));
    let lines = sampled.flat_map(|(db, idle)| {
        let count = (format!("{}_idle_keys_sampled", db.0), idle.keys.to_string());
        [Some(count), distribution(db, "idle_seconds", &idle.bins)].into_iter().flatten()
    });
    lines.collect()
}

fn distribution(db: Db, what: &str, counts: &[u64; SIZE_BINS]) -> Option<(String, String)> {
    let used = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    let shown: Vec<String> = used.map(|(bin, count)| format!("{}={count}", bin_label(bin))).collect();
    (!shown.is_empty()).then(|| (format!("{}_distrib_{what}", db.0), shown.join(",")))
}

/// The smallest number in a bin: 0, 1, 2, 4, ..., 512, 1K, ...
fn bin_label(bin: usize) -> String {
    const UNITS: [&str; 4] = ["", "K", "M", "G"];
    match bin.checked_sub(1) {
        None => "0".into(),
        Some(power) => format!("{}{}", 1u64 << (power % 10), UNITS[power / 10]),
    }
}
