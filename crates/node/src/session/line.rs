//! Line of one client in CLIENT LIST.

use isotherm_stdx::UnixMs;
use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::Node;
use crate::effects::pubsub::Kind;
use crate::session::client::{Attention, ClientShared, Names, Seen, SeenListening};

/// Reader of the line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// A client. If the line is about itself, its request for it has arguments of this number of bytes.
    Client(u64),
    /// A reader of the log, from which what clients say of themselves can be kept
    /// (`hide-user-data-from-log`).
    Log,
}

/// The line of one client, for the log.
pub fn of_log(node: &Node, client: &ClientShared, now: UnixMs) -> String {
    let mut line = Vec::new();
    push(&mut line, node, client, now, Reader::Log);
    String::from_utf8_lossy(&line).trim_end().to_owned()
}

/// Returns the line with nothing redacted and without an end of line, for the security log.
pub fn whole(node: &Node, client: &ClientShared, now: UnixMs) -> Vec<u8> {
    let mut line = Vec::new();
    push(&mut line, node, client, now, Reader::Client(0));
    line.pop();
    line
}

/// Appends the line of `client`.
pub fn push(out: &mut Vec<u8>, node: &Node, client: &ClientShared, now: UnixMs, reader: Reader) {
    let asking_bytes = if let Reader::Client(bytes) = reader { bytes } else { 0 };
    let redacted = (reader == Reader::Log && node.config.hides_user_data()).then_some("*redacted*");

    let seen = &client.seen;
    let names = client.names().clone();
    let redirects = seen.marks.load(Relaxed) & Seen::REDIRECTS != 0;
    let multi = if seen.in_multi.load(Relaxed) { i64::from(seen.multi_queued.load(Relaxed)) } else { -1 };
    let bytes = |of: &AtomicU64| of.load(Relaxed);
    let chunks = seen.output_chunks.load(Relaxed);
    let command = node.commands.all().get(usize::from(seen.command.load(Relaxed)));
    let [sub, psub, ssub] = Kind::ALL.map(|kind| client.listening.count(kind));
    let parts = [
        format!("id={} addr={} laddr={} fd={}", client.id, client.addr, client.laddr, client.fd),
        format!("name={} age={}", redacted.unwrap_or(&names.name), client.age_seconds(now)),
        format!("idle={} flags={}", seen.idle_seconds(now), flags_of(client)),
        format!("capa={} db={}", if redirects { "r" } else { "" }, seen.db.load(Relaxed)),
        format!("sub={sub} psub={psub} ssub={ssub} multi={multi} watch={}", seen.watched.load(Relaxed)),
        format!("qbuf={} qbuf-free={}", bytes(&seen.query_bytes), bytes(&seen.query_free_bytes)),
        format!(
            "argv-mem={} multi-mem={}",
            bytes(&seen.argument_bytes) + asking_bytes,
            bytes(&seen.multi_bytes)
        ),
        // No client has a buffer for replies that is there without any.
        // COMPAT(observability): CLIENT LIST reports the memory that a connection uses, and
        // `maxmemory-clients` uses the same figure: `tot-mem` of an idle connection is some 500 bytes
        // (Valkey: 1,690 to 17,050). `rbs`, `rbp` and `obl` are 0. Why: no connection has a reply buffer
        // while it has no replies.
        format!("rbs=0 rbp=0 obl=0 oll={chunks} omem={}", bytes(&seen.output_bytes)),
        format!("tot-mem={}", bytes(&seen.total_bytes) + asking_bytes),
        format!("events=r{}", if chunks > 0 { "w" } else { "" }),
        format!("cmd={}", command.map_or("NULL", |command| &command.name)),
    ];
    out.extend_from_slice(parts.join(" ").as_bytes());
    out.extend_from_slice(b" user=");
    out.extend_from_slice(redacted.map_or(user_of(&names), str::as_bytes));
    let parts = [
        format!(" redir={}", client.listening.redirect()),
        format!("resp={} lib-name={} lib-ver={}", seen.resp.load(Relaxed), names.lib_name, names.lib_ver),
        format!("tot-net-in={}", seen.input_total_bytes.load(Relaxed)),
        format!("tot-net-out={}", seen.output_total_bytes.load(Relaxed)),
        format!("tot-cmds={}", seen.commands_total.load(Relaxed)),
    ];
    writeln!(out, "{}", parts.join(" ")).expect("a Vec takes anything");
}

/// The link to a primary has no user, and may do everything.
fn user_of(names: &Names) -> &[u8] {
    names.user.as_ref().map_or(b"(superuser)", |user| &user.name)
}

/// Returns the fields that identify a client in the log.
pub fn short(node: &Node, client: &ClientShared) -> String {
    let names = client.names();
    let redacted = node.config.hides_user_data().then_some("*redacted*");
    format!(
        "id={} addr={} laddr={} fd={} name={} user={} lib-name={} lib-ver={}",
        client.id,
        client.addr,
        client.laddr,
        client.fd,
        redacted.unwrap_or(&names.name),
        redacted.map_or(String::from_utf8_lossy(user_of(&names)), Into::into),
        names.lib_name,
        names.lib_ver
    )
}

/// The characters of `flags=`.
pub fn flags_of(client: &ClientShared) -> String {
    let seen = &client.seen;
    let marks = seen.marks.load(Relaxed);
    let listens = |mark: u8| client.listening.marks() & mark != 0;
    let characters: String = [
        ('M', marks & Seen::PRIMARY != 0),
        ('S', client.is_replica()),
        ('O', listens(SeenListening::MONITORS)),
        ('P', client.listening.any()),
        ('x', seen.in_multi.load(Relaxed)),
        ('b', seen.waits.load(Relaxed) || client.is_blocked()),
        ('t', listens(SeenListening::TRACKS)),
        ('R', listens(SeenListening::BROKEN)),
        ('B', listens(SeenListening::BROADCAST)),
        ('d', marks & Seen::DIRTY != 0),
        ('c', marks & Seen::CLOSES != 0),
        ('A', client.is_asked(Attention::KILL)),
        ('U', client.is_unix()),
        ('r', marks & Seen::READS_OF_REPLICA != 0),
        ('e', marks & Seen::NO_EVICT != 0),
        ('T', marks & Seen::NO_TOUCH != 0),
        ('I', marks & Seen::IMPORT_SOURCE != 0),
    ]
    .into_iter()
    .filter_map(|(character, is)| is.then_some(character))
    .collect();
    if characters.is_empty() { "N".into() } else { characters }
}

/// "127.0.0.1" of "127.0.0.1:4711", "::1" of "[::1]:4711"; nothing of a unix socket, whose port is 0.
pub fn address_without_port(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!port.starts_with('0')).then_some(host)
}
