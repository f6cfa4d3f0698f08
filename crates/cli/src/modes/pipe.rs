//! `--pipe`: protocol from standard input to the server as fast as both will go, replies counted.
//!
//! Everything has arrived when the reply to an ECHO comes back that was sent last, with bytes that no other
//! sender would choose.

use std::io::{self, Read};
use std::time::Instant;

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Prng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Fallible;
use crate::connection::{Broken, Connection, push_request};
use crate::session::Session;
use crate::terminal::put;
use crate::text::reason;

const CHUNK_BYTES: usize = 64 << 10;
const ECHO_BYTES: usize = 20;
/// Number of bytes to send before replies are looked at again.
const GO_BYTES: usize = 128 << 10;

struct Pipe {
    out: Vec<u8>,
    sent: usize,
    /// Argument of the last ECHO, once standard input has ended.
    echo: Option<Vec<u8>>,
    done: bool,
    errors: u64,
    replies: u64,
    last_reply: Instant,
}

pub fn run(session: &mut Session) -> Fallible<i32> {
    let timeout = session.options.pipe_timeout;
    let connection = session.connection()?;
    connection
        .set_nonblocking()
        .map_err(|why| format!("Can't set the socket in non blocking mode: {}", reason(&why)))?;
    let mut pipe = Pipe {
        out: Vec::new(),
        sent: 0,
        echo: None,
        done: false,
        errors: 0,
        replies: 0,
        last_reply: Instant::now(),
    };
    while !pipe.done {
        let more_to_send = pipe.echo.is_none() || pipe.sent < pipe.out.len();
        let (readable, writable) = wait(connection, more_to_send)?;
        if readable {
            pipe.receive(connection)?;
        }
        if writable {
            pipe.send(connection)?;
        }
        if pipe.echo.is_some() && !timeout.is_zero() && pipe.last_reply.elapsed() > timeout {
            eprintln!("No replies for {} seconds: exiting.", timeout.as_secs());
            pipe.errors += 1;
            break;
        }
    }
    put(format!("errors: {}, replies: {}\n", pipe.errors, pipe.replies));
    Ok(i32::from(pipe.errors > 0))
}

fn wait(connection: &Connection, more_to_send: bool) -> Fallible<(bool, bool)> {
    let wanted = if more_to_send { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [PollFd::new(connection, wanted)];
    match poll(&mut fds, Some(&Timespec { tv_sec: 1, tv_nsec: 0 })) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(why) => return Err(format!("Error waiting for the server: {why}")),
    }
    let ready = fds[0].revents();
    let readable = ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR);
    Ok((readable, ready.contains(PollFlags::OUT)))
}

impl Pipe {
    fn receive(&mut self, connection: &mut Connection) -> Fallible {
        let lost = match connection.fill() {
            Ok(()) => None,
            Err(Broken::Io(why)) if why.kind() == io::ErrorKind::WouldBlock => None,
            Err(why) => Some(why),
        };
        while let Some(reply) =
            connection.read_arrived().map_err(|_| "Error reading replies from server".to_string())?
        {
            self.count(&reply);
        }
        // Only now: what the server said before it closed may be the reason.
        match lost {
            Some(why) if !self.done => Err(format!("Error reading replies from server: {why}")),
            _ => Ok(()),
        }
    }

    fn count(&mut self, reply: &Value) {
        self.last_reply = Instant::now();
        if matches!((reply, &self.echo), (Value::Bulk(said), Some(echo)) if said == echo) {
            put("Last reply received from server.\n");
            self.done = true;
            return;
        }
        if let Some(error) = reply.as_error() {
            eprintln!("{}", String::from_utf8_lossy(error));
            self.errors += 1;
        }
        self.replies += 1;
    }

    fn send(&mut self, connection: &mut Connection) -> Fallible {
        let mut gone = 0;
        while gone < GO_BYTES {
            if self.sent == self.out.len() {
                if self.echo.is_some() {
                    break;
                }
                self.load()?;
            }
            match connection.write_some(&self.out[self.sent..]) {
                Ok(count) => {
                    self.sent += count;
                    gone += count;
                }
                Err(why) if matches!(why.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    break;
                }
                Err(why) => return Err(format!("Error writing to the server: {}", reason(&why))),
            }
        }
        Ok(())
    }

    /// Takes more from standard input; at its end, the ECHO. A line end stands before it, in case the input
    /// stopped within a line; a server ignores it.
    fn load(&mut self) -> Fallible {
        self.out.resize(CHUNK_BYTES, 0);
        let count = io::stdin()
            .read(&mut self.out)
            .map_err(|why| format!("Error reading from stdin: {}", reason(&why)))?;
        self.out.truncate(count);
        self.sent = 0;
        if count == 0 {
            let mut prng = Prng::new(crate::seed());
            let echo: Vec<u8> = (0..ECHO_BYTES).map(|_| prng.next_u64() as u8).collect();
            self.out.extend(b"\r\n");
            push_request(&mut self.out, &[b"ECHO", echo.as_slice()]);
            self.echo = Some(echo);
            self.last_reply = Instant::now();
            put("All data transferred. Waiting for the last reply...\n");
        }
        Ok(())
    }
}
