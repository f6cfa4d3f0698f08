//! All users, by name.

use ring::digest::SHA256;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::command_table::CommandTable;
use crate::user::User;

/// The one that a connection is until it says otherwise. It is always there.
pub const DEFAULT_USER: &[u8] = b"default";

#[derive(Clone, Debug)]
pub struct Users {
    by_name: BTreeMap<Arc<[u8]>, Arc<User>>,
}

impl Users {
    /// The default user alone, which may do everything.
    pub fn new(table: &CommandTable) -> Users {
        let mut users = Users { by_name: BTreeMap::new() };
        users.put(User::all_powerful(DEFAULT_USER, table));
        users
    }

    pub fn get(&self, name: &[u8]) -> Option<&Arc<User>> {
        self.by_name.get(name)
    }

    pub fn default_user(&self) -> &Arc<User> {
        self.get(DEFAULT_USER).expect("it is never removed")
    }

    /// Adds a user in place of the one with the same name.
    pub fn put(&mut self, user: User) -> Arc<User> {
        let user = Arc::new(user);
        self.by_name.insert(Arc::clone(&user.name), Arc::clone(&user));
        user
    }

    /// Removes a user. Returns whether there was one. The default user stays.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        name != DEFAULT_USER && self.by_name.remove(name).is_some()
    }

    /// Returns a hash of all rules, whatever the order of their changes: the XOR of the hashes of the lines
    /// that ACL LIST shows.
    pub fn digest(&self) -> String {
        let mut digest = [0; 32];
        for user in self.by_name.values() {
            let hash = ring::digest::digest(&SHA256, &user.line());
            digest.iter_mut().zip(hash.as_ref()).for_each(|(sum, byte)| *sum ^= byte);
        }
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Returns the users in the order of their names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<User>> {
        self.by_name.values()
    }
}
