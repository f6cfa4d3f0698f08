//! Bits that describe a command and its keys: flags, ACL categories, key flags. Each kind lists its names in
//! the order in which COMMAND INFO shows them.

/// Command flags, as COMMAND INFO names them (`Flags::names`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u32);

impl Flags {
    pub const WRITE: Flags = Flags(1);
    pub const READONLY: Flags = Flags(1 << 1);
    pub const DENYOOM: Flags = Flags(1 << 2);
    pub const ADMIN: Flags = Flags(1 << 3);
    pub const PUBSUB: Flags = Flags(1 << 4);
    pub const NOSCRIPT: Flags = Flags(1 << 5);
    pub const BLOCKING: Flags = Flags(1 << 6);
    pub const LOADING: Flags = Flags(1 << 7);
    pub const STALE: Flags = Flags(1 << 8);
    pub const SKIP_MONITOR: Flags = Flags(1 << 9);
    /// Shown as `skip_commandlog`.
    pub const SKIP_SLOWLOG: Flags = Flags(1 << 10);
    pub const FAST: Flags = Flags(1 << 11);
    pub const NO_AUTH: Flags = Flags(1 << 12);
    pub const NO_MULTI: Flags = Flags(1 << 13);
    pub const ALLOW_BUSY: Flags = Flags(1 << 14);
    pub const NO_ASYNC_LOADING: Flags = Flags(1 << 15);
    pub const NO_MANDATORY_KEYS: Flags = Flags(1 << 16);
    /// COMMAND INFO shows it for commands whose keys need more than first/last/step. Never stated: it is
    /// derived.
    pub const MOVABLE_KEYS: Flags = Flags(1 << 17);
    pub const ASKING: Flags = Flags(1 << 18);

    // --- never shown ---

    /// Command that may write to the log though it is no write (PUBLISH, EVAL).
    pub const MAY_REPLICATE: Flags = Flags(1 << 19);
    /// Command that is refused unless the configuration allows it (DEBUG, MODULE).
    pub const PROTECTED: Flags = Flags(1 << 20);
    /// Command whose keys are not known before it runs, and may be any (SCAN, RANDOMKEY).
    pub const TOUCHES_ARBITRARY_KEYS: Flags = Flags(1 << 21);
    /// Command that works on all databases at once (FLUSHALL).
    pub const ALL_DBS: Flags = Flags(1 << 22);
    /// Between MULTI and EXEC it is run at once (EXEC, DISCARD, QUIT, RESET).
    pub const NEVER_QUEUED: Flags = Flags(1 << 23);
    /// A session of RESP2 that listens to channels may send it.
    pub const FOR_SUBSCRIBERS: Flags = Flags(1 << 24);
    /// Command after which the setting of CLIENT CACHING still holds.
    pub const KEEPS_CACHING: Flags = Flags(1 << 25);
    /// Command that reports values of the operating system. The next flag marks one that looks at the memory
    /// map.
    pub const ASKS_SYSTEM: Flags = Flags(1 << 26);
    pub const ASKS_MEMORY_MAP: Flags = Flags(1 << 27);
    /// Refused with MISCONF as writes are (PING: sentinels take that for a node that is down).
    pub const REPORTS_DISK_ERRORS: Flags = Flags(1 << 28);
    /// Command whose handler itself locks everything at some moment: no script may be in the middle of its
    /// work then.
    pub const STOPS_ALL: Flags = Flags(1 << 29);

    /// Command that runs the function that its first argument names. The declarations of the function decide
    /// what it may do.
    pub const RUNS_FUNCTION: Flags = Flags(1 << 31);

    /// Command that moves keys of slots in migration (MIGRATE): a member of a cluster runs it whichever keys
    /// it has.
    pub const MOVES_SLOTS: Flags = Flags(1 << 30);

    const NAMES: &[(Flags, &str)] = &[
        (Flags::WRITE, "write"),
        (Flags::READONLY, "readonly"),
        (Flags::DENYOOM, "denyoom"),
        (Flags::ADMIN, "admin"),
        (Flags::PUBSUB, "pubsub"),
        (Flags::NOSCRIPT, "noscript"),
        (Flags::BLOCKING, "blocking"),
        (Flags::LOADING, "loading"),
        (Flags::STALE, "stale"),
        (Flags::SKIP_MONITOR, "skip_monitor"),
        (Flags::SKIP_SLOWLOG, "skip_commandlog"),
        (Flags::ASKING, "asking"),
        (Flags::FAST, "fast"),
        (Flags::NO_AUTH, "no_auth"),
        (Flags::NO_MANDATORY_KEYS, "no_mandatory_keys"),
        (Flags::NO_ASYNC_LOADING, "no_async_loading"),
        (Flags::NO_MULTI, "no_multi"),
        (Flags::MOVABLE_KEYS, "movablekeys"),
        (Flags::ALLOW_BUSY, "allow_busy"),
    ];

    pub const fn or(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Returns whether any of `flags` is set.
    #[inline]
    pub const fn has(self, flags: Flags) -> bool {
        self.0 & flags.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        Flags::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}

/// ACL categories as bits (`AclCategories::names`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AclCategories(pub u32);

impl AclCategories {
    pub const KEYSPACE: AclCategories = AclCategories(1);
    pub const READ: AclCategories = AclCategories(1 << 1);
    pub const WRITE: AclCategories = AclCategories(1 << 2);
    pub const SET: AclCategories = AclCategories(1 << 3);
    pub const SORTEDSET: AclCategories = AclCategories(1 << 4);
    pub const LIST: AclCategories = AclCategories(1 << 5);
    pub const HASH: AclCategories = AclCategories(1 << 6);
    pub const STRING: AclCategories = AclCategories(1 << 7);
    pub const BITMAP: AclCategories = AclCategories(1 << 8);
    pub const HYPERLOGLOG: AclCategories = AclCategories(1 << 9);
    pub const GEO: AclCategories = AclCategories(1 << 10);
    pub const STREAM: AclCategories = AclCategories(1 << 11);
    pub const PUBSUB: AclCategories = AclCategories(1 << 12);
    pub const ADMIN: AclCategories = AclCategories(1 << 13);
    pub const FAST: AclCategories = AclCategories(1 << 14);
    pub const SLOW: AclCategories = AclCategories(1 << 15);
    pub const BLOCKING: AclCategories = AclCategories(1 << 16);
    pub const DANGEROUS: AclCategories = AclCategories(1 << 17);
    pub const CONNECTION: AclCategories = AclCategories(1 << 18);
    pub const TRANSACTION: AclCategories = AclCategories(1 << 19);
    pub const SCRIPTING: AclCategories = AclCategories(1 << 20);

    /// Every category with its name, in the order of ACL CAT.
    pub const ALL: &[(AclCategories, &str)] = &[
        (AclCategories::KEYSPACE, "keyspace"),
        (AclCategories::READ, "read"),
        (AclCategories::WRITE, "write"),
        (AclCategories::SET, "set"),
        (AclCategories::SORTEDSET, "sortedset"),
        (AclCategories::LIST, "list"),
        (AclCategories::HASH, "hash"),
        (AclCategories::STRING, "string"),
        (AclCategories::BITMAP, "bitmap"),
        (AclCategories::HYPERLOGLOG, "hyperloglog"),
        (AclCategories::GEO, "geo"),
        (AclCategories::STREAM, "stream"),
        (AclCategories::PUBSUB, "pubsub"),
        (AclCategories::ADMIN, "admin"),
        (AclCategories::FAST, "fast"),
        (AclCategories::SLOW, "slow"),
        (AclCategories::BLOCKING, "blocking"),
        (AclCategories::DANGEROUS, "dangerous"),
        (AclCategories::CONNECTION, "connection"),
        (AclCategories::TRANSACTION, "transaction"),
        (AclCategories::SCRIPTING, "scripting"),
    ];

    pub const fn or(self, other: AclCategories) -> AclCategories {
        AclCategories(self.0 | other.0)
    }

    /// Returns whether any of `categories` is set.
    #[inline]
    pub const fn has(self, categories: AclCategories) -> bool {
        self.0 & categories.0 != 0
    }

    /// Without the leading `@`.
    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        AclCategories::ALL.iter().filter(move |(category, _)| self.has(*category)).map(|(_, name)| *name)
    }

    pub fn by_name(name: &[u8]) -> Option<AclCategories> {
        let named = |entry: &&(AclCategories, &str)| entry.1.as_bytes().eq_ignore_ascii_case(name);
        AclCategories::ALL.iter().find(named).map(|(category, _)| *category)
    }

    /// Returns the categories that follow from a command's flags. A command that runs scripts is not `@read`,
    /// even if these may only read.
    pub const fn implied(flags: Flags, declared: AclCategories) -> AclCategories {
        let mut categories = if flags.has(Flags::FAST) { AclCategories::FAST } else { AclCategories::SLOW };
        if flags.has(Flags::WRITE) {
            categories = categories.or(AclCategories::WRITE);
        }
        if flags.has(Flags::READONLY) && !declared.has(AclCategories::SCRIPTING) {
            categories = categories.or(AclCategories::READ);
        }
        if flags.has(Flags::ADMIN) {
            categories = categories.or(AclCategories::ADMIN).or(AclCategories::DANGEROUS);
        }
        if flags.has(Flags::PUBSUB) {
            categories = categories.or(AclCategories::PUBSUB);
        }
        if flags.has(Flags::BLOCKING) {
            categories = categories.or(AclCategories::BLOCKING);
        }
        categories
    }
}

/// Use of a key by a command. The first four flags describe what happens to the key as a whole, the next four
/// what happens to the user's data in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KeyFlags(pub u32);

impl KeyFlags {
    /// Reads the value.
    pub const RO: KeyFlags = KeyFlags(1);
    /// Reads and changes the value.
    pub const RW: KeyFlags = KeyFlags(1 << 1);
    /// Overwrites the value without looking at it.
    pub const OW: KeyFlags = KeyFlags(1 << 2);
    /// Removes the key.
    pub const RM: KeyFlags = KeyFlags(1 << 3);
    pub const ACCESS: KeyFlags = KeyFlags(1 << 4);
    pub const UPDATE: KeyFlags = KeyFlags(1 << 5);
    pub const INSERT: KeyFlags = KeyFlags(1 << 6);
    pub const DELETE: KeyFlags = KeyFlags(1 << 7);
    /// No key, but routed by its slot like one (a shard channel).
    pub const NOT_KEY: KeyFlags = KeyFlags(1 << 8);
    /// The command may have keys that this specification does not find.
    pub const INCOMPLETE: KeyFlags = KeyFlags(1 << 9);
    /// The other flags depend on the arguments.
    pub const VARIABLE_FLAGS: KeyFlags = KeyFlags(1 << 10);

    const NAMES: &[(KeyFlags, &str)] = &[
        (KeyFlags::RO, "RO"),
        (KeyFlags::RW, "RW"),
        (KeyFlags::OW, "OW"),
        (KeyFlags::RM, "RM"),
        (KeyFlags::ACCESS, "access"),
        (KeyFlags::UPDATE, "update"),
        (KeyFlags::INSERT, "insert"),
        (KeyFlags::DELETE, "delete"),
        (KeyFlags::NOT_KEY, "not_key"),
        (KeyFlags::INCOMPLETE, "incomplete"),
        (KeyFlags::VARIABLE_FLAGS, "variable_flags"),
    ];

    pub const fn or(self, other: KeyFlags) -> KeyFlags {
        KeyFlags(self.0 | other.0)
    }

    /// Returns whether any of `flags` is set.
    #[inline]
    pub const fn has(self, flags: KeyFlags) -> bool {
        self.0 & flags.0 != 0
    }

    pub fn names(self) -> impl Iterator<Item = &'static str> + Clone {
        KeyFlags::NAMES.iter().filter(move |(flag, _)| self.has(*flag)).map(|(_, name)| *name)
    }
}
