//! Users change: a session of one of them hears of it before its next command.
//!
//! A change is in the table first. Then the sessions of its user are marked, and then every partition is held
//! once (rule 12 of ARCHITECTURE.md): a command that had its locks before has ended by then, and one that
//! locks later sees the mark and looks its user up again. So when the reply to the change leaves nothing runs
//! by the old rules.

use isotherm_acl::{SetUserError, User};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, MutexGuard, PoisonError};

use super::Users;
use crate::Node;
use crate::session::{Attention, ClientShared};

impl Users {
    /// Takes the right to change users: there is one change at a time.
    fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before there are sessions.
    pub fn put_first(&self, user: User) {
        self.lock().put(user);
        self.note_change();
    }
}

/// Applies rules to a user, or makes a new one.
pub fn set<'a>(
    node: &Node,
    name: &[u8],
    rules: impl IntoIterator<Item = &'a [u8]> + Clone,
) -> Result<(), SetUserError> {
    let (users, defaults) = (&node.users, super::file::defaults(node));
    let _changing = users.begin_change();
    let before = users.get(name);
    let fresh = || Arc::new(User::new(name, &users.table, defaults));
    let changed = before.clone().unwrap_or_else(fresh).changed(rules, &users.table, defaults)?;
    users.lock().put(changed);
    users.note_change();
    if before.is_some() {
        mark(node, |user| *user.name == *name);
    }
    Ok(())
}

/// requirepass: the default user has this password and no other.
pub fn set_default_password(node: &Node, password: &[u8]) {
    let _changing = node.users.begin_change();
    let user = node.users.default_user().with_password(password);
    node.users.lock().put(user);
    node.users.note_change();
    mark(node, |user| super::is_default(&user.name));
}

/// Removes users, and closes their connections, except that of `me`. How many there were, and whether `me`
/// was one of them.
pub fn remove<'a>(node: &Node, names: impl Iterator<Item = &'a [u8]>, me: u64) -> (usize, bool) {
    let _changing = node.users.begin_change();
    let mut removed = BTreeSet::new();
    for name in names {
        let was_there = node.users.lock().remove(name);
        if was_there {
            removed.insert(name);
        }
    }
    node.users.note_change();
    let is_me = close(node, |user| removed.contains(&user.name[..]), me);
    (removed.len(), is_me)
}

/// All users are these from now on; the default user is as it is at first, unless it is one of them.
/// Connections of users that are gone are closed, except that of `me`. Returns whether it is one of them.
pub fn replace(node: &Node, users: Vec<User>, me: u64) -> bool {
    let _changing = node.users.begin_change();
    let before = node.users.all();
    let mut all = isotherm_acl::Users::new(&node.users.table);
    users.into_iter().for_each(|user| drop(all.put(user)));
    let names: BTreeMap<Arc<[u8]>, Arc<User>> =
        all.iter().map(|user| (Arc::clone(&user.name), Arc::clone(user))).collect();
    *node.users.lock() = all;
    node.users.note_change();
    let is_changed = |user: &User| names.get(&user.name).is_some_and(|now| now.show() != user.show());
    let changed: BTreeSet<&Arc<[u8]>> =
        before.iter().filter(|user| is_changed(user)).map(|user| &user.name).collect();
    mark(node, |user| changed.contains(&user.name));
    close(node, |user| !names.contains_key(&user.name), me)
}

fn of_users(node: &Node, is_meant: impl Fn(&User) -> bool) -> impl Iterator<Item = Arc<ClientShared>> {
    let all = node.clients.all().into_iter();
    all.filter(move |client| client.names().user.as_ref().is_some_and(|user| is_meant(user)))
}

/// Their sessions look their user up again. Those that listen may have to go, so they are woken.
fn mark(node: &Node, is_meant: impl Fn(&User) -> bool) {
    for client in of_users(node, is_meant) {
        client.ask(Attention::USER);
        if client.listening.any() {
            node.clients.wake(&node.mail, &client);
        }
    }
}

fn close(node: &Node, is_meant: impl Fn(&User) -> bool, me: u64) -> bool {
    let mut is_me = false;
    for client in of_users(node, is_meant) {
        match client.id == me {
            true => is_me = true,
            false => node.clients.kill(&node.mail, &client),
        }
    }
    is_me
}
