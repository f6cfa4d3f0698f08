//! Properties of commands by which rules may deny them, from their declarations.

use isotherm_acl::Access;
use isotherm_commands::spec::{AclCategories, Begin, Find, Flags, KeyFlags, KeySpec, Spec};
use isotherm_resp::Args;

use crate::request::entry::{Entry, Locks};

#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// The most that it may do to its only key, which stands at `Entry::first_key`; `NONE`: it has others, or
    /// none.
    pub only_key: Access,
    /// Everyone may run it (AUTH).
    pub is_free: bool,
    pub has_keys: bool,
    /// True if the command touches the database of its session.
    pub is_of_database: bool,
    pub is_of_all_databases: bool,
    pub reads_by_pattern: bool,
    /// Access to its keys, if all of them are of one kind and begin at `Entry::first_key`, and the command
    /// names no database.
    pub plain: Plain,
}

#[derive(Clone, Copy, Debug)]
pub enum Plain {
    No,
    Fixed(Access),
    /// Access that depends on the arguments (SET).
    Varies(fn(Args<'_>) -> KeyFlags),
}

impl Plain {
    /// The most that it may do to its key.
    fn most(self) -> Access {
        match self {
            Plain::No => Access::NONE,
            Plain::Fixed(access) => access,
            Plain::Varies(_) => Access::ALL,
        }
    }

    #[inline]
    pub fn access(self, args: Args<'_>) -> Option<Access> {
        match self {
            Plain::No => None,
            Plain::Fixed(access) => Some(access),
            Plain::Varies(flags) => Some(access_of(flags(args))),
        }
    }
}

impl Traits {
    pub fn of(entry: &Entry) -> Traits {
        let spec = entry.spec;
        let is_key = |keys: &KeySpec| !keys.flags.has(KeyFlags::NOT_KEY);
        let has_keys = spec.key_positions.is_some() || spec.key_specs.iter().any(is_key);
        let by_category = AclCategories::KEYSPACE.or(AclCategories::READ).or(AclCategories::WRITE);
        let reads_by_pattern =
            |keys: &KeySpec| keys.begin == Begin::Unknown && keys.flags.has(KeyFlags::ACCESS);
        let plain = plain(spec);
        let has_only_one = entry.locks == Locks::One && entry.first_key > 0;
        Traits {
            only_key: if has_only_one { plain.most() } else { Access::NONE },
            is_free: spec.flags.has(Flags::NO_AUTH),
            has_keys,
            is_of_database: has_keys || spec.acl_categories().has(by_category),
            is_of_all_databases: spec.flags.has(Flags::ALL_DBS),
            reads_by_pattern: spec.key_specs.iter().any(reads_by_pattern),
            plain,
        }
    }
}

/// Returns the access as rules distinguish it.
#[inline]
pub fn access_of(flags: KeyFlags) -> Access {
    let writes = flags.has(KeyFlags::INSERT.or(KeyFlags::DELETE).or(KeyFlags::UPDATE));
    Access::READ.when(flags.has(KeyFlags::ACCESS)).or(Access::WRITE.when(writes))
}

fn plain(spec: &Spec) -> Plain {
    let [KeySpec { flags, begin: Begin::Index(_), find: Find::Range { limit: 0, .. }, .. }] = spec.key_specs
    else {
        return Plain::No;
    };
    let is_odd = flags.has(KeyFlags::NOT_KEY.or(KeyFlags::INCOMPLETE)) || spec.key_positions.is_some();
    if is_odd || spec.database_arguments.is_some() || spec.flags.has(Flags::ALL_DBS) {
        return Plain::No;
    }
    match (flags.has(KeyFlags::VARIABLE_FLAGS), spec.variable_key_flags) {
        (true, Some(flags)) => Plain::Varies(flags),
        _ => Plain::Fixed(access_of(*flags)),
    }
}
