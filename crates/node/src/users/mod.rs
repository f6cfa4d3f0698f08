//! Users of the server and their permissions: the users of `isotherm_acl`, and the state of this process
//! around them.
//!
//! ```text
//! session       holds its user, an `Arc` that never changes; "may do everything" is a bit of its gates
//! request       permission: which keys, channels, databases does it touch? what does the user say?
//! change        the new user is in the table; its sessions are marked (`Attention::USER`); every partition is held once
//! a session that is marked looks its user up again before its next command has its locks
//! ```

pub mod changes;
pub mod file;
pub mod noting;
pub mod permission;
pub mod sight;
mod traits;

use isotherm_acl::{Access, CommandRow, CommandTable, DEFAULT_USER, Defaults, Log, Reason, User};
use isotherm_commands::spec::AclCategories;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::request::entry::Entry;
use crate::request::registry::Commands;
use crate::session::{Attention, ClientShared};
use traits::Traits;

pub struct Users {
    /// The commands that rules name, by `Entry::index`.
    pub table: CommandTable,
    traits: Box<[Traits]>,
    all: Mutex<isotherm_acl::Users>,
    /// Lock of a change. One change at a time first changes the table, and then marks the sessions of the
    /// user.
    changing: Mutex<()>,
    /// Lock of ACL SAVE, one at a time: an older list must not be renamed into the place of a newer one.
    pub file: Mutex<()>,
    /// Counts changes: a user that was looked up at this number is as it was while the number is the same.
    generation: AtomicU64,
    /// A new session has to authenticate.
    auth_required: AtomicBool,
    log: Mutex<Log>,
    denied: Denied,
    /// Names of those that the configuration defined at start.
    at_start: OnceLock<BTreeSet<Box<[u8]>>>,
}

/// Counts of denials since the start or CONFIG RESETSTAT.
#[derive(Default)]
pub struct Denied {
    pub auth: AtomicU64,
    pub command: AtomicU64,
    pub key: AtomicU64,
    pub channel: AtomicU64,
    pub database: AtomicU64,
    pub tls_certificate: AtomicU64,
}

impl Denied {
    fn all(&self) -> [&AtomicU64; 6] {
        [&self.auth, &self.command, &self.key, &self.channel, &self.database, &self.tls_certificate]
    }

    pub fn of(&self, reason: Reason) -> &AtomicU64 {
        match reason {
            Reason::Database => &self.database,
            Reason::Command => &self.command,
            Reason::Key => &self.key,
            Reason::Channel => &self.channel,
        }
    }

    pub fn reset(&self) {
        self.all().iter().for_each(|count| count.store(0, Ordering::Relaxed));
    }
}

/// The commands as rules see them.
pub fn command_table(commands: &Commands) -> CommandTable {
    let row = |entry: &&Entry| CommandRow {
        name: entry.name.clone(),
        categories: entry.spec.acl_categories().0,
        subcommands: entry.subcommands.len() as u16,
        is_subcommand: entry.parent.is_some(),
    };
    CommandTable::new(commands.all().iter().map(row).collect(), categories())
}

fn categories() -> &'static [(u32, &'static str)] {
    static ALL: LazyLock<Box<[(u32, &'static str)]>> =
        LazyLock::new(|| AclCategories::ALL.iter().map(|(category, name)| (category.0, *name)).collect());
    &ALL
}

impl Users {
    /// The default user with this password, or none.
    pub fn new(commands: &Commands, password: &[u8]) -> Users {
        let table = command_table(commands);
        let mut all = isotherm_acl::Users::new(&table);
        let user = all.default_user().with_password(password);
        all.put(user);
        let traits = commands.all().iter().map(|entry| Traits::of(entry)).collect();
        let users = Users {
            table,
            traits,
            all: Mutex::new(all),
            changing: Mutex::new(()),
            file: Mutex::default(),
            generation: AtomicU64::new(1),
            auth_required: AtomicBool::new(false),
            log: Mutex::new(Log::default()),
            denied: Denied::default(),
            at_start: OnceLock::new(),
        };
        users.note_change();
        users
    }

    fn lock(&self) -> MutexGuard<'_, isotherm_acl::Users> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns whether a lone prefix permits this command, which has one key, to the user. False decides
    /// nothing: `permission` does.
    #[inline]
    pub fn soon_permit(&self, user: &User, command: &Entry, key: &[u8]) -> bool {
        let access = self.traits[usize::from(command.index)].only_key;
        access != Access::NONE && user.permits_by_prefix(command.index, key, access)
    }

    /// The table has changed.
    fn note_change(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
        let user = self.default_user();
        let required = !user.needs_no_password || !user.is_on;
        self.auth_required.store(required, Ordering::Release);
    }

    /// Returns whether a session has to authenticate.
    #[inline]
    pub fn auth_required(&self) -> bool {
        self.auth_required.load(Ordering::Acquire)
    }

    pub fn get(&self, name: &[u8]) -> Option<Arc<User>> {
        self.lock().get(name).cloned()
    }

    pub fn default_user(&self) -> Arc<User> {
        Arc::clone(self.lock().default_user())
    }

    /// Returns all users in the order of their names.
    pub fn all(&self) -> Vec<Arc<User>> {
        self.lock().iter().cloned().collect()
    }

    /// Returns one digest for all rules.
    pub fn digest(&self) -> String {
        self.lock().digest()
    }

    pub fn denied(&self) -> &Denied {
        &self.denied
    }

    /// The client is this user from now on, if the password is right and it may enter.
    pub fn admit(&self, client: &ClientShared, name: &[u8], password: &[u8]) -> Option<Arc<User>> {
        let user = self.get(name).filter(|user| user.admits(password))?;
        self.enter(client, user)
    }

    /// Makes the client this user from now on, if the user is on. A certificate has shown that the client is
    /// this user.
    pub fn admit_by_certificate(&self, client: &ClientShared, name: &[u8]) -> Option<Arc<User>> {
        let user = self.get(name).filter(|user| user.is_on)?;
        self.enter(client, user)
    }

    /// Shows whose the client is from now on, and looks that user up once more.
    fn enter(&self, client: &ClientShared, user: Arc<User>) -> Option<Arc<User>> {
        let name = Arc::clone(&user.name);
        let before = client.names().user.replace(user);
        // A change that has not found the client is seen here, and so is its end.
        let current = self.get(&name);
        client.names().user = current.clone().or(before);
        if current.is_none() {
            // It keeps its user, which may have changed while another was shown.
            client.ask(Attention::USER);
        }
        current
    }

    /// The client is the default user from now on: a new one, or after RESET.
    pub fn set_default_user(&self, client: &ClientShared) -> Arc<User> {
        client.names().user = Some(self.default_user());
        let current = self.default_user();
        client.names().user = Some(Arc::clone(&current));
        current
    }

    /// Returns a user of this name that may do nothing, for a session whose user was deleted.
    pub fn powerless(&self, name: &[u8]) -> User {
        User::new(name, &self.table, Defaults { all_channels: false })
    }

    /// The user of a session that was marked, as it is now. `None`: it is no more.
    pub fn current(&self, client: &ClientShared, user: &Arc<User>) -> Option<Arc<User>> {
        let current = self.get(&user.name)?;
        client.names().user = Some(Arc::clone(&current));
        Some(current)
    }

    /// Returns whether the default user needs no password; protected mode refuses remote clients then.
    pub fn is_open(&self) -> bool {
        self.default_user().needs_no_password
    }
}

/// Returns whether this is the name of the default user.
pub fn is_default(name: &[u8]) -> bool {
    name == DEFAULT_USER
}
