//! LATENCY: events that took too long, and how long commands take.

mod doctor;
mod graph;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::*;
use isotherm_resp::errors;
use isotherm_stdx::steps;

use super::{AdminCall, AdminHandler};
use isotherm_node::request::entry::Entry;

const LATENCY: Spec = Spec {
    name: "latency",
    summary: "Shows where time was lost.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "That of the subcommand",
    arity: -2,
    ..Spec::BASE
};

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    LATENCY,
    &[
        Command::new(LATENCY_DOCTOR, doctor),
        Command::new(LATENCY_GRAPH, graph),
        Command::new(LATENCY_HELP, help),
        Command::new(LATENCY_HISTOGRAM, histogram),
        Command::new(LATENCY_HISTORY, history),
        Command::new(LATENCY_LATEST, latest),
        Command::new(LATENCY_RESET, reset),
    ],
)];

const LATENCY_LATEST: Spec = Spec {
    name: "latest",
    summary: "Returns the latest and the highest sample of each event.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Spec::BASE
};

fn latest(call: &mut AdminCall<'_>) -> Outcome {
    let all = call.node.latency.all();
    call.reply.array(all.len());
    for (name, series) in &all {
        let last = series.samples.last().expect("a series begins with its first sample");
        call.reply.array(6);
        call.reply.bulk(name.as_bytes());
        call.reply.integer(last.unix_seconds);
        for value in [last.latency_ms, series.max_ms, series.sum_ms, series.count] {
            call.reply.integer(value as i64);
        }
    }
    Outcome::Done
}

const LATENCY_HISTORY: Spec = Spec {
    name: "history",
    summary: "Returns the samples of an event, each with its time; empty for an unknown event.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    ..Spec::BASE
};

fn history(call: &mut AdminCall<'_>) -> Outcome {
    let samples = call.node.latency.get(call.args.get(2)).unwrap_or_default().samples;
    call.reply.array(samples.len());
    for sample in &samples {
        call.reply.array(2);
        call.reply.integer(sample.unix_seconds);
        call.reply.integer(sample.latency_ms as i64);
    }
    Outcome::Done
}

const LATENCY_RESET: Spec = Spec {
    name: "reset",
    summary: "Drops the samples of the named events, or of all. Returns how many events it dropped.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["request_policy:all_nodes", "response_policy:agg_sum"],
    arguments: &[Argument::string("event").optional().multiple()],
    ..Spec::BASE
};

fn reset(call: &mut AdminCall<'_>) -> Outcome {
    let names = call.args.from(2);
    let monitor = &call.node.latency;
    let kinds = match names.is_empty() {
        true => monitor.reset(None),
        false => names.iter().map(|name| monitor.reset(Some(name))).sum(),
    };
    call.reply.integer(kinds as i64);
    Outcome::Done
}

const LATENCY_GRAPH: Spec = Spec {
    name: "graph",
    summary: "Draws the latency samples of an event in characters.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 3,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("event")],
    ..Spec::BASE
};

fn graph(call: &mut AdminCall<'_>) -> Outcome {
    let name = call.args.get(2);
    match call.node.latency.get(name) {
        Some(series) => {
            let name = String::from_utf8_lossy(name);
            let text = graph::draw(&name, &series, call.now.0.div_euclid(1000));
            call.reply.verbatim("txt", text.as_bytes());
        }
        None => call.reply.error(errors::with_bytes("ERR No samples available for event '", name, "'")),
    }
    Outcome::Done
}

const LATENCY_DOCTOR: Spec = Spec {
    name: "doctor",
    summary: "Explains the recorded latency spikes in words and gives advice.",
    since: "2.8.13",
    group: Group::Server,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    ..Spec::BASE
};

fn doctor(call: &mut AdminCall<'_>) -> Outcome {
    let report = doctor::report(call.node, call.now.0.div_euclid(1000));
    call.reply.verbatim("txt", report.as_bytes());
    Outcome::Done
}

const LATENCY_HISTOGRAM: Spec = Spec {
    name: "histogram",
    summary: "Returns the distribution of execution times of the named commands, or of all that were called.",
    since: "7.0.0",
    group: Group::Server,
    complexity: "O(N), N the commands returned",
    arity: -2,
    flags: Flags::ADMIN.or(Flags::NOSCRIPT).or(Flags::LOADING).or(Flags::STALE),
    tips: &["nondeterministic_output", "request_policy:all_nodes", "response_policy:special"],
    arguments: &[Argument::string("command").optional().multiple()],
    ..Spec::BASE
};

/// Answers with the histograms of all commands, or of those that are named; a container stands for its
/// subcommands. Unknown names are ignored.
fn histogram(call: &mut AdminCall<'_>) -> Outcome {
    let commands = &call.node.commands;
    let names = call.args.from(2);
    let asked: Vec<&'static Entry> = match names.is_empty() {
        true => commands.all().to_vec(),
        false => {
            steps::note(names.len() as u64);
            names.iter().filter_map(|name| commands.find_full(name)).flat_map(with_subcommands).collect()
        }
    };
    let measured = asked.into_iter().map(|entry| (entry, call.node.stats.latency(entry.index)));
    let measured: Vec<_> = measured.filter(|(_, times)| times.calls() > 0).collect();
    call.reply.map(measured.len());
    for (entry, times) in &measured {
        let steps = times.steps_us();
        call.reply.bulk(entry.name.as_bytes());
        call.reply.map(2);
        call.reply.bulk(b"calls");
        call.reply.integer(times.calls() as i64);
        call.reply.bulk(b"histogram_usec");
        call.reply.map(steps.len());
        for (micros, calls) in steps {
            call.reply.integer(micros as i64);
            call.reply.integer(calls as i64);
        }
    }
    Outcome::Done
}

fn with_subcommands(entry: &'static Entry) -> impl Iterator<Item = &'static Entry> {
    std::iter::once(entry).chain(entry.subcommands.iter().copied())
}

const LATENCY_HELP: Spec = Spec { since: "2.8.13", group: Group::Server, ..Spec::HELP };

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        call.args,
        &[
            "DOCTOR",
            "    Explain the recorded spikes in words.",
            "GRAPH <event>",
            "    Draw the samples of <event> in characters.",
            "HISTORY <event>",
            "    Return the samples of <event>: Unix time and milliseconds.",
            "LATEST",
            "    Return for each event its name, the time of the latest sample, the latest and the highest one.",
            "RESET [<event> ...]",
            "    Drop the samples of these events, by default of all.",
            "HISTOGRAM [COMMAND ...]",
            "    Return for each of these commands how many calls took at most 1, 2, 4, ... microseconds,",
            "    by default for all commands that were called.",
        ],
    )
}
