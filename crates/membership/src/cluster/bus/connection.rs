//! The bytes of one link: what came and is no whole message yet, and what waits to be sent.
//!
//! Messages that keep the cluster together pass those that clients publish: a subscriber that is slow
//! elsewhere delays no PONG.

use isotherm_reactor::Stream;
use isotherm_reactor::stream::Progress;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use isotherm_runtime::log;

/// The number of a message's type, and its bit for a short header: offset 12 of any message.
const TYPE_AT: usize = 12;
const LIGHT: u8 = 0x80;
const PUBLISH: [u16; 3] = [4, 9, 10];
/// Reads of one handshake, which takes two or three.
const SHAKES_MAX: usize = 32;

pub struct BusConnection {
    stream: Stream,
    stage: Stage,
    pub is_writable: bool,
    /// The beginning of a message.
    input: Vec<u8>,
    /// Most links are idle most of the time, and have none.
    queue: Option<Box<Queue>>,
}

/// Messages that wait to be sent.
#[derive(Default)]
struct Queue {
    control: VecDeque<Arc<[u8]>>,
    published: VecDeque<Arc<[u8]>>,
    /// Being sent, and how much of it is.
    current: Option<(Arc<[u8]>, usize)>,
    bytes: usize,
}

/// Before messages come and go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Connecting,
    /// The handshake of TLS, of a connection that this node has begun or not.
    Shaking {
        is_ours: bool,
    },
    Ready,
}

/// Progress of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shaken {
    Not,
    /// No handshake is left: there was none, or it is over already.
    Ready,
    /// The handshake has ended now, on a connection that this node has begun or not.
    Now {
        is_ours: bool,
    },
    Failed,
}

pub enum Incoming {
    /// Bytes that were kept and bytes that came now; and whether that was all there is for now.
    Bytes(Vec<u8>, bool),
    Nothing,
    Ended,
}

impl BusConnection {
    pub fn begun(stream: Stream) -> BusConnection {
        BusConnection::new(stream, Stage::Connecting)
    }

    pub fn accepted(stream: Stream) -> BusConnection {
        let stage = if stream.is_handshaking() { Stage::Shaking { is_ours: false } } else { Stage::Ready };
        BusConnection::new(stream, stage)
    }

    fn new(stream: Stream, stage: Stage) -> BusConnection {
        BusConnection {
            stream,
            stage,
            is_writable: stage != Stage::Connecting,
            input: Vec::new(),
            queue: None,
        }
    }

    pub fn is_connecting(&self) -> bool {
        self.stage == Stage::Connecting
    }

    /// The connection stands. Whether messages can come now, without a handshake.
    pub fn complete(&mut self) -> io::Result<bool> {
        self.stream.take_error()?;
        self.stream.prepare(None)?;
        self.stage =
            if self.stream.is_handshaking() { Stage::Shaking { is_ours: true } } else { Stage::Ready };
        Ok(self.stage == Stage::Ready)
    }

    /// Returns the address of this machine that the connection is from.
    pub fn local_ip(&self) -> Option<String> {
        self.stream.addresses().map(|(_, local)| local.ip().to_canonical().to_string())
    }

    /// Goes on with the handshake, as far as that goes now.
    pub fn shake_hands(&mut self) -> Shaken {
        let Stage::Shaking { is_ours } = self.stage else { return Shaken::Ready };
        let Some(tls) = self.stream.tls() else { return Shaken::Ready };
        for _ in 0..SHAKES_MAX {
            match tls.shake_hands() {
                Progress::Bytes(_) => {
                    self.stage = Stage::Ready;
                    self.is_writable = true;
                    return Shaken::Now { is_ours };
                }
                Progress::Later if tls.is_drained() => return Shaken::Not,
                Progress::Later => {}
                Progress::Ended | Progress::Broken(_) => {
                    if let Some(failed) = tls.take_failed() {
                        log::verbose(format!("Error in the TLS handshake with a cluster node: {failed}"));
                    }
                    return Shaken::Failed;
                }
            }
        }
        Shaken::Failed
    }

    /// Returns whether nothing more can be read without a further event.
    pub fn is_drained(&self) -> bool {
        self.stream.is_drained(0, 1)
    }

    /// Less than the buffer takes is all there is. That it has ended is an event of its own.
    pub fn read(&mut self, buffer: &mut [u8]) -> Incoming {
        match self.stream.read(buffer) {
            Progress::Bytes(count) => {
                let mut bytes = std::mem::take(&mut self.input);
                bytes.extend_from_slice(&buffer[..count]);
                Incoming::Bytes(bytes, self.stream.is_drained(count, buffer.len()))
            }
            Progress::Later => Incoming::Nothing,
            Progress::Ended | Progress::Broken(_) => Incoming::Ended,
        }
    }

    /// Keeps the bytes from `from` on, which are no whole message yet. A message that comes in many reads is
    /// not copied with each.
    pub fn keep(&mut self, mut bytes: Vec<u8>, from: usize) {
        bytes.drain(..from);
        if bytes.is_empty() {
            bytes = Vec::new();
        }
        self.input = bytes;
    }

    pub fn queue(&mut self, bytes: Arc<[u8]>) {
        self.queue.get_or_insert_default().add(bytes);
    }

    /// Sends what the socket takes. Whether the connection is still of use.
    pub fn flush(&mut self) -> bool {
        while self.is_writable && self.stage == Stage::Ready {
            let Some((bytes, sent)) = self.queue.as_mut().and_then(|queue| queue.next()) else {
                self.queue = None;
                return true;
            };
            let queue = self.queue.as_mut().expect("it had a message");
            match self.stream.write(&bytes[sent..]) {
                Progress::Bytes(count) if sent + count < bytes.len() => {
                    queue.current = Some((bytes, sent + count))
                }
                Progress::Bytes(_) => queue.bytes -= bytes.len(),
                Progress::Later => {
                    queue.current = Some((bytes, sent));
                    self.is_writable = false;
                }
                Progress::Ended | Progress::Broken(_) => return false,
            }
        }
        true
    }

    /// Returns the bytes of messages that wait to be sent.
    pub fn queued_bytes(&self) -> usize {
        self.queue.as_ref().map_or(0, |queue| queue.bytes)
    }

    /// Returns the memory that is allocated for the connection.
    pub fn memory_bytes(&self) -> usize {
        let queue = self.queue.as_ref().map_or(0, |queue| size_of::<Queue>() + queue.bytes);
        size_of::<BusConnection>() + self.input.capacity() + queue
    }
}

impl Queue {
    fn add(&mut self, bytes: Arc<[u8]>) {
        self.bytes += bytes.len();
        if is_published(&bytes) { self.published.push_back(bytes) } else { self.control.push_back(bytes) }
    }

    /// The one that is to be sent now, from where.
    fn next(&mut self) -> Option<(Arc<[u8]>, usize)> {
        let Queue { control, published, current, .. } = self;
        let whole = || control.pop_front().or_else(|| published.pop_front()).map(|bytes| (bytes, 0));
        current.take().or_else(whole)
    }
}

fn is_published(bytes: &[u8]) -> bool {
    let kind = u16::from_be_bytes([bytes[TYPE_AT] & !LIGHT, bytes[TYPE_AT + 1]]);
    PUBLISH.contains(&kind)
}
