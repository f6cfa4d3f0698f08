//! Sections Commandstats, Errorstats, Latencystats and Locks: what commands take, and what holds locks.

use super::row::{Lines, Metric, Row, Type, family, field, metric};
use super::snapshot::Snapshot;
use isotherm_node::observe::hold_causes::{cause_name, is_bounded_cause};
use isotherm_node::observe::holds::{HoldTimes, HoldTotals};

pub const COMMAND_STATS: &[Row] = &[family(
    "cmdstat_*",
    command_stats,
    &[
        of_command("redis_commands_total", "Calls of a command.").part("calls", 1.0),
        of_command("redis_commands_duration_seconds_total", "Time spent in a command.").part("usec", 1e6),
        of_command("redis_commands_rejected_calls_total", "Calls refused before they ran.")
            .part("rejected_calls", 1.0),
        of_command("redis_commands_failed_calls_total", "Calls that ended in an error.")
            .part("failed_calls", 1.0),
    ],
)];

const fn of_command(name: &'static str, help: &'static str) -> Metric {
    metric(name, Type::Counter, help, "cmd=\"*\"")
}

fn command_stats(s: &Snapshot<'_>) -> Lines {
    let all = s.node.commands.all().iter().zip(&s.totals().commands);
    let called = all.filter(|(_, total)| total.calls > 0 || total.rejected > 0 || total.failed > 0);
    let line = called.map(|(entry, total)| {
        let per_call = if total.calls == 0 { 0.0 } else { total.usec as f64 / total.calls as f64 };
        let value = format!(
            "calls={},usec={},usec_per_call={per_call:.2},rejected_calls={},failed_calls={}",
            total.calls, total.usec, total.rejected, total.failed
        );
        (entry.name.to_string(), value)
    });
    line.collect()
}

pub const ERROR_STATS: &[Row] = &[family(
    "errorstat_*",
    error_stats,
    &[metric("redis_errors_total", Type::Counter, "Errors of a kind.", "err=\"*\"").part("count", 1.0)],
)];

fn error_stats(s: &Snapshot<'_>) -> Lines {
    // What would break a line of INFO.
    let shown = |code: &[u8]| String::from_utf8_lossy(code).replace(['#', ':', '\n', '\r'], "_");
    s.totals().errors.iter().map(|(code, count)| (shown(code), format!("count={count}"))).collect()
}

pub const LATENCY_STATS: &[Row] = &[family("latency_percentiles_usec_*", latency_stats, &[])];

fn latency_stats(s: &Snapshot<'_>) -> Lines {
    let percentiles = s.node.config.latency_percentiles();
    let all = s.node.commands.all().iter().map(|entry| (entry, s.node.stats.latency(entry.index)));
    let line = all.filter(|(_, times)| times.calls() > 0).map(|(entry, times)| {
        let value = |text: &String| {
            let percent = text.parse().expect("the parameter is checked when it is set");
            format!("p{text}={:.3}", times.percentile_ns(percent) as f64 / 1000.0)
        };
        let values: Vec<String> = percentiles.iter().map(value).collect();
        (entry.name.to_string(), values.join(","))
    });
    line.collect()
}

/// Holds of all causes together, then of each: `lock_get:holds=1,usec=120,...`, and as `gate_...` the holds
/// of every partition.
pub const LOCKS: &[Row] = &[
    field("locks_holds", |s| all(s).holds.into()),
    field("locks_usec", |s| all(s).usec.into()),
    field("locks_longest_usec", |s| all(s).longest_usec.into()),
    field("locks_last_second_holds", |s| last_second(s).holds.into()),
    field("locks_last_second_usec", |s| last_second(s).usec.into()),
    field("locks_last_second_longest_usec", |s| last_second(s).longest_usec.into()),
    field("locks_longest_cpu_us", |s| {
        cfg!(debug_assertions).then(|| longest_cpu(s).map_or(0, |total| total.longest_cpu_us)).into()
    }),
    field("locks_longest_cpu_cause", |s| {
        let name = || longest_cpu(s).map_or("", |total| cause_name(&s.node.commands, total.cause));
        cfg!(debug_assertions).then(name).into()
    }),
    family("*", holds, &[]),
];

fn sum(s: &Snapshot<'_>, of: fn(&HoldTotals) -> HoldTimes) -> HoldTimes {
    let mut sum = HoldTimes::default();
    s.holds().iter().for_each(|total| sum.add(of(total)));
    sum
}

fn all(s: &Snapshot<'_>) -> HoldTimes {
    sum(s, |total| total.all)
}

fn last_second(s: &Snapshot<'_>) -> HoldTimes {
    sum(s, |total| total.last_second)
}

fn longest_cpu<'s>(s: &'s Snapshot<'_>) -> Option<&'s HoldTotals> {
    let bounded = s.holds().iter().filter(|total| is_bounded_cause(&s.node.commands, total.cause));
    bounded.max_by_key(|total| total.longest_cpu_us)
}

fn holds(s: &Snapshot<'_>) -> Lines {
    let times = |of: &str, times: HoldTimes| {
        let HoldTimes { holds, usec, longest_usec } = times;
        format!("{of}holds={holds},{of}usec={usec},{of}longest_usec={longest_usec}")
    };
    let line = |total: &HoldTotals| {
        let kind = if total.is_gate { "gate" } else { "lock" };
        let cpu = match cfg!(debug_assertions) {
            true => format!(",longest_cpu_us={}", total.longest_cpu_us),
            false => String::new(),
        };
        let (all, last_second) = (times("", total.all), times("last_second_", total.last_second));
        let name = format!("{kind}_{}", cause_name(&s.node.commands, total.cause));
        (name, format!("{all},{last_second}{cpu}"))
    };
    s.holds().iter().map(line).collect()
}
