//! The state of a connection after the commands that went over it, and the running of a command.
//!
//! A command line client has to know more than requests and replies: which database it stands in (a new
//! connection starts in the first), whether a transaction is open, whether messages come by themselves. Those
//! are learnt from the commands as they pass and from what the server answers.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use isotherm_resp::reply_parse::Value;
use isotherm_stdx::Slot;

use crate::address::Address;
use crate::cluster::topology::{Redirect, Topology};
use crate::connection::{Broken, Connection};
use crate::options::{Options, WantedProtocol};
use crate::render::{Format, invalidation};
use crate::terminal::put;
use crate::text::{leading_i64, reason, until_nul};

/// Treatment of an unexpected push.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pushes {
    Drop,
    Show,
    /// Delivery to the caller, which waits for pushes: confirmations of SUBSCRIBE, and messages.
    Return,
}

/// Outcome of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ran {
    Done,
    Failed,
    /// The program should end with this code.
    End(i32),
}

/// The way out of a command that cannot go on.
enum Trouble {
    /// Said already, or to be said by the next connection.
    Lost,
    End(i32),
}

pub struct Session {
    pub options: Options,
    pub address: Address,
    pub interactive: bool,
    pub in_multi: bool,
    /// Messages come by themselves.
    pub subscribed: bool,
    connection: Option<Connection>,
    /// The database that the connection stands in, and the one to select when there is a new connection.
    db: i64,
    wanted_db: i64,
    db_before_multi: i64,
    resp3: bool,
    pushes: Pushes,
    channels: i64,
    shard_channels: i64,
    monitoring: bool,
    shutting_down: bool,
    topology: Topology,
    redirect: Option<Redirect>,
    interrupt: Option<Arc<AtomicBool>>,
}

impl Session {
    pub fn new(options: Options) -> Session {
        Session {
            address: options.address.clone(),
            interactive: false,
            in_multi: false,
            subscribed: false,
            connection: None,
            db: 0,
            wanted_db: options.db,
            db_before_multi: 0,
            resp3: false,
            pushes: Pushes::Drop,
            channels: 0,
            shard_channels: 0,
            monitoring: false,
            shutting_down: false,
            topology: Topology::new(crate::seed()),
            redirect: None,
            interrupt: None,
            options,
        }
    }

    /// Makes Ctrl-C end a wait instead of the program from now on.
    pub fn interrupt_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = Some(flag);
    }

    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The connection, for modes that talk over it themselves.
    pub fn connection(&mut self) -> Result<&mut Connection, String> {
        if self.connection.is_none() && !self.connect(false) {
            return Err(String::new());
        }
        self.connection.as_mut().ok_or_else(String::new)
    }

    pub fn prompt(&self) -> String {
        let mut prompt = match &self.address {
            Address::Unix(path) => format!("isotherm {}", path.display()),
            tcp => tcp.to_string(),
        };
        if self.db != 0 {
            prompt.push_str(&format!("[{}]", self.db));
        }
        if self.in_multi {
            prompt.push_str("(TX)");
        }
        if self.subscribed {
            prompt.push_str("(subscribed mode)");
        }
        prompt + "> "
    }

    /// Connects anew; says on standard error why not, unless asked to be quiet. After a login that the server
    /// refused there is a connection all the same: it may answer something.
    pub fn connect(&mut self, quiet: bool) -> bool {
        self.connection = None;
        self.db = 0;
        self.in_multi = false;
        self.subscribed = false;
        self.channels = 0;
        self.shard_channels = 0;
        self.resp3 = false;
        self.pushes = if self.options.show_pushes { Pushes::Show } else { Pushes::Drop };
        let mut connection = match Connection::open(&self.address, self.options.dial) {
            Ok(connection) => connection,
            Err(why) => {
                if !quiet {
                    eprintln!("Could not connect to Isotherm at {}: {}", self.address, reason(&why));
                }
                return false;
            }
        };
        if let Some(flag) = &self.interrupt {
            connection.interrupt_by(flag.clone());
        }
        self.connection = Some(connection);
        self.log_in() && self.select() && self.switch_protocol()
    }

    /// Sends a command of our own; `None` if the connection broke.
    fn ask(&mut self, args: &[&str]) -> Option<Value> {
        let outcome = self.connection.as_mut()?.call(args);
        if outcome.is_err() {
            eprintln!("\nI/O error");
        }
        outcome.ok()
    }

    fn log_in(&mut self) -> bool {
        let login = self.options.login.clone();
        let Some(command) = login.command() else { return true };
        let Some(reply) = self.ask(&command) else { return false };
        self.accepted(&reply, "AUTH")
    }

    fn select(&mut self) -> bool {
        if self.db == self.wanted_db {
            return true;
        }
        let db = self.wanted_db.to_string();
        let Some(reply) = self.ask(&["SELECT", &db]) else { return false };
        if !self.accepted(&reply, &format!("SELECT {db}")) {
            return false;
        }
        self.db = self.wanted_db;
        true
    }

    fn switch_protocol(&mut self) -> bool {
        let wanted = self.options.protocol;
        if !matches!(wanted, WantedProtocol::Resp3 | WantedProtocol::PreferResp3) {
            return true;
        }
        let Some(reply) = self.ask(&["HELLO", "3"]) else { return false };
        let accepted = self.accepted(&reply, "HELLO 3");
        self.resp3 = accepted;
        accepted || wanted == WantedProtocol::PreferResp3
    }

    fn accepted(&self, reply: &Value, what: &str) -> bool {
        if let Some(error) = reply.as_error() {
            eprintln!("{what} failed: {}", String::from_utf8_lossy(error));
            return false;
        }
        true
    }

    /// Runs a command as often as asked, following redirects, and shows its replies.
    pub fn run(&mut self, args: &[Vec<u8>], repeat: i64) -> Ran {
        let mut repeat = repeat;
        if let Some(owner) = self.owner_by_map(args) {
            self.address = owner;
            self.connection = None;
        }
        loop {
            if self.connection.is_none() && !self.connect(false) {
                return Ran::Failed;
            }
            if self.redirect.take().is_some_and(|redirect| redirect.ask) {
                match self.ask(&["ASKING"]) {
                    Some(reply) if self.accepted(&reply, "ASKING") => {}
                    _ => return Ran::Failed,
                }
            }
            match self.send_and_show(args, &mut repeat) {
                Ok(()) => {}
                Err(Trouble::End(code)) => return Ran::End(code),
                Err(Trouble::Lost) => {
                    self.connection = None;
                    return Ran::Failed;
                }
            }
            let Some(redirect) = self.redirect.clone() else { return Ran::Done };
            self.follow(&redirect);
        }
    }

    /// Goes where a redirect points, and asks for the whole map if it is time.
    fn follow(&mut self, redirect: &Redirect) {
        let ask_for_map = self.topology.note(redirect, Instant::now());
        self.topology.note_node(&self.address.clone());
        if ask_for_map {
            self.fetch_map();
        }
        self.address = redirect.to.clone();
        self.connection = None;
    }

    /// Asks one random node for the map of the slots. A failure is ignored: redirections are still followed.
    fn fetch_map(&mut self) {
        self.topology.asked(Instant::now());
        let Some(node) = self.topology.any_node() else { return };
        let Ok(mut connection) = Connection::open(&node, self.options.dial) else { return };
        if let Some(login) = self.options.login.command() {
            let Ok(Value::Simple(_)) = connection.call(&login) else { return };
        }
        if let Ok(reply) = connection.call(&["CLUSTER", "SLOTS"]) {
            self.topology.learn(&reply, &node);
        }
    }

    /// The node for a command, if the map says that it is not this one. Only commands whose first argument is
    /// their key are looked at; the others are sent where we are, and redirected.
    fn owner_by_map(&self, args: &[Vec<u8>]) -> Option<Address> {
        if !self.options.cluster || self.in_multi || self.subscribed {
            return None;
        }
        let key = args.get(1)?;
        let name = String::from_utf8_lossy(args.first()?).to_ascii_lowercase();
        if !KEY_FIRST.contains(&name.as_str()) {
            return None;
        }
        let owner = self.topology.owner(Slot::of_key(key))?;
        (*owner != self.address).then(|| owner.clone())
    }

    fn send_and_show(&mut self, args: &[Vec<u8>], repeat: &mut i64) -> Result<(), Trouble> {
        let command = Command::new(args);
        let verbatim = command.answers_text() && !self.in_multi;
        self.shutting_down |= command.is("shutdown");
        while *repeat != 0 {
            *repeat -= i64::from(*repeat > 0);
            if let Err(why) = self.connection.as_mut().ok_or(Trouble::Lost)?.send(args) {
                eprintln!("Error: {why}");
                return Err(Trouble::Lost);
            }
            if command.is("monitor") {
                return self.monitor();
            }
            // Confirmations of (un)subscribing are pushes, one for each channel, at least one.
            let mut confirmations = 0;
            if command.changes_subscriptions() {
                confirmations = args.len().max(2) - 1;
                self.pushes = Pushes::Return;
            }
            let Some(reply) = self.reply_to(&command, &mut confirmations, verbatim)? else { return Ok(()) };
            self.note_effect(&command, &reply);
            if self.redirect.is_some() {
                // The redirected command counts as the one that it was.
                *repeat += i64::from(*repeat >= 0);
                return Ok(());
            }
            std::thread::sleep(self.options.interval);
        }
        Ok(())
    }

    /// Shows replies until the one that belongs to `command`, which is returned; `None` after SHUTDOWN.
    fn reply_to(
        &mut self,
        command: &Command<'_>,
        confirmations: &mut usize,
        verbatim: bool,
    ) -> Result<Option<Value>, Trouble> {
        loop {
            let Some(reply) = self.show_next(verbatim)? else { return Ok(None) };
            if !self.subscribed && *confirmations == 0 {
                return Ok(Some(reply));
            }
            if let Some(kind) = self.note_message(&reply) {
                if *confirmations == 0 || !command.name.eq_ignore_ascii_case(&kind) {
                    continue;
                }
                *confirmations -= 1;
                if *confirmations > 0 {
                    continue;
                }
            } else if matches!(reply, Value::Push(_)) {
                continue;
            }
            return Ok(Some(reply));
        }
    }

    /// Shows lines until Ctrl-C.
    fn monitor(&mut self) -> Result<(), Trouble> {
        self.monitoring = true;
        while self.monitoring {
            let Some(reply) = self.show_next(false)? else { break };
            if reply.as_error().is_some() {
                self.monitoring = false;
            }
        }
        Ok(())
    }

    /// The next reply that is no push of its own accord, shown. `None` if there is none, and rightly: after
    /// SHUTDOWN, and when Ctrl-C ended a wait for messages.
    fn show_next(&mut self, verbatim: bool) -> Result<Option<Value>, Trouble> {
        let reply = loop {
            match self.connection.as_mut().ok_or(Trouble::Lost)?.read() {
                Ok(push @ Value::Push(_)) if self.pushes != Pushes::Return => {
                    if self.pushes == Pushes::Show {
                        self.show_push(&push);
                    }
                }
                Ok(reply) => break reply,
                Err(why) => return self.read_failed(&why),
            }
        };
        if let Some(error) = reply.as_error() {
            if self.options.cluster
                && let Some(redirect) = Redirect::parse(error, &self.address)
            {
                if self.interactive {
                    put(format!("-> Redirected to slot [{}] located at {}\n", redirect.slot, redirect.to));
                }
                self.redirect = Some(redirect);
                return Ok(Some(reply));
            }
            if !self.interactive && self.options.fail_on_error {
                eprintln!("{}", String::from_utf8_lossy(until_nul(error)));
                return Err(Trouble::End(1));
            }
        }
        let style = &self.options.style;
        put(if verbatim { style.verbatim(&reply) } else { style.render(&reply) });
        Ok(Some(reply))
    }

    fn show_push(&self, push: &Value) {
        let style = &self.options.style;
        let shown = if style.format == Format::Standard { invalidation(push) } else { None };
        put(shown.unwrap_or_else(|| style.render(push)));
    }

    fn read_failed(&mut self, why: &Broken) -> Result<Option<Value>, Trouble> {
        if matches!(why, Broken::Interrupted) {
            if !(self.monitoring || self.subscribed) {
                return Err(Trouble::End(1));
            }
            self.monitoring = false;
            return if self.connect(false) { Ok(None) } else { Err(Trouble::Lost) };
        }
        if self.shutting_down {
            self.shutting_down = false;
            self.connection = None;
            return Ok(None);
        }
        eprintln!("Error: {why}");
        if self.interactive && why.is_lost() { Err(Trouble::Lost) } else { Err(Trouble::End(1)) }
    }

    /// Learns from a message of a channel; gives its kind, or `None` if this is something else.
    fn note_message(&mut self, reply: &Value) -> Option<Vec<u8>> {
        let items = match reply {
            Value::Push(items) if self.resp3 => items,
            Value::Array(items) if !self.resp3 => items,
            _ => return None,
        };
        let [Value::Bulk(kind), _, third, ..] = items.as_slice() else { return None };
        if !(kind.ends_with(b"message") || kind.ends_with(b"subscribe")) {
            return None;
        }
        let count = if let Value::Integer(count) = third { *count } else { 0 };
        match kind.as_slice() {
            b"subscribe" | b"psubscribe" | b"unsubscribe" | b"punsubscribe" => self.channels = count,
            b"ssubscribe" | b"sunsubscribe" => self.shard_channels = count,
            _ => {}
        }
        self.subscribed = self.channels + self.shard_channels > 0;
        Some(kind.clone())
    }

    /// Updates the state of the connection after a command was answered.
    fn note_effect(&mut self, command: &Command<'_>, reply: &Value) {
        let refused = reply.as_error().is_some();
        let alone = command.args.len() == 1;
        if command.is("select") && command.args.len() == 2 && !refused {
            self.db = leading_i64(&String::from_utf8_lossy(&command.args[1]));
            self.wanted_db = self.db;
        } else if command.is("auth") && matches!(command.args.len(), 2 | 3) {
            self.select();
        } else if command.is("multi") && alone && !refused {
            self.in_multi = true;
            self.db_before_multi = self.db;
        } else if command.is("exec") && alone && self.in_multi {
            self.in_multi = false;
            if refused || reply.is_null() {
                self.back_to(self.db_before_multi);
            }
        } else if command.is("discard") && alone && !refused {
            self.in_multi = false;
            self.back_to(self.db_before_multi);
        } else if command.is("reset") && alone && !refused {
            self.in_multi = false;
            self.back_to(0);
            self.resp3 = false;
            self.subscribed = false;
            (self.channels, self.shard_channels) = (0, 0);
            self.pushes_as_before();
        } else if command.is("hello") {
            match reply {
                Value::Map(_) => self.resp3 = true,
                Value::Array(_) => self.resp3 = false,
                _ => {}
            }
        } else if command.changes_subscriptions() && !self.subscribed {
            self.pushes_as_before();
        }
    }

    fn back_to(&mut self, db: i64) {
        self.db = db;
        self.wanted_db = db;
    }

    fn pushes_as_before(&mut self) {
        self.pushes = if self.options.show_pushes { Pushes::Show } else { Pushes::Drop };
    }

    /// Shows messages that have arrived already.
    pub fn show_arrived(&mut self) -> Result<(), Broken> {
        while let Some(connection) = self.connection.as_mut() {
            let Some(reply) = connection.read_arrived()? else { break };
            put(self.options.style.render(&reply));
            self.note_message(&reply);
        }
        Ok(())
    }

    /// Waits for a message and shows it; for a subscriber whose program has nothing else to do.
    pub fn show_message(&mut self) -> Ran {
        match self.show_next(false) {
            Ok(Some(reply)) => {
                self.note_message(&reply);
                Ran::Done
            }
            Ok(None) => Ran::Done,
            Err(Trouble::End(code)) => Ran::End(code),
            Err(Trouble::Lost) => Ran::End(1),
        }
    }
}

/// Commands whose first argument is their key, and whose reply says MOVED if it lies elsewhere. The list only
/// has to be right, not complete.
const KEY_FIRST: [&str; 40] = [
    "append",
    "decr",
    "decrby",
    "del",
    "exists",
    "expire",
    "get",
    "getdel",
    "getex",
    "getrange",
    "getset",
    "hdel",
    "hget",
    "hgetall",
    "hincrby",
    "hlen",
    "hmget",
    "hset",
    "incr",
    "incrby",
    "llen",
    "lpop",
    "lpush",
    "lrange",
    "persist",
    "rpop",
    "rpush",
    "sadd",
    "scard",
    "set",
    "sismember",
    "smembers",
    "srem",
    "strlen",
    "ttl",
    "type",
    "zadd",
    "zcard",
    "zrange",
    "zscore",
];

/// A command as its words, with what its name implies.
struct Command<'a> {
    args: &'a [Vec<u8>],
    name: &'a [u8],
}

impl<'a> Command<'a> {
    fn new(args: &'a [Vec<u8>]) -> Command<'a> {
        Command { args, name: args.first().map_or(&[], |name| name.as_slice()) }
    }

    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name.as_bytes())
    }

    fn second_is(&self, words: &[&str]) -> bool {
        self.args
            .get(1)
            .is_some_and(|second| words.iter().any(|word| second.eq_ignore_ascii_case(word.as_bytes())))
    }

    fn changes_subscriptions(&self) -> bool {
        ["subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe"]
            .iter()
            .any(|name| self.is(name))
    }

    /// True if the reply is a text to be read as it stands.
    fn answers_text(&self) -> bool {
        let count = self.args.len();
        self.is("info")
            || self.is("lolwut")
            || self.is("debug") && self.second_is(&["htstats", "htstats-key", "client-eviction"])
            || self.is("memory") && self.second_is(&["malloc-stats", "doctor"])
            || self.is("cluster") && count == 2 && self.second_is(&["nodes", "info"])
            || self.is("client") && self.second_is(&["list", "info"])
            || self.is("latency") && count == 3 && self.second_is(&["graph"])
            || self.is("latency") && count == 2 && self.second_is(&["doctor"])
            || self.is("proxy") && self.second_is(&["info"])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers_text(line: &str) -> bool {
        let args: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        Command::new(&args).answers_text()
    }

    #[test]
    fn texts_are_known_by_their_command() {
        for line in [
            "INFO",
            "info all",
            "client LIST",
            "cluster nodes",
            "memory doctor",
            "latency graph x",
            "debug htstats 0",
        ] {
            assert!(answers_text(line), "{line}");
        }
        for line in ["get info", "client kill", "cluster nodes x", "latency graph", "debug", "memory usage k"]
        {
            assert!(!answers_text(line), "{line}");
        }
    }

    #[test]
    fn the_prompt_shows_the_connection() {
        let mut session = Session::new(Options::new(true));
        assert_eq!(session.prompt(), "127.0.0.1:6379> ");
        session.db = 3;
        session.in_multi = true;
        assert_eq!(session.prompt(), "127.0.0.1:6379[3](TX)> ");
        session.in_multi = false;
        session.subscribed = true;
        assert_eq!(session.prompt(), "127.0.0.1:6379[3](subscribed mode)> ");
        session.address = Address::Unix("s.sock".into());
        session.db = 0;
        session.subscribed = false;
        assert_eq!(session.prompt(), "isotherm s.sock> ");
    }
}
