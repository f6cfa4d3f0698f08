//! A connection to one node of a cluster, and what may go wrong on it.

use std::fmt;
use std::time::Duration;

use isotherm_resp::reply_parse::Value;

use crate::Fallible;
use crate::address::{Address, Login};
use crate::connection::{Broken, Connection, Dial, push_request};
use crate::text::reason;

/// Requests that are under way at once.
const REQUESTS_PER_BATCH: usize = 512;

/// Settings for connections to nodes.
#[derive(Clone, Debug)]
pub struct Way {
    pub dial: Dial,
    pub login: Login,
    /// Silence after which a node is given up. It is longer than a MIGRATE may take.
    pub patience: Duration,
}

/// Why a node did not do what it was asked.
#[derive(Clone, PartialEq, Debug)]
pub enum Trouble {
    Refused { node: String, text: String },
    Lost { node: String, why: String },
}

impl Trouble {
    /// The server's own words, or why it said nothing.
    pub fn text(&self) -> &str {
        match self {
            Trouble::Refused { text, .. } => text,
            Trouble::Lost { why, .. } => why,
        }
    }

    pub fn is_refusal(&self) -> bool {
        matches!(self, Trouble::Refused { .. })
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Refused { node, text } => write!(f, "Node {node} replied with error:\n{text}"),
            Trouble::Lost { node, why } => write!(f, "Node {node} does not answer: {why}"),
        }
    }
}

impl From<Trouble> for String {
    fn from(trouble: Trouble) -> String {
        trouble.to_string()
    }
}

pub struct Link {
    name: String,
    address: Address,
    way: Way,
    connection: Connection,
    db: u64,
}

impl Link {
    /// Opens a connection to a node. An error is printed on standard error, and the returned text is empty.
    pub fn open(host: &str, port: u16, way: &Way) -> Fallible<Link> {
        let name = format!("{host}:{port}");
        let address = Address::tcp(host.trim_start_matches('[').trim_end_matches(']'), port);
        let opened = open(&name, &address, way);
        let connection = opened.map_err(|trouble| {
            match &trouble {
                Trouble::Refused { .. } => eprintln!("{trouble}"),
                Trouble::Lost { why, .. } => eprintln!("Could not connect to Isotherm at {name}: {why}"),
            }
            String::new()
        })?;
        Ok(Link { name, address, way: way.clone(), connection, db: 0 })
    }

    fn lost(&self, why: Broken) -> Trouble {
        lost(&self.name, why)
    }

    /// A reply, also an error. A connection that the node has closed is made anew, once: nothing but what may
    /// be done twice goes this way.
    pub fn call<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Trouble> {
        match self.connection.call(args) {
            Err(why) if why.is_lost() => {
                self.connect()?;
                self.connection.call(args).map_err(|why| self.lost(why))
            }
            outcome => outcome.map_err(|why| self.lost(why)),
        }
    }

    fn connect(&mut self) -> Result<(), Trouble> {
        self.connection = open(&self.name, &self.address, &self.way)?;
        let db = std::mem::take(&mut self.db);
        self.select(db)
    }

    /// A reply that is no error.
    pub fn ask<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Trouble> {
        let reply = self.call(args)?;
        self.accept(reply)
    }

    /// Sends a request once, without a new attempt after a lost connection. Returns a reply that is not an
    /// error.
    pub fn ask_once<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value, Trouble> {
        let reply = self.connection.call(args).map_err(|why| self.lost(why))?;
        self.accept(reply)
    }

    /// The first half of `ask_once`, for work that several nodes do at the same time.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<(), Trouble> {
        self.connection.send(args).map_err(|why| lost(&self.name, why))
    }

    /// The second half.
    pub fn receive(&mut self) -> Result<Value, Trouble> {
        let reply = self.connection.read().map_err(|why| lost(&self.name, why))?;
        self.accept(reply)
    }

    pub fn accept(&self, reply: Value) -> Result<Value, Trouble> {
        match reply.as_error() {
            Some(text) => {
                let text = String::from_utf8_lossy(text).into_owned();
                Err(Trouble::Refused { node: self.name.clone(), text })
            }
            None => Ok(reply),
        }
    }

    pub fn text<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<String, Trouble> {
        let reply = self.ask(args)?;
        Ok(String::from_utf8_lossy(bytes_of(&reply)).into_owned())
    }

    pub fn number<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<u64, Trouble> {
        match self.ask(args)? {
            Value::Integer(number) => Ok(number.max(0).unsigned_abs()),
            other => Err(self.odd(&other)),
        }
    }

    pub fn odd(&self, reply: &Value) -> Trouble {
        let why = format!("unexpected reply {reply}");
        Trouble::Lost { node: self.name.clone(), why: why.chars().take(200).collect() }
    }

    /// Many requests, sent together; as many replies, also errors.
    pub fn many(&mut self, requests: &[Vec<Vec<u8>>]) -> Result<Vec<Value>, Trouble> {
        let mut replies = Vec::with_capacity(requests.len());
        for batch in requests.chunks(REQUESTS_PER_BATCH) {
            let mut bytes = Vec::new();
            batch.iter().for_each(|args| push_request(&mut bytes, args));
            self.connection.write(&bytes).map_err(|why| lost(&self.name, why))?;
            for _ in batch {
                replies.push(self.connection.read().map_err(|why| lost(&self.name, why))?);
            }
        }
        Ok(replies)
    }

    pub fn select(&mut self, db: u64) -> Result<(), Trouble> {
        if db != self.db {
            self.ask_once(&["SELECT", &db.to_string()])?;
            self.db = db;
        }
        Ok(())
    }

    /// Returns the connection for a protocol of the caller's own. The connection cannot be used as a link
    /// afterwards.
    pub fn into_connection(self) -> Connection {
        self.connection
    }
}

fn open(name: &str, address: &Address, way: &Way) -> Result<Connection, Trouble> {
    let lost_by = |why: String| Trouble::Lost { node: name.to_string(), why };
    let mut connection = Connection::open(address, way.dial).map_err(|why| lost_by(reason(&why)))?;
    connection.set_read_timeout(way.patience).map_err(|why| lost_by(reason(&why)))?;
    if let Some(login) = way.login.command() {
        let reply = connection.call(&login).map_err(|why| lost(name, why))?;
        if let Some(text) = reply.as_error() {
            let text = String::from_utf8_lossy(text).into_owned();
            return Err(Trouble::Refused { node: name.to_string(), text });
        }
    }
    Ok(connection)
}

fn lost(name: &str, why: Broken) -> Trouble {
    let why = match &why {
        Broken::Io(io) if io.kind() == std::io::ErrorKind::WouldBlock => "it takes too long".to_string(),
        why => why.to_string(),
    };
    Trouble::Lost { node: name.to_string(), why }
}

pub fn bytes_of(reply: &Value) -> &[u8] {
    match reply {
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. } => text,
        _ => &[],
    }
}

/// The value of `name:value` in INFO and its likes.
pub fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim_end)
}

pub fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}
