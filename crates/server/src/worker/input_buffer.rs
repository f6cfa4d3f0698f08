//! The bytes of a connection's own that requests are read into, and what becomes of the room when they are
//! run.
//!
//! ```text
//! none ---- a request is cut off ----> room ---- it is run ----> empty room ---- two idle seconds ----> none
//!                                      |  ^                          |
//!                                      +--+ more arrives: doubled    +---- another: no allocation
//! ```
//! A client that has sent one large argument will soon send another, so the room stays for a while. Its
//! memory is never more than twice what has arrived, and 64 KB: an announced length takes none, it only ends
//! the doubling. Where 1 MB of an argument has come there is room for all of it, so that it is read to where
//! it stays: the kernel gives memory as it arrives, and what was never written to is not counted
//! (`Untouched`). The command that it is for may store it as it lies (`lending`).
//!
//! | room                 | how much                                                                       |
//! |----------------------|--------------------------------------------------------------------------------|
//! | at first             | 16 KB                                                                          |
//! | while more arrives   | the next power of two, at least 64 KB, and no more than the request            |
//! | behind 1 MB          | the whole argument that has begun, if the kernel gives addresses for it        |
//! | kept when it is empty| to 1 MB behind a large argument, else to 32 KB                                 |
//! | idle for two seconds | what lies there, so mostly none                                                |
//! | busy, with less      | what the fullest moment needed, once that was less than half                   |
//!
//! Idle is reported in whole seconds by CLIENT LIST, and so it is here.

use isotherm_allocator::{Untouched, class_bytes, shrink};
use isotherm_keyspace::UnixMs;
use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use super::connection::{Connection, Listed, Sends};
use super::{Due, Inner};
use isotherm_runtime::time::unix_now;

const ROOM_BYTES_MIN: usize = 16 << 10;
// COMPAT(protocol): The query buffer of a large request grows with the bytes that arrive, to at most twice as
// many and at least 64 KB. Behind 1 MB it has room for the announced length, of which only what has arrived
// counts as memory (`used_memory`, `tot-mem`, `maxmemory-clients`); Valkey counts the announced length at
// once, up to 512 MB. At most 1 MB is kept for the next request. Why: an announced length costs a client
// nothing, so it must not cost memory.
const GROWN_BYTES_MIN: usize = 64 << 10;
/// Bytes that a step adds at least.
const STEP_BYTES_MIN: usize = 16 << 10;
/// A room of more is given back at once when it is empty.
const EMPTY_BYTES_MAX: usize = 1 << 20;
/// Room that a busy connection keeps.
const BUSY_BYTES_MIN: usize = 32 << 10;
/// Bytes of an argument that have come before there is room for all of it.
const ARRIVED_BYTES_MIN: usize = 1 << 20;
/// Room after a large argument: for its end, and for short arguments that follow it.
const BEHIND_BYTES: usize = 4 << 10;
/// Bytes of the pages in which the kernel gives memory.
const KERNEL_PAGE_BYTES: usize = 4 << 10;
/// Less is not worth a smaller allocation.
const WASTE_BYTES_MIN: usize = 4 << 10;
const IDLE_SECONDS: i64 = 2;
/// Interval of the looks at connections that have such bytes, or have left much unread for some time.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The bytes that a connection's requests are read into, and how much of their memory was never written to.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    untouched: Untouched,
}

impl Deref for Input {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.bytes
    }
}

impl DerefMut for Input {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }
}

impl From<Vec<u8>> for Input {
    fn from(bytes: Vec<u8>) -> Input {
        Input { bytes, untouched: Untouched::default() }
    }
}

impl Input {
    pub fn of_parts(bytes: Vec<u8>, untouched: Untouched) -> Input {
        Input { bytes, untouched }
    }

    pub fn into_parts(self) -> (Vec<u8>, Untouched) {
        (self.bytes, self.untouched)
    }

    /// Bytes that it takes.
    #[inline]
    pub fn memory_bytes(&self) -> usize {
        class_bytes(self.bytes.capacity()) - self.untouched.bytes()
    }

    /// Returns whether it has room for bytes that were announced and have not come.
    fn is_announced(&self) -> bool {
        self.untouched.bytes() > 0
    }

    /// Makes room for `bytes` more, which takes memory only as they come. Returns whether the kernel has
    /// given it.
    fn announce(&mut self, bytes: usize) -> bool {
        let touched = self.bytes.capacity();
        if self.bytes.try_reserve_exact(bytes).is_err() {
            return false;
        }
        let whole = class_bytes(self.bytes.capacity());
        self.untouched.set(whole - touched.next_multiple_of(KERNEL_PAGE_BYTES).min(whole));
        true
    }

    /// Gives back the room after the bytes, if there is memory for a smaller block.
    pub fn give_back_slack(&mut self) {
        if shrink(&mut self.bytes, 0) {
            self.untouched.set(0);
        }
    }

    /// Takes off the first bytes, which are done with. The rest does not wait for more of them.
    pub fn finish(&mut self, done: usize) {
        if done > 0 {
            self.bytes.drain(..done);
            self.untouched.set(0);
        }
    }

    /// More bytes have come.
    pub fn note_arrived(&mut self) {
        if self.is_announced() {
            let whole = class_bytes(self.bytes.capacity());
            let left = whole - self.bytes.len().next_multiple_of(KERNEL_PAGE_BYTES).min(whole);
            self.untouched.set(self.untouched.bytes().min(left));
        }
    }
}

impl Connection {
    /// Bytes of an unfinished or unrun request, in the place of what lay here.
    #[inline]
    pub fn keep(&mut self, bytes: &[u8]) {
        self.input.clear();
        if !bytes.is_empty() {
            self.input.reserve_exact(bytes.len().max(ROOM_BYTES_MIN));
            self.input.extend_from_slice(bytes);
            self.input_peak = self.input_peak.max(bytes.len());
        }
    }

    /// Makes room for more of a request that still wants at least `wanted_bytes`; `usize::MAX` if that is
    /// unknown. How much was asked for is reported if there is no memory for it.
    pub fn make_room(&mut self, wanted_bytes: usize) -> Result<(), (usize, TryReserveError)> {
        let kept = self.input.len();
        if (STEP_BYTES_MIN..usize::MAX).contains(&wanted_bytes) {
            self.sends = Sends::Large;
        }
        let is_known = (STEP_BYTES_MIN..usize::MAX - BEHIND_BYTES).contains(&wanted_bytes);
        if is_known && kept >= ARRIVED_BYTES_MIN && self.input.announce(wanted_bytes + BEHIND_BYTES) {
            return Ok(());
        }
        // For a large request all of it is asked for: the last step goes to the end, so that requests of one
        // length take the same.
        let is_last = (STEP_BYTES_MIN..=kept + GROWN_BYTES_MIN).contains(&wanted_bytes);
        let doubled = (kept + STEP_BYTES_MIN).next_power_of_two().max(GROWN_BYTES_MIN);
        let more = if is_last { wanted_bytes } else { doubled - kept };
        self.input.try_reserve_exact(more).map_err(|error| (more, error))
    }

    /// Gives back the memory of requests that were run, except room that is of use.
    pub fn give_back_room(&mut self) {
        self.input_peak = self.input_peak.max(self.input.len());
        let kept_max = if self.sends == Sends::Large { EMPTY_BYTES_MAX } else { BUSY_BYTES_MIN };
        if self.input.is_empty() && !(ROOM_BYTES_MIN..=kept_max).contains(&self.input.capacity()) {
            self.input = Input::default();
        }
        if self.sends == Sends::Large && self.input.is_empty() {
            self.sends = Sends::Much;
        }
    }

    /// Gives back what is of no use any more. Whether there may be more of that later.
    fn trim(&mut self, now: UnixMs) -> bool {
        let capacity = self.input.capacity();
        let idle_seconds = self.session.shared.seen.idle_seconds(now);
        if self.has_room_to_give_back() {
            if idle_seconds > IDLE_SECONDS {
                shrink(&mut self.input, 0);
            } else if capacity > BUSY_BYTES_MIN && capacity / 2 > self.input_peak {
                shrink(&mut self.input, self.input_peak.max(ROOM_BYTES_MIN));
            }
        }
        self.input_peak = self.input.len();
        self.has_room_to_give_back()
    }

    /// Returns whether `trim` may give something back: any room that is empty, and much of one that is not.
    fn has_room_to_give_back(&self) -> bool {
        let free = self.input.capacity() - self.input.len();
        !self.input.is_announced() && free > if self.input.is_empty() { 0 } else { WASTE_BYTES_MIN }
    }
}

impl Inner {
    /// A connection that has bytes of its own is looked at from now on.
    #[inline]
    pub fn note_room(&mut self, connection: &mut Connection) {
        if connection.input.capacity() > 0 {
            self.attend_closely(connection);
        }
    }

    pub fn attend_closely(&mut self, connection: &mut Connection) {
        if connection.listed.add(Listed::OFTEN) {
            if self.close.is_empty() {
                self.timers.add(Instant::now() + LOOK_INTERVAL, Due::CloseLook);
            }
            self.close.push(connection.token());
        }
    }

    /// Gives back rooms, and closes connections that have left too much unread for too long.
    pub fn look_closely(&mut self) {
        if self.node.debug.cron_paused.is_on() {
            return self.timers.add(Instant::now() + LOOK_INTERVAL, Due::CloseLook);
        }
        let now = unix_now();
        let mut tokens = std::mem::take(&mut self.close);
        // A token that belongs to another connection by now may be there twice.
        tokens.sort_unstable();
        tokens.dedup();
        for token in tokens {
            let Some(mut connection) = self.connections[token].take() else { continue };
            if connection.listed.remove(Listed::OFTEN) {
                if connection.trim(now) {
                    self.attend_closely(&mut connection);
                }
                self.check_output(&mut connection);
                connection.account(self.node);
            }
            self.settle(connection, token);
        }
    }
}
