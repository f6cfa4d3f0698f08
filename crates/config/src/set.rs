//! CONFIG GET and CONFIG SET.
//!
//! A CONFIG SET of several parameters happens as a whole or not at all: all values are read and stored first,
//! then what the process has to do is done; if a value does not fit or something cannot be done, every value
//! goes back to what it was and is applied again.

use super::params::{Apply, Flags, Id, Reason, Value};
use super::{Config, PARAMS, find, is_text, value};
use isotherm_resp::errors::with_bytes;
use isotherm_stdx::{glob_match, steps};
use std::collections::{BTreeMap, HashSet};

/// Why CONFIG SET did nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetError {
    Unknown(Vec<u8>),
    /// The name as the client gave it or as it is declared, as Valkey has it.
    Failed {
        name: Vec<u8>,
        reason: Reason,
    },
}

impl SetError {
    /// Valkey's text.
    pub fn text(&self) -> Vec<u8> {
        match self {
            SetError::Unknown(name) => {
                with_bytes("ERR Unknown option or number of arguments for CONFIG SET - '", name, "'")
            }
            SetError::Failed { name, reason } => {
                let before = "ERR CONFIG SET failed (possibly related to argument '";
                let mut text = with_bytes(before, name, "') - ");
                text.extend_from_slice(reason.as_bytes());
                text
            }
        }
    }
}

/// Parameter to be set, with its new argument and its value before.
struct Change<'a> {
    id: Id,
    name: &'static str,
    argument: &'a [u8],
    before: Value,
}

impl Config {
    /// CONFIG GET: names (as asked for, or as declared when a pattern found them) and values, by name.
    pub fn get(&self, patterns: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found: BTreeMap<Vec<u8>, Id> = BTreeMap::new();
        // As many patterns as a request has arguments: each name is looked up, not compared with those that
        // are found.
        let mut known: HashSet<Vec<u8>> = HashSet::new();
        let mut add = |name: &[u8], id: Id| {
            steps::note(1);
            if known.insert(name.to_ascii_lowercase()) {
                found.insert(name.to_vec(), id);
            }
        };
        for pattern in patterns {
            steps::note(1);
            if !pattern.iter().any(|byte| b"[*?".contains(byte)) {
                if let Some((id, _)) = find(pattern) {
                    add(pattern, id);
                }
                continue;
            }
            for (at, param) in PARAMS.iter().enumerate().filter(|(_, param)| !param.flags.hidden) {
                for name in [Some(param.name), param.alias].into_iter().flatten() {
                    if glob_match(pattern, name.as_bytes(), true) {
                        add(name.as_bytes(), Id(at as u16));
                    }
                }
            }
        }
        found.into_iter().map(|(name, id)| (name, self.shown(id))).collect()
    }

    /// CONFIG SET. `may_protected`: whether this client may change protected parameters. `apply` does what a
    /// change asks of the process; it is called once for each kind, and again after a failure, to undo.
    pub fn set(
        &self,
        _writing: &super::Writing<'_>,
        pairs: &[(&[u8], &[u8])],
        may_protected: bool,
        apply: &mut dyn FnMut(Apply) -> Result<(), Reason>,
    ) -> Result<(), SetError> {
        let changes = self.plan(pairs, may_protected)?;
        let mut to_apply: Vec<(Apply, &'static str)> = Vec::new();
        for (at, change) in changes.iter().enumerate() {
            match self.set_one(change) {
                Ok(true) => {
                    let kind = PARAMS[change.id.index()].apply;
                    if kind != Apply::Nothing && !to_apply.iter().any(|(known, _)| *known == kind) {
                        to_apply.push((kind, change.name));
                    }
                }
                Ok(false) => {}
                Err(reason) => {
                    self.restore(&changes[..at]);
                    return Err(failed(change.name, reason));
                }
            }
        }
        for (kind, name) in &to_apply {
            if let Err(reason) = apply(*kind) {
                self.restore(&changes);
                for (kind, _) in &to_apply {
                    // Values that were good before are good again; if the world has changed meanwhile,
                    // nothing is left to do.
                    let _ = apply(*kind);
                }
                return Err(failed(name, reason));
            }
        }
        Ok(())
    }

    /// Returns whether a change of this parameter may wait for a disk, or for scripts.
    pub fn may_wait(&self, id: Id) -> bool {
        PARAMS[id.index()].apply.may_wait()
    }

    /// Everything that can be wrong before a value is read.
    fn plan<'a>(
        &self,
        pairs: &[(&'a [u8], &'a [u8])],
        may_protected: bool,
    ) -> Result<Vec<Change<'a>>, SetError> {
        let mut changes: Vec<Change<'a>> = Vec::with_capacity(pairs.len());
        for (asked, argument) in pairs {
            let Some((id, name)) = find(asked) else { return Err(SetError::Unknown(asked.to_vec())) };
            let Flags { immutable, protected, .. } = PARAMS[id.index()].flags;
            let reason = if immutable {
                "can't set immutable config"
            } else if protected && !may_protected {
                "can't set protected config"
            } else if changes.iter().any(|change| change.name == name) {
                "duplicate parameter"
            } else {
                changes.push(Change { id, name, argument, before: self.value(id) });
                continue;
            };
            return Err(SetError::Failed { name: asked.to_vec(), reason: reason.into() });
        }
        Ok(changes)
    }

    /// Stores one value; returns whether it is another than before.
    fn set_one(&self, change: &Change<'_>) -> Result<bool, Reason> {
        let flags = PARAMS[change.id.index()].flags;
        let arguments: Vec<&[u8]> = if !flags.multi_arg {
            vec![change.argument]
        } else if change.argument.is_empty() {
            Vec::new()
        } else {
            change.argument.split(|&byte| byte == b' ').collect()
        };
        self.set_arguments(change.id, &arguments)
    }

    /// Stores one value from arguments that are split already, as in a configuration file. Returns whether it
    /// is another than before.
    pub(super) fn set_arguments(&self, id: Id, arguments: &[&[u8]]) -> Result<bool, Reason> {
        let param = &PARAMS[id.index()];
        let before = self.value(id);
        let after = value::parse(param, arguments, &before)?;
        let changed = after != before || param.flags.volatile;
        self.store(id, after);
        Ok(changed)
    }

    /// Sets one parameter as a line of the configuration file does. There must be such a parameter.
    pub fn set_at_start(&self, name: &str, argument: &str) -> Result<bool, Reason> {
        let (id, _) = find(name.as_bytes()).expect("there is such a parameter");
        self.set_arguments(id, &[argument.as_bytes()])
    }

    fn restore(&self, changes: &[Change<'_>]) {
        for change in changes {
            // The working directory is the one value that is more than its text.
            if is_text(&PARAMS[change.id.index()])
                && let Value::Text(text) = &change.before
                && PARAMS[change.id.index()].name == "dir"
            {
                let _ = self.set_arguments(change.id, &[text]);
            }
            self.store(change.id, change.before.clone());
        }
    }

    /// Sets a parameter without asking whether it may be changed: what the process finds out by itself (the
    /// number of workers), and what the command line says.
    pub fn set_number(&self, id: Id, value: i64) {
        assert!(!is_text(&PARAMS[id.index()]), "the parameter is a number");
        self.store(id, Value::Number(value));
    }
}

fn failed(name: &str, reason: Reason) -> SetError {
    SetError::Failed { name: name.into(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn get(config: &Config, pattern: &str) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        config.get(&[pattern.as_bytes()]).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[track_caller]
    fn check(config: &Config, pattern: &str, expected: &[(&str, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect();
        assert_eq!(get(config, pattern), expected, "CONFIG GET {pattern}");
    }

    fn set(config: &Config, pairs: &[(&str, &str)]) -> Result<(), String> {
        let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(a, b)| (a.as_bytes(), b.as_bytes())).collect();
        let result = config.set(
            &config.begin_writing(Duration::ZERO).unwrap(),
            &pairs,
            false,
            &mut |apply| match apply {
                Apply::Listen if config.port() == 1 => Err("Unable to listen on this port.".into()),
                _ => Ok(()),
            },
        );
        result.map_err(|error| String::from_utf8(error.text()).expect("text"))
    }

    #[test]
    fn get_by_name_alias_and_pattern() {
        let config = Config::default();
        check(&config, "port", &[("port", "6379")]);
        check(&config, "PORT", &[("PORT", "6379")]);
        check(&config, "slave-priority", &[("slave-priority", "100")]);
        check(&config, "*-priority", &[("replica-priority", "100"), ("slave-priority", "100")]);
        check(&config, "LFU-*", &[("lfu-decay-time", "1"), ("lfu-log-factor", "10")]);
        check(&config, "key-load-delay", &[("key-load-delay", "0")]);
        check(&config, "key-load-dela?", &[]);
        check(&config, "nothing", &[]);
        let all = get(&config, "*");
        assert!(all.is_sorted_by(|a, b| a.0 < b.0));
        let names: usize =
            PARAMS.iter().filter(|p| !p.flags.hidden).map(|p| 1 + usize::from(p.alias.is_some())).sum();
        assert_eq!(all.len(), names);
    }

    #[test]
    fn several_patterns_name_a_parameter_once() {
        let config = Config::default();
        let names: Vec<Vec<u8>> = config
            .get(&[b"maxmemory", b"maxmemory*", b"MAXMEMORY"])
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names.iter().filter(|name| name.eq_ignore_ascii_case(b"maxmemory")).count(), 1);
    }

    #[test]
    fn all_or_nothing() {
        let config = Config::default();
        let generation = config.generation();
        assert_eq!(set(&config, &[("maxmemory", "1mb"), ("slave-priority", "7")]), Ok(()));
        assert!(config.generation() > generation);
        check(&config, "replica-priority", &[("replica-priority", "7")]);
        assert_eq!(
            set(&config, &[("maxmemory", "2mb"), ("maxmemory-clients", "200%")]).unwrap_err(),
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory-clients') - percentage argument must be \
             less or equal to 100"
        );
        check(&config, "maxmemory", &[("maxmemory", "1048576")]);
        assert_eq!(
            set(&config, &[("maxmemory", "2mb"), ("port", "1")]).unwrap_err(),
            "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port."
        );
        check(&config, "maxmemory", &[("maxmemory", "1048576")]);
        check(&config, "port", &[("port", "6379")]);
    }

    #[test]
    fn refusals() {
        let config = Config::default();
        let refused = |pairs: &[(&str, &str)], text: &str| assert_eq!(set(&config, pairs).unwrap_err(), text);
        refused(
            &[("maxmemory", "1"), ("Foo", "1")],
            "ERR Unknown option or number of arguments for CONFIG SET - 'Foo'",
        );
        refused(
            &[("Databases", "1")],
            "ERR CONFIG SET failed (possibly related to argument 'Databases') - can't set immutable config",
        );
        refused(
            &[("dir", "/")],
            "ERR CONFIG SET failed (possibly related to argument 'dir') - can't set protected config",
        );
        refused(
            &[("maxmemory", "1"), ("maxmemory", "2")],
            "ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter",
        );
        refused(
            &[("save", "900")],
            "ERR CONFIG SET failed (possibly related to argument 'save') - Invalid save parameters",
        );
        refused(
            &[("rdma-port", "1")],
            "ERR CONFIG SET failed (possibly related to argument 'rdma-port') - No RDMA building support.",
        );
        assert_eq!(set(&config, &[("save", "")]), Ok(()));
        check(&config, "maxmemory", &[("maxmemory", "0")]);
    }
}
