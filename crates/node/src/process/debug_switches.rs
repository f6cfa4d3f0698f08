//! Switches of DEBUG, for tests.

use isotherm_disk::Troubles;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// All are off at the start.
#[derive(Default)]
pub struct DebugSwitches {
    /// DEBUG SET-ACTIVE-EXPIRE 0
    pub no_active_expire: Switch,
    /// DEBUG PAUSE-CRON
    pub cron_paused: Switch,
    /// DEBUG CLIENT-ENFORCE-REPLY-LIST
    pub reply_lists: Switch,
    /// DEBUG SET-SKIP-CHECKSUM-VALIDATION
    pub skip_checksums: Switch,
    /// DEBUG SET-DISABLE-DENY-SCRIPTS
    pub scripts_may_debug: Switch,
    /// DEBUG SWAP-CHAOS: whatever may leave memory does, all the time.
    pub swap_chaos: Switch,
    /// DEBUG SWAP-CHAOS with nodes: in addition, some collections leave by nodes although they would leave as
    /// a whole.
    pub swap_chaos_nodes: Switch,
    /// DEBUG SWAP-FAULT: what reads and writes of swap-dir meet.
    pub swap_troubles: Arc<Troubles>,
    /// DEBUG SLEEP is under way.
    pub is_asleep: Switch,
    /// DEBUG DROP-CLUSTER-PACKET-FILTER
    pub dropped_packets: PacketFilter,
    /// DEBUG CLOSE-CLUSTER-LINK-ON-PACKET-DROP
    pub closes_links_on_drop: Switch,
    /// DEBUG DISABLE-CLUSTER-RECONNECTION
    pub no_reconnection: Switch,
    /// DEBUG DISABLE-CLUSTER-RANDOM-PING
    pub no_random_ping: Switch,
}

/// The number of a type of packets, -1 for none, -2 for all.
pub struct PacketFilter(AtomicI64);

impl Default for PacketFilter {
    fn default() -> PacketFilter {
        PacketFilter(AtomicI64::new(-1))
    }
}

impl PacketFilter {
    pub fn set(&self, kind: i64) {
        self.0.store(kind, Ordering::Release);
    }

    pub fn get(&self) -> Option<i16> {
        i16::try_from(self.0.load(Ordering::Acquire)).ok().filter(|kind| *kind != -1)
    }
}

#[derive(Default)]
pub struct Switch(AtomicBool);

impl Switch {
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Release);
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
