//! LATENCY: events that took too long, and how long commands take.

mod doctor;
mod graph;

use isotherm_commands::Outcome;
use isotherm_commands::help::write_help;
use isotherm_commands::spec::Command;
use isotherm_resp::errors;
use isotherm_stdx::steps;

use super::{AdminCall, AdminHandler, specs};
use crate::request::registry::Entry;

pub const COMMANDS: &[Command<AdminHandler>] = &[Command::container(
    specs::LATENCY,
    &[
        Command::new(specs::LATENCY_DOCTOR, doctor),
        Command::new(specs::LATENCY_GRAPH, graph),
        Command::new(specs::LATENCY_HELP, help),
        Command::new(specs::LATENCY_HISTOGRAM, histogram),
        Command::new(specs::LATENCY_HISTORY, history),
        Command::new(specs::LATENCY_LATEST, latest),
        Command::new(specs::LATENCY_RESET, reset),
    ],
)];

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

fn doctor(call: &mut AdminCall<'_>) -> Outcome {
    let report = doctor::report(call.node, call.now.0.div_euclid(1000));
    call.reply.verbatim("txt", report.as_bytes());
    Outcome::Done
}

/// Of all commands, or of those that are named; a container stands for its subcommands. Names of nothing are passed over.
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

fn help(call: &mut AdminCall<'_>) -> Outcome {
    write_help(
        call.reply,
        "LATENCY",
        &[
            "DOCTOR",
            "    Return a human readable latency analysis report.",
            "GRAPH <event>",
            "    Return an ASCII latency graph for the <event> class.",
            "HISTORY <event>",
            "    Return time-latency samples for the <event> class.",
            "LATEST",
            "    Return the latest latency samples for all events.",
            "RESET [<event> ...]",
            "    Reset latency data of one or more <event> classes.",
            "    (default: reset all data for all event classes)",
            "HISTOGRAM [COMMAND ...]",
            "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
            "    If no commands are specified then all histograms are replied.",
        ],
    );
    Outcome::Done
}
