//! One client as a line of CLIENT LIST.

use isotherm_stdx::UnixMs;
use std::io::Write;
use std::sync::atomic::Ordering::Relaxed;

use crate::node::Node;
use crate::pubsub::{Kind, SeenListening};
use crate::session::{Attention, ClientShared, Seen, Session};

/// Appends the line of `client`.
pub fn push(out: &mut Vec<u8>, node: &Node, client: &ClientShared, now: UnixMs) {
    let seen = &client.seen;
    // The wall clock may have been set back since.
    let seconds_since = |then_ms: i64| (now.0.div_euclid(1000) - then_ms.div_euclid(1000)).max(0);
    let names = client.names().clone();
    let redirects = seen.marks.load(Relaxed) & Seen::REDIRECTS != 0;
    let multi = if seen.in_multi.load(Relaxed) { i64::from(seen.multi_queued.load(Relaxed)) } else { -1 };
    let (query, output) = (seen.query_bytes.load(Relaxed), seen.output_bytes.load(Relaxed));
    let command = node.commands.all().get(usize::from(seen.command.load(Relaxed)));
    let [sub, psub, ssub] = Kind::ALL.map(|kind| client.listening.count(kind));
    let own = size_of::<ClientShared>() + size_of::<Session>();
    let total = query
        + output
        + seen.multi_bytes.load(Relaxed)
        + seen.watch_bytes.load(Relaxed)
        + client.listening.bytes()
        + own as u64;
    let parts = [
        format!("id={} addr={} laddr={} fd={}", client.id, client.addr, client.laddr, client.fd),
        format!("name={} age={}", names.name, seconds_since(client.created_ms)),
        format!("idle={} flags={}", seconds_since(seen.last_interaction_ms.load(Relaxed)), flags_of(client)),
        format!("capa={} db={}", if redirects { "r" } else { "" }, seen.db.load(Relaxed)),
        format!("sub={sub} psub={psub} ssub={ssub} multi={multi} watch={}", seen.watched.load(Relaxed)),
        // What a client has sent and not been answered lies in one piece; replies lie elsewhere than in a fixed buffer.
        format!("qbuf={query} qbuf-free=0 argv-mem=0 multi-mem={}", seen.multi_bytes.load(Relaxed)),
        format!("rbs=0 rbp=0 obl=0 oll={} omem={output} tot-mem={total}", u8::from(output > 0)),
        format!("events=r{}", if output > 0 { "w" } else { "" }),
        format!(
            "cmd={} user=default redir={}",
            command.map_or("NULL", |command| &command.name),
            client.listening.redirect()
        ),
        format!("resp={} lib-name={} lib-ver={}", seen.resp.load(Relaxed), names.lib_name, names.lib_ver),
        format!("tot-net-in={}", seen.input_total_bytes.load(Relaxed)),
        format!("tot-net-out={}", seen.output_total_bytes.load(Relaxed)),
        format!("tot-cmds={}", seen.commands_total.load(Relaxed)),
    ];
    writeln!(out, "{}", parts.join(" ")).expect("a Vec takes anything");
}

/// The letters of `flags=`.
pub fn flags_of(client: &ClientShared) -> String {
    let seen = &client.seen;
    let marks = seen.marks.load(Relaxed);
    let listens = |mark: u8| client.listening.marks() & mark != 0;
    let letters: String = [
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
        ('U', client.is_unix),
        ('e', marks & Seen::NO_EVICT != 0),
        ('T', marks & Seen::NO_TOUCH != 0),
        ('I', marks & Seen::IMPORT_SOURCE != 0),
    ]
    .into_iter()
    .filter_map(|(letter, is)| is.then_some(letter))
    .collect();
    if letters.is_empty() { "N".into() } else { letters }
}

/// "127.0.0.1" of "127.0.0.1:4711", "::1" of "[::1]:4711"; nothing of a unix socket, whose port is 0.
pub fn address_without_port(address: &str) -> Option<&str> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!port.starts_with('0')).then_some(host)
}
