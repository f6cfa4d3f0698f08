//! Call of a data command: the input of the handler, and how the call ends.

use crate::record::Records;
use crate::spec::Need;
use crate::wait::Wait;
use isotherm_keyspace::{
    BundleAt, Db, EventClass, ExpiryMode, Full, Key, Limits, Lookup, NodeAt, Txn, UnixMs,
};
use isotherm_persist::RdbError;
use isotherm_persist::dump::Checks;
use isotherm_resp::{Args, Protocol, Reply, errors};
use isotherm_stdx::steps;

pub struct Call<'c, 't, 'k> {
    pub txn: &'c mut Txn<'t, 'k>,
    pub db: Db,
    /// With the command's name at 0.
    pub args: Args<'c>,
    pub keys: HashedKeys<'c>,
    pub reply: &'c mut Reply,
    /// Random numbers, seeded by the server.
    pub prng: &'c mut isotherm_stdx::Prng,
    pub settings: &'c CallSettings,
    /// Records of this command for the log.
    pub records: &'c mut Records,
    /// The client can wait. Inside EXEC no client can.
    pub may_wait: bool,
    /// A script has called it: what has no order of its own comes in one that does not depend on the server.
    pub in_script: bool,
    /// The client's user may read every key (SORT with patterns). No other command may rely on this field.
    pub may_read_all: bool,
    /// Played back from a log: what its author was allowed is done here too.
    pub is_played_back: bool,
}

/// Keys that dispatch has hashed already: the arguments from `first` on, every `step`, as far as they go.
#[derive(Clone, Copy)]
pub struct HashedKeys<'c> {
    pub first: usize,
    /// 1 or 2.
    pub step: usize,
    pub keys: &'c [Key<'c>],
}

impl<'c> HashedKeys<'c> {
    pub const NONE: HashedKeys<'static> = HashedKeys { first: 0, step: 1, keys: &[] };

    #[inline]
    pub fn one(at: usize, key: &'c Key<'c>) -> HashedKeys<'c> {
        HashedKeys { first: at, step: 1, keys: std::slice::from_ref(key) }
    }

    #[inline]
    fn get(&self, at: usize) -> Option<Key<'c>> {
        let distance = at.wrapping_sub(self.first);
        debug_assert!(distance & (self.step - 1) == 0 || self.step == 1, "only keys are asked for");
        // No division: MSET asks for each of its keys.
        self.keys.get(distance >> (self.step - 1)).copied()
    }
}

/// Settings of the configuration for data commands. The server fills them in; a handler uses no other
/// settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CallSettings {
    /// `proto-max-bulk-len`: a string that APPEND or SETRANGE makes is no longer than this.
    pub bulk_bytes_max: usize,
    /// `hll-sparse-max-bytes`: a HyperLogLog that would be longer becomes dense.
    pub hll_sparse_bytes_max: usize,
    /// The `maxmemory-policy` is an LFU one: OBJECT FREQ has an answer, OBJECT IDLETIME has none.
    pub lfu: bool,
    /// `import-mode`: a moment that has passed is stored like any other; the source of the data deletes.
    pub import_mode: bool,
    /// `lazyfree-lazy-server-del`: a key that leaves as the result of another command is UNLINKed in the log,
    /// not DELeted.
    pub unlinks: bool,
    /// The server is a member of a cluster: keys lie in the slots that it has.
    pub in_cluster: bool,
    /// Up to where collections have their compact encodings.
    pub limits: Limits,
    pub transfer: TransferSettings,
}

/// Settings of the configuration for DUMP and RESTORE.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferSettings {
    /// `rdbcompression`
    pub compress: bool,
    /// `rdb-version-check`, and what DEBUG has switched off.
    pub checks: Checks,
    pub refused: RefusedPayload,
}

/// Function to which RESTORE reports why a payload was refused; the reply does not contain the reason.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefusedPayload(pub Option<fn(&RdbError)>);

/// All values are equal: two settings do not differ by this function.
impl PartialEq for RefusedPayload {
    fn eq(&self, _: &RefusedPayload) -> bool {
        true
    }
}

impl Eq for RefusedPayload {}

impl Default for CallSettings {
    fn default() -> CallSettings {
        CallSettings {
            bulk_bytes_max: isotherm_keyspace::STRING_BYTES_MAX,
            hll_sparse_bytes_max: 3000,
            lfu: false,
            import_mode: false,
            in_cluster: false,
            unlinks: true,
            limits: Limits::default(),
            transfer: TransferSettings {
                compress: true,
                checks: Checks::default(),
                refused: RefusedPayload::default(),
            },
        }
    }
}

/// End of a command. The set is closed: the caller handles each case. Rare payloads are boxed so that an
/// outcome fits in two registers.
#[derive(Debug)]
pub enum Outcome {
    /// The reply is written.
    Done,
    /// Wait of the client for its keys; the command has changed and replied nothing.
    Block(Box<Wait>),
    /// Keys whose values the command needs and that are not in memory. The command has changed and replied
    /// nothing, and runs again once the values are in memory.
    Cold(Box<ColdKeys>),
    /// Reply that comes later: a long script has begun.
    Later,
}

const _: () = assert!(size_of::<Outcome>() <= 2 * size_of::<usize>(), "two registers");

/// Keys whose values a command needs and that are not in memory: all that are known, so that they are fetched
/// together.
#[derive(PartialEq, Eq, Debug)]
pub struct ColdKeys {
    pub keys: Vec<ColdKey>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ColdKey {
    pub db: Db,
    pub key: Box<[u8]>,
    /// A part of a collection, and no key is named.
    pub node: Option<NodeAt>,
    /// A record of frozen keys that a walk over keys needs, and no key is named.
    pub bundle: Option<BundleAt>,
    /// Part of the value that is needed.
    pub need: Need,
    /// The command is going to change it: it has to be in memory, where reading is content with a copy.
    pub home: bool,
}

/// Runs a command that only reads for what it lacks: its reply is not kept.
pub fn rehearse(
    handler: fn(&mut Call<'_, '_, '_>) -> Outcome,
    txn: &mut Txn<'_, '_>,
    (db, args): (Db, Args<'_>),
    prng: &mut isotherm_stdx::Prng,
    settings: &CallSettings,
) {
    let mut reply = Reply::new(Protocol::default());
    // As much as is kept of it where a handler asks.
    reply.bytes_max = 1;
    handler(&mut Call {
        txn,
        db,
        args,
        keys: HashedKeys::NONE,
        reply: &mut reply,
        prng,
        settings,
        records: &mut Records::default(),
        may_wait: false,
        in_script: false,
        may_read_all: false,
        is_played_back: false,
    });
}

/// Returns whether an argument equals the word, in any case. As in Valkey, the argument is compared up to its
/// first NUL.
#[inline]
pub fn is_word(argument: &[u8], word: &str) -> bool {
    match argument.get(word.len()) {
        None => argument.eq_ignore_ascii_case(word.as_bytes()),
        Some(0) => argument[..word.len()].eq_ignore_ascii_case(word.as_bytes()),
        Some(_) => false,
    }
}

impl ColdKey {
    /// The value of a key.
    pub fn of(db: Db, key: &[u8], need: Need, home: bool) -> ColdKey {
        ColdKey { db, key: key.into(), node: None, bundle: None, need, home }
    }

    /// The record of a bundle, as it is.
    pub fn of_bundle(bundle: BundleAt) -> ColdKey {
        ColdKey { bundle: Some(bundle), ..ColdKey::of(bundle.db, &[], Need::All, false) }
    }

    /// A part of a collection.
    pub fn of_node(node: NodeAt) -> ColdKey {
        ColdKey { node: Some(node), ..ColdKey::of(Db(0), &[], Need::All, true) }
    }
}

impl<'c> Call<'c, '_, '_> {
    /// Returns how long a string may become by this command, in bytes.
    pub fn string_bytes_max(&self) -> usize {
        if self.is_played_back { isotherm_keyspace::BODY_BYTES_MAX } else { self.settings.bulk_bytes_max }
    }

    /// The key at argument `at`.
    #[inline]
    pub fn key(&self, at: usize) -> Key<'c> {
        steps::note(1);
        self.keys.get(at).unwrap_or_else(|| self.txn.key(self.args.get(at)))
    }

    // ---- ends ----

    /// The error is the whole reply.
    #[cold]
    pub fn fail(&mut self, error: impl AsRef<[u8]>) -> Outcome {
        self.reply.error(error);
        Outcome::Done
    }

    /// The store is full: a slot or the arena has reached its limit.
    #[cold]
    pub fn out_of_memory(&mut self) -> Outcome {
        self.fail(errors::NO_MEMORY_FOR_KEY)
    }

    // ---- what was changed ----

    /// A key was written: its event, and how many changes that is (rdb_changes_since_last_save). The number
    /// is each command's own convention (HSET counts fields that keep their value, LMOVE counts one), so only
    /// the handler knows it. The log holds the request as it came unless something else is recorded.
    #[inline]
    pub fn wrote(&mut self, class: EventClass, name: &'static str, key: &Key<'_>, changes: u64) {
        self.wrote_in(self.db, class, name, key, changes);
    }

    /// Counts `changes` and raises the event of a key that was written in database `db`.
    #[inline]
    pub fn wrote_in(&mut self, db: Db, class: EventClass, name: &'static str, key: &Key<'_>, changes: u64) {
        self.count(changes);
        self.event_in(db, class, name, key);
    }

    /// Changes without an event of their own.
    #[inline]
    pub fn count(&mut self, changes: u64) {
        self.txn.dirty += changes;
    }

    /// Raises a further event of a change that was counted.
    #[inline]
    pub fn event(&mut self, class: EventClass, name: &'static str, key: &Key<'_>) {
        self.event_in(self.db, class, name, key);
    }

    /// Raises an event of a key in database `db`.
    #[inline]
    pub fn event_in(&mut self, db: Db, class: EventClass, name: &'static str, key: &Key<'_>) {
        self.txn.event(class, name, db, key.bytes);
    }

    // ---- results ----

    /// A result is empty: the key that it was to be stored under is gone, if it `existed`.
    pub fn result_is_empty(&mut self, key: &Key<'_>, existed: bool) {
        if existed {
            self.wrote(EventClass::Generic, "del", key, 1);
        }
    }

    /// Memory ended: half a result is none, and what was there before it has gone.
    #[cold]
    pub fn result_is_cut_short(&mut self, key: &Key<'_>, existed: bool) -> Outcome {
        self.txn.remove(self.db, key);
        self.result_is_empty(key, existed);
        if existed {
            self.record(&[b"DEL", key.bytes]);
        }
        self.out_of_memory()
    }

    /// The log has of this command that the key has left.
    pub fn record_removal(&mut self, key: &Key<'_>) {
        let word: &[u8] = if self.settings.unlinks { b"UNLINK" } else { b"DEL" };
        self.record(&[word, key.bytes]);
    }

    // ---- expiry ----

    /// Returns whether a key with the expiry `moment` has no time left. Only a server that deletes expired
    /// keys returns true: elsewhere the key is stored as it is, and the sender of the data will send its
    /// deletion.
    #[inline]
    pub fn is_over(&self, moment: UnixMs) -> bool {
        let deletes = self.txn.conditions.expiry_mode == ExpiryMode::Delete && !self.settings.import_mode;
        deletes && moment <= self.txn.now()
    }

    /// A key that is there was given a moment that is over: it leaves as an expired key.
    pub fn expire_now(&mut self, key: &Key<'_>) {
        self.txn.expire(self.db, key);
        self.count(1);
        // The log holds the expiry of the key instead.
        self.records.replace_request();
    }

    /// Takes the expiry away. Returns whether there was one.
    pub fn persist(&mut self, key: &Key<'_>) -> Result<bool, Full> {
        let found = self.txn.find(self.db, key, Lookup::Write);
        if found.is_none_or(|entry| entry.expiry.is_none()) {
            return Ok(false);
        }
        self.txn.set_expiry(self.db, key, None)
    }
}
