//! Serving: which thread runs a waiter's command, when, and which one continues where a thread stops.
//!
//! ```text
//! serve    a thread has changed keys and holds them: for each, its waiters from the oldest on
//!            ended                    passed over, and taken out of the list
//!            the key is no use to it  passed over
//!            woken                    stop: it looks soon, and passes on
//!            out of reach, busy,
//!            or its keys are leased   wake it, and stop
//!            else claim, run          answered: the next      nothing for it: released, the next
//!          the budget is spent        wake the first that is left of each key, and stop
//! look     the owner's worker of a woken waiter, with all partitions of its command: serves it,
//!          then those behind it, of each of its keys
//! ```
//! **No wake-up is lost.** A thread that stops at a waiter has woken it, or has found it woken, while it held
//! the key. The owner takes that mark away before it locks, so it looks after the change; and it passes on
//! the keys that it does not serve itself. A waiter that is claimed by another thread, which holds another of
//! its keys, counts as one to be woken: the other may find nothing for it, and does not see this key. (With
//! lists that cannot happen, with streams it does: a key is there, and nothing in it is new for this waiter.)
//!
//! **Order.** No waiter is tried for a key while an older one, which that key may serve, is woken and has not
//! looked. Passing on begins behind the waiter that looked: those before it had their try, or were woken, by
//! the thread that made the change.
//!
//! **Bounds.** A hold looks at `WAITERS_PER_HOLD_MAX` waiters and keys of their commands, and at the keys
//! that its command has changed. A chain of owners continues with the rest, each under locks of its own.
//!
//! The server runs commands and has mailboxes; both are behind `Serve`. `tests/shuttle/waiter_model.rs` puts
//! a small server behind it, and explores the interleavings of the code here.

use crate::access::budget::HOLD_STEPS_MAX;
use crate::access::lock::Held;
use crate::access::ready::ReadyKey;
use crate::access::waiter::{Claim, Waiter};
use crate::layout::key::Key;
use crate::layout::kind::{Db, Type};
use isotherm_stdx::steps::{self, Steps};
use std::sync::Arc;

/// Each try runs a command of some microseconds, so a hold is about half a millisecond longer at most. The
/// model check has few waiters, and is to meet the end of the budget too.
pub const WAITERS_PER_HOLD_MAX: u64 = if cfg!(shuttle) { 2 } else { 150 };
/// The waiter, and after it the key again, whose type may be another now: its slot, its page, an entry or two
/// there.
const LOOKS_PER_WAITER: u64 = 6;
const _: () = assert!(WAITERS_PER_HOLD_MAX * LOOKS_PER_WAITER < HOLD_STEPS_MAX);

/// Operations that serving needs of a thread that runs commands.
pub trait Serve<'k> {
    /// Answer to a client.
    type Answer;
    /// Values or nodes that a command needs and that are not in memory.
    type Missing;

    fn held(&mut self) -> &mut Held<'k>;

    /// Locks all that the waiter's command needs.
    fn acquire(&mut self, waiter: &Waiter);

    /// Returns whether everything is held without which its command cannot be run at all. It may lock more,
    /// if that needs no waiting.
    fn reaches(&mut self, waiter: &Waiter) -> bool;

    /// Returns whether a script has leased one of the waiter's keys, as far as these are held.
    fn is_leased(&mut self, waiter: &Waiter) -> bool;

    /// Has the waiter's owner look again when scripts have ended.
    fn postpone(&mut self, waiter: &Arc<Waiter>);

    /// The type of what is there under a key whose partition is held.
    fn kind_of(&mut self, db: Db, key: &Key<'_>) -> Option<Type>;

    /// Runs the waiter's command on what is held.
    fn run(&mut self, waiter: &Arc<Waiter>) -> Attempt<Self::Answer, Self::Missing>;

    /// Has this fetched; then the owner's worker looks again (`look`).
    fn fetch(&mut self, waiter: &Arc<Waiter>, missing: Self::Missing);

    /// Sends the answer to the owner. The waiter has ended.
    fn answer(&mut self, waiter: &Arc<Waiter>, answer: Self::Answer);
}

/// Outcome of a run of a waiter's command.
pub enum Attempt<A, M> {
    Answer(A),
    /// The keys have nothing for the waiter.
    Nothing,
    /// The run has changed nothing: something has to be fetched first.
    Missing(M),
}

/// Outcome of an attempt to serve a waiter.
enum Tried<M> {
    Answered,
    /// The waiter has ended otherwise.
    Ended,
    /// The keys had nothing for the waiter.
    Waits,
    /// The waiter needs keys that are not held, or another thread has claimed it.
    OwnerLooks,
    /// The waiter needs what is not in memory. Its owner has it fetched.
    Missing(M),
}

/// Serves the waiters of all keys that were noted: first the key that was changed first. Serving one of them
/// may change keys that serve others.
pub fn serve_ready<'k>(server: &mut impl Serve<'k>) {
    let mut steps = Steps::new(WAITERS_PER_HOLD_MAX);
    while let Some(ready) = server.held().take_ready_key() {
        serve_key(server, ready, &mut steps);
    }
}

fn serve_key<'k>(server: &mut impl Serve<'k>, ready: ReadyKey, steps: &mut Steps) {
    let ReadyKey { db, name, mut behind } = ready;
    let key = server.held().keyspace().key(&name);
    // As many keys as the command has changed.
    let looked_before = steps::looked();
    let mut kind = server.kind_of(db, &key);
    server.held().exempt(steps::looked().wrapping_sub(looked_before));
    while let Some(waiter) = server.held().next_waiter(db, &key, behind, kind) {
        if !steps.look(1) {
            return waiter.wake();
        }
        behind = waiter.turn();
        if waiter.has_ended() {
            server.held().unlist(db, &key, &waiter);
            continue;
        }
        if !waiter.wants(kind) {
            continue;
        }
        if waiter.is_woken() {
            return;
        }
        // Its command looks at all of its keys. That is its client's own work, but others wait for it.
        steps.look(waiter.keys.len() as u64);
        server.held().exempt(waiter.keys.len() as u64);
        match try_to_serve(server, &waiter) {
            Tried::Answered => {
                server.held().unlist(db, &key, &waiter);
                kind = server.kind_of(db, &key);
            }
            Tried::Ended | Tried::Waits => {}
            Tried::OwnerLooks | Tried::Missing(_) => return waiter.wake(),
        }
    }
}

fn try_to_serve<'k, S: Serve<'k>>(server: &mut S, waiter: &Arc<Waiter>) -> Tried<S::Missing> {
    if !server.reaches(waiter) || server.is_leased(waiter) {
        return Tried::OwnerLooks;
    }
    match waiter.claim() {
        Claim::Taken => {}
        Claim::Busy => return Tried::OwnerLooks,
        Claim::Ended => return Tried::Ended,
    }
    let noted = server.held().ready_len();
    let answer = match server.run(waiter) {
        Attempt::Answer(answer) => answer,
        other => {
            // A consumer that was seen is a change too (XREADGROUP), but none that is waited for.
            server.held().forget_ready(noted);
            waiter.release();
            return if let Attempt::Missing(missing) = other {
                Tried::Missing(missing)
            } else {
                Tried::Waits
            };
        }
    };
    waiter.finish();
    server.answer(waiter, answer);
    Tried::Answered
}

/// Looks on behalf of a waiter of this worker that was woken. Partitions that were locked for it are still
/// held afterwards.
pub fn look<'k>(server: &mut impl Serve<'k>, waiter: &Arc<Waiter>) {
    waiter.clear_woken();
    server.acquire(waiter);
    if server.is_leased(waiter) {
        // Until it looks again none of those behind it is served.
        waiter.mark_woken();
        server.postpone(waiter);
        return serve_ready(server);
    }
    let looked_before = steps::looked();
    let is_worth_it = !waiter.has_ended() && is_worth_a_try(server, waiter);
    server.held().exempt(steps::looked().wrapping_sub(looked_before));
    if is_worth_it {
        match try_to_serve(server, waiter) {
            Tried::Missing(missing) => {
                // Until it looks again none of those behind it is served.
                waiter.mark_woken();
                server.fetch(waiter, missing);
                return serve_ready(server);
            }
            Tried::OwnerLooks => debug_assert!(false, "all that it needs is held, so no other thread has it"),
            Tried::Answered | Tried::Ended | Tried::Waits => {}
        }
    }
    server.held().pass_on(waiter);
    serve_ready(server);
}

fn is_worth_a_try<'k>(server: &mut impl Serve<'k>, waiter: &Waiter) -> bool {
    let keyspace = server.held().keyspace();
    waiter.on_removal
        || waiter.keys.iter().any(|key| server.kind_of(key.db, &keyspace.key(&key.name)) == Some(waiter.kind))
}
