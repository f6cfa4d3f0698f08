//! Parameters that the allocator reads once, before `main`, and the log's word about what is in force.
//!
//! ```text
//!   start --> configuration: jemalloc-narenas 2 --> the same process begins again, with
//!                                                   MALLOC_CONF="narenas:2,<the user's>"
//!                                                   ISOTHERM_MALLOC_CONF="narenas:2;<the user's>"
//!         --> the second says what was asked for --> start
//! ```
//! jemalloc takes the later of two words about an option, so `MALLOC_CONF` has the last. CONFIG GET shows
//! what it names. `exec` keeps the process' number, so a supervisor notices nothing; and it is not done
//! unless one of these parameters is set.

use isotherm_allocator::{self as allocator, Decay, Options};

use isotherm_config::{Config, Id, PARAMS, id};
use isotherm_runtime::log;

const VARIABLE: &str = "MALLOC_CONF";
const MARK: &str = "ISOTHERM_MALLOC_CONF";

// COMPAT(server): The parameters `jemalloc-*` (except `jemalloc-bg-thread`), `allocator-stats-at-exit` and
// `compaction-cpu-percent` are Isotherm's. `jemalloc-narenas` and others that jemalloc reads before `main`
// make the process execute itself again (`exec`, same process id) with `MALLOC_CONF` in its environment,
// which the user's own `MALLOC_CONF` overrides. With another allocator they have no effect, which is logged;
// CONFIG SET of a decay time is an error there. Why: jemalloc cannot change these options later.
/// Parameters and options that are read at start.
const AT_START: [(Id, &str); 4] = [
    (NARENAS, "narenas"),
    (id("jemalloc-slab-sizes"), "slab_sizes"),
    (TCACHE, "tcache"),
    (TCACHE_MAX, "tcache_max"),
];
const NARENAS: Id = id("jemalloc-narenas");
const TCACHE: Id = id("jemalloc-tcache");
const TCACHE_MAX: Id = id("jemalloc-tcache-max");

/// Parameters that can change later.
const DIRTY_DECAY: Id = id("jemalloc-dirty-decay-ms");
const MUZZY_DECAY: Id = id("jemalloc-muzzy-decay-ms");
const BG_THREAD: Id = id("jemalloc-bg-thread");
const ARENA_PER_WORKER: Id = id("jemalloc-arena-per-worker");

/// Allocator options that this process was started with.
#[derive(Default, PartialEq, Eq, Debug)]
struct Given {
    /// Options from the configuration.
    options: String,
    /// The user's `MALLOC_CONF`, which follows.
    users: String,
}

impl Given {
    fn from_environment() -> Given {
        let read = |name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        Given::read(read(MARK), read(VARIABLE))
    }

    fn read(mark: Option<String>, variable: Option<String>) -> Given {
        match mark.as_deref().and_then(|mark| mark.split_once(';')) {
            Some((options, users)) => Given { options: options.into(), users: users.into() },
            None => Given { options: String::new(), users: variable.unwrap_or_default() },
        }
    }

    fn environment(&self) -> Environment {
        let parts: Vec<&str> =
            [&*self.options, &*self.users].into_iter().filter(|part| !part.is_empty()).collect();
        vec![(VARIABLE, parts.join(",")), (MARK, format!("{};{}", self.options, self.users))]
    }
}

/// Variables to set.
pub type Environment = Vec<(&'static str, String)>;

/// Returns the environment to start the process again with, if the configuration asks for other options than
/// it was started with.
pub fn environment(config: &Config) -> Option<Environment> {
    allocator::options()?;
    let given = Given::from_environment();
    let options = options_of(config);
    (options != given.options).then(|| Given { options, ..given }.environment())
}

/// "narenas:2,tcache_max:4096": those that are not at their defaults.
fn options_of(config: &Config) -> String {
    let set = AT_START.iter().filter(|(id, _)| !config.is_default(*id));
    let options: Vec<String> = set.map(|(id, name)| format!("{name}:{}", word_of(config, *id))).collect();
    options.join(",")
}

/// Returns the value of a parameter as jemalloc writes it.
fn word_of(config: &Config, id: Id) -> String {
    match &*config.shown(id) {
        b"yes" => "true".into(),
        b"no" => "false".into(),
        other => String::from_utf8_lossy(other).into_owned(),
    }
}

/// `conf` has a word about this option.
fn names(conf: &str, option: &str) -> bool {
    conf.split(',').any(|pair| pair.split_once(':').is_some_and(|(name, _)| name == option))
}

// ---- once the log is there ----

/// Says what was not understood; the rest of the configuration is applied, or corrected.
pub fn apply(config: &Config) {
    let given = Given::from_environment();
    for complaint in allocator::complaints() {
        log::warning(format!("{VARIABLE}: {complaint}"));
    }
    if let Some(options) = allocator::options() {
        correct(config, &options, &given.users);
        apply_decay(config, &given.users);
        if !given.options.is_empty() && !given.users.is_empty() {
            log::notice(format!("{VARIABLE} overrides the configuration: '{}'", given.users));
        }
    } else if let Some(ignored) = ignored(config) {
        log::warning(format!("No effect, as this server was built with {}: {ignored}", allocator::name()));
    }
}

/// Once everything is in force.
pub fn log_options() {
    match shown() {
        options if options.is_empty() => log::notice(format!("Allocator {}", allocator::name())),
        options => log::notice(format!("Allocator {}: {options}", allocator::name())),
    }
}

/// The options in force.
pub fn shown() -> String {
    allocator::options().map(|options| options.to_string()).unwrap_or_default()
}

/// Corrects the parameters that the user's `MALLOC_CONF` sets: its values become theirs.
fn correct(config: &Config, options: &Options, users: &str) {
    let values = [
        (NARENAS, "narenas", i64::from(options.narenas)),
        (TCACHE, "tcache", i64::from(options.tcache)),
        (TCACHE_MAX, "tcache_max", options.tcache_max_bytes as i64),
        (BG_THREAD, "background_thread", i64::from(options.background_thread)),
    ];
    for (id, option, value) in values {
        if names(users, option) {
            config.set_number(id, value);
        }
    }
}

fn apply_decay(config: &Config, users: &str) {
    for (id, option, decay) in
        [(DIRTY_DECAY, "dirty_decay_ms", Decay::Dirty), (MUZZY_DECAY, "muzzy_decay_ms", Decay::Muzzy)]
    {
        if config.is_default(id) || names(users, option) {
            let in_force = allocator::options().expect("jemalloc has options");
            config.set_number(
                id,
                match decay {
                    Decay::Dirty => in_force.dirty_decay_ms,
                    Decay::Muzzy => in_force.muzzy_decay_ms,
                },
            );
        } else if let Err(why) = allocator::set_decay(decay, config.number(id)) {
            log::warning(why);
        }
    }
}

/// Parameters that were set and do nothing here.
fn ignored(config: &Config) -> Option<String> {
    let at_start = AT_START.iter().map(|(id, _)| *id);
    let all = at_start.chain([DIRTY_DECAY, MUZZY_DECAY, ARENA_PER_WORKER]);
    let set: Vec<&str> = all.filter(|id| !config.is_default(*id)).map(|id| PARAMS[id.index()].name).collect();
    (!set.is_empty()).then(|| set.join(", "))
}

// ---- while it runs ----

/// CONFIG SET of a decay time.
pub fn set_decay(config: &Config) -> Result<(), String> {
    allocator::set_decay(Decay::Dirty, config.number(DIRTY_DECAY))?;
    allocator::set_decay(Decay::Muzzy, config.number(MUZZY_DECAY))
}

/// Gives this thread an arena of its own, if that is configured.
pub fn bind_worker(config: &Config) {
    if config.flag(ARENA_PER_WORKER)
        && allocator::options().is_some()
        && let Err(why) = allocator::own_arena()
    {
        log::warning(format!("A worker shares an arena of the allocator: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_of_the_second_start() {
        let check = |mark: Option<&str>, variable: Option<&str>, options: &str, users: &str| {
            let given = Given::read(mark.map(str::to_string), variable.map(str::to_string));
            assert_eq!(given, Given { options: options.into(), users: users.into() });
            let again = given.environment();
            // The second start reads what the first has written.
            assert_eq!(Given::read(Some(again[1].1.clone()), Some(again[0].1.clone())), given);
        };
        check(None, None, "", "");
        check(None, Some("narenas:3"), "", "narenas:3");
        check(Some("narenas:2;"), Some("narenas:2"), "narenas:2", "");
        check(Some("narenas:2;tcache:false"), Some("narenas:2,tcache:false"), "narenas:2", "tcache:false");
        check(Some("no mark"), Some("narenas:3"), "", "narenas:3");
        let given = Given { options: "narenas:2".into(), users: "tcache:false".into() };
        assert_eq!(given.environment()[0].1, "narenas:2,tcache:false");
    }

    #[test]
    fn options_of_a_configuration() {
        let config = Config::default();
        assert_eq!(options_of(&config), "");
        let set = |name: &str, value: &str| {
            config.set_at_start(name, value).unwrap();
        };
        set("jemalloc-narenas", "2");
        set("jemalloc-tcache", "no");
        set("jemalloc-tcache-max", "4kb");
        set("jemalloc-slab-sizes", "128-128:2|1024-1024:8");
        assert_eq!(
            options_of(&config),
            "narenas:2,slab_sizes:128-128:2|1024-1024:8,tcache:false,tcache_max:4096"
        );
        assert!(names("a:1,narenas:3", "narenas") && !names("xnarenas:3,b", "narenas"));
    }
}
