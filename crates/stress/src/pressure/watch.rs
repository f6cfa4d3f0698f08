//! Looks at a server while a cell lasts: INFO several times a second, a GET of a key that is always in memory
//! on a connection at each worker, and with it the time that this machine takes for the same way without a
//! server.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use isotherm_probe::{Client, Fallible, info_field};
use isotherm_resp::reply_parse::Value;

use super::client::PATIENCE;

const SAMPLE_EVERY: Duration = Duration::from_millis(150);
const GET_EVERY: Duration = Duration::from_millis(5);
pub const HOT_KEY: &str = "hot";
const HOT_VALUE: &[u8] = b"in memory";

/// A look at INFO.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    pub at: Duration,
    pub used: u64,
    /// Part of it that has limits of its own.
    pub not_counted: u64,
    /// Copies of what is on disk: they can go at no cost.
    pub droppable: u64,
    pub evicted: u64,
    /// Replies of -OOM.
    pub refused: u64,
    pub state: String,
}

impl Sample {
    /// Bytes that the limit is for.
    pub fn counted(&self) -> u64 {
        self.used.saturating_sub(self.not_counted)
    }

    pub fn take(client: &mut Client, begun: Instant) -> Fallible<Sample> {
        let Value::Bulk(text) = client.call(&["INFO", "memory", "stats", "swap", "errorstats"])? else {
            return Err("INFO is no text".to_string());
        };
        let number = |field: &str| info_field(&text, field).and_then(|value| value.parse::<u64>().ok());
        let oom = info_field(&text, "errorstat_OOM").unwrap_or_default();
        Ok(Sample {
            at: begun.elapsed(),
            used: number("used_memory").ok_or("INFO has no used_memory")?,
            not_counted: number("mem_not_counted_for_evict").unwrap_or(0),
            droppable: number("swap_lent_bytes").unwrap_or(0),
            evicted: number("evicted_keys").unwrap_or(0),
            refused: oom.strip_prefix("count=").and_then(|count| count.parse().ok()).unwrap_or(0),
            state: info_field(&text, "swap_state").unwrap_or_default(),
        })
    }
}

/// Takes samples until `stop` is set. The samples are returned whatever ends it, with the reason.
pub fn sample(mut client: Client, begun: Instant, stop: &AtomicBool) -> (Vec<Sample>, Fallible) {
    let mut samples = Vec::new();
    while !stop.load(Relaxed) {
        match Sample::take(&mut client, begun) {
            Ok(sample) => samples.push(sample),
            Err(why) => return (samples, Err(format!("INFO within {PATIENCE:?}: {why}"))),
        }
        thread::sleep(SAMPLE_EVERY);
    }
    (samples, Ok(()))
}

/// The longest of many waits, and when it began.
#[derive(Clone, Copy, Default, Debug)]
pub struct Longest {
    pub took: Duration,
    pub at: Duration,
}

impl Longest {
    fn note(&mut self, asked: Instant, begun: Instant) {
        let took = asked.elapsed();
        if took > self.took {
            *self = Longest { took, at: asked - begun };
        }
    }

    pub fn max(self, other: Longest) -> Longest {
        if other.took > self.took { other } else { self }
    }
}

pub fn set_hot_key(client: &mut Client) -> Fallible {
    client.call(&["SET", HOT_KEY, std::str::from_utf8(HOT_VALUE).expect("it is text")]).map(drop)
}

/// End of the requests for the hot key.
pub enum HotEnd {
    /// Ended by `stop`, without a fault.
    Stopped,
    /// The key was not there, in words: no policy drops the one that is used most.
    Lost(String),
    Silent(String),
}

/// Age of a cell below which no key of it is used less than others.
const YOUNG: Duration = Duration::from_secs(3);

/// Asks for the hot key until `stop` is set.
pub fn get_hot_key(mut client: Client, begun: Instant, stop: &AtomicBool) -> (Longest, HotEnd) {
    let mut longest = Longest::default();
    while !stop.load(Relaxed) {
        let asked = Instant::now();
        let reply = client.call(&["GET", HOT_KEY]);
        longest.note(asked, begun);
        match reply {
            Ok(Value::Bulk(value)) if value == HOT_VALUE => {}
            // All keys are as new as this one: idle time, in seconds, does not set it apart.
            Ok(Value::Null | Value::NullBulk) if begun.elapsed() < YOUNG => {
                return (longest, HotEnd::Stopped);
            }
            Ok(other) => {
                let at = begun.elapsed().as_secs_f64();
                return (longest, HotEnd::Lost(format!("the hot key is {other:?} at {at:.1} s")));
            }
            // Its value may have been on disk when that failed: where all is as new as this one, all goes.
            Err(why) if why.contains("SWAPERR") => {}
            Err(why) => return (longest, HotEnd::Silent(why)),
        }
        thread::sleep(GET_EVERY);
    }
    (longest, HotEnd::Stopped)
}

/// Two threads of this program that do the same: what the machine itself takes for it.
pub struct Machine {
    stream: TcpStream,
}

impl Machine {
    pub fn start() -> Fallible<Machine> {
        let failed = |why: std::io::Error| format!("no echo on this machine: {why}");
        let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
        let stream = TcpStream::connect(listener.local_addr().map_err(failed)?).map_err(failed)?;
        let (mut other, _) = listener.accept().map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        other.set_nodelay(true).map_err(failed)?;
        thread::spawn(move || {
            let mut bytes = [0; 64];
            while let Ok(count @ 1..) = other.read(&mut bytes) {
                if other.write_all(&bytes[..count]).is_err() {
                    return;
                }
            }
        });
        Ok(Machine { stream })
    }

    pub fn echo(mut self, begun: Instant, stop: &AtomicBool) -> Longest {
        let mut longest = Longest::default();
        let mut bytes = [0; 64];
        while !stop.load(Relaxed) {
            let asked = Instant::now();
            if self.stream.write_all(b"echo").is_err() || self.stream.read(&mut bytes).is_err() {
                break;
            }
            longest.note(asked, begun);
            thread::sleep(GET_EVERY);
        }
        longest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_answers_itself() {
        let (begun, stop) = (Instant::now(), AtomicBool::new(false));
        let machine = Machine::start().unwrap();
        let longest = thread::scope(|scope| {
            let echo = scope.spawn(|| machine.echo(begun, &stop));
            while begun.elapsed() < Duration::from_millis(30) {
                thread::sleep(GET_EVERY);
            }
            stop.store(true, Relaxed);
            echo.join().expect("it does not panic")
        });
        assert!(longest.took > Duration::ZERO);
    }
}
