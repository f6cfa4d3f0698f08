//! Events that a thread waits for: an epoll set (through mio), edge-triggered.
//!
//! Edge-triggered means that a socket is reported once when bytes arrive; the reader reads on until the
//! socket has no more. A read that returns less than it had room for has emptied the socket, so the usual
//! request costs one `read`, unless the peer has closed already, which the event says.

use crate::mailbox::Mailbox;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// The number under which a socket is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Token(pub usize);

impl Token {
    /// The mailbox of the thread that waits.
    pub const MAILBOX: Token = Token(usize::MAX);
    /// Ring of the disk reads that the thread itself makes.
    pub const RING: Token = Token(usize::MAX - 1);
}

/// Event of a socket.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub token: Token,
    pub readable: bool,
    pub writable: bool,
    /// The peer sends no more, or the connection is broken: a short read is not the last one.
    pub closed: bool,
}

/// Events taken from the kernel at once.
const EVENTS_PER_WAIT_MAX: usize = 1024;

pub struct Events {
    poll: mio::Poll,
    buffer: mio::Events,
}

impl Events {
    pub fn new() -> io::Result<Events> {
        Ok(Events { poll: mio::Poll::new()?, buffer: mio::Events::with_capacity(EVENTS_PER_WAIT_MAX) })
    }

    /// A mailbox whose messages end this thread's wait.
    pub fn mailbox<T>(&self) -> io::Result<Mailbox<T>> {
        let waker = mio::Waker::new(self.poll.registry(), mio::Token(Token::MAILBOX.0))?;
        Ok(Mailbox::new(waker))
    }

    /// Reports `socket` as readable and as writable.
    pub fn watch(&self, socket: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let interest = mio::Interest::READABLE | mio::Interest::WRITABLE;
        self.poll.registry().register(
            &mut mio::unix::SourceFd(&socket.as_raw_fd()),
            mio::Token(token.0),
            interest,
        )
    }

    /// Reports `socket` as readable only (a listener, a pipe).
    pub fn watch_readable(&self, socket: BorrowedFd<'_>, token: Token) -> io::Result<()> {
        let interest = mio::Interest::READABLE;
        self.poll.registry().register(
            &mut mio::unix::SourceFd(&socket.as_raw_fd()),
            mio::Token(token.0),
            interest,
        )
    }

    pub fn forget(&self, socket: BorrowedFd<'_>) {
        // Closing the descriptor takes it out of the set as well, so nothing is lost if this fails.
        let _ = self.poll.registry().deregister(&mut mio::unix::SourceFd(&socket.as_raw_fd()));
    }

    /// Waits until something happens or `timeout` is over. A signal ends the wait early, with nothing
    /// reported.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        match self.poll.poll(&mut self.buffer, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                self.buffer.clear();
                Ok(())
            }
            other => other,
        }
    }

    /// Returns the events of the last wait.
    pub fn ready(&self) -> impl Iterator<Item = Ready> + '_ {
        self.buffer.iter().map(|event| Ready {
            token: Token(event.token().0),
            readable: event.is_readable(),
            writable: event.is_writable(),
            closed: event.is_read_closed() || event.is_error(),
        })
    }
}
