//! A way to a primary that lets a replica read a limited number of bytes a second, until the brake is taken
//! off.
//!
//! ```text
//!   replica --------- as it comes --------> primary
//!   replica <--- 5 MB/s, then freely ------ primary
//! ```
//! Bytes are paced by the time since the connection was made: what is due at a rate has left by then, not
//! before.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::Fallible;

/// At 5 MB/s some 3 ms of bytes.
const PIECE_BYTES: usize = 16 << 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

struct Shared {
    primary_port: u16,
    bytes_per_second: u64,
    is_on: AtomicBool,
    ends: AtomicBool,
    /// Both ends of each connection, so that they can be closed.
    streams: Mutex<Vec<TcpStream>>,
}

pub struct Brake {
    pub port: u16,
    shared: Arc<Shared>,
    acceptor: Option<thread::JoinHandle<()>>,
}

impl Brake {
    /// On, until `take_off`.
    pub fn start(primary_port: u16, bytes_per_second: u64) -> Fallible<Brake> {
        let named = |why: std::io::Error| format!("the brake: {why}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(named)?;
        listener.set_nonblocking(true).map_err(named)?;
        let port = listener.local_addr().map_err(named)?.port();
        let shared = Arc::new(Shared {
            primary_port,
            bytes_per_second,
            is_on: AtomicBool::new(true),
            ends: AtomicBool::new(false),
            streams: Mutex::default(),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = Some(thread::spawn(move || accept(&listener, &for_acceptor)));
        Ok(Brake { port, shared, acceptor })
    }

    pub fn take_off(&self) {
        self.shared.is_on.store(false, Relaxed);
    }
}

impl Drop for Brake {
    fn drop(&mut self) {
        self.shared.ends.store(true, Relaxed);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
        for stream in self.shared.streams.lock().iter().flat_map(|streams| streams.iter()) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while !shared.ends.load(Relaxed) {
        // A connection that cannot be made is closed, and tried again by the replica.
        match listener.accept() {
            Ok((replica, _)) => drop(connect(replica, shared)),
            Err(_) => thread::sleep(BETWEEN_LOOKS),
        }
    }
}

fn connect(replica: TcpStream, shared: &Arc<Shared>) -> std::io::Result<()> {
    replica.set_nonblocking(false)?;
    let primary = TcpStream::connect(("127.0.0.1", shared.primary_port))?;
    primary.set_nodelay(true)?;
    replica.set_nodelay(true)?;
    if let Ok(mut streams) = shared.streams.lock() {
        streams.extend([replica.try_clone()?, primary.try_clone()?]);
    }
    let (asks, asked) = (replica.try_clone()?, primary.try_clone()?);
    thread::spawn(move || carry(asks, asked, None));
    let shared = Arc::clone(shared);
    thread::spawn(move || carry(primary, replica, Some(&shared)));
    Ok(())
}

/// Until one of the two ends; then both do.
fn carry(mut from: TcpStream, mut to: TcpStream, brake: Option<&Shared>) {
    let (begun, mut carried) = (Instant::now(), 0u64);
    let mut piece = [0; PIECE_BYTES];
    loop {
        let bytes = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(why) if why.kind() == ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        carried += bytes as u64;
        if let Some(brake) = brake {
            brake.wait(begun, carried);
        }
        if to.write_all(&piece[..bytes]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

impl Shared {
    /// Waits until `carried` bytes may have left, or the brake is off.
    fn wait(&self, begun: Instant, carried: u64) {
        let due = due_after(carried, self.bytes_per_second);
        while self.is_on.load(Relaxed) && !self.ends.load(Relaxed) && begun.elapsed() < due {
            thread::sleep(BETWEEN_LOOKS);
        }
    }
}

/// Returns the time after which the last of `bytes` bytes may leave.
fn due_after(bytes: u64, per_second: u64) -> Duration {
    Duration::from_secs_f64(bytes as f64 / per_second as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_carried_is_late_by_its_rate_until_the_brake_is_off() {
        assert_eq!(due_after(5_000_000, 5_000_000), Duration::from_secs(1));
        assert_eq!(due_after(0, 5_000_000), Duration::ZERO);
        let primary = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        // At a byte a second nothing of this would arrive before the test is given up.
        let brake = Brake::start(primary.local_addr().unwrap().port(), 1).unwrap();
        let mut replica = TcpStream::connect(("127.0.0.1", brake.port)).unwrap();
        replica.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let (mut accepted, _) = primary.accept().unwrap();
        replica.write_all(b"PSYNC").unwrap();
        let mut asked = [0; 5];
        accepted.read_exact(&mut asked).unwrap();
        assert_eq!(&asked, b"PSYNC");
        let sent = vec![7; 100_000];
        accepted.write_all(&sent).unwrap();
        brake.take_off();
        let mut got = vec![0; sent.len()];
        replica.read_exact(&mut got).unwrap();
        assert_eq!(got, sent);
        drop(accepted);
        assert_eq!(replica.read(&mut got).unwrap_or(0), 0, "the end of one side ends the other");
    }
}
