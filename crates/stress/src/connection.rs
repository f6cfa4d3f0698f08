//! One client: requests out, replies in, looking up ten times a second whether the run continues.
//!
//! A reply that does not come within `REPLY_MAX` beyond the allowances is a fault. The watchdog is stricter:
//! it asks little and has a connection of its own on each worker; here a command may wait behind many others.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use isotherm_probe::command;
use isotherm_resp::reply_parse::{ReplyReader, Value, parse_value};

use crate::allowance::Cover;
use crate::record::{self, Record};
use crate::world::{Phase, World};

/// Why a connection is of no use any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lost {
    /// End of the connection, which may happen when it is killed.
    Closed(String),
    /// No connection could be made: the server takes none.
    Unreachable(String),
    /// A reply is missing or malformed: the fault has been noted.
    Noted,
    /// The run is over.
    Over,
}

/// Longest wait of a client before it checks the state of the run again.
pub const LOOK: Duration = Duration::from_millis(100);
pub const REPLY_MAX: Duration = Duration::from_secs(5);
const READ_BYTES: usize = 32 << 10;

pub struct Connection {
    stream: TcpStream,
    /// Read timeout that the socket has at present.
    patience: Duration,
    arrived: Vec<u8>,
    taken: usize,
    reader: ReplyReader,
    world: Arc<World>,
    record: Arc<Record>,
}

impl Connection {
    pub fn open(world: &Arc<World>, record: &Arc<Record>) -> Result<Connection, Lost> {
        let unreachable = |why: std::io::Error| Lost::Unreachable(format!("cannot connect: {why}"));
        let stream = TcpStream::connect(("127.0.0.1", world.port)).map_err(unreachable)?;
        stream.set_read_timeout(Some(LOOK)).map_err(unreachable)?;
        stream.set_write_timeout(Some(LOOK)).map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        record.note(world.begun.elapsed(), "connected".to_string());
        Ok(Connection {
            stream,
            patience: LOOK,
            arrived: Vec::new(),
            taken: 0,
            reader: ReplyReader::new(),
            world: Arc::clone(world),
            record: Arc::clone(record),
        })
    }

    // ---- sending ----

    pub fn send(&mut self, words: &[impl AsRef<[u8]>]) -> Result<(), Lost> {
        self.send_all(&[words])
    }

    /// Many requests at once.
    pub fn send_all<W: AsRef<[u8]>>(&mut self, requests: &[impl AsRef<[W]>]) -> Result<(), Lost> {
        let mut bytes = Vec::new();
        for words in requests {
            let words = words.as_ref();
            self.note(record::request(words));
            command(&mut bytes, words.iter().map(AsRef::as_ref));
        }
        self.world.requests.fetch_add(requests.len() as u64, Ordering::Relaxed);
        self.write(&bytes)
    }

    /// Bytes that need not be a whole request.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), Lost> {
        let begun = Instant::now();
        while !bytes.is_empty() {
            let looked = Instant::now();
            match self.stream.write(bytes) {
                Ok(written) => bytes = &bytes[written..],
                Err(why) if is_slow(&why) => self.look_up(begun, looked, "the server takes no bytes")?,
                Err(why) => return Err(self.closed(&why)),
            }
        }
        Ok(())
    }

    // ---- receiving ----

    /// The next reply if it comes within `time`. Zero asks for what has arrived.
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Value>, Lost> {
        let until = Instant::now() + time;
        loop {
            if let Some(value) = self.take()? {
                return Ok(Some(value));
            }
            let left = until.saturating_duration_since(Instant::now());
            let bytes = self.receive(left.min(LOOK))?;
            // Parts of a long reply prolong nothing; only what has arrived already is read to its end.
            if left.is_zero() && bytes < READ_BYTES {
                return self.take();
            }
            if self.world.phase() == Phase::GivenUp {
                return Err(Lost::Over);
            }
        }
    }

    /// The next reply, which has to come.
    pub fn next(&mut self) -> Result<Value, Lost> {
        let begun = Instant::now();
        loop {
            let looked = Instant::now();
            if let Some(value) = self.next_within(LOOK)? {
                return Ok(value);
            }
            self.look_up(begun, looked, "no reply")?;
        }
    }

    /// The next reply that is no push.
    pub fn reply(&mut self) -> Result<Value, Lost> {
        loop {
            match self.next()? {
                Value::Push(_) => {}
                value => return Ok(value),
            }
        }
    }

    pub fn replies(&mut self, count: usize) -> Result<Vec<Value>, Lost> {
        (0..count).map(|_| self.reply()).collect()
    }

    pub fn call(&mut self, words: &[impl AsRef<[u8]>]) -> Result<Value, Lost> {
        self.send(words)?;
        self.reply()
    }

    /// Returns the id of this client at the server.
    pub fn id(&mut self) -> Result<u64, Lost> {
        Ok(match self.call(&["CLIENT", "ID"])? {
            Value::Integer(id) => u64::try_from(id).unwrap_or(0),
            _ => 0,
        })
    }

    /// Sends nothing more; what was sent is still answered.
    pub fn half_close(&mut self) {
        self.note("half closed".to_string());
        // A connection that is gone already is closed as well.
        self.stream.shutdown(std::net::Shutdown::Write).ok();
    }

    // ---- inside ----

    fn take(&mut self) -> Result<Option<Value>, Lost> {
        let waiting = &self.arrived[self.taken..];
        let malformed = |reason: &str| {
            let start = record::short(waiting);
            self.world.fault(&self.record.name, format!("malformed reply: {reason}: {start}"));
            Lost::Noted
        };
        if waiting.is_empty() || self.reader.find_end(waiting).map_err(|bad| malformed(bad.reason))?.is_none()
        {
            return Ok(None);
        }
        let parsed = parse_value(waiting).map_err(|bad| malformed(bad.reason))?;
        let (value, bytes) = parsed.expect("its end has been found");
        self.taken += bytes;
        self.reader = ReplyReader::new();
        self.note(record::reply(&value));
        Ok(Some(value))
    }

    /// The number of bytes that have arrived, or do within `time`.
    fn receive(&mut self, time: Duration) -> Result<usize, Lost> {
        // The shortest wait that a socket knows.
        let time = time.max(Duration::from_millis(1));
        if self.patience != time {
            self.stream.set_read_timeout(Some(time)).map_err(|why| self.closed(&why))?;
            self.patience = time;
        }
        self.arrived.drain(..self.taken);
        self.taken = 0;
        let length = self.arrived.len();
        self.arrived.resize(length + READ_BYTES, 0);
        let read = self.stream.read(&mut self.arrived[length..]);
        self.arrived.truncate(length + *read.as_ref().unwrap_or(&0));
        // A large message has come and gone.
        if self.arrived.is_empty() && self.arrived.capacity() > 8 * READ_BYTES {
            self.arrived = Vec::new();
        }
        match read {
            Ok(0) => Err(self.closed(&"by the server")),
            Ok(bytes) => Ok(bytes),
            Err(why) if is_slow(&why) => Ok(0),
            Err(why) => Err(self.closed(&why)),
        }
    }

    /// At `looked` nothing had come for a request of `begun`: what this program itself took since then is not
    /// counted.
    fn look_up(&self, begun: Instant, looked: Instant, what: &str) -> Result<(), Lost> {
        if self.world.phase() == Phase::GivenUp {
            return Err(Lost::Over);
        }
        let waited = looked.saturating_duration_since(begun);
        let covers = Cover::EVERYTHING.or(Cover::WRITES);
        if waited > REPLY_MAX && waited > REPLY_MAX + self.world.allowance.within(covers, begun, looked) {
            let seconds = waited.as_secs_f64();
            self.world.late(&self.record.name, format!("{what} for {seconds:.1} s"));
            return Err(Lost::Noted);
        }
        Ok(())
    }

    fn closed(&self, why: &impl std::fmt::Display) -> Lost {
        self.note(format!("closed: {why}"));
        Lost::Closed(why.to_string())
    }

    /// Returns the text of the server's log.
    pub fn server_log(&self) -> String {
        std::fs::read_to_string(&self.world.server_log).unwrap_or_default()
    }

    pub fn note(&self, line: String) {
        self.record.note(self.world.begun.elapsed(), line);
    }
}

fn is_slow(why: &std::io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::plan::Plan;
    use crate::world::Severity;
    use std::net::TcpListener;
    use std::thread;

    /// A server that sends `parts`, each after a pause, whatever it is asked, and then stays silent.
    fn scripted(parts: Vec<(Duration, Vec<u8>)>) -> (Arc<World>, Connection) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for (pause, bytes) in parts {
                thread::sleep(pause);
                // The client may have left.
                let _ = stream.write_all(&bytes);
            }
            let _ = stream.read(&mut [0; 100]);
        });
        let plan = Plan::draw(1, &Options::parse(&[]).unwrap());
        let world = Arc::new(World::new(port, 0, Default::default(), Default::default(), plan));
        let record = world.record("client");
        let connection = Connection::open(&world, &record).unwrap();
        (world, connection)
    }

    #[test]
    fn a_wait_ends_in_its_time_while_parts_of_a_reply_arrive() {
        let part = (LOOK / 10, vec![b'x'; 10]);
        let head = (Duration::ZERO, b"$1000\r\n".to_vec());
        let (_, mut connection) = scripted([vec![head], vec![part; 60]].concat());
        for time in [Duration::ZERO, LOOK / 5, 2 * LOOK] {
            let begun = Instant::now();
            assert_eq!(connection.next_within(time), Ok(None));
            let took = begun.elapsed();
            assert!(took >= time && took < time + LOOK, "{time:?} took {took:?}");
        }
    }

    #[test]
    fn a_malformed_reply_is_a_fault() {
        let (world, mut connection) = scripted(vec![(Duration::ZERO, b"?what\r\n".to_vec())]);
        assert_eq!(connection.next(), Err(Lost::Noted));
        let fault = &world.faults()[0];
        assert_eq!(fault.severity, Severity::Wrong);
        assert!(fault.what.starts_with("malformed reply"), "{fault:?}");
    }
}
