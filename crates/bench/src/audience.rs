//! Subscribers that check what they hear, and a publisher whose messages can be checked.
//!
//! ```text
//! message   NUMBER NANOSECONDS xxxx...      which of its channel it is, and when it was sent
//! ```
//!
//! A channel is published by one connection, so its numbers arrive in rising order at each of its
//! subscribers, without a gap: a gap is messages lost, a number that is not above the last is one out of
//! order. One thread does both sides, so that sending and hearing read the same clock; it publishes what is
//! due at every millisecond, whether or not the last was answered.

use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use isotherm_probe::command;
use isotherm_resp::reply_parse::{Value, parse_value};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

use crate::Fallible;
use crate::histogram::Histogram;
use crate::reply::{Scanner, Seen};

/// Longest wait of a poll, and so the interval at which messages are published.
const TICK: Duration = Duration::from_millis(1);
/// Messages a publisher may be ahead of the replies to it; beyond that the rate that was asked for is not
/// reached.
const AHEAD_MAX: u64 = 1000;
/// After the last message, so much silence means that nothing more comes.
const SILENCE: Duration = Duration::from_secs(3);
const READ_BYTES: usize = 1 << 16;

pub struct Audience {
    poll: Poll,
    events: Events,
    buffer: Vec<u8>,
    listeners: Vec<Listener>,
    publisher: Publisher,
    start: Instant,
    pub heard: Heard,
}

struct Listener {
    stream: TcpStream,
    channel: usize,
    /// Bytes of a message whose end has not come.
    arrived: Vec<u8>,
    last_number: u64,
}

struct Publisher {
    stream: TcpStream,
    /// The last number of each channel.
    numbers: Vec<u64>,
    sent: u64,
    out: Vec<u8>,
    replies: Scanner,
    seen: Seen,
}

/// Counts of all listeners together.
#[derive(Default)]
pub struct Heard {
    pub messages: u64,
    pub lost: u64,
    pub out_of_order: u64,
    /// Times from just before a message was sent until it was received.
    pub delays: Histogram,
}

impl Audience {
    /// `listeners` subscribers, dealt to the channels in turn.
    pub fn gather(port: u16, listeners: usize, channels: usize) -> Fallible<Audience> {
        let named = |why: std::io::Error| format!("subscribers on port {port}: {why}");
        let poll = Poll::new().map_err(named)?;
        let mut all = Vec::with_capacity(listeners);
        for index in 0..listeners {
            let channel = index % channels;
            let mut stream = subscribed(port, &channel_name(channel)).map_err(named)?;
            poll.registry().register(&mut stream, Token(index), Interest::READABLE).map_err(named)?;
            all.push(Listener { stream, channel, arrived: Vec::new(), last_number: 0 });
        }
        let mut publisher = Publisher::connect(port, channels).map_err(named)?;
        let both = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut publisher.stream, Token(listeners), both).map_err(named)?;
        Ok(Audience {
            poll,
            events: Events::with_capacity(listeners.max(64)),
            buffer: vec![0; READ_BYTES],
            listeners: all,
            publisher,
            start: Instant::now(),
            heard: Heard::default(),
        })
    }

    pub fn published(&self) -> u64 {
        self.publisher.sent
    }

    /// Publishes at a rate until `done` says so, which is asked ten times a second.
    pub fn publish(
        &mut self,
        per_second: u64,
        message_bytes: usize,
        mut done: impl FnMut() -> Fallible<bool>,
    ) -> Fallible {
        let (begin, before) = (Instant::now(), self.publisher.sent);
        let mut asked = begin;
        loop {
            let due = begin.elapsed().as_micros() as u64 * per_second / 1_000_000;
            self.publisher.publish_to(before + due, message_bytes, self.start).map_err(io_text)?;
            self.turn(TICK)?;
            if asked.elapsed() >= Duration::from_millis(100) {
                asked = Instant::now();
                if done()? {
                    return Ok(());
                }
            }
        }
    }

    /// Hears what is still on its way, and counts what has not come as lost.
    pub fn hear_the_rest(&mut self) -> Fallible {
        let mut last = Instant::now();
        while last.elapsed() < SILENCE {
            if self.turn(Duration::from_millis(50))? {
                last = Instant::now();
            }
        }
        for listener in &mut self.listeners {
            let sent = self.publisher.numbers[listener.channel];
            self.heard.lost += sent - listener.last_number;
            listener.last_number = sent;
        }
        Ok(())
    }

    /// Reads the messages that are there, and waits for them for `patience` at most. Returns whether there
    /// were any.
    fn turn(&mut self, patience: Duration) -> Fallible<bool> {
        match self.poll.poll(&mut self.events, Some(patience)) {
            Err(why) if why.kind() != ErrorKind::Interrupted => return Err(io_text(why)),
            _ => {}
        }
        for event in &self.events {
            match self.listeners.get_mut(event.token().0) {
                Some(listener) => listener.hear(&mut self.buffer, self.start, &mut self.heard)?,
                None => self.publisher.answered(&mut self.buffer).map_err(io_text)?,
            }
        }
        if let Some(error) = &self.publisher.seen.first_error {
            return Err(format!("PUBLISH was answered -{error}"));
        }
        Ok(!self.events.is_empty())
    }
}

impl Listener {
    fn hear(&mut self, buffer: &mut [u8], start: Instant, heard: &mut Heard) -> Fallible {
        loop {
            let bytes = match self.stream.read(buffer) {
                Ok(0) => return Err("a subscriber was closed".to_string()),
                Ok(bytes) => bytes,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => continue,
                Err(why) => return Err(format!("a subscriber: {why}")),
            };
            self.arrived.extend_from_slice(&buffer[..bytes]);
            self.take_messages(start.elapsed(), heard)?;
            if bytes < buffer.len() {
                return Ok(());
            }
        }
    }

    fn take_messages(&mut self, now: Duration, heard: &mut Heard) -> Fallible {
        let mut taken = 0;
        while let Some((value, bytes)) = parse_value(&self.arrived[taken..]).map_err(|why| why.reason)? {
            taken += bytes;
            let (number, sent) =
                message_of(&value).ok_or_else(|| format!("no message of ours: {value:?}"))?;
            heard.note(&mut self.last_number, number);
            heard.delays.add(now.saturating_sub(sent));
        }
        self.arrived.drain(..taken);
        Ok(())
    }
}

impl Heard {
    fn note(&mut self, last_number: &mut u64, number: u64) {
        self.messages += 1;
        if number <= *last_number {
            self.out_of_order += 1;
            return;
        }
        self.lost += number - *last_number - 1;
        *last_number = number;
    }
}

impl Publisher {
    fn connect(port: u16, channels: usize) -> std::io::Result<Publisher> {
        let stream = TcpStream::from_std(quick(port)?);
        Ok(Publisher {
            stream,
            numbers: vec![0; channels],
            sent: 0,
            out: Vec::new(),
            replies: Scanner::default(),
            seen: Seen::default(),
        })
    }

    /// Publishes until `due` messages have been sent, channel after channel.
    fn publish_to(&mut self, due: u64, message_bytes: usize, start: Instant) -> std::io::Result<()> {
        while self.sent < due && self.sent - self.seen.replies < AHEAD_MAX {
            let channel = self.sent as usize % self.numbers.len();
            self.numbers[channel] += 1;
            self.sent += 1;
            let mut text = format!("{} {} ", self.numbers[channel], start.elapsed().as_nanos()).into_bytes();
            text.resize(message_bytes.max(text.len()), b'x');
            let name = channel_name(channel);
            command(&mut self.out, [b"PUBLISH", name.as_bytes(), &text].into_iter());
        }
        self.flush()
    }

    fn answered(&mut self, buffer: &mut [u8]) -> std::io::Result<()> {
        self.flush()?;
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(bytes) => self.replies.scan(&buffer[..bytes], &mut self.seen),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(bytes) => drop(self.out.drain(..bytes)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        Ok(())
    }
}

/// The number and the moment of a `message`.
fn message_of(value: &Value) -> Option<(u64, Duration)> {
    let (Value::Array(parts) | Value::Push(parts)) = value else { return None };
    let [Value::Bulk(kind), _, Value::Bulk(text)] = parts.as_slice() else { return None };
    if kind != b"message" {
        return None;
    }
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let number = words.next()?.parse().ok()?;
    Some((number, Duration::from_nanos(words.next()?.parse().ok()?)))
}

fn channel_name(channel: usize) -> String {
    format!("channel:{channel}")
}

/// A connection that has heard that it is subscribed.
fn subscribed(port: u16, channel: &str) -> std::io::Result<TcpStream> {
    let mut stream = std::net::TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    command(&mut request, [b"SUBSCRIBE", channel.as_bytes()].into_iter());
    stream.write_all(&request)?;
    let mut reply =
        vec![0; format!("*3\r\n$9\r\nsubscribe\r\n${}\r\n{channel}\r\n:1\r\n", channel.len()).len()];
    stream.read_exact(&mut reply)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

fn quick(port: u16) -> std::io::Result<std::net::TcpStream> {
    let stream = std::net::TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn io_text(why: std::io::Error) -> String {
    format!("publishing: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_lost_and_steps_back_are_out_of_order() {
        let (mut heard, mut last) = (Heard::default(), 0);
        for number in [1, 2, 5, 4, 5, 6] {
            heard.note(&mut last, number);
        }
        assert_eq!((heard.messages, heard.lost, heard.out_of_order, last), (6, 2, 2, 6));
    }

    #[test]
    fn a_message_has_its_number_and_moment() {
        let bytes = b"*3\r\n$7\r\nmessage\r\n$2\r\nch\r\n$8\r\n7 900 xx\r\n";
        let (value, _) = parse_value(bytes).expect("well-formed").expect("whole");
        assert_eq!(message_of(&value), Some((7, Duration::from_nanos(900))));
        assert_eq!(message_of(&Value::Integer(1)), None);
    }
}
