//! The bytes of one link: what came and is no whole message yet, and what waits to be sent.
//!
//! Messages that keep the cluster together pass those that clients publish: a subscriber that is slow elsewhere delays no PONG.

use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

/// The number of a message's type, and its bit for a short header: offset 12 of any message.
const TYPE_AT: usize = 12;
const LIGHT: u8 = 0x80;
const PUBLISH: [u16; 3] = [4, 9, 10];

pub struct BusConnection {
    stream: Stream,
    is_connecting: bool,
    pub is_writable: bool,
    /// The beginning of a message.
    input: Vec<u8>,
    control: VecDeque<Arc<[u8]>>,
    published: VecDeque<Arc<[u8]>>,
    /// Being sent, and how much of it is.
    current: Option<(Arc<[u8]>, usize)>,
    pub queued_bytes: usize,
}

pub enum Incoming {
    /// What was kept, and what came now.
    Bytes(Vec<u8>),
    Nothing,
    Ended,
}

impl BusConnection {
    pub fn begun(stream: Stream) -> BusConnection {
        BusConnection::new(stream, true)
    }

    pub fn accepted(stream: Stream) -> BusConnection {
        BusConnection::new(stream, false)
    }

    fn new(stream: Stream, is_connecting: bool) -> BusConnection {
        BusConnection {
            stream,
            is_connecting,
            is_writable: !is_connecting,
            input: Vec::new(),
            control: VecDeque::new(),
            published: VecDeque::new(),
            current: None,
            queued_bytes: 0,
        }
    }

    pub fn is_connecting(&self) -> bool {
        self.is_connecting
    }

    /// The connection stands: which address of this machine it is from.
    pub fn complete(&mut self) -> io::Result<String> {
        self.stream.take_error()?;
        self.stream.prepare(None)?;
        let (_, local) = self.stream.addresses().ok_or(io::ErrorKind::NotConnected)?;
        self.is_connecting = false;
        Ok(local.ip().to_canonical().to_string())
    }

    pub fn read(&mut self, buffer: &mut [u8]) -> Incoming {
        match self.stream.read(buffer) {
            Progress::Bytes(count) => {
                let mut bytes = std::mem::take(&mut self.input);
                bytes.extend_from_slice(&buffer[..count]);
                Incoming::Bytes(bytes)
            }
            Progress::Later => Incoming::Nothing,
            Progress::Ended | Progress::Broken(_) => Incoming::Ended,
        }
    }

    /// What stands behind `from` is no whole message yet. One that comes in many reads is not copied with each.
    pub fn keep(&mut self, mut bytes: Vec<u8>, from: usize) {
        bytes.drain(..from);
        if bytes.is_empty() {
            bytes = Vec::new();
        }
        self.input = bytes;
    }

    pub fn queue(&mut self, bytes: Arc<[u8]>) {
        self.queued_bytes += bytes.len();
        if is_published(&bytes) { self.published.push_back(bytes) } else { self.control.push_back(bytes) }
    }

    /// Sends what the socket takes. Whether the connection is still of use.
    pub fn flush(&mut self) -> bool {
        while self.is_writable && !self.is_connecting {
            let next =
                || self.control.pop_front().or_else(|| self.published.pop_front()).map(|bytes| (bytes, 0));
            let Some((bytes, sent)) = self.current.take().or_else(next) else { return true };
            match self.stream.write(&bytes[sent..]) {
                Progress::Bytes(count) if sent + count < bytes.len() => {
                    self.current = Some((bytes, sent + count))
                }
                Progress::Bytes(_) => self.queued_bytes -= bytes.len(),
                Progress::Later => {
                    self.current = Some((bytes, sent));
                    self.is_writable = false;
                }
                Progress::Ended | Progress::Broken(_) => return false,
            }
        }
        true
    }

    /// Of its queues, as CLUSTER LINKS has it.
    pub fn queue_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// What is allocated for it.
    pub fn memory_bytes(&self) -> usize {
        size_of::<BusConnection>() + self.input.capacity() + self.queued_bytes
    }
}

fn is_published(bytes: &[u8]) -> bool {
    let kind = u16::from_be_bytes([bytes[TYPE_AT] & !LIGHT, bytes[TYPE_AT + 1]]);
    PUBLISH.contains(&kind)
}
