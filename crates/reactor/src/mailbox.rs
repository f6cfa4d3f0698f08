//! Mailboxes: any thread may post, one thread reads, and a message wakes it.
//!
//! Messages are rare (a new connection, a kill), so they lie in a vector behind a mutex; the reader looks at
//! one atomic to learn that there are none. Only the first message after an emptying wakes the reader: the
//! later ones are found on the way.
//!
//! Invariant: `waiting` is true whenever `messages` is not empty and no thread holds its lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

struct Shared<T> {
    waiting: AtomicBool,
    messages: Mutex<Vec<T>>,
    waker: mio::Waker,
}

/// The reader's end.
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
}

/// A writer's end.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        Sender { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Shared<T> {
    fn messages(&self) -> MutexGuard<'_, Vec<T>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Mailbox<T> {
    pub(crate) fn new(waker: mio::Waker) -> Mailbox<T> {
        let messages = Mutex::new(Vec::new());
        Mailbox { shared: Arc::new(Shared { waiting: AtomicBool::new(false), messages, waker }) }
    }

    pub fn sender(&self) -> Sender<T> {
        Sender { shared: Arc::clone(&self.shared) }
    }

    /// Returns whether there is a message to take; one load.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire)
    }

    /// Takes all messages, oldest first.
    pub fn take(&self) -> Vec<T> {
        let mut messages = self.shared.messages();
        self.shared.waiting.store(false, Ordering::Release);
        std::mem::take(&mut *messages)
    }
}

impl<T> Sender<T> {
    /// Posts a message of the reader itself, which looks before it sleeps and need not be woken.
    pub fn leave(&self, message: T) {
        self.push(message);
    }

    /// Returns whether there is a message to take.
    #[inline]
    pub fn has_messages(&self) -> bool {
        self.shared.waiting.load(Ordering::Acquire)
    }

    /// Adds a message. Returns whether it is the first since the mailbox was last emptied.
    fn push(&self, message: T) -> bool {
        let mut messages = self.shared.messages();
        messages.push(message);
        !self.shared.waiting.swap(true, Ordering::AcqRel)
    }

    pub fn post(&self, message: T) {
        if self.push(message) {
            // It can fail only if the counter behind it overflows, and then the reader is awake anyway.
            let _ = self.shared.waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::events::{Events, Token};
    use std::time::Duration;

    #[test]
    fn messages_wake_and_arrive_in_order() {
        let mut events = Events::new().unwrap();
        let mailbox = events.mailbox::<u32>().unwrap();
        assert!(!mailbox.has_messages());
        let sender = mailbox.sender();
        let thread = std::thread::spawn(move || (0..1000).for_each(|message| sender.post(message)));
        let mut got = Vec::new();
        while got.len() < 1000 {
            events.wait(Some(Duration::from_secs(5))).unwrap();
            assert!(events.ready().all(|ready| ready.token == Token::MAILBOX));
            assert!(events.ready().count() > 0, "a message wakes the reader");
            got.extend(mailbox.take());
        }
        thread.join().unwrap();
        assert_eq!(got, (0..1000).collect::<Vec<_>>());
        assert!(!mailbox.has_messages() && mailbox.take().is_empty());
    }
}
