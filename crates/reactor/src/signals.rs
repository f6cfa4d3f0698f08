//! Signals as bytes in a pipe: the loop reads them like everything else.
//!
//! SIGHUP means nothing to a server: a terminal was closed, a log was rotated. Nor do SIGALRM and SIGUSR2,
//! which Valkey survives. Their default would end the process, and with it everything that lies in memory.
//! Beyond a limit on the size of files (`ulimit -f`) a write raises SIGXFSZ, and fails where that has a
//! handler. SIGPIPE is ignored by the standard library.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGALRM, SIGHUP, SIGINT, SIGTERM, SIGUSR2, SIGXFSZ};

/// The signals that ask the process to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Terminate,
    Interrupt,
}

/// Pipes, one for each signal: the bytes themselves have no meaning.
pub struct Signals {
    terminate: UnixStream,
    interrupt: UnixStream,
}

/// Set since a signal has arrived, until the end that it asks for is called off.
static HAS_ARRIVED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Returns whether the process was asked to end: for whatever holds up the thread that is to act on it.
pub fn has_arrived() -> bool {
    HAS_ARRIVED.load(Relaxed)
}

/// The end was called off, or refused.
pub fn forget() {
    HAS_ARRIVED.store(false, Relaxed);
}

impl Signals {
    pub fn install() -> io::Result<Signals> {
        for signal in [SIGTERM, SIGINT] {
            signal_hook::flag::register(signal, Arc::clone(&HAS_ARRIVED))?;
        }
        Ok(Signals { terminate: pipe_for(SIGTERM)?, interrupt: pipe_for(SIGINT)? })
    }

    pub fn sources(&self) -> [BorrowedFd<'_>; 2] {
        [self.terminate.as_fd(), self.interrupt.as_fd()]
    }

    /// The signal that has arrived since the last call, if any.
    pub fn take(&self) -> Option<Ending> {
        let mut bytes = [0; 64];
        let mut arrived = |mut pipe: &UnixStream| matches!(pipe.read(&mut bytes), Ok(count) if count > 0);
        if arrived(&self.terminate) {
            Some(Ending::Terminate)
        } else {
            arrived(&self.interrupt).then_some(Ending::Interrupt)
        }
    }
}

/// Lets signals that ask for nothing have no effect on this process, from here on. Each has a handler that
/// raises a flag which is never read: to ignore a signal outright would need `unsafe`.
pub fn ignore_others() -> io::Result<()> {
    [SIGHUP, SIGALRM, SIGUSR2, SIGXFSZ].into_iter().try_for_each(|signal| {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false))).map(drop)
    })
}

fn pipe_for(signal: i32) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal, write)?;
    Ok(read)
}
