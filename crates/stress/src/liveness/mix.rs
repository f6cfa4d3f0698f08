//! Mixes: what keeps a server busy while it is probed.

use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use isotherm_probe::{Client, Fallible, Server, command};

use super::probe::{LATE_MAX, LOST_MAX, Probes};
use crate::world::Severity;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// A script without an end, after SCRIPT KILL the next one.
    Script,
    /// A script without an end within EXEC.
    Exec,
    /// A script without an end that has written: SHUTDOWN NOSAVE ends it, with the process.
    Written,
    Upload,
    Download,
    /// Messages to many readers.
    FanOut,
    /// The wall clock goes a day back and forth during waits that end by their time.
    Clock,
    /// Every mix but `Written`.
    All,
}

impl Mix {
    pub const ALL: [Mix; 8] =
        [Mix::Script, Mix::Exec, Mix::Written, Mix::Upload, Mix::Download, Mix::FanOut, Mix::Clock, Mix::All];

    pub fn name(self) -> &'static str {
        match self {
            Mix::Script => "script",
            Mix::Exec => "exec",
            Mix::Written => "written",
            Mix::Upload => "upload",
            Mix::Download => "download",
            Mix::FanOut => "fan-out",
            Mix::Clock => "clock",
            Mix::All => "all",
        }
    }

    pub fn parse(name: &str) -> Fallible<Mix> {
        let found = Mix::ALL.into_iter().find(|mix| mix.name() == name);
        found.ok_or_else(|| format!("no mix called '{name}'"))
    }

    fn has(self, part: Mix) -> bool {
        self == part || self == Mix::All && part != Mix::Written
    }
}

const READS: &str = "while true do redis.call('GET', KEYS[1]) end";
const WRITES: &str = "redis.call('INCR', KEYS[1]) while true do end";
const DAY_MS: i64 = 86_400_000;
/// Time of BLPOP, and of CLIENT PAUSE.
const WAIT_MS: u64 = 40;
const LARGE_BYTES: usize = 24 << 20;
/// Clients that upload, and as many that download.
const LARGE_CLIENTS: usize = 2;
const READERS: usize = 25;
const MESSAGES_AT_ONCE: usize = 1000;
/// Between two looks whether the mix is over.
const LOOK: Duration = Duration::from_millis(100);

pub struct Outcome {
    pub faults: Vec<(Severity, String)>,
    probes: String,
    /// Scripts killed, values moved, messages sent.
    done: u64,
}

impl Outcome {
    pub fn summary(&self) -> String {
        format!("{}; {} rounds of load", self.probes, self.done)
    }
}

struct Load {
    port: u16,
    is_over: AtomicBool,
    done: AtomicU64,
    /// Scripts that have been sent and not answered.
    scripts: AtomicUsize,
    faults: Mutex<Vec<(Severity, String)>>,
}

/// Runs a mix against a server, whose process has ended when this returns.
pub fn run(mix: Mix, server: &mut Server, time: Duration) -> Outcome {
    let load = Load {
        port: server.port,
        is_over: AtomicBool::new(false),
        done: AtomicU64::new(0),
        scripts: AtomicUsize::new(0),
        faults: Mutex::default(),
    };
    let mut probes = Probes::of(server.port);
    thread::scope(|scope| {
        load.begin(mix, scope);
        let until = Instant::now() + time;
        while Instant::now() < until && probes.faults.is_empty() {
            probes.ask_until(until.min(Instant::now() + time / 4));
            if mix.has(Mix::Script) || mix.has(Mix::Exec) {
                load.kill_scripts(&mut probes, |killed| killed == 1);
            }
        }
        load.is_over.store(true, Ordering::Relaxed);
        if mix == Mix::Written {
            load.shut_down(&mut probes, server);
        } else {
            load.kill_scripts(&mut probes, |_| false);
        }
        if let (Some(status), true) = (server.ended(), mix != Mix::Written) {
            load.fault(Severity::Wrong, format!("the server has ended: {status}"));
        }
        // Whatever waits for it ends with it.
        if server.ended().is_none()
            && let Err(why) = server.kill()
        {
            load.fault(Severity::Wrong, why);
        }
    });
    if server.log().contains("panicked at") {
        load.fault(Severity::Wrong, "a thread of the server has panicked".to_string());
    }
    let done = load.done.load(Ordering::Relaxed);
    if done == 0 {
        load.fault(Severity::Late, "the load has done nothing".to_string());
    }
    let summary = probes.summary();
    let mut faults = probes.faults;
    faults.extend(load.faults.into_inner().expect("no thread panics with it"));
    Outcome { faults, probes: summary, done }
}

impl Load {
    fn begin<'scope>(&'scope self, mix: Mix, scope: &'scope Scope<'scope, '_>) {
        let is_written = mix == Mix::Written;
        if mix.has(Mix::Script) || is_written {
            let script = if is_written { WRITES } else { READS };
            scope.spawn(move || self.again("EVAL", || self.script(&[&["EVAL", script, "1", "key"]])));
        }
        if mix.has(Mix::Exec) {
            let requests: [&[&str]; 3] = [&["MULTI"], &["EVAL", READS, "1", "other"], &["EXEC"]];
            scope.spawn(move || self.again("EXEC", || self.script(&requests)));
        }
        if mix.has(Mix::Upload) {
            for number in 0..LARGE_CLIENTS {
                scope.spawn(move || self.again("upload", || self.upload(number)));
            }
        }
        if mix.has(Mix::Download) {
            // Before anything is busy.
            if let Err(why) = self.upload(LARGE_CLIENTS) {
                return self.fault(Severity::Wrong, why);
            }
            for _ in 0..LARGE_CLIENTS {
                scope.spawn(|| self.again("download", || self.download()));
            }
        }
        if mix.has(Mix::FanOut) {
            for _ in 0..READERS {
                scope.spawn(|| self.again("reader", || self.read_messages()));
            }
            scope.spawn(|| self.again("publisher", || self.publish()));
        }
        if mix.has(Mix::Clock) {
            scope.spawn(|| self.again("clock", || self.step_clock()));
        }
        if mix == Mix::Clock {
            scope.spawn(|| self.again("wait", || self.wait(&["BLPOP", "nothing", "0.04"], None)));
            scope.spawn(|| self.again("pause", || self.wait(&["CLIENT", "PAUSE", "40"], Some("PING"))));
        }
    }

    /// Runs rounds until the mix is over. A round that fails before is a fault.
    fn again(&self, name: &str, round: impl Fn() -> Fallible) {
        while !self.is_over() {
            if let Err(why) = round() {
                if !self.is_over() {
                    self.fault(Severity::Wrong, format!("{name}: {why}"));
                }
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn fault(&self, severity: Severity, what: String) {
        self.faults.lock().expect("no thread panics with it").push((severity, what));
    }

    fn client(&self) -> Fallible<Client> {
        Client::connect_within(self.port, LOST_MAX)
    }

    /// Runs a script until a probe ends it, or the process.
    fn script(&self, requests: &[&[&str]]) -> Fallible {
        let mut client = Client::connect(self.port)?;
        let mut bytes = Vec::new();
        for words in requests {
            command(&mut bytes, words.iter().map(|word| word.as_bytes()));
        }
        self.scripts.fetch_add(1, Ordering::SeqCst);
        // Killed: it is an error, or one within the reply of EXEC.
        let is_lost = |reply: &Fallible<_>| reply.as_ref().is_err_and(|why| why.starts_with("cannot"));
        let lost = client.send(&bytes).err().or_else(|| {
            let mut replies = requests.iter().map(|_| client.read().map(drop));
            replies.find(is_lost)?.err()
        });
        self.scripts.fetch_sub(1, Ordering::SeqCst);
        self.done.fetch_add(1, Ordering::Relaxed);
        lost.map_or(Ok(()), Err)
    }

    fn upload(&self, number: usize) -> Fallible {
        let value = vec![b'x'; LARGE_BYTES];
        let mut client = self.client()?;
        let mut bytes = Vec::with_capacity(LARGE_BYTES + 100);
        command(&mut bytes, [b"SET", format!("large:{number}").as_bytes(), &value].into_iter());
        client.send(&bytes)?;
        or_busy(client.read())?;
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn download(&self) -> Fallible {
        let text = |why: std::io::Error| why.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(text)?;
        stream.set_read_timeout(Some(LOST_MAX)).map_err(text)?;
        stream.write_all(format!("GET large:{LARGE_CLIENTS}\r\n").as_bytes()).map_err(text)?;
        let mut chunk = vec![0; 256 << 10];
        let mut left = LARGE_BYTES;
        while left > 0 {
            match stream.read(&mut chunk) {
                Ok(0) => return Err("the server closed the connection".to_string()),
                Ok(_) if left == LARGE_BYTES && chunk.starts_with(b"-BUSY") => return Ok(()),
                Ok(count) => left = left.saturating_sub(count),
                Err(why) if why.kind() == Interrupted => {}
                Err(why) => return Err(text(why)),
            }
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Reads messages to the end of the mix.
    fn read_messages(&self) -> Fallible {
        let text = |why: std::io::Error| why.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).map_err(text)?;
        stream.set_read_timeout(Some(LOOK)).map_err(text)?;
        stream.write_all(b"SUBSCRIBE channel\r\n").map_err(text)?;
        let mut chunk = vec![0; 64 << 10];
        while !self.is_over() {
            match stream.read(&mut chunk) {
                Ok(0) => return Err("the server closed the connection".to_string()),
                Ok(_) => {}
                Err(why) if matches!(why.kind(), WouldBlock | TimedOut | Interrupted) => {}
                Err(why) => return Err(why.to_string()),
            }
        }
        Ok(())
    }

    fn publish(&self) -> Fallible {
        let mut client = self.client()?;
        let mut bytes = Vec::new();
        for _ in 0..MESSAGES_AT_ONCE {
            command(&mut bytes, [&b"PUBLISH"[..], b"channel", b"message"].into_iter());
        }
        while !self.is_over() {
            client.send(&bytes)?;
            for _ in 0..MESSAGES_AT_ONCE {
                or_busy(client.read())?;
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn step_clock(&self) -> Fallible {
        let mut client = self.client()?;
        for ahead_ms in [DAY_MS, 0, -DAY_MS, 0] {
            or_busy(client.call(&["DEBUG", "STEP-CLOCK", &ahead_ms.to_string()]))?;
            thread::sleep(Duration::from_millis(WAIT_MS / 3));
        }
        self.done.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Waits for as long as the request says, neither less nor a day more. `then`: the request that waits.
    fn wait(&self, request: &[&str], then: Option<&str>) -> Fallible {
        let mut client = self.client()?;
        let begun = Instant::now();
        client.call(request)?;
        if let Some(then) = then {
            client.call(&[then])?;
        }
        let took = begun.elapsed();
        let name = request.join(" ");
        if took < Duration::from_millis(WAIT_MS - 1) {
            return Err(format!("{name} is over after {took:?}"));
        }
        if took > LATE_MAX {
            self.fault(Severity::Late, format!("{name} takes {took:?}"));
        }
        // Not paused without a break.
        thread::sleep(Duration::from_millis(WAIT_MS));
        Ok(())
    }

    /// Ends scripts by new connections alone, until the number that ended is enough or none is left.
    fn kill_scripts(&self, probes: &mut Probes, is_enough: impl Fn(u32) -> bool) {
        let begun = Instant::now();
        let mut killed = 0;
        while self.scripts.load(Ordering::SeqCst) > 0 && !is_enough(killed) {
            match probes.request(&["SCRIPT", "KILL"]) {
                Some(Ok(())) => killed += 1,
                // Between two of them, or before it is seen as slow.
                Some(Err(text)) if text.starts_with("NOTBUSY") => {}
                Some(Err(text)) => return self.fault(Severity::Wrong, format!("SCRIPT KILL: {text}")),
                None => return,
            }
            if begun.elapsed() > LOST_MAX {
                return self.fault(Severity::Wrong, "a script goes on beside SCRIPT KILL".to_string());
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The one way out of a script that has written.
    fn shut_down(&self, probes: &mut Probes, server: &mut Server) {
        // The connection ends with the process: that is no answer, and none is needed.
        let asked = self.client().and_then(|mut client| client.call(&["SHUTDOWN", "NOSAVE"]));
        let begun = Instant::now();
        while server.ended().is_none() {
            if begun.elapsed() > LOST_MAX {
                let what =
                    format!("SHUTDOWN NOSAVE beside a script that has written does not end it: {asked:?}");
                return probes.faults.push((Severity::Wrong, what));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// While a script runs, others may be refused.
fn or_busy<T>(reply: Fallible<T>) -> Fallible {
    match reply {
        // It stands after the name of the request, where it was a call.
        Err(why) if !why.contains("BUSY ") => Err(why),
        _ => Ok(()),
    }
}
