//! Tasks of the machine ten times a second: connections are made anew, nodes are pinged, silence is noticed
//! (clusterCron).

use super::{Handle, Level, Machine, Now, names};
use crate::Flags;
use crate::wire::{Body, PingKind};

const TICK_MS: u64 = 100;
/// Number of attempts to reach a node within half a node timeout.
const RETRIES: u64 = 10;
/// Number of nodes that are drawn once a second. The one that was heard of longest ago is pinged.
const SAMPLE: usize = 5;

impl Machine {
    pub(super) fn tick(&mut self, offset: u64, now: Now) {
        self.offset = offset;
        self.ticks += 1;
        self.forgotten.expire(now.ms);
        self.close_unnamed(now);
        self.reconnect_all(now);
        if !self.settings.no_random_ping && self.ticks.is_multiple_of(10) {
            self.ping_a_quiet_one(now);
        }
        for node in self.nodes.handles() {
            self.watch(node, now);
        }
        self.change().follow_known_primary();
        if self.health.state != crate::topology::State::Ok {
            self.todo.update_state = true;
        }
        // Times of pings and offsets are shown as of the last tick.
        self.todo.view = true;
    }

    fn close_unnamed(&mut self, now: Now) {
        let timeout_ms = self.settings.handshake_timeout_ms();
        while let Some(overdue) = self.links.overdue(timeout_ms, now) {
            self.outputs.say(Level::Verbose, "Closing a link without a known node".to_string());
            self.close(overdue, now);
        }
    }

    fn reconnect_all(&mut self, now: Now) {
        let half_ms = (self.settings.node_timeout_ms / 2).max(1);
        let mut budget = (self.nodes.len() as u64 * TICK_MS / half_ms * RETRIES) as i64;
        self.health.pfail_count = self.nodes.iter().filter(|(_, node)| node.flags.has(Flags::PFAIL)).count();
        for node in self.nodes.handles() {
            if !self.settings.no_reconnection {
                names::look_up(self, node, now);
            }
            if !self.nodes[node].flags.has(Flags::MYSELF | Flags::NOADDR) {
                self.keep_connected(node, half_ms, &mut budget, now);
            }
        }
    }

    fn keep_connected(&mut self, handle: Handle, half_ms: u64, budget: &mut i64, now: Now) {
        let timeout_ms = self.settings.handshake_timeout_ms();
        let node = &self.nodes[handle];
        if node.is_in_handshake() && now.ms.since(node.created) > timeout_ms {
            let text = format!("Clusterbus handshake timeout {}:{}", node.address.ip, node.address.bus_port);
            // A name may have many addresses, and one of them at most answers.
            let level = if node.sought.is_some() { Level::Verbose } else { Level::Warning };
            self.outputs.say(level, text);
            return self.remove_node(handle, now);
        }
        let quiet = |since: Option<super::Ms>| since.is_none_or(|at| now.ms.since(at) > timeout_ms);
        let is_one_way = node.is_normal()
            && node.inbound.is_none()
            && now.ms.since(node.inbound_lost) > timeout_ms
            && quiet(node.meet_sent)
            && node.flags.has(Flags::LIGHT_MODULE);
        // While the connection is being made, MEET would be its first message, as an administrator's is.
        let stands = |link: &super::LinkId| self.links.get(*link).is_some_and(super::links::Link::stands);
        if let Some(link) = node.outbound.filter(stands).filter(|_| is_one_way) {
            // It does not connect to this node, so it does not know it.
            self.nodes[handle].flags.set(Flags::MEET);
            self.outputs.notice(format!(
                "Sending MEET packet to node {} because there is no inbound link for it",
                self.name(handle)
            ));
            return self.ping(link, PingKind::Meet, now);
        }
        if node.outbound.is_some() || self.settings.no_reconnection {
            return;
        }
        let tried_lately = node.attempted.is_some_and(|at| now.ms.since(at) < half_ms / RETRIES);
        if node.inbound.is_none() && tried_lately && *budget == 0 {
            return;
        }
        *budget -= 1;
        self.nodes[handle].attempted = Some(now.ms);
        let request = self.links.connect(handle, &mut self.nodes, now);
        self.outputs.push(request);
    }

    fn ping_a_quiet_one(&mut self, now: Now) {
        let mut found: Option<Handle> = None;
        for _ in 0..SAMPLE {
            let start = self.random.next_u64();
            let Some(handle) = self.nodes.handles_from(start).next() else { return };
            let node = &self.nodes[handle];
            if node.outbound.is_none()
                || node.ping_sent.is_some()
                || node.flags.has(Flags::MYSELF | Flags::HANDSHAKE)
            {
                continue;
            }
            if found.is_none_or(|found| self.nodes[found].pong_received > node.pong_received) {
                found = Some(handle);
            }
        }
        if let Some(link) = found.and_then(|found| self.nodes[found].outbound) {
            self.ping(link, PingKind::Ping, now);
        }
    }

    /// Pings a node that was not heard of for long, and notices when it does not answer.
    fn watch(&mut self, handle: Handle, now: Now) {
        if !self.nodes.has(handle)
            || self.nodes[handle].flags.has(Flags::MYSELF | Flags::NOADDR | Flags::HANDSHAKE)
        {
            return;
        }
        let timeout_ms = self.settings.node_timeout_ms;
        let since = |moment: Option<super::Ms>| moment.map_or(u64::MAX, |at| now.ms.since(at));
        let node = &self.nodes[handle];
        let (ping_ms, data_ms) = (since(node.ping_sent), since(node.data_received));
        if let Some(link) = node.outbound {
            let is_old = self.links.get(link).is_some_and(|link| now.ms.since(link.created) > timeout_ms);
            let waits = node.ping_sent.is_some() && ping_ms > timeout_ms / 2;
            if is_old && waits && data_ms > timeout_ms / 2 {
                // Perhaps the connection is at fault, not the node.
                self.close(link, now);
            } else if node.ping_sent.is_none() && since(node.pong_received) > self.settings.ping_interval_ms()
            {
                return self.ping(link, PingKind::Ping, now);
            }
        }
        let node = &self.nodes[handle];
        if node.ping_sent.is_none()
            || ping_ms.min(data_ms) <= timeout_ms
            || node.flags.has(Flags::PFAIL | Flags::FAIL)
        {
            return;
        }
        self.nodes[handle].flags.set(Flags::PFAIL);
        self.health.pfail_count += 1;
        self.todo.update_state = true;
        self.todo.view = true;
        if self.nodes.my().votes() {
            self.mark_failed_if_agreed(handle, now);
        } else {
            self.outputs.notice(format!("NODE {} possibly failing.", self.name(handle)));
        }
    }

    pub(super) fn mark_failed_if_agreed(&mut self, node: Handle, now: Now) {
        let majority = self.health.majority();
        if self.change().mark_failed_if_agreed(node, majority, now) {
            self.broadcast(Body::Fail(self.nodes[node].id));
        }
    }

    /// Takes a node out of the table, with all that refers to it.
    pub(super) fn remove_node(&mut self, handle: Handle, now: Now) {
        assert!(handle != self.nodes.me, "a node does not remove itself");
        self.change().take_all(handle);
        if self.slots.close_all_of(handle) {
            self.todo.slots();
        }
        for link in [self.nodes[handle].outbound, self.nodes[handle].inbound].into_iter().flatten() {
            self.close(link, now);
        }
        for other in self.nodes.handles() {
            let other = &mut self.nodes[other];
            other.reports.retain(|(node, _)| *node != handle);
            if other.primary == Some(handle) {
                other.primary = None;
            }
        }
        self.nodes.remove(handle);
        self.todo.save();
        self.todo.update_state = true;
    }
}
