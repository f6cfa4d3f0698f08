//! Sockets whose hang-up any thread may ask about, before the thread that reads them has heard of it.
//!
//! ```text
//!   thread 0     watches a socket once, in its set
//!   thread 1     asks the set of thread 0: has this one hung up?       a system call of some 0.1 us
//! ```
//! No thread waits for these sets, and asking takes nothing from them: what has hung up is reported until
//! it is closed.

use rustix::event::{Timespec, epoll};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// Events taken from the kernel at once, 12 B each.
const EVENTS_PER_LOOK: usize = 64;
/// Looks for one socket: of more than 1,024 that have hung up, and are not closed yet, some may be
/// overlooked.
const LOOKS_MAX: usize = 16;

/// A set for each thread that owns sockets, made with its first one.
#[derive(Debug)]
pub struct Hangups {
    sets: Box<[OnceLock<Option<OwnedFd>>]>,
}

impl Hangups {
    pub fn new(threads: usize) -> Hangups {
        Hangups { sets: (0..threads).map(|_| OnceLock::new()).collect() }
    }

    /// Watches a socket of this thread, under a number that no other has, until it is closed. Where the
    /// system refuses that, its end is noticed by its own thread alone.
    pub fn watch(&self, thread: usize, socket: BorrowedFd<'_>, number: u64) {
        let set = self.sets[thread].get_or_init(|| epoll::create(epoll::CreateFlags::CLOEXEC).ok());
        if let Some(set) = set {
            let _ = epoll::add(set, socket, epoll::EventData::new_u64(number), epoll::EventFlags::RDHUP);
        }
    }

    /// Returns whether the peer of a socket that this thread watches is known to send no more. It never
    /// waits.
    pub fn has(&self, thread: usize, number: u64) -> bool {
        let Some(Some(set)) = self.sets[thread].get() else { return false };
        // Sockets that were reported stand behind all others the next time.
        for _ in 0..LOOKS_MAX {
            let Ok((count, is_there)) = look(set, number) else { return false };
            if is_there || count < EVENTS_PER_LOOK {
                return is_there;
            }
        }
        false
    }
}

/// Returns how many sockets were reported, and whether this one was among them.
fn look(set: &OwnedFd, number: u64) -> io::Result<(usize, bool)> {
    let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
    let mut events = [none; EVENTS_PER_LOOK];
    let count = epoll::wait(set, &mut events[..], Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
    Ok((count, events[..count].iter().any(|event| { event.data }.u64() == number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn who_has_hung_up_is_reported_until_it_is_closed() {
        let hangups = Hangups::new(2);
        assert!(!hangups.has(0, 7), "no set yet");
        let (near, far) = UnixStream::pair().unwrap();
        hangups.watch(0, near.as_fd(), 7);
        assert!(!hangups.has(0, 7) && !hangups.has(1, 7));
        drop(far);
        assert!(hangups.has(0, 7) && hangups.has(0, 7) && !hangups.has(0, 8));
        // However many have, also before they are watched.
        let gone: Vec<UnixStream> = (0..200).map(|_| UnixStream::pair().unwrap().0).collect();
        gone.iter().zip(100..).for_each(|(near, number)| hangups.watch(0, near.as_fd(), number));
        assert!((100..300).chain([7]).all(|number| hangups.has(0, number)));
        assert!(!hangups.has(0, 300));
        drop((near, gone));
        assert!(!hangups.has(0, 7) && !hangups.has(0, 100));
    }
}
