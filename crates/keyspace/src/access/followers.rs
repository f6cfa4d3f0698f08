//! Followers of single keys, and the one place where they learn of a change.
//!
//! ```text
//!                        watches (EXEC)        waiters (BLPOP, ...)              effect, if changes are reported
//!   Written              fail                  ready: served by the command      Written
//!   Expired, met by a    fail, unless it was   ready, whatever becomes of the    Expired
//!     command            stale at WATCH          command that met it
//!   ExpiredByCommand     fail                  ready: served by the command      Expired
//!   Expired, in a step   the same              the oldest is woken               Expired
//!   Evicted, in a step   the same              the oldest is woken               Evicted
//!   FieldsExpired        fail                  the oldest, if the hash is gone   FieldsExpired
//! ```
//! `ready` is the list of the command under way: it serves the waiters before it releases its partitions. A
//! step of the server's own work runs no commands, so it wakes the oldest waiter, which looks for itself.
//!
//! Expired, evicted and expired fields are also reported while the sink's mask has a consumer for them
//! (events, the log).

use crate::access::effect::{Effect, EffectMask, EffectSink};
use crate::access::ready::Ready;
use crate::access::waiter::Waiters;
use crate::access::watch::Watches;
use crate::layout::kind::Db;

/// Why a key is not what it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ChangeCause<'a> {
    /// A command has written or removed it.
    Written,
    Expired,
    /// A command has given it a time that is over.
    ExpiredByCommand,
    /// `was_stale`: its time had come before, so for a watch it left then.
    Evicted {
        was_stale: bool,
    },
    FieldsExpired {
        fields: &'a [Vec<u8>],
        is_emptied: bool,
    },
}

/// Clients that follow the changes of one partition.
#[derive(Default)]
pub(crate) struct Followers {
    pub watches: Watches,
    pub waiters: Waiters,
    /// True if each change is an effect (for tracking). Changes while everything is held.
    pub reports_changes: bool,
}

impl Followers {
    /// Returns whether a write has to be reported at all: the usual one has not.
    #[inline]
    pub fn any(&self) -> bool {
        !self.watches.is_empty() || !self.waiters.is_empty() || self.reports_changes
    }

    /// A key has changed. `ready` is that of the command under way, if there is one.
    pub fn changed(
        &mut self,
        db: Db,
        key: &[u8],
        cause: ChangeCause<'_>,
        ready: Option<&mut Ready>,
        sink: &mut dyn EffectSink,
    ) {
        match cause {
            ChangeCause::Written
            | ChangeCause::ExpiredByCommand
            | ChangeCause::FieldsExpired { .. }
            | ChangeCause::Evicted { was_stale: false } => {
                self.watches.touch(db, key);
            }
            ChangeCause::Expired | ChangeCause::Evicted { was_stale: true } => self.watches.expire(db, key),
        }
        match (ready, cause) {
            (Some(ready), _) => self.note_ready(db, key, cause == ChangeCause::Expired, ready),
            (None, ChangeCause::Written | ChangeCause::FieldsExpired { is_emptied: false, .. }) => {}
            (None, _) => self.waiters.wake_removed(db, key),
        }
        if self.reports_changes || cause != ChangeCause::Written && sink.mask() != EffectMask::NONE {
            sink.effect(match cause {
                ChangeCause::Written => Effect::Written { db, key },
                ChangeCause::Expired | ChangeCause::ExpiredByCommand => Effect::Expired { db, key },
                ChangeCause::Evicted { .. } => Effect::Evicted { db, key },
                ChangeCause::FieldsExpired { fields, is_emptied } => {
                    Effect::FieldsExpired { db, key, fields, is_emptied }
                }
            });
        }
    }

    /// The waiters of a key are to be served by the command under way. `by_itself`: the key has left because
    /// its time had come, which stays so whatever becomes of the command that met it.
    pub fn note_ready(&self, db: Db, key: &[u8], by_itself: bool, ready: &mut Ready) {
        match self.waiters.name(db, key) {
            Some(name) if by_itself => ready.note_removed(db, name),
            Some(name) => ready.note(db, name, 0),
            None => {}
        }
    }
}
