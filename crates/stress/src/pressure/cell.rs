//! One cell of the table: a workload, with a state of the disk, under a policy. The rest of it (sizes, files,
//! threads) its seed draws, so that a cell is repeated by its seed and the choices by name.

use std::fmt;
use std::time::Duration;

use isotherm_probe::Fallible;
use isotherm_stdx::Prng;

/// Values of an enum with the names that a user types.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident, $word:literal: $($(#[$note:meta])* $variant:ident = $text:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$note])* $variant,)* }

        impl $name {
            pub const ALL: &[$name] = &[$($name::$variant,)*];

            pub fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            pub fn parse(text: &str) -> Fallible<$name> {
                let names = || $name::ALL.iter().map(|value| value.name()).collect::<Vec<_>>().join(", ");
                let found = $name::ALL.iter().find(|value| value.name() == text).copied();
                found.ok_or_else(|| format!("no {} called '{text}': there are {}", $word, names()))
            }
        }
    };
}

named! {
    /// Commands that clients send, before the shortage and in it.
    Workload, "workload":
    /// New keys, more than memory holds.
    Fill = "fill",
    Overwrite = "overwrite",
    /// Strings and hashes on disk, and few writes.
    Read = "read",
    /// SCAN, KEYS and RANDOMKEY over keys that are on disk as a whole.
    Scan = "scan",
    /// Hashes and sorted sets that are larger than memory.
    Collections = "collections",
    /// Many keys whose time ends in the same moment.
    Expiry = "expiry",
    Replica = "replica",
    Save = "save",
    Rewrite = "rewrite",
}

named! {
    Policy, "policy":
    NoEviction = "noeviction",
    AllkeysLru = "allkeys-lru",
    AllkeysLfu = "allkeys-lfu",
    VolatileTtl = "volatile-ttl",
}

named! {
    /// States that the disk of values is in while the shortage lasts.
    Disk, "disk":
    Fast = "fast",
    Slow = "slow",
    HungWrite = "hung-write",
    HungRead = "hung-read",
    /// Each write is refused for want of room.
    Full = "full",
    /// Each write fails.
    Failing = "failing",
    /// Each read fails.
    Unreadable = "unreadable",
    /// Hardly more descriptors than the server has at start.
    FewFiles = "few-files",
    /// The least `swap-max-disk`, filled.
    Small = "small",
}

impl Policy {
    /// Returns whether the policy may drop keys without a time to live too.
    pub fn drops_all(self) -> bool {
        matches!(self, Policy::AllkeysLru | Policy::AllkeysLfu)
    }
}

impl Disk {
    /// Returns whether keys may be given up for room: nowhere else, since the disk may come back, or has
    /// room.
    pub fn costs_keys(self) -> bool {
        matches!(self, Disk::Full | Disk::Small)
    }

    /// Returns whether writes may be refused for want of memory. A disk that works only makes them wait.
    pub fn costs_writes(self) -> bool {
        !matches!(self, Disk::Fast | Disk::Slow | Disk::FewFiles)
    }

    /// Returns whether a command may say that a value cannot be read.
    pub fn costs_reads(self) -> bool {
        matches!(self, Disk::HungRead | Disk::Unreadable)
    }
}

/// Parts of a cell that the command line names instead of its seed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Chosen {
    pub workload: Option<Workload>,
    pub policy: Option<Policy>,
    pub disk: Option<Disk>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    pub seed: u64,
    pub chosen: Chosen,
    pub workload: Workload,
    pub policy: Policy,
    pub disk: Disk,
    pub maxmemory_mb: u64,
    pub workers: u64,
    pub value_bytes: usize,
    /// Small keys leave with their values (`swap-freeze`).
    pub freezes: bool,
    /// `appendfsync`, if there is an append-only file.
    pub fsync: Option<&'static str>,
    /// The server is killed at the end and started again, before the keys are looked for.
    pub is_killed: bool,
    /// Length of the shortage.
    pub trouble: Duration,
}

impl Cell {
    pub fn draw(seed: u64, chosen: Chosen) -> Cell {
        let mut prng = Prng::new(seed);
        // All is drawn whatever is chosen: what is left to the seed stays as it was.
        let (workload, policy, disk) =
            (*prng.pick(Workload::ALL), *prng.pick(Policy::ALL), *prng.pick(Disk::ALL));
        let workload = chosen.workload.unwrap_or(workload);
        let (policy, disk) = (chosen.policy.unwrap_or(policy), chosen.disk.unwrap_or(disk));
        let maxmemory_mb = *prng.pick(&[20, 20, 20, 20, 30, 60]);
        let workers = *prng.pick(&[1, 2, 2, 4]);
        let value_bytes = *prng.pick(&[400, 1000, 1000, 4000]);
        let (freezes, appends, always) = (prng.one_in(2), prng.one_in(2), prng.one_in(2));
        let is_killed = prng.one_in(2);
        let trouble = Duration::from_millis(1000 + prng.below(2000));
        let fsync = if always { "always" } else { "everysec" };
        let fsync = (appends || workload == Workload::Rewrite).then_some(fsync);
        Cell {
            seed,
            chosen,
            workload,
            policy,
            disk,
            // Large collections are filled element by element.
            maxmemory_mb: if workload == Workload::Collections { 20 } else { maxmemory_mb },
            // Descriptors of workers are what is short there.
            workers: if disk == Disk::FewFiles { 4 } else { workers },
            // Keys of small values leave as a whole; large ones fill a disk soonest.
            value_bytes: match (workload, disk) {
                (Workload::Scan, _) => 300,
                (_, Disk::Small) => 4000,
                _ => value_bytes,
            },
            freezes: freezes || workload == Workload::Scan,
            fsync,
            is_killed: is_killed && fsync.is_some(),
            trouble,
        }
    }

    pub fn maxmemory_bytes(&self) -> u64 {
        self.maxmemory_mb << 20
    }

    /// Returns the options that repeat the cell alone.
    pub fn options(&self) -> String {
        let mut line = format!("--seed {}", self.seed);
        let Chosen { workload, policy, disk } = self.chosen;
        line += &workload.map_or(String::new(), |workload| format!(" --workload {}", workload.name()));
        line += &policy.map_or(String::new(), |policy| format!(" --policy {}", policy.name()));
        line += &disk.map_or(String::new(), |disk| format!(" --disk {}", disk.name()));
        line
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (workload, policy, disk) = (self.workload.name(), self.policy.name(), self.disk.name());
        write!(f, "{workload}, {policy}, disk {disk} for {:.1} s", self.trouble.as_secs_f64())?;
        write!(f, "; maxmemory {} MB, {} workers", self.maxmemory_mb, self.workers)?;
        write!(f, ", values of {} B", self.value_bytes)?;
        write!(f, "{}", if self.freezes { ", swap-freeze" } else { "" })?;
        self.fsync.map_or(Ok(()), |fsync| write!(f, ", appendfsync {fsync}"))?;
        write!(f, "{}", if self.is_killed { ", kill -9" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_leaves_the_rest_to_the_seed() {
        let chosen = Chosen { disk: Some(Disk::Fast), ..Chosen::default() };
        for seed in 0..100 {
            let (drawn, fixed) = (Cell::draw(seed, Chosen::default()), Cell::draw(seed, chosen));
            assert_eq!(
                (drawn.workload, drawn.policy, drawn.trouble),
                (fixed.workload, fixed.policy, fixed.trouble)
            );
            assert_eq!(fixed.disk, Disk::Fast);
            assert_eq!(fixed.options(), format!("--seed {seed} --disk fast"));
        }
    }

    #[test]
    fn names_are_parsed_and_unknown_ones_are_answered_with_those_there_are() {
        assert!(Workload::ALL.iter().all(|value| Workload::parse(value.name()) == Ok(*value)));
        assert!(Disk::ALL.iter().all(|value| Disk::parse(value.name()) == Ok(*value)));
        assert!(Policy::parse("allkeys").unwrap_err().contains("allkeys-lru"));
    }
}
