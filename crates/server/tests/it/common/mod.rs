//! A server started from the built binary, and a client that speaks bytes.
#![allow(dead_code)]

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Whatever takes longer than this has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// `whole` where ISOTHERM_SCALE is 1, and a part of it otherwise: what a test does by itself, it does in
/// seconds.
pub fn scaled(whole: usize, part: f64) -> usize {
    let scale = std::env::var("ISOTHERM_SCALE").map_or(part, |scale| scale.parse().expect("a number"));
    (whole as f64 * scale) as usize
}

/// Runs when it is dropped, also by a failed check: threads of a scope that are not stopped would hang the
/// test.
pub struct OnDrop<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// Looks again and again until it is so. All waits of a test for a condition are here: a sleep that is long
/// enough on an idle machine is too short on a busy one.
#[track_caller]
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "this never came: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// How long `Server::hold_all_locks` holds them, at least.
pub const HOLD: Duration = Duration::from_millis(400);

pub struct Server {
    child: Child,
    pub port: u16,
    pub folder: PathBuf,
}

impl Server {
    /// With one worker.
    pub fn start(arguments: &[&str]) -> Server {
        Server::with_workers(1, arguments)
    }

    pub fn with_workers(workers: usize, arguments: &[&str]) -> Server {
        let port = free_port();
        let (port_text, workers) = (port.to_string(), workers.to_string());
        let mut all = vec!["--port", &port_text, "--bind", "127.0.0.1", "--io-threads", &workers];
        all.extend_from_slice(arguments);
        let server = Server::spawn(port, command(&all));
        server.wait_until_it_answers();
        server
    }

    /// With a port for metrics too, which is opened later than the other one.
    pub fn with_metrics(workers: usize, metrics_port: u16, arguments: &[&str]) -> Server {
        let port = metrics_port.to_string();
        let server = Server::with_workers(workers, &[&["--metrics-port", &port], arguments].concat());
        server.wait_for_log("Metrics are served on");
        server
    }

    /// Starts any command line; nothing is waited for.
    pub fn spawn(port: u16, mut command: Command) -> Server {
        let folder = std::env::temp_dir().join(format!("isotherm-test-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let log = std::fs::File::create(folder.join("log")).unwrap();
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Server { child: command.spawn().unwrap(), port, folder }
    }

    fn wait_until_it_answers(&self) {
        wait_until("the server listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }

    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        wait_until(&format!("{text:?} in the log"), || self.log().contains(text));
    }

    /// A transaction of `client` holds all locks for `HOLD`, then runs `requests` under them. It holds them
    /// when this returns, and not yet at the moment that is returned. The reply of EXEC is still to be read:
    /// two times OK, then the replies to the requests. Needs `--enable-debug-command`.
    pub fn hold_all_locks(&self, client: &mut Client, requests: &[&str]) -> Instant {
        self.hold_all_locks_for(HOLD, client, requests)
    }

    pub fn hold_all_locks_for(&self, time: Duration, client: &mut Client, requests: &[&str]) -> Instant {
        static HOLDS: AtomicU32 = AtomicU32::new(0);
        let mark = format!("hold-{}", HOLDS.fetch_add(1, Ordering::Relaxed));
        client.check("MULTI", "+OK\r\n");
        let sleep = format!("DEBUG SLEEP {}", time.as_secs_f64());
        let first = [&*format!("DEBUG LOG {mark}"), &*sleep];
        first.iter().chain(requests).for_each(|request| client.check(request, "+QUEUED\r\n"));
        let begun = Instant::now();
        client.send(encode(&["EXEC"]));
        // Written under the locks.
        self.wait_for_log(&format!("DEBUG LOG: {mark}\n"));
        begun
    }

    pub fn client(&self) -> Client {
        Client::over(TcpStream::connect(("127.0.0.1", self.port)).unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.expect("it has ended")
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn resident_bytes(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", self.pid())).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:")).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    }

    /// CPU time of all threads.
    pub fn cpu(&self) -> Duration {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        let nanos = tasks.map(|task| {
            let text = std::fs::read_to_string(task.unwrap().path().join("schedstat")).unwrap();
            text.split_whitespace().next().unwrap().parse::<u64>().unwrap()
        });
        Duration::from_nanos(nanos.sum())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let failed = std::thread::panicking();
        self.child.kill().ok();
        self.child.wait().ok();
        if failed {
            eprintln!("the server's log:\n{}", self.log());
        }
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

pub fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command.args(arguments);
    command
}

/// The server that is tested: the one that was built with the tests, or `ISOTHERM_SERVER`.
pub fn binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        std::env::var_os("ISOTHERM_SERVER")
            .map_or_else(|| env!("CARGO_BIN_EXE_isotherm-server").into(), PathBuf::from)
    })
}

pub fn free_port() -> u16 {
    isotherm_probe::free_port().unwrap()
}

/// A connection, and the bytes that were read from it but not asked for.
pub struct Client<S = TcpStream> {
    pub stream: S,
    left: Vec<u8>,
}

impl Client<TcpStream> {
    pub fn over(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, left: Vec::new() }
    }

    /// No reply comes for a while.
    pub fn expect_silence(&mut self) {
        self.stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut byte = [0];
        let error = read_some(&mut self.stream, &mut byte).expect_err("nothing should come");
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
    }
}

impl<S: Read + Write> Client<S> {
    pub fn over_any(stream: S) -> Client<S> {
        Client { stream, left: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// Sends a request and checks the bytes of its reply.
    #[track_caller]
    pub fn check(&mut self, request: &str, reply: &str) {
        let words: Vec<&str> = request.split_whitespace().collect();
        self.send(encode(&words));
        let got = self.read_reply();
        assert_eq!(String::from_utf8_lossy(&got), reply, "{request}");
    }

    /// Sends a request and returns the bytes of its reply.
    pub fn ask(&mut self, request: &str) -> String {
        self.send(encode(&request.split_whitespace().collect::<Vec<_>>()));
        String::from_utf8_lossy(&self.read_reply()).into_owned()
    }

    /// Sends a request and returns the bytes of the string that it gets.
    pub fn ask_bytes(&mut self, request: &str) -> Vec<u8> {
        self.send(encode(&request.split_whitespace().collect::<Vec<_>>()));
        let reply = self.read_reply();
        let line = 1 + reply.iter().position(|byte| *byte == b'\n').expect("a line");
        reply[line..reply.len() - 2].to_vec()
    }

    /// The number after the colon of a reply.
    #[track_caller]
    pub fn ask_number(&mut self, request: &str) -> i64 {
        let reply = self.ask(request);
        let number = reply.strip_prefix(':').and_then(|rest| rest.trim_end().parse().ok());
        number.unwrap_or_else(|| panic!("{request}: {reply:?} is no number"))
    }

    /// Its own id.
    pub fn id(&mut self) -> u64 {
        self.ask_number("CLIENT ID") as u64
    }

    /// A number of INFO.
    #[track_caller]
    pub fn info(&mut self, section: &str, name: &str) -> u64 {
        field(&self.ask(&format!("INFO {section}")), name)
    }

    /// How many clients wait for a key.
    pub fn blocked_count(&mut self) -> u64 {
        self.info("clients", "blocked_clients")
    }

    /// A field of a line of CLIENT LIST: of the client with the field `of`, such as `name=ann` or `id=7`.
    /// `None` if there is no such client.
    pub fn listed(&mut self, of: &str, name: &str) -> Option<String> {
        let list = self.ask("CLIENT LIST");
        let line = list.lines().find(|line| line.split(' ').any(|part| part == of))?;
        let value = line.split(' ').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        Some(value.unwrap_or_else(|| panic!("no {name} in {line}")).to_string())
    }

    /// How many clients wait for a key, or for the end of a pause.
    pub fn waiting_count(&mut self) -> usize {
        self.ask("CLIENT LIST").matches(" flags=b ").count()
    }

    /// Whether the client with this id waits for a key, or for the end of a pause.
    pub fn sees_waiting(&mut self, id: u64) -> bool {
        self.listed(&format!("id={id}"), "flags").is_some_and(|flags| flags.contains('b'))
    }

    /// How many bytes of replies the client with this id has yet to take from the server.
    pub fn unread_bytes(&mut self, id: u64) -> u64 {
        self.listed(&format!("id={id}"), "omem").map_or(0, |bytes| bytes.parse().unwrap())
    }

    /// One whole reply.
    #[track_caller]
    pub fn read_reply(&mut self) -> Vec<u8> {
        loop {
            if let Some(end) = reply_end(&self.left, 0) {
                return self.left.drain(..end).collect();
            }
            let mut bytes = vec![0; 64 << 10];
            let count = read_some(&mut self.stream, &mut bytes).expect("a reply comes");
            assert!(count > 0, "closed after {:?}", String::from_utf8_lossy(&self.left));
            self.left.extend_from_slice(&bytes[..count]);
        }
    }

    #[track_caller]
    pub fn expect(&mut self, reply: &str) {
        let got = self.read_reply();
        assert_eq!(String::from_utf8_lossy(&got), reply);
    }

    /// Everything up to the end of the connection.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut all = std::mem::take(&mut self.left);
        if let Err(error) = self.stream.read_to_end(&mut all) {
            // A reset is an end as well, and silence is none.
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
        }
        all
    }

    #[track_caller]
    pub fn expect_end(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.read_to_end()), "");
    }
}

/// Reads what has come, at least a byte unless the stream ends. A read with a timeout is not begun again by
/// the system after a signal: one that stops the process and lets it go on is enough.
pub fn read_some(stream: &mut impl Read, bytes: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match stream.read(bytes) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

pub fn encode(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Where the reply that begins at `at` ends, if it is complete.
fn reply_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?;
    let line = rest.windows(2).position(|pair| pair == b"\r\n")?;
    let after = at + line + 2;
    let number = || std::str::from_utf8(&rest[1..line]).unwrap().parse::<i64>().unwrap();
    let several = |count: i64| (0..count).try_fold(after, |at, _| reply_end(bytes, at));
    match rest[0] {
        b'+' | b'-' | b':' | b',' | b'_' | b'#' | b'(' => Some(after),
        b'$' | b'=' if number() < 0 => Some(after),
        b'$' | b'=' => {
            let end = after + number() as usize + 2;
            (bytes.len() >= end).then_some(end)
        }
        b'*' | b'~' | b'>' => several(number()),
        b'%' => several(number() * 2),
        other => panic!("no reply begins with {:?}", other as char),
    }
}

/// A number in a reply of INFO.
#[track_caller]
pub fn field(info: &str, name: &str) -> u64 {
    let text = text_field(info, name);
    text.parse().unwrap_or_else(|_| panic!("{name}:{text} is no number"))
}

/// A field of a reply of INFO.
#[track_caller]
pub fn text_field<'a>(info: &'a str, name: &str) -> &'a str {
    let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    value.unwrap_or_else(|| panic!("no {name} in {info}"))
}
