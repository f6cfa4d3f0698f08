//! Users in files: the ACL file, and `user` lines of the configuration.

use isotherm_acl::{CommandTable, Defaults, RuleError, User, parse_file};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::Node;
use isotherm_config::file::UserWords;
use isotherm_config::file::dry::Tried;
use isotherm_config::rewrite::UserLine;
use isotherm_config::{Config, Id, id};
use isotherm_runtime::log::{self, os_text};
use isotherm_runtime::operator_file::{self, Step};
use isotherm_runtime::routines;

/// More than any table of users has.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Time that ACL SAVE waits for another, whose disk may not answer.
const ALONE_MAX: Duration = Duration::from_secs(1);

pub fn defaults(node: &Node) -> Defaults {
    defaults_of(&node.config)
}

pub fn defaults_of(config: &Config) -> Defaults {
    const PUBSUB_DEFAULT: Id = id("acl-pubsub-default");
    /// `allchannels`
    const ALL_CHANNELS: i64 = 1;
    Defaults { all_channels: config.number(PUBSUB_DEFAULT) == ALL_CHANNELS }
}

/// The ACL file, if there is one.
pub fn path_of(config: &Config) -> Option<PathBuf> {
    const FILE: Id = id("aclfile");
    let name = config.text(FILE);
    (!name.is_empty()).then(|| PathBuf::from(std::ffi::OsStr::from_bytes(&name)))
}

/// The users of the file, or what is wrong with it.
pub fn load(node: &Node, path: &Path) -> Result<Vec<User>, Vec<u8>> {
    let name = path.to_string_lossy();
    let text = read(path).map_err(|error| {
        format!("Error loading ACLs, opening file '{name}': {}", os_text(&error)).into_bytes()
    })?;
    parse_file(&text, &name, &node.users.table, defaults(node))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(File::open(path)?, FILE_BYTES_MAX + 1), &mut text)?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(io::ErrorKind::FileTooLarge.into()),
        false => Ok(text),
    }
}

/// Writes the users to the file. Returns whether it did: why not is in the log.
pub fn save(node: &Node, path: &Path) -> bool {
    let Some(_alone) = routines::lock_within(&node.users.file, ALONE_MAX) else {
        log::warning("ACL SAVE: the disk has not answered another one yet");
        return false;
    };
    let mut text = Vec::new();
    for user in node.users.all() {
        text.extend_from_slice(&user.line());
        text.push(b'\n');
    }
    let written = operator_file::replace(path, &text);
    if let Err((step, error)) = &written {
        let what = match step {
            Step::Open => "Opening temp ACL file",
            Step::Write => "Writing ACL file",
            Step::Sync => "Syncing ACL file",
            Step::Rename => "Renaming ACL file",
            Step::SyncFolder => "Syncing ACL directory",
        };
        log::warning(format!("{what} for ACL SAVE: {}", os_text(error)));
    }
    written.is_ok()
}

const TWO_PLACES: &str = "Configuring Isotherm with users defined in isotherm.conf and at the same setting an ACL file path is \
     invalid. This setup is very likely to lead to configuration errors and security holes, please define \
     either an ACL file or declare users directly in your isotherm.conf, but not both.";

/// The users that the configuration names, at start.
/// An error ends the process.
pub fn load_at_start(node: &Node, lines: &[UserWords]) -> Result<(), String> {
    let path = path_of(&node.config);
    if path.is_some() && !lines.is_empty() {
        return Err(TWO_PLACES.into());
    }
    node.users.at_start.get_or_init(|| lines.iter().map(|words| words[0].as_slice().into()).collect());
    for line in lines {
        load_line(node, line).map_err(|why| {
            log::warning(why);
            "Critical error while loading ACLs. Exiting.".to_string()
        })?;
    }
    let Some(path) = path else { return Ok(()) };
    match load(node, &path) {
        Ok(users) => {
            super::changes::replace(node, users, 0);
            Ok(())
        }
        Err(errors) => {
            let errors = String::from_utf8_lossy(&errors);
            Err(format!("Aborting Isotherm startup because of ACL errors: {errors}"))
        }
    }
}

/// Returns the fault of a `user` line, in the words of the configuration. A command that is not there
/// is found later, as in Valkey.
pub fn check_line(words: &[&[u8]], config: &Config, table: &CommandTable) -> Result<(), String> {
    match isotherm_acl::read_definition(words[0], &words[1..], table, defaults_of(config)) {
        // Valkey counts its rules as if they were the words of the line.
        Err((at, _, error)) if error != RuleError::UnknownCommand => {
            let word =
                words.get(at.wrapping_sub(1)).map_or("user".into(), |word| String::from_utf8_lossy(word));
            Err(format!("Error in user declaration '{word}': {}", error.text()))
        }
        _ => Ok(()),
    }
}

/// Returns the lines of the configuration that make the users, in addition to those of included files; none,
/// if they have a file of their own.
pub fn lines(node: &Node, included: &[UserWords]) -> Vec<UserLine> {
    if path_of(&node.config).is_some() {
        return Vec::new();
    }
    // Each user as included files define it: nothing is written if the user is still that.
    let mut said: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
    for words in included {
        let user = define(words, &node.users.table, defaults(node));
        said.insert(&words[0], user.map(|user| user.line()).unwrap_or_default());
    }
    let mut lines = Vec::new();
    for user in node.users.all() {
        let text = user.line();
        if said.remove(&user.name[..]).is_none_or(|said| said != text) {
            lines.push(UserLine { name: user.name.to_vec(), text });
        }
    }
    // One that an operator has added to a file since the start was never removed.
    let was_there = |name: &&[u8]| node.users.at_start.get().is_some_and(|names| names.contains(*name));
    let gone = said
        .into_keys()
        .filter(was_there)
        .map(|name| UserLine { name: name.to_vec(), text: [b"user ", name, b" reset"].concat() });
    lines.extend(gone);
    lines
}

/// Returns why a start could not make its users of what was read, if it could not. `table`: its commands.
pub fn check_lines(tried: &Tried, table: &CommandTable) -> Result<(), String> {
    if path_of(&tried.config).is_some() && !tried.users.is_empty() {
        return Err(TWO_PLACES.into());
    }
    let defaults = defaults_of(&tried.config);
    tried.users.iter().try_for_each(|words| define(words, table, defaults).map(drop))
}

/// Makes the user that the words of a line describe.
fn define(words: &[Vec<u8>], table: &CommandTable, defaults: Defaults) -> Result<User, String> {
    let (name, rules) = words.split_first().expect("the reader of the configuration has seen a name");
    if isotherm_acl::has_spaces(name) {
        return Err("Spaces not allowed in ACL usernames".into());
    }
    let rules: Vec<&[u8]> = rules.iter().map(Vec::as_slice).collect();
    let user = isotherm_acl::read_definition(name, &rules, table, defaults);
    user.map_err(|(_, rule, error)| {
        let [rule, name] = [&rule, name].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        format!("Error loading ACL rule '{rule}' for the user named '{name}': {}", error.text())
    })
}

fn load_line(node: &Node, words: &[Vec<u8>]) -> Result<(), String> {
    let user = define(words, &node.users.table, defaults(node))?;
    if !user.is_on {
        log::notice(format!(
            "The user '{}' is disabled (there is no 'on' modifier in the user description). Make sure this is not a \
             configuration error.",
            String::from_utf8_lossy(&user.name)
        ));
    }
    node.users.put_first(user);
    Ok(())
}
