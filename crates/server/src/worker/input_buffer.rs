//! The bytes of a connection's own that requests are read into, and what becomes of the room when they are
//! run.
//!
//! ```text
//! none ---- a request is cut off ----> room ---- it is run ----> empty room ---- two idle seconds ----> none
//!                                      |  ^                          |
//!                                      +--+ more arrives: doubled    +---- another: no allocation
//! ```
//! A client that has sent one large argument will soon send another, so the room stays for a while. It is
//! never more than twice what has arrived, and 64 KB: an announced length takes no memory, it only ends the
//! doubling.
//!
//! | room                 | how much                                                                       |
//! |----------------------|--------------------------------------------------------------------------------|
//! | at first             | 16 KB                                                                          |
//! | while more arrives   | the next power of two, at least 64 KB, and no more than the request            |
//! | kept when it is empty| to 1 MB behind a large argument, else to 32 KB                                 |
//! | idle for two seconds | what lies there, so mostly none                                                |
//! | busy, with less      | what the fullest moment needed, once that was less than half                   |
//!
//! Idle is reported in whole seconds by CLIENT LIST, and so it is here.

use isotherm_keyspace::UnixMs;
use std::collections::TryReserveError;
use std::time::{Duration, Instant};

use super::connection::{Connection, Listed, Sends};
use super::{Due, Inner};
use crate::node::unix_now;

const ROOM_BYTES_MIN: usize = 16 << 10;
// COMPAT(protocol): The query buffer of a large request grows with the bytes that arrive, to at most twice as
// many and at least 64 KB; Valkey allocates the announced length at once, up to 512 MB. At most 1 MB of it is
// kept for the next request. Why: an announced length costs a client nothing, so it must not cost memory.
const GROWN_BYTES_MIN: usize = 64 << 10;
/// And a step adds so much.
const STEP_BYTES_MIN: usize = 16 << 10;
/// A room of more is given back at once when it is empty.
const EMPTY_BYTES_MAX: usize = 1 << 20;
/// A busy connection keeps so much.
const BUSY_BYTES_MIN: usize = 32 << 10;
/// Less is not worth a smaller allocation.
const WASTE_BYTES_MIN: usize = 4 << 10;
const IDLE_SECONDS: i64 = 2;
/// How often connections are looked at that have such bytes, or have left much unread for some time.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

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

    /// Makes room for more of a request that still wants so many bytes at least; `usize::MAX` if that is
    /// unknown. How much was asked for is reported if there is no memory for it.
    pub fn make_room(&mut self, wanted_bytes: usize) -> Result<(), (usize, TryReserveError)> {
        let kept = self.input.len();
        if (STEP_BYTES_MIN..usize::MAX).contains(&wanted_bytes) {
            self.sends = Sends::Large;
        }
        // For a large request all of it is asked for: the last step goes to the end, so that requests of one
        // length take the same.
        let is_last = (STEP_BYTES_MIN..=kept + GROWN_BYTES_MIN).contains(&wanted_bytes);
        let doubled = (kept + STEP_BYTES_MIN).next_power_of_two().max(GROWN_BYTES_MIN);
        let more = if is_last { wanted_bytes } else { doubled - kept };
        self.input.try_reserve_exact(more).map_err(|error| (more, error))
    }

    /// What was run leaves nothing behind but room, if that is of use.
    pub fn give_back_room(&mut self) {
        self.input_peak = self.input_peak.max(self.input.len());
        let kept_max = if self.sends == Sends::Large { EMPTY_BYTES_MAX } else { BUSY_BYTES_MIN };
        if self.input.is_empty() && !(ROOM_BYTES_MIN..=kept_max).contains(&self.input.capacity()) {
            self.input = Vec::new();
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
                self.input.shrink_to_fit();
            } else if capacity > BUSY_BYTES_MIN && capacity / 2 > self.input_peak {
                self.input.shrink_to(self.input_peak.max(ROOM_BYTES_MIN));
            }
        }
        self.input_peak = self.input.len();
        self.has_room_to_give_back()
    }

    /// Returns whether `trim` may give something back: any room that is empty, and much of one that is not.
    fn has_room_to_give_back(&self) -> bool {
        let free = self.input.capacity() - self.input.len();
        free > if self.input.is_empty() { 0 } else { WASTE_BYTES_MIN }
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

    /// Gives back rooms, and closes who has left too much unread for too long.
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
