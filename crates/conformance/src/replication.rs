//! Listening to what a server writes to its replication stream.
//!
//! ```text
//! we                                   the server
//! REPLCONF listening-port 1   ->       +OK
//! PSYNC ? -1                  ->       +FULLRESYNC <id> <offset>
//!                                      (bare line ends while it saves)
//!                                      $<length> CRLF <length bytes of RDB>      skipped
//!                                      *2 $6 SELECT $1 0  *3 $3 SET ...          the stream
//! ```
//! We don't announce `capa eof`, so the transfer has a length in front. A `PUBLISH` from a connection of our
//! own marks the end of what a command wrote: everything before it in the stream belongs to commands answered
//! before.

use std::io;

use isotherm_resp::reply_parse::Value;

use crate::client::Client;
use crate::grammar::Command;

const MARKER_CHANNEL: &str = "isotherm-marker";

pub struct Listener {
    stream: Client,
    control: Client,
    marker: u64,
    /// The database that the stream has selected.
    db: u32,
}

/// Command of the stream, with the database that it is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub db: u32,
    pub command: Command,
}

impl Listener {
    pub fn connect(port: u16) -> io::Result<Listener> {
        let mut stream = Client::connect(port)?;
        expect_ok(stream.call(&["REPLCONF", "listening-port", "1"])?)?;
        stream.send(&["PSYNC", "?", "-1"])?;
        let answer = line_of_transfer(&mut stream)?;
        if !answer.starts_with(b"+FULLRESYNC") {
            return Err(unexpected(&answer));
        }
        let header = line_of_transfer(&mut stream)?;
        let length = header.strip_prefix(b"$").and_then(isotherm_stdx::parse_i64);
        let length =
            length.and_then(|length| usize::try_from(length).ok()).ok_or_else(|| unexpected(&header))?;
        stream.read_exact(length)?;
        let mut listener = Listener { stream, control: Client::connect(port)?, marker: 0, db: 0 };
        // The stream begins with whatever the server had pending.
        listener.written()?;
        Ok(listener)
    }

    /// Returns the commands written since the last call that belong to client commands answered before this
    /// call.
    pub fn written(&mut self) -> io::Result<Vec<Written>> {
        self.marker += 1;
        let marker = self.marker.to_string();
        self.control.call(&["PUBLISH", MARKER_CHANNEL, &marker])?;
        let mut written = Vec::new();
        loop {
            let command = self.next_command()?;
            let word = |i: usize| command.get(i).map(Vec::as_slice).unwrap_or_default();
            match word(0).to_ascii_uppercase().as_slice() {
                b"SELECT" => {
                    let db = isotherm_stdx::parse_u64(word(1)).and_then(|db| u32::try_from(db).ok());
                    self.db = db.ok_or_else(|| unexpected(word(1)))?;
                }
                // Keep-alives have nothing to do with what clients did.
                b"PING" | b"REPLCONF" => {}
                b"PUBLISH" if word(1) == MARKER_CHANNEL.as_bytes() => {
                    if word(2) == marker.as_bytes() {
                        return Ok(written);
                    }
                }
                _ => written.push(Written { db: self.db, command }),
            }
        }
    }

    fn next_command(&mut self) -> io::Result<Command> {
        let Value::Array(words) = self.stream.read()? else { return Err(unexpected(b"no command")) };
        let bytes = |word: Value| match word {
            Value::Bulk(bytes) => Ok(bytes),
            other => Err(unexpected(other.to_string().as_bytes())),
        };
        words.into_iter().map(bytes).collect()
    }
}

/// The next line of the transfer, without the bare line ends that say "still saving".
fn line_of_transfer(stream: &mut Client) -> io::Result<Vec<u8>> {
    let line = stream.read_line()?;
    let start = line.iter().take_while(|&&byte| byte == b'\n').count();
    Ok(line[start..].to_vec())
}

fn expect_ok(value: Value) -> io::Result<()> {
    if value == Value::Simple(b"OK".to_vec()) {
        Ok(())
    } else {
        Err(unexpected(value.to_string().as_bytes()))
    }
}

fn unexpected(what: &[u8]) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("unexpected in the handshake or stream: {}", what.escape_ascii()),
    )
}
