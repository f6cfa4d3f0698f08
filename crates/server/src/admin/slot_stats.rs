//! CLUSTER SLOT-STATS: what each slot holds and what its commands cost. A lone server has all slots, and
//! answers too; a member of a cluster answers for those of its shard.

use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::{Slot, SlotSize};
use isotherm_resp::{Reply, errors};
use isotherm_stdx::parse_i64;
use std::ops::Range;

use super::AdminCall;
use isotherm_config::id;
use isotherm_node::observe::slot_stats::SlotUse;

/// Counters by which slots can be ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    Keys,
    Memory,
    Cpu,
    Input,
    Output,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Asked {
    Range(Range<usize>),
    Order { by: Metric, limit: usize, ascending: bool },
}

/// Everything about all slots. Its use is there if it is counted.
struct Stats {
    sizes: Vec<SlotSize>,
    uses: Option<Vec<SlotUse>>,
}

pub const CLUSTER_SLOT_STATS: Spec = Spec {
    name: "slot-stats",
    summary: "Returns counters of each slot: keys, CPU time, network bytes.",
    since: "8.0.0",
    group: Group::Cluster,
    complexity: "O(N), N the asked slots; O(N*log(N)) with ORDERBY",
    arity: -4,
    flags: Flags::STALE.or(Flags::LOADING),
    tips: &["nondeterministic_output", "request_policy:all_shards"],
    arguments: &[Argument::one_of(
        "filter",
        &[
            Argument::block("slotsrange", &[Argument::integer("start-slot"), Argument::integer("end-slot")])
                .token("SLOTSRANGE"),
            Argument::block(
                "orderby",
                &[
                    Argument::string("metric"),
                    Argument::integer("limit").token("LIMIT").optional(),
                    Argument::one_of(
                        "order",
                        &[Argument::pure_token("asc", "ASC"), Argument::pure_token("desc", "DESC")],
                    )
                    .optional(),
                ],
            )
            .token("ORDERBY"),
        ],
    )],
    reach: Reach::Each,
    ..Spec::BASE
};

pub fn slot_stats(call: &mut AdminCall<'_>) -> Outcome {
    let counts = call.node.config.flag(const { id("cluster-slot-stats-enabled") });
    let asked = match read(call, counts) {
        Ok(asked) => asked,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    // COMPAT(observability): CLUSTER SLOT-STATS works without a cluster, for all slots, and reports
    // `memory-bytes` (also in ORDERBY): the pages of a slot and what its keys have outside of them. A command
    // with keys in several slots counts for the slot of its first key, a script for that of all its keys, if
    // there is one (in Valkey only a script that may not cross slots). Of what replicas are sent, MULTI and
    // EXEC are not counted, and of shard channels not what comes over the cluster bus. Why: storage is
    // organised by slots in any case.
    let mut uses = counts.then(|| call.node.stats.slots());
    for used in uses.iter_mut().flatten() {
        used.ticks = call.node.stats.micros(used.ticks);
    }
    let stats = Stats { sizes: call.survey().slot_sizes(), uses };
    let mut slots: Vec<usize> = match &asked {
        Asked::Range(slots) => slots.clone().collect(),
        Asked::Order { .. } => (0..Slot::COUNT).collect(),
    };
    if let Some(member) = call.exec.route.member {
        slots.retain(|slot| member.is_of_shard(Slot::new(*slot as u16)));
    }
    // COMPAT(users): CLUSTER SLOT-STATS has no rows for a user without a right to all keys. Why: a slot has
    // keys of everyone, so a row would say what others have; Valkey shows it to every client that may run the
    // command.
    if !call.sight().sees_all() {
        slots.clear();
    }
    if let Asked::Order { by, limit, ascending } = asked {
        stats.order(&mut slots, by, ascending);
        slots.truncate(limit);
    }
    call.reply.array(slots.len());
    slots.iter().for_each(|&slot| stats.write(call.reply, slot));
    Outcome::Done
}

impl Stats {
    fn value(&self, slot: usize, metric: Metric) -> u64 {
        let (size, used) = (&self.sizes[slot], self.uses.as_ref().map(|uses| uses[slot]).unwrap_or_default());
        match metric {
            Metric::Keys => size.keys,
            Metric::Memory => size.memory_bytes,
            Metric::Cpu => used.ticks,
            Metric::Input => used.input_bytes,
            Metric::Output => used.output_bytes,
        }
    }

    /// Slots with the same value come in their own order, either way.
    fn order(&self, slots: &mut [usize], by: Metric, ascending: bool) {
        match ascending {
            true => slots.sort_by_key(|&slot| self.value(slot, by)),
            false => slots.sort_by_key(|&slot| std::cmp::Reverse(self.value(slot, by))),
        }
    }

    fn write(&self, reply: &mut Reply, slot: usize) {
        const COUNTED: [(&str, Metric); 3] = [
            ("cpu-usec", Metric::Cpu),
            ("network-bytes-in", Metric::Input),
            ("network-bytes-out", Metric::Output),
        ];
        let counted = if self.uses.is_some() { &COUNTED[..] } else { &[] };
        let always = [("key-count", Metric::Keys)].into_iter().chain(counted.iter().copied());
        let all = always.chain([("memory-bytes", Metric::Memory)]);
        reply.array(2);
        reply.integer(slot as i64);
        reply.map(2 + counted.len());
        for (name, metric) in all {
            reply.bulk(name.as_bytes());
            reply.integer(self.value(slot, metric) as i64);
        }
    }
}

// ---- what is asked ----

fn read(call: &AdminCall<'_>, counts: bool) -> Result<Asked, Vec<u8>> {
    let args = call.args;
    match args.get(2) {
        word if word.eq_ignore_ascii_case(b"slotsrange") && args.len() == 5 => {
            let (start, end) = (read_slot(args.get(3))?, read_slot(args.get(4))?);
            if start > end {
                let text = format!("ERR Start slot number {start} is greater than end slot number {end}");
                return Err(text.into_bytes());
            }
            Ok(Asked::Range(start..end + 1))
        }
        word if word.eq_ignore_ascii_case(b"orderby") => read_order(call, counts),
        _ => Err(errors::subcommand_syntax(args)),
    }
}

pub fn read_slot(word: &[u8]) -> Result<usize, Vec<u8>> {
    let slot = parse_i64(word).and_then(|number| usize::try_from(number).ok());
    slot.filter(|&slot| slot < Slot::COUNT).ok_or_else(|| b"ERR Invalid or out of range slot".to_vec())
}

fn read_order(call: &AdminCall<'_>, counts: bool) -> Result<Asked, Vec<u8>> {
    let by = match call.args.get(3).to_ascii_lowercase().as_slice() {
        b"key-count" => Metric::Keys,
        b"memory-bytes" => Metric::Memory,
        b"cpu-usec" if counts => Metric::Cpu,
        b"network-bytes-in" if counts => Metric::Input,
        b"network-bytes-out" if counts => Metric::Output,
        _ => return Err(b"ERR Unrecognized sort metric for ORDERBY.".to_vec()),
    };
    let (mut limit, mut ascending) = (None, None);
    let options = call.args.from(4);
    let mut at = 0;
    while let Some(word) = options.try_get(at) {
        let more = options.try_get(at + 1);
        let again = match (word.to_ascii_lowercase().as_slice(), more) {
            (b"limit", Some(count)) => {
                at += 1;
                limit.replace(read_limit(count)?).is_some()
            }
            (b"asc", _) => ascending.replace(true).is_some(),
            (b"desc", _) => ascending.replace(false).is_some(),
            _ => return Err(errors::SYNTAX.into()),
        };
        if again {
            return Err(b"ERR Multiple filters of the same type are disallowed.".to_vec());
        }
        at += 1;
    }
    Ok(Asked::Order { by, limit: limit.unwrap_or(Slot::COUNT), ascending: ascending.unwrap_or(false) })
}

fn read_limit(word: &[u8]) -> Result<usize, Vec<u8>> {
    let limit = parse_i64(word).and_then(|number| usize::try_from(number).ok());
    limit
        .filter(|limit| (1..=Slot::COUNT).contains(limit))
        .ok_or_else(|| b"ERR Limit has to lie in between 1 and 16384 (maximum number of slots).".to_vec())
}
