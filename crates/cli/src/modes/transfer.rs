//! `--rdb`, `--functions-rdb` and `--replica`: what a primary sends to a replica, into a file or onto the
//! screen.
//!
//! ```text
//!   REPLCONF capa eof, rdb-only 1, rdb-filter-only functions   errors of old servers are not fatal
//!   SYNC --> "\n"... (the primary prepares)
//!        --> $<bytes>\r\n  <RDB>                       a length
//!        --> $EOF:<mark>\r\n  <RDB> <mark>             40 bytes that follow the data
//!        --> commands, as they come                    unless rdb-only
//! ```
//! The last 40 bytes are held back until it is known that they are not the mark, so a file never has a part
//! of it.

use std::fs::File;
use std::io::{self, Write};

use isotherm_resp::reply_parse::Value;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::error_text;
use crate::Fallible;
use crate::connection::{Broken, Connection};
use crate::render::{Format, Style};
use crate::session::Session;
use crate::terminal::put;
use crate::text::reason;

const MARK_BYTES: usize = 40;
const ACK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// The first line of the answer to SYNC is shorter.
const LINE_BYTES_MAX: usize = 4096;

/// Way in which the end of the data is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Length {
    Bytes(u64),
    Mark([u8; MARK_BYTES]),
}

/// Part of the data that is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    All,
    Functions,
}

/// `--rdb` and `--functions-rdb`: `-` is the standard output.
pub fn save(session: &mut Session, path: &str, part: Part) -> Fallible<i32> {
    save_from(session.connection()?, path, part)?;
    Ok(0)
}

/// Saves over a connection that cannot be used afterwards.
pub fn save_from(connection: &mut Connection, path: &str, part: Part) -> Fallible {
    announce(connection, "capa", "eof")?;
    announce(connection, "rdb-only", "1")?;
    if part == Part::Functions && !announce(connection, "rdb-filter-only", "functions")? {
        return Err("Failed requesting functions only RDB from server, aborting".to_string());
    }
    let length = begin(connection)?;
    match length {
        Length::Bytes(bytes) => eprintln!("SYNC sent to primary, writing {bytes} bytes to '{path}'"),
        Length::Mark(_) => {
            eprintln!("SYNC sent to primary, writing bytes of bulk transfer until EOF marker to '{path}'");
        }
    }
    let file = match path {
        "-" => None,
        path => Some(File::create(path).map_err(|why| format!("Error opening '{path}': {}", reason(&why)))?),
    };
    let mut out: Box<dyn Write> = match &file {
        Some(file) => Box::new(file),
        None => Box::new(io::stdout().lock()),
    };
    let unread = |_| "I/O Error reading RDB payload from socket".to_string();
    let written = receive(connection, length, &mut |bytes| {
        out.write_all(bytes).map_err(|why| format!("Error writing data to file: {}", reason(&why)))
    });
    let bytes = written.map_err(|stop| stop.into_text(unread))?;
    out.flush().map_err(|why| format!("Error writing data to file: {}", reason(&why)))?;
    match length {
        Length::Bytes(_) => eprintln!("Transfer finished with success."),
        Length::Mark(_) => eprintln!("Transfer finished with success after {bytes} bytes"),
    }
    drop(out);
    match file.map(|file| file.sync_all()) {
        Some(Err(why)) => Err(format!("Fail to fsync '{path}': {}", reason(&why))),
        _ => Ok(()),
    }
}

/// `--replica`: the data is passed over, then each command is a line.
pub fn follow(session: &mut Session) -> Fallible<i32> {
    let connection = session.connection()?;
    announce(connection, "capa", "eof")?;
    announce(connection, "rdb-filter-only", "")?;
    let length = begin(connection)?;
    match length {
        Length::Bytes(bytes) => {
            eprintln!("Full resync with primary, discarding {bytes} bytes of bulk transfer...");
        }
        Length::Mark(_) => {
            eprintln!("Full resync with primary, discarding bytes of bulk transfer until EOF marker...");
        }
    }
    let unread = |_| "Error reading RDB payload while Full resyncing".to_string();
    let bytes = receive(connection, length, &mut |_| Ok(())).map_err(|stop| stop.into_text(unread))?;
    match length {
        Length::Bytes(_) => eprintln!("Full resync done. Logging commands from primary."),
        Length::Mark(_) => {
            let offset = bytes + MARK_BYTES as u64;
            eprintln!("Full resync done after {offset} bytes. Logging commands from primary.");
            eprintln!("sending REPLCONF ACK 0");
        }
    }
    show_commands(connection).map_err(|why| format!("Error: {why}"))
}

/// The primary sends no command before it knows that the data has arrived, and none to a replica that it does
/// not hear of. Nothing answers an ACK.
fn show_commands(connection: &mut Connection) -> Result<i32, Broken> {
    let style = Style::new(Format::Csv);
    loop {
        while let Some(command) = connection.read_arrived()? {
            put(style.render(&command));
        }
        let is_readable = match poll(&mut [PollFd::new(&*connection, PollFlags::IN)], Some(&ACK_INTERVAL)) {
            Err(rustix::io::Errno::INTR) => false,
            ready => ready.map_err(|why| Broken::Io(why.into()))? > 0,
        };
        match is_readable {
            true => connection.fill()?,
            false => connection.send(&["REPLCONF", "ACK", "0"])?,
        }
    }
}

/// Sends a REPLCONF. Returns whether the server has understood it.
fn announce(connection: &mut Connection, name: &str, value: &str) -> Fallible<bool> {
    eprintln!("sending REPLCONF {name} {value}");
    let reply = connection.call(&["REPLCONF", name, value]).map_err(|_| "\nI/O error".to_string())?;
    if let Some(error) = error_text(&reply) {
        eprintln!("REPLCONF {name} error: {error}");
    }
    Ok(!matches!(reply, Value::Error(_)))
}

/// Sends SYNC, and waits for the data to begin.
fn begin(connection: &mut Connection) -> Fallible<Length> {
    connection.write(b"SYNC\r\n").map_err(|_| "Error writing to primary".to_string())?;
    loop {
        let line = read_line(connection)?;
        match line.first() {
            // The primary lives, and prepares.
            None => {}
            Some(b'-') => {
                return Err(format!("SYNC with primary failed: {}", String::from_utf8_lossy(&line)));
            }
            Some(_) => return parse_length(&line),
        }
    }
}

fn read_line(connection: &mut Connection) -> Fallible<Vec<u8>> {
    let unread = || "Error reading bulk length while SYNCing".to_string();
    loop {
        let arrived = connection.arrived();
        if let Some(end) = arrived.iter().position(|byte| *byte == b'\n') {
            let line = arrived[..end].trim_ascii_end().to_vec();
            connection.consume(end + 1);
            return Ok(line);
        }
        if arrived.len() > LINE_BYTES_MAX || connection.fill().is_err() {
            return Err(unread());
        }
    }
}

fn parse_length(line: &[u8]) -> Fallible<Length> {
    let text = line.strip_prefix(b"$").unwrap_or_default();
    let mark = text.strip_prefix(b"EOF:").and_then(|mark| mark.get(..MARK_BYTES)?.try_into().ok());
    let bytes = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    match (mark, bytes) {
        (Some(mark), _) => Ok(Length::Mark(mark)),
        (None, Some(bytes)) => Ok(Length::Bytes(bytes)),
        (None, None) => Err(format!("SYNC with primary failed: {}", String::from_utf8_lossy(line))),
    }
}

/// Why there is no more of the data.
enum Stop {
    Read(Broken),
    Take(String),
}

impl Stop {
    fn into_text(self, unread: impl FnOnce(Broken) -> String) -> String {
        match self {
            Stop::Read(why) => unread(why),
            Stop::Take(text) => text,
        }
    }
}

/// Hands the data to `take`. Returns its bytes.
fn receive(
    connection: &mut Connection,
    length: Length,
    take: &mut dyn FnMut(&[u8]) -> Fallible,
) -> Result<u64, Stop> {
    let mut bytes = 0;
    loop {
        let arrived = connection.arrived();
        let (count, is_end) = ready(arrived, length, bytes);
        take(&arrived[..count]).map_err(Stop::Take)?;
        bytes += count as u64;
        let mark = if is_end && matches!(length, Length::Mark(_)) { MARK_BYTES } else { 0 };
        connection.consume(count + mark);
        if is_end {
            return Ok(bytes);
        }
        connection.fill().map_err(Stop::Read)?;
    }
}

/// Returns how many of the arrived bytes are data, and whether these are the last ones.
fn ready(arrived: &[u8], length: Length, before: u64) -> (usize, bool) {
    match length {
        Length::Bytes(total) => {
            let left = usize::try_from(total - before).unwrap_or(usize::MAX);
            (arrived.len().min(left), arrived.len() >= left)
        }
        Length::Mark(mark) => match arrived.windows(MARK_BYTES).position(|window| window == mark) {
            Some(at) => (at, true),
            None => (arrived.len().saturating_sub(MARK_BYTES - 1), false),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_may_come_in_two_parts() {
        let mark = [b'm'; MARK_BYTES];
        let mut stream = b"REDIS0011 data mmm and more".to_vec();
        let data = stream.len();
        stream.extend_from_slice(&mark);
        for cut in 0..=stream.len() {
            let (count, is_end) = ready(&stream[..cut], Length::Mark(mark), 0);
            assert!(count <= data, "{cut}");
            assert_eq!(is_end, cut == stream.len());
            let (rest, is_end) = ready(&stream[count..], Length::Mark(mark), count as u64);
            assert_eq!((count + rest, is_end), (data, true), "{cut}");
        }
    }

    #[test]
    fn what_is_behind_a_length_stays() {
        assert_eq!(ready(b"0123456789", Length::Bytes(4), 0), (4, true));
        assert_eq!(ready(b"0123456789", Length::Bytes(14), 10), (4, true));
        assert_eq!(ready(b"01", Length::Bytes(4), 0), (2, false));
        assert_eq!(parse_length(b"$175"), Ok(Length::Bytes(175)));
        assert!(parse_length(b"$EOF:short").is_err() && parse_length(b"+OK").is_err());
    }
}
