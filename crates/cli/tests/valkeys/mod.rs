//! Real nodes of Valkey for a test, on this machine only, and what a test asks them. Needs
//! `ISOTHERM_PEER_BIN`.

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use isotherm_cli::address::Address;
use isotherm_cli::cluster::node::{Line, parse};
use isotherm_cli::connection::{Connection, Dial};
use isotherm_probe::free_port;
use isotherm_resp::reply_parse::Value;

/// Maximum time of a wait. It takes a second at most; a machine under load takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
/// A tool that takes longer hangs.
const TOOL_MAX: Duration = Duration::from_secs(240);

pub fn peers() -> Option<PathBuf> {
    let folder = std::env::var_os("ISOTHERM_PEER_BIN").map(PathBuf::from);
    if folder.is_none() {
        eprintln!(
            "skipped: the cluster manager on a real cluster: ISOTHERM_PEER_BIN does not say where Valkey's programs are"
        );
    }
    folder
}

/// Two clusters at a time would be too much for a small machine.
pub fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub struct Node {
    pub port: u16,
    child: Child,
    folder: PathBuf,
}

impl Node {
    pub fn start(bin: &Path, is_cluster: bool, more: &[&str]) -> Node {
        let (port, bus) = (free_port().unwrap(), free_port().unwrap());
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("manager-{port}"));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("valkey.conf");
        let mut text = format!("port {port}\nbind 127.0.0.1\nsave \"\"\nrepl-diskless-sync-delay 0\n");
        if is_cluster {
            text += &format!("cluster-enabled yes\ncluster-port {bus}\ncluster-node-timeout 5000\n");
        }
        std::fs::write(&file, text + &more.join("\n")).unwrap();
        let mut command = Command::new(bin.join("valkey-server"));
        command.arg(&file).current_dir(&folder).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let node = Node { port, child, folder };
        wait_until("a node listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        node
    }

    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn ask(&self, line: &str) -> Value {
        let words: Vec<&str> = line.split(' ').collect();
        let mut connection =
            Connection::open(&Address::tcp("127.0.0.1", self.port), Dial::default()).unwrap();
        connection.call(&words).unwrap()
    }

    pub fn do_it(&self, line: &str) {
        let reply = self.ask(line);
        assert!(reply.as_error().is_none(), "{line}: {reply}");
    }

    pub fn text(&self, line: &str) -> String {
        match self.ask(line) {
            Value::Bulk(text) | Value::Simple(text) => String::from_utf8(text).unwrap(),
            other => panic!("{line}: {other}"),
        }
    }

    pub fn number(&self, line: &str) -> i64 {
        match self.ask(line) {
            Value::Integer(number) => number,
            other => panic!("{line}: {other}"),
        }
    }

    pub fn id(&self) -> String {
        self.text("CLUSTER MYID")
    }

    /// The line of this node about itself.
    pub fn line(&self) -> Line {
        let lines = parse(&self.text("CLUSTER NODES")).unwrap();
        lines.into_iter().find(Line::is_myself).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

/// A command line client, ours or theirs.
#[derive(Clone)]
pub struct Tool(pub PathBuf);

pub struct Said {
    pub text: String,
    pub code: Option<i32>,
}

impl Said {
    #[track_caller]
    pub fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.text);
        self.text
    }

    #[track_caller]
    pub fn badly(self) -> String {
        assert_eq!(self.code, Some(1), "{}", self.text);
        self.text
    }
}

impl Tool {
    pub fn ours() -> Tool {
        Tool(env!("CARGO_BIN_EXE_isotherm-cli").into())
    }

    pub fn command(&self, line: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.args(line.split(' ')).env("TERM", "dumb").stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs `--cluster LINE`.
    pub fn run(&self, line: &str, input: &str) -> Said {
        use std::io::Write;
        let mut child = self.command(&format!("--cluster {line}")).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        let (sender, ended) = std::sync::mpsc::channel();
        let id = child.id();
        std::thread::spawn(move || sender.send(child.wait_with_output().unwrap()));
        let Ok(output) = ended.recv_timeout(TOOL_MAX) else { panic!("{line} (process {id}) does not end") };
        let text = [output.stdout, output.stderr].concat();
        Said { text: String::from_utf8_lossy(&text).into_owned(), code: output.status.code() }
    }

    /// Runs a line that is to end well.
    #[track_caller]
    pub fn good(&self, line: &str) -> String {
        self.run(line, "").well()
    }
}
