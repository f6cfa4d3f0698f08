//! Ports for servers that tests and measurements start side by side.
//!
//! The system gives out ports from 32,768 on by itself (`ip_local_port_range`), to listeners on port 0 and to
//! clients that connect: a port of that range which was free a moment ago may be the local end of a
//! connection by the time a server binds it. So the ports here lie below:
//!
//! ```text
//!   11,000          21,000          31,000   32,768          60,999
//!     | ports given   | + 10,000:     |        | the system's range |
//!     | out           | cluster bus   |        |
//! ```

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use crate::Fallible;

const PORTS: Range<u16> = 11_000..21_000;
/// Distance from a cluster node's port to the port on which it listens for other nodes, when no other is
/// configured.
const BUS_OFFSET: u16 = 10_000;
/// Below the range from which the system takes ports.
const _: () = assert!(PORTS.end + BUS_OFFSET <= 32_768);
/// A port that is free now, and so is the one of its cluster bus. Each is given out once by a process: what
/// connects to it before its server listens must not meet another server. Of two processes each begins
/// elsewhere, as nothing keeps a port for the one that has found it.
pub fn free_port() -> Fallible<u16> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let count = u32::from(PORTS.end - PORTS.start);
    let first = RandomState::new().hash_one(given.len()) as u32 % count;
    for step in 0..count {
        let port = PORTS.start + ((first + step) % count) as u16;
        if !given.contains(&port) && has_both(port) {
            given.insert(port);
            return Ok(port);
        }
    }
    Err(format!("no free port from {} to {}", PORTS.start, PORTS.end - 1))
}

fn has_both(port: u16) -> bool {
    [port, port + BUS_OFFSET].into_iter().all(|port| TcpListener::bind(("127.0.0.1", port)).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_out_once() {
        let ports: Vec<u16> = (0..50).map(|_| free_port().unwrap()).collect();
        assert!(ports.iter().all(|port| PORTS.contains(port)));
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
    }

    #[test]
    fn a_port_whose_bus_is_taken_is_not_free() {
        let port = free_port().unwrap();
        assert!(has_both(port));
        let _bus = TcpListener::bind(("127.0.0.1", port + BUS_OFFSET)).unwrap();
        assert!(!has_both(port));
    }
}
