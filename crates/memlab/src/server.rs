//! A real server, filled over a socket and looked at from outside.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::Fallible;

/// Requests on their way at a time.
const PIPELINE: usize = 128;

pub struct Server {
    process: Child,
    port: u16,
    folder: PathBuf,
}

impl Server {
    /// Starts `program` with one worker (`io-threads 1`) and without persistence.
    pub fn start(program: &Path, arguments: &[&str]) -> Fallible<Server> {
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .map_err(|why| format!("no port is free: {why}"))?
            .port();
        let folder = std::env::temp_dir().join(format!("isotherm-memlab-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|why| format!("cannot make {}: {why}", folder.display()))?;
        let process = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--io-threads", "1"])
            .args(arguments)
            .current_dir(&folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", program.display()))?;
        let server = Server { process, port, folder };
        let start = Instant::now();
        while server.connect().is_err() {
            if start.elapsed() > Duration::from_secs(20) {
                return Err(format!("{} does not answer", program.display()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    pub fn connect(&self) -> Fallible<Link> {
        let stream =
            TcpStream::connect(("127.0.0.1", self.port)).map_err(|why| format!("no connection: {why}"))?;
        let write = stream.try_clone().map_err(|why| format!("no second handle of a connection: {why}"))?;
        Ok(Link { write, read: BufReader::with_capacity(64 << 10, stream), ahead: 0, batch: Vec::new() })
    }

    /// Resident bytes, exactly (`smaps_rollup`).
    pub fn rss_bytes(&self) -> Fallible<u64> {
        let file = format!("/proc/{}/smaps_rollup", self.process.id());
        let text = std::fs::read_to_string(&file).map_err(|why| format!("cannot read {file}: {why}"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
        kilobytes.map(|kilobytes| kilobytes << 10).ok_or_else(|| format!("{file} has no Rss"))
    }

    /// CPU time of all threads, in nanoseconds.
    pub fn cpu_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id()));
        let of = |folder: PathBuf| {
            let text = std::fs::read_to_string(folder.join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        };
        tasks.map_or(0, |tasks| tasks.flatten().filter_map(|task| of(task.path())).sum())
    }

    /// A figure of INFO memory.
    pub fn memory(&self, field: &str) -> Fallible<f64> {
        let info = self.connect()?.bulk(&["INFO", "memory"])?;
        let line = info.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok())
            .ok_or_else(|| format!("INFO memory has no figure {field}"))
    }

    pub fn keys(&self) -> Fallible<u64> {
        let mut link = self.connect()?;
        link.send(&[b"DBSIZE"])?;
        link.flush()?;
        let line = link.line()?;
        line.trim_start_matches(':').parse().map_err(|_| format!("DBSIZE answers {line}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A connection on which requests are sent ahead; their replies are lines, and none may be an error.
pub struct Link {
    write: TcpStream,
    read: BufReader<TcpStream>,
    ahead: usize,
    batch: Vec<u8>,
}

impl Link {
    pub fn send(&mut self, words: &[&[u8]]) -> Fallible {
        let _ = write!(self.batch, "*{}\r\n", words.len());
        for word in words {
            let _ = write!(self.batch, "${}\r\n", word.len());
            self.batch.extend_from_slice(word);
            self.batch.extend_from_slice(b"\r\n");
        }
        self.ahead += 1;
        if self.ahead < PIPELINE { Ok(()) } else { self.finish() }
    }

    /// Sends what waits and reads all replies.
    pub fn finish(&mut self) -> Fallible {
        self.flush()?;
        for _ in 0..std::mem::take(&mut self.ahead) {
            let line = self.line()?;
            if line.starts_with('-') {
                return Err(format!("the server says {line}"));
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Fallible {
        self.write
            .write_all(&self.batch)
            .map_err(|why| format!("the server does not take requests: {why}"))?;
        self.batch.clear();
        Ok(())
    }

    fn line(&mut self) -> Fallible<String> {
        let mut line = String::new();
        match self.read.read_line(&mut line) {
            Ok(0) => Err("the server closed the connection".to_string()),
            Ok(_) => Ok(line.trim_end().to_string()),
            Err(why) => Err(format!("the server does not answer: {why}")),
        }
    }

    fn bulk(&mut self, words: &[&str]) -> Fallible<String> {
        /// INFO has some ten.
        const REPLY_BYTES_MAX: usize = 1 << 20;
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        self.send(&words)?;
        self.ahead = 0;
        self.flush()?;
        let line = self.line()?;
        let length = line.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
        let length =
            length.filter(|length| *length <= REPLY_BYTES_MAX).ok_or_else(|| format!("no bulk: {line}"))?;
        let mut text = vec![0; length + 2];
        self.read.read_exact(&mut text).map_err(|why| format!("the reply ended early: {why}"))?;
        Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    }
}
