//! Once a second: pings, empty lines, timeouts, the cut that is due, and the end of a backlog that serves no
//! one.

use isotherm_replication::feed::{Act, Closing};

use super::attach::BACKLOG_BYTES;
use super::{Feeder, PING};
use isotherm_config::{Id, id};
use isotherm_node::mail::tasks::Tasks;
use isotherm_runtime::log;

const TTL: Id = id("repl-backlog-ttl");

impl Feeder {
    pub(super) fn tick(&mut self) {
        const PING_PERIOD: Id = id("repl-ping-replica-period");
        let node = self.node;
        let is_primary = !node.mail.tasks().has(Tasks::REPLICA);
        let period_seconds = node.config.number(PING_PERIOD) as u64;
        let is_held = node.replication.failover.holds_pings();
        if is_primary && !is_held && self.ticks.is_multiple_of(period_seconds) && self.has_replicas() {
            self.append(PING);
        }
        self.ticks += 1;
        if self.kept.is_some() {
            node.log.set_backlog_bytes(node.config.number(BACKLOG_BYTES) as u64);
        }
        self.watch_replicas();
        self.forget_lost(node.config.number(TTL) as u64);
        self.end_backlog_if_idle(is_primary);
        self.cut_if_due();
        self.note_good_replicas();
    }

    fn watch_replicas(&mut self) {
        const TIMEOUT: Id = id("repl-timeout");
        let timeout_ms = self.node.config.number(TIMEOUT) as u64 * 1000;
        self.each(|feeder, _, mut replica| {
            let closing = match replica.feed.tick(feeder.now(), timeout_ms) {
                Act::SendNewline => {
                    replica.say_newline();
                    return Some(replica);
                }
                Act::Close(closing) => closing,
                Act::Nothing | Act::SendLog => return Some(replica),
            };
            let phase = if closing == Closing::SilentInSync { "full sync" } else { "streaming sync" };
            log::warning(format!("Disconnecting timedout replica ({phase}): {}", replica.name));
            feeder.lose(*replica);
            None
        });
    }

    fn end_backlog_if_idle(&mut self, is_primary: bool) {
        let ttl_seconds = self.node.config.number(TTL) as u64;
        // A replica keeps it: its siblings may come here when it is promoted.
        let is_idle = is_primary
            && !self.node.gate.has_quorum()
            && self.kept.is_some()
            && !self.has_replicas()
            && ttl_seconds > 0
            && self.alone_since.elapsed().as_secs() > ttl_seconds;
        if is_idle && self.close_backlog() {
            log::notice(format!(
                "Replication backlog freed after {ttl_seconds} seconds without connected replicas."
            ));
        }
    }
}
