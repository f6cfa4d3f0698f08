//! Signals as bytes in a pipe: the loop reads them like everything else.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGINT, SIGTERM};

/// The signals that ask the process to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Terminate,
    Interrupt,
}

/// One pipe a signal: the bytes themselves say nothing.
pub struct Signals {
    terminate: UnixStream,
    interrupt: UnixStream,
}

impl Signals {
    pub fn install() -> io::Result<Signals> {
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

fn pipe_for(signal: i32) -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(signal, write)?;
    Ok(read)
}
