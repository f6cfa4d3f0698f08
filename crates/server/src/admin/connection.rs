//! Commands of one connection: who it is, how it speaks, which database it sees.

use isotherm_acl::DEFAULT_USER;
use isotherm_commands::Outcome;
use isotherm_commands::spec::*;
use isotherm_keyspace::Db;
use isotherm_resp::{Args, Protocol, errors};
use isotherm_stdx::parse_i64;

use super::{AdminCall, AdminHandler};
use isotherm_engine::request::transaction;
use isotherm_node::mail::tasks::Tasks;
use isotherm_node::process::version::{REDIS_VERSION, VALKEY_VERSION};
use isotherm_node::session::ReplyMode;
use isotherm_node::users::noting;

pub const COMMANDS: &[Command<AdminHandler>] = &[
    Command::new(PING, ping),
    Command::new(ECHO, echo),
    Command::new(QUIT, quit),
    Command::new(HELLO, hello),
    Command::new(RESET, reset),
    Command::new(SELECT, select),
    Command::new(AUTH, auth),
];

const PING: Spec = Spec {
    name: "ping",
    summary: "Answers PONG, or its argument.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::FAST.or(Flags::FOR_SUBSCRIBERS).or(Flags::REPORTS_DISK_ERRORS),
    acl: AclCategories::CONNECTION,
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    arguments: &[Argument::string("message").optional()],
    ..Spec::BASE
};

fn ping(call: &mut AdminCall<'_>) -> Outcome {
    // A client that can only be sent messages gets something that looks like one.
    if call.session.is_subscriber() && call.session.proto == Protocol::Resp2 && call.args.len() <= 2 {
        call.reply.array(2);
        call.reply.bulk(b"pong");
        call.reply.bulk(call.args.try_get(1).unwrap_or_default());
        return Outcome::Done;
    }
    match call.args.len() {
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.args.get(1)),
        _ => call.reply.error(errors::wrong_arity("ping")),
    }
    Outcome::Done
}

const ECHO: Spec = Spec {
    name: "echo",
    summary: "Returns its argument.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::LOADING.or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::string("message")],
    ..Spec::BASE
};

fn echo(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.bulk(call.args.get(1));
    Outcome::Done
}

const QUIT: Spec = Spec {
    name: "quit",
    summary: "Answers OK and closes this connection.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::ALLOW_BUSY
        .or(Flags::NOSCRIPT)
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::FOR_SUBSCRIBERS)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

fn quit(call: &mut AdminCall<'_>) -> Outcome {
    call.reply.ok();
    call.session.close_after_reply = true;
    Outcome::Done
}

const SELECT: Spec = Spec {
    name: "select",
    summary: "Chooses the database of this connection by its number.",
    group: Group::Connection,
    complexity: "O(1)",
    arity: 2,
    flags: Flags::ALLOW_BUSY.or(Flags::LOADING).or(Flags::STALE).or(Flags::FAST),
    acl: AclCategories::CONNECTION,
    arguments: &[Argument::integer("index")],
    databases: Some(|args, _| parse_i64(args.get(1)).map_or(Databases::One, Databases::Selects)),
    database_arguments: Some(|args, databases, out| out.extend(number_at(args, 1, databases))),
    ..Spec::BASE
};

fn select(call: &mut AdminCall<'_>) -> Outcome {
    let index = parse_i64(call.args.get(1));
    match index.filter(|index| i32::try_from(*index).is_ok()) {
        None if index.is_some() => {
            call.reply.error(errors::out_of_range_between(i32::MIN.into(), i32::MAX.into()));
        }
        None => call.reply.error(errors::NOT_AN_INTEGER),
        Some(index) => match u16::try_from(index) {
            Ok(index) if index < call.node.config.databases() => {
                call.session.db = Db(index);
                call.reply.ok();
            }
            _ => call.reply.error(errors::DB_OUT_OF_RANGE),
        },
    }
    Outcome::Done
}

const RESET: Spec = Spec {
    name: "reset",
    summary: "Brings this connection back to the state of a new one.",
    since: "6.2.0",
    group: Group::Connection,
    complexity: "O(1)",
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY)
        .or(Flags::FOR_SUBSCRIBERS)
        .or(Flags::NEVER_QUEUED),
    acl: AclCategories::CONNECTION,
    ..Spec::BASE
};

/// Back to what a new connection is; only what the library says of itself stays.
fn reset(call: &mut AdminCall<'_>) -> Outcome {
    transaction::leave(call.session, &mut call.exec.held);
    call.session.stop_listening(call.node, &mut call.exec.held, call.audience);
    let session = &mut *call.session;
    session.db = Db(0);
    session.users_seen = call.node.users.generation();
    session.set_user(call.node.users.set_default_user(&session.shared));
    session.authenticated = !call.node.users.auth_required();
    // Its own reply is the one that CLIENT REPLY SKIP has asked to drop.
    if session.reply_mode != ReplyMode::Skip {
        session.reply_mode = ReplyMode::On;
    }
    session.no_touch = false;
    session.no_evict = false;
    session.import_source = false;
    session.reads_of_replica = false;
    session.debugs = false;
    session.shared.names().name = Box::default();
    speak(call, Protocol::Resp2);
    call.reply.simple("RESET");
    Outcome::Done
}

// ---- authentication ----

const AUTH: Spec = Spec {
    name: "auth",
    summary: "Logs this connection in with a password, and with a username for other users than the default one.",
    group: Group::Connection,
    complexity: "O(N), N the user's passwords",
    arity: -2,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::CONNECTION,
    secrets: Some(|_, at| at > 0),
    history: &[("6.0.0", "A username before the password.")],
    arguments: &[Argument::string("username").since("6.0.0").optional(), Argument::string("password")],
    ..Spec::BASE
};

fn auth(call: &mut AdminCall<'_>) -> Outcome {
    let (user, password) = match call.args.len() {
        2 if call.node.users.is_open() => {
            call.reply.error(errors::AUTH_WITHOUT_PASSWORD);
            return Outcome::Done;
        }
        2 => (DEFAULT_USER, call.args.get(1)),
        3 => (call.args.get(1), call.args.get(2)),
        _ => {
            call.reply.error(errors::SYNTAX);
            return Outcome::Done;
        }
    };
    if authenticate(call, user, password) {
        call.reply.ok();
    }
    Outcome::Done
}

/// Authenticates the session as this user. Returns whether that worked; if not, the error is written.
fn authenticate(call: &mut AdminCall<'_>, user: &[u8], password: &[u8]) -> bool {
    let (users, session) = (&call.node.users, &mut *call.session);
    let seen = users.generation();
    let Some(user) = users.admit(&session.shared, user, password) else {
        noting::refused(call.node, session, call.args.get(0), user);
        call.reply.error(errors::WRONG_PASS);
        return false;
    };
    session.users_seen = seen;
    session.authenticated = true;
    session.was_authenticated = true;
    session.set_user(user);
    true
}

// ---- HELLO ----

/// User and password after AUTH, if both are there.
fn is_credential(args: Args<'_>, at: usize) -> bool {
    let is_auth = |at: usize| {
        // The protocol comes first, so an option is at 2 or later.
        let word = at.checked_sub(1).filter(|at| *at > 1).map(|at| args.get(at));
        word.is_some_and(|word| word.eq_ignore_ascii_case(b"auth"))
    };
    is_auth(at) && at + 1 < args.len() || at > 1 && is_auth(at - 1)
}

const HELLO: Spec = Spec {
    name: "hello",
    secrets: Some(is_credential),
    summary: "Negotiates the version of the protocol, and logs in and names the connection on request.",
    since: "6.0.0",
    group: Group::Connection,
    complexity: "O(1)",
    arity: -1,
    flags: Flags::NOSCRIPT
        .or(Flags::LOADING)
        .or(Flags::STALE)
        .or(Flags::FAST)
        .or(Flags::NO_AUTH)
        .or(Flags::ALLOW_BUSY),
    acl: AclCategories::CONNECTION,
    history: &[
        ("8.1.0", "The reply has `availability_zone` when the parameter `availability-zone` is set."),
        ("6.2.0", "The argument `protover` may be left out: the connection is described and not changed."),
    ],
    arguments: &[Argument::block(
        "arguments",
        &[
            Argument::integer("protover"),
            Argument::block("auth", &[Argument::string("username"), Argument::string("password")])
                .token("AUTH")
                .optional(),
            Argument::string("clientname").token("SETNAME").optional(),
        ],
    )
    .optional()],
    ..Spec::BASE
};

fn hello(call: &mut AdminCall<'_>) -> Outcome {
    let options = match HelloOptions::read(call.args) {
        Ok(options) => options,
        Err(text) => {
            call.reply.error(text);
            return Outcome::Done;
        }
    };
    if let Some((user, password)) = options.auth
        && !authenticate(call, user, password)
    {
        return Outcome::Done;
    }
    if !call.session.authenticated {
        call.reply.error(errors::HELLO_NO_AUTH);
        return Outcome::Done;
    }
    if let Some(name) = options.name {
        call.session.shared.names().name = name;
    }
    if let Some(protocol) = options.protocol {
        speak(call, protocol);
    }
    introduce(call);
    Outcome::Done
}

struct HelloOptions<'a> {
    protocol: Option<Protocol>,
    auth: Option<(&'a [u8], &'a [u8])>,
    name: Option<Box<str>>,
}

impl<'c> HelloOptions<'c> {
    /// An error is Valkey's text.
    fn read(args: Args<'c>) -> Result<HelloOptions<'c>, Vec<u8>> {
        let mut options = HelloOptions { protocol: None, auth: None, name: None };
        if let Some(version) = args.try_get(1) {
            options.protocol = match parse_i64(version) {
                Some(2) => Some(Protocol::Resp2),
                Some(3) => Some(Protocol::Resp3),
                Some(_) => return Err(errors::UNSUPPORTED_PROTOCOL.into()),
                None => {
                    return Err(errors::PROTOCOL_NOT_AN_INTEGER.into());
                }
            };
        }
        let mut at = 2;
        while at < args.len() {
            let word = args.get(at);
            if word.eq_ignore_ascii_case(b"auth") && at + 2 < args.len() {
                options.auth = Some((args.get(at + 1), args.get(at + 2)));
                at += 3;
            } else if word.eq_ignore_ascii_case(b"setname") && at + 1 < args.len() {
                options.name = Some(client_name(args.get(at + 1))?);
                at += 2;
            } else {
                let text = errors::with_bytes("ERR Syntax error in HELLO option '", word, "'");
                return Err(text);
            }
        }
        Ok(options)
    }
}

fn speak(call: &mut AdminCall<'_>, protocol: Protocol) {
    call.session.proto = protocol;
    call.reply.proto = protocol;
}

fn introduce(call: &mut AdminCall<'_>) {
    let config = &call.node.config;
    let as_redis = config.extended_redis_compatibility();
    let zone = config.availability_zone();
    let follows = call.node.mail.tasks().has(Tasks::REPLICA);
    let (id, version) = (call.session.id(), call.session.proto.version());
    let reply = &mut *call.reply;
    reply.map(7 + usize::from(!zone.is_empty()));
    // COMPAT(protocol): HELLO answers `server: valkey` and `version: 9.1.2`, or `redis` and `7.2.4` with
    // `extended-redis-compatibility yes`, as Valkey does; the name Isotherm is in INFO only. Why: clients
    // decide by these fields which commands they may send.
    reply.bulk(b"server");
    reply.bulk(if as_redis { b"redis" } else { b"valkey" });
    reply.bulk(b"version");
    reply.bulk(if as_redis { REDIS_VERSION } else { VALKEY_VERSION }.as_bytes());
    reply.bulk(b"proto");
    reply.integer(version);
    reply.bulk(b"id");
    reply.integer(id as i64);
    reply.bulk(b"mode");
    reply.bulk(config.mode().as_bytes());
    reply.bulk(b"role");
    reply.bulk(if follows { b"replica" } else { b"master" });
    // COMPAT(protocol): HELLO, INFO and MODULE LIST list no modules; Valkey lists its Lua engine. Why: there
    // are no modules, and Lua is none here.
    reply.bulk(b"modules");
    reply.array(0);
    if !zone.is_empty() {
        reply.bulk(b"availability_zone");
        reply.bulk(&zone);
    }
}

// ---- names ----

/// A name as CLIENT LIST can show it: no blanks, nothing that is not ASCII.
pub fn client_name(name: &[u8]) -> Result<Box<str>, &'static str> {
    plain_word(name).ok_or("ERR Client names cannot contain spaces, newlines or special characters.")
}

/// Up to a NUL, as Valkey looks at it; `None` if it holds what would break a line of CLIENT LIST.
pub fn plain_word(bytes: &[u8]) -> Option<Box<str>> {
    // COMPAT(protocol): HELLO SETNAME and CLIENT SETNAME end a name at its first NUL byte; Valkey keeps the
    // bytes behind it, unchecked. Why: they could break a line of CLIENT LIST.
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    let visible = bytes[..end].iter().all(|byte| (b'!'..=b'~').contains(byte));
    visible.then(|| std::str::from_utf8(&bytes[..end]).expect("ASCII").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(client_name(b"a-b_1").as_deref(), Ok("a-b_1"));
        assert_eq!(client_name(b"").as_deref(), Ok(""));
        assert_eq!(client_name(b"a\0 b").as_deref(), Ok("a"));
        for bad in [&b"a b"[..], b"a\n", b"\xc3\xa4", b" "] {
            assert!(client_name(bad).is_err(), "{bad:?}");
        }
    }
}
