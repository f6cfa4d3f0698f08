//! Input of a connection that has become a replica: REPLCONF ACK. Any other input does not make it a client
//! again.

use isotherm_commands::Flags;
use isotherm_log::LogOffset;
use isotherm_reactor::stream::Progress;
use isotherm_replication::acks;
use isotherm_replication::feed::{Act, Said};
use isotherm_resp::{Args, Limits, Parsed};
use std::sync::atomic::Ordering::Relaxed;

use super::Feeder;
use super::replica::Replica;
use isotherm_config::{Id, id};
use isotherm_node::request::reply_gate::Part;
use isotherm_node::session::line;
use isotherm_runtime::log;
use isotherm_runtime::time::unix_now;

/// An acknowledgement is a hundredth of it.
const REQUEST_BYTES_MAX: usize = 16 << 10;
const READS_MAX: usize = 16;

impl Feeder {
    /// Reads what there is; `to_end` where the connection may have ended. False if the replica is to be
    /// closed.
    pub(super) fn listen(&mut self, replica: &mut Replica, to_end: bool) -> bool {
        let mut bytes = [0; 4 << 10];
        for _ in 0..READS_MAX {
            match replica.stream.read(&mut bytes) {
                Progress::Bytes(count) => {
                    let client = &replica.shared.client.seen;
                    client.input_total_bytes.fetch_add(count as u64, Relaxed);
                    client.note_interaction(unix_now());
                    self.node.replication.primary.counts.heard_bytes.fetch_add(count as u64, Relaxed);
                    replica.input.extend_from_slice(&bytes[..count]);
                    if !self.run_input(replica) {
                        return false;
                    }
                    // That was all: later bytes bring an event.
                    if replica.stream.is_drained(count, bytes.len()) && !to_end {
                        return true;
                    }
                }
                Progress::Later => return true,
                Progress::Ended | Progress::Broken(_) => return false,
            }
        }
        // A replica with more to read has its turn again.
        self.has_more = true;
        true
    }

    /// Runs the requests that are complete.
    pub(super) fn run_input(&mut self, replica: &mut Replica) -> bool {
        let mut input = std::mem::take(&mut replica.input);
        let (limits, mut spans, mut done) = (Limits::default(), Vec::new(), 0);
        let mut stays = true;
        while stays && done < input.len() {
            spans.clear();
            match replica.parser.parse(&mut input[done..], &limits, &mut spans) {
                Parsed::Request { consumed } => {
                    stays = self.run_request(replica, Args::new(&input[done..], &spans));
                    done += consumed;
                }
                Parsed::Empty { consumed } => done += consumed,
                Parsed::Incomplete { .. } => break,
                Parsed::Error(error) => {
                    log::verbose(format!("Protocol error ({error}) from replica {}", replica.name));
                    stays = false;
                }
            }
        }
        input.drain(..done.min(input.len()));
        stays &= input.len() <= REQUEST_BYTES_MAX;
        replica.input = input;
        stays
    }

    fn run_request(&mut self, replica: &mut Replica, args: Args<'_>) -> bool {
        let node = self.node;
        let name = args.get(0).to_ascii_lowercase();
        let entry =
            node.commands.find_original(&name).filter(|entry| !entry.subcommands.is_empty()).map_or_else(
                || node.commands.find_original(&name),
                |parent| args.try_get(1).and_then(|sub| parent.subcommand(sub)).or(Some(parent)),
            );
        if let Some(entry) = entry {
            let seen = &replica.shared.client.seen;
            seen.command.store(entry.index, Relaxed);
            seen.commands_total.fetch_add(1, Relaxed);
        }
        match name.as_slice() {
            b"replconf" => match replica.announced.replconf(args, None) {
                Ok(Said::Ack(Some((acked, synced)))) => {
                    self.acked(replica, acked, synced);
                    return true;
                }
                Ok(Said::Ack(None) | Said::GetAck) => return true,
                Ok(Said::Options) | Err(_) => {}
            },
            // It has asked already.
            b"psync" | b"sync" => return true,
            _ => {}
        }
        let shown = entry.map_or("<unknown>", |entry| &entry.name);
        const KEYS: Flags = Flags::WRITE.or(Flags::READONLY).or(Flags::MAY_REPLICATE);
        if entry.is_some_and(|entry| entry.spec.flags.has(KEYS)) {
            log::warning(format!(
                "== CRITICAL == This primary is sending an error to its replica: '-ERR Replica can't interact with the \
                 keyspace' after processing the command '{shown}'"
            ));
        }
        let line = line::of_log(node, &replica.shared.client, unix_now());
        log::warning(format!(
            "Replica generated a reply to command '{shown}', disconnecting it: {}",
            line.trim_end()
        ));
        false
    }

    fn acked(
        &mut self,
        replica: &mut Replica,
        acked: isotherm_log::LogOffset,
        synced: Option<isotherm_log::LogOffset>,
    ) {
        let now = self.now();
        if replica.feed.ack(acked, synced, self.node.log.end(), now) == Act::SendLog {
            replica.gets_log = true;
            self.begin_stream();
        }
        self.publish(replica);
        self.node.look_at_waits();
        self.note_quorum();
    }

    /// Notes the offset in the log that enough replicas have reached.
    fn note_quorum(&self) {
        const QUORUM: Id = id("repl-ack-quorum");
        const SYNCED: Id = id("repl-ack-quorum-fsync");
        let node = self.node;
        if !node.gate.has_quorum() {
            return;
        }
        let (count, synced) = (node.config.number(QUORUM) as usize, node.config.flag(SYNCED));
        let replicas = node.replication.primary.replicas();
        let online = replicas.iter().filter(|replica| replica.seen.state().is_online());
        let mut acks: Vec<LogOffset> =
            online.map(|replica| if synced { replica.seen.synced() } else { replica.seen.acked() }).collect();
        drop(replicas);
        let reached = acks::kth_highest(&mut acks, count.max(1));
        if reached > node.gate.quorum() {
            node.gate.set(&node.mail, Part::Quorum, reached);
        }
    }
}
