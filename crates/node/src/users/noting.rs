//! Counts of denials, and their entries in the security log.

use isotherm_acl::{Context, Denial, Entry as LogEntry, Log, Noted, Reason};
use isotherm_resp::Args;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError};

use super::Users;
use crate::Node;
use crate::request::entry::Entry;
use crate::session::{ClientShared, Session, line};
use isotherm_config::{Id, id};
use isotherm_runtime::time::unix_now;

/// The most entries that are kept (`acllog-max-len`).
fn entries_max(node: &Node) -> usize {
    const MAX: Id = id("acllog-max-len");
    usize::try_from(node.config.number(MAX)).unwrap_or(usize::MAX)
}

impl Users {
    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the place where commands of the session come from, as the log names it.
pub fn context_of(session: &Session) -> Context {
    match () {
        () if session.in_script => Context::Lua,
        () if session.multi.is_some() || session.in_exec => Context::Multi,
        () => Context::TopLevel,
    }
}

/// A command was denied; `shown` is the one that the client has sent.
#[cold]
pub fn denied(
    node: &Node,
    session: &mut Session,
    shown: &Entry,
    (command, args): (&Entry, Args<'_>),
    denial: Denial,
    context: Context,
) {
    match context {
        // It may have a session of its own, which has nothing else to show.
        Context::Lua => session.shared.seen.command.store(shown.index, Relaxed),
        _ => {
            session.last_command = shown.index;
            session.publish(unix_now());
        }
    }
    let name = &session.user.name;
    denied_to(node, &session.shared, (name, command, args), denial, context);
}

/// Notes that a command of a waiting client was denied.
#[cold]
pub fn denied_to(
    node: &Node,
    client: &ClientShared,
    (user, command, args): (&[u8], &Entry, Args<'_>),
    Denial { reason, at }: Denial,
    context: Context,
) {
    node.users.denied.of(reason).fetch_add(1, Relaxed);
    let object = match (reason, at) {
        (Reason::Command, _) | (Reason::Database, 0) => command.name.as_bytes(),
        _ => args.try_get(at).unwrap_or_default(),
    };
    note(node, client, Noted::Denied(reason), (object, user), context);
}

/// A password was wrong, or its user may not enter. `object`: the command.
#[cold]
pub fn refused(node: &Node, session: &Session, object: &[u8], user: &[u8]) {
    node.users.denied.auth.fetch_add(1, Relaxed);
    session.publish(unix_now());
    note(node, &session.shared, Noted::Auth, (object, user), context_of(session));
}

/// A certificate names a user that may not enter.
#[cold]
pub fn refused_certificate(node: &Node, client: &ClientShared, user: &[u8]) {
    node.users.denied.tls_certificate.fetch_add(1, Relaxed);
    note(node, client, Noted::TlsCertificate, (b"", user), Context::TopLevel);
}

fn note(node: &Node, client: &ClientShared, noted: Noted, (object, user): (&[u8], &[u8]), context: Context) {
    let (max, now) = (entries_max(node), unix_now());
    let mut entry = LogEntry::new(noted, context, object, user, now.0);
    if max > 0 {
        entry.client = line::whole(node, client, now);
    }
    node.users.log().note(entry, max);
}
