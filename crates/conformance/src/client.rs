//! A blocking client: one connection, requests out, values in.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use isotherm_resp::reply_parse::{ReplyReader, Value, parse_value};

/// A reply that takes longer has been lost: a difference, not something to wait for.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);
const READ_BYTES: usize = 64 << 10;

pub struct Client {
    stream: TcpStream,
    /// Bytes that have arrived and were not taken yet.
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(port: u16) -> io::Result<Client> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Client { stream, buffer: Vec::new() })
    }

    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<()> {
        let mut request = Vec::new();
        push_request(&mut request, args);
        self.write(&request)
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    pub fn read(&mut self) -> io::Result<Value> {
        let mut reader = ReplyReader::new();
        loop {
            if reader.find_end(&self.buffer).map_err(bad_reply)?.is_some() {
                let (value, length) =
                    parse_value(&self.buffer).map_err(bad_reply)?.expect("its end has been found");
                self.buffer.drain(..length);
                return Ok(value);
            }
            self.fill()?;
        }
    }

    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> io::Result<Value> {
        self.send(args)?;
        self.read()
    }

    /// All in one write.
    pub fn call_all(&mut self, commands: &[Vec<Vec<u8>>]) -> io::Result<Vec<Value>> {
        let mut requests = Vec::new();
        commands.iter().for_each(|command| push_request(&mut requests, command));
        self.write(&requests)?;
        commands.iter().map(|_| self.read()).collect()
    }

    /// Exactly `length` bytes that are no reply: the transfer at the start of a replication.
    pub fn read_exact(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads a line, and returns it without its end.
    pub fn read_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line = self.buffer.drain(..end + 2).take(end).collect();
                return Ok(line);
            }
            self.fill()?;
        }
    }

    /// The socket, when nothing is under way.
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Everything until the peer closes or is quiet for a while.
    pub fn read_until_quiet(&mut self, quiet: Duration) -> io::Result<Vec<u8>> {
        self.stream.set_read_timeout(Some(quiet))?;
        let ended = loop {
            match self.fill() {
                Ok(()) => {}
                Err(why) => break why,
            }
        };
        self.stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        let mut heard = std::mem::take(&mut self.buffer);
        match ended.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => heard.extend_from_slice(b"<open>"),
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                heard.extend_from_slice(b"<closed>")
            }
            _ => return Err(ended),
        }
        Ok(heard)
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; READ_BYTES];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")),
            Ok(count) => {
                self.buffer.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            // Callers fill until they have enough.
            Err(why) if why.kind() == io::ErrorKind::Interrupted => Ok(()),
            Err(why) => Err(why),
        }
    }
}

pub fn push_request<A: AsRef<[u8]>>(out: &mut Vec<u8>, args: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", args.len()).as_bytes());
    for arg in args {
        let arg = arg.as_ref();
        out.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

fn bad_reply(bad: isotherm_resp::reply_parse::BadReply) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, bad.reason)
}
