//! Connection to a server: asking and waiting, for INFO, CONFIG and the like; or asking ahead, to fill a
//! server.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use isotherm_resp::reply_parse::{ReplyReader, Value, parse_value};

use crate::Fallible;

pub struct Client {
    stream: TcpStream,
    /// Bytes that have arrived; those before `taken` are used.
    arrived: Vec<u8>,
    taken: usize,
}

/// Long enough for FLUSHALL of ten million keys, short enough to end a hung run.
const PATIENCE: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 1 << 16;

impl Client {
    pub fn connect(port: u16) -> Fallible<Client> {
        Client::connect_within(port, PATIENCE)
    }

    /// Connects as `connect` does; a reply that does not come within `patience` is a failure.
    pub fn connect_within(port: u16, patience: Duration) -> Fallible<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))
            .map_err(|why| format!("cannot connect to {port}: {why}"))?;
        stream.set_read_timeout(Some(patience)).map_err(|why| why.to_string())?;
        stream.set_nodelay(true).map_err(|why| why.to_string())?;
        Ok(Client { stream, arrived: Vec::new(), taken: 0 })
    }

    /// Sends a command and returns its reply; an error reply is a failure with its text.
    pub fn call(&mut self, words: &[&str]) -> Fallible<Value> {
        let mut request = Vec::new();
        command(&mut request, words.iter().map(|word| word.as_bytes()));
        self.send(&request)?;
        self.read().map_err(|why| format!("{}: {why}", words.join(" ")))
    }

    /// A field of INFO.
    pub fn info(&mut self, field: &str) -> Fallible<String> {
        let Value::Bulk(text) = self.call(&["INFO"])? else { return Err("INFO is no text".to_string()) };
        info_field(&text, field).ok_or_else(|| format!("INFO has no field {field}"))
    }

    pub fn used_memory_bytes(&mut self) -> Fallible<u64> {
        let text = self.info("used_memory")?;
        text.parse().map_err(|_| format!("used_memory:{text} is no number"))
    }

    pub fn dbsize(&mut self) -> Fallible<u64> {
        match self.call(&["DBSIZE"])? {
            Value::Integer(keys) => Ok(keys as u64),
            other => Err(format!("DBSIZE: {other:?} is no number")),
        }
    }

    pub fn send(&mut self, request: &[u8]) -> Fallible {
        self.stream.write_all(request).map_err(|why| format!("cannot write: {why}"))
    }

    /// The next reply; an error reply is a failure with its text.
    pub fn read(&mut self) -> Fallible<Value> {
        let mut reader = ReplyReader::new();
        loop {
            let waiting = &self.arrived[self.taken..];
            if reader.find_end(waiting).map_err(|why| format!("no reply: {}", why.reason))?.is_some() {
                let parsed = parse_value(waiting).map_err(|why| format!("no reply: {}", why.reason))?;
                let (value, bytes) = parsed.expect("its end has been found");
                self.taken += bytes;
                return match value {
                    Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
                    value => Ok(value),
                };
            }
            self.receive()?;
        }
    }

    fn receive(&mut self) -> Fallible {
        self.arrived.drain(..self.taken);
        self.taken = 0;
        let length = self.arrived.len();
        self.arrived.resize(length + READ_BYTES, 0);
        let read = self.stream.read(&mut self.arrived[length..]);
        self.arrived.truncate(length + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err("the server closed the connection".to_string()),
            Ok(_) => Ok(()),
            // Callers ask again until a reply is whole.
            Err(why) if why.kind() == std::io::ErrorKind::Interrupted => Ok(()),
            Err(why) => Err(format!("cannot read: {why}")),
        }
    }
}

/// A client that sends commands which only have to succeed, many before the first reply is read.
pub struct Ahead {
    client: Client,
    batch: Vec<u8>,
    waiting: usize,
}

impl Ahead {
    /// Commands on their way at a time.
    const COMMANDS: usize = 128;

    pub fn of(client: Client) -> Ahead {
        Ahead { client, batch: Vec::new(), waiting: 0 }
    }

    pub fn send(&mut self, words: &[&[u8]]) -> Fallible {
        command(&mut self.batch, words.iter().copied());
        self.waiting += 1;
        if self.waiting < Ahead::COMMANDS { Ok(()) } else { self.finish() }
    }

    /// Sends what waits and reads all replies; the first error reply is a failure.
    pub fn finish(&mut self) -> Fallible {
        self.client.send(&self.batch)?;
        self.batch.clear();
        (0..std::mem::take(&mut self.waiting)).try_for_each(|_| self.client.read().map(drop))
    }
}

/// A field of a reply to INFO.
pub fn info_field(info: &[u8], field: &str) -> Option<String> {
    let text = String::from_utf8_lossy(info);
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    value.map(str::to_string)
}

/// Appends one command as a client would send it.
pub fn command<'a>(out: &mut Vec<u8>, words: impl ExactSizeIterator<Item = &'a [u8]>) {
    head(out, b'*', words.len());
    for word in words {
        head(out, b'$', word.len());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

fn head(out: &mut Vec<u8>, kind: u8, number: usize) {
    out.push(kind);
    isotherm_stdx::push_u64(out, number as u64);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let info = b"# Memory\r\nused_memory_rss:9\r\nused_memory:7\r\n";
        assert_eq!(info_field(info, "used_memory"), Some("7".to_string()));
        assert_eq!(info_field(info, "used"), None);
    }
}
