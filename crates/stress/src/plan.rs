//! The plan of a run, made from a seed: how many clients and workers, their lanes, their disturbances.
//!
//! Everything is drawn here, before anything starts, so that a run can be printed, and so that what may be
//! expected of it is known: whether data is thrown away on purpose, which connections a KILL may meet, how
//! much memory the mix can take.
//!
//! ```text
//!   database 0       ledgers: queues, streams, counters, channels, cached keys; disturbed by FLUSHALL alone
//!            5       requests with very many keys; swapped and flushed
//!            6       lifetimes that end together
//!            7       the watchdog's own
//!            8 - 15  any command; swapped, flushed, copied to and fro
//! ```

use std::fmt;

use isotherm_probe::Scale;
use isotherm_stdx::Prng;

use crate::kinds::{DISTURBANCES, Disturbance, KINDS, Kind, name_of};
use crate::lanes::messages;
use crate::options::Options;

pub const DB_WIDE: usize = 5;
pub const DB_TIMES: usize = 6;
pub const DB_TICK: usize = 7;
pub const DBS_ANY: std::ops::Range<usize> = 8..16;

/// Requests a second of all clients together: both cores stay partly idle, so a stall is not the load's.
pub const REQUESTS_PER_SECOND: usize = 3000;
const CLIENTS: std::ops::RangeInclusive<usize> = 8..=200;
const WORKERS: [usize; 3] = [1, 2, 8];
/// `maxmemory` at all times, but for moments at which it is less: what the data may take.
pub const DATA_BYTES_MAX: u64 = 256 << 20;

#[derive(Clone)]
pub struct Plan {
    pub seed: u64,
    pub clients: usize,
    pub workers: usize,
    pub lanes: Vec<(Kind, usize)>,
    pub disturbances: Vec<Disturbance>,
    /// Mean pause of a client between two requests.
    pub rest_us: u64,
    /// Messages of a megabyte, many at once.
    pub floods: bool,
    /// The policy under CONFIG SET maxmemory evicts any key, not only those with a lifetime.
    pub evicts_any: bool,
    pub kills_all: bool,
    pub scale: Scale,
}

impl Plan {
    pub fn draw(seed: u64, options: &Options) -> Plan {
        // One generator for each part: an option that replaces one part leaves the others as the seed has
        // them.
        let [mut prng, mut of_lanes, mut of_disturbances] =
            std::array::from_fn(|part| Prng::new(seed.wrapping_mul(3).wrapping_add(part as u64)));
        let (fewest, most) = (*CLIENTS.start() as u64, *CLIENTS.end() as u64);
        // Small and large ones alike: the logarithm is drawn evenly.
        let exponent = prng.below(1001) as f64 / 1000.0;
        let drawn = (fewest as f64 * (most as f64 / fewest as f64).powf(exponent)) as usize;
        let workers = *prng.pick(&WORKERS);
        let clients = options.clients.unwrap_or(drawn);
        let lanes = draw_lanes(&mut of_lanes, clients, &options.lanes);
        let named = |names: &[String], name: &str| names.iter().any(|other| other == name);
        let wanted = DISTURBANCES.iter().filter(|(_, name, eighths)| {
            // Drawn first and left out then, so that the rest stays as the seed has it.
            let is_drawn = of_disturbances.below(8) < *eighths;
            let is_wanted = if options.disturb.is_empty() { is_drawn } else { named(&options.disturb, name) };
            is_wanted && !named(&options.without, name)
        });
        let disturbances: Vec<Disturbance> = wanted.map(|(disturbance, ..)| *disturbance).collect();
        let floods = prng.one_in(2);
        let evicts_any = prng.one_in(4) && disturbances.contains(&Disturbance::Config);
        Plan {
            seed,
            clients,
            workers: options.workers.unwrap_or(workers),
            lanes,
            rest_us: (clients * 1_000_000 / REQUESTS_PER_SECOND) as u64,
            floods,
            evicts_any,
            kills_all: disturbances.contains(&Disturbance::KillAll),
            disturbances,
            scale: options.scale,
        }
    }

    pub fn draws(&self, disturbance: Disturbance) -> bool {
        self.disturbances.contains(&disturbance)
    }

    /// Keys may go that no client has removed: nothing is known to be lost.
    pub fn is_lossy(&self) -> bool {
        self.draws(Disturbance::FlushAll) || self.evicts_any
    }

    pub fn members(&self, kind: Kind) -> usize {
        self.lanes.iter().find(|(lane, _)| *lane == kind).map_or(0, |(_, members)| *members)
    }

    /// Returns how much memory the process may have resident: the data, a buffer each way for every client,
    /// messages in flight, messages kept for readers that do not read, and the additional memory of the
    /// allocator and the arenas.
    pub fn resident_bytes_max(&self) -> u64 {
        const MB: u64 = 1 << 20;
        /// Stack, query buffer, replies of a client that reads.
        const CLIENT: u64 = MB;
        /// A request of tens of thousands of words: its bytes, its words, and the waits that it makes.
        const WIDE: u64 = 16 * MB;
        /// Replies of clients that send and do not read: 16 MB each until all together take 64 MB.
        const UNREAD: u64 = 64 * MB + 16 * MB;
        /// Code, tables of commands, histograms, INFO, and what each worker keeps.
        const PROCESS: u64 = 64 * MB;
        let wide = self.members(Kind::Wide) as u64 * WIDE;
        let sum = DATA_BYTES_MAX
            + self.clients as u64 * CLIENT
            + wide
            + UNREAD
            + PROCESS
            + messages::resident_bytes_max(self);
        // DEBUG RELOAD builds the data anew next to the old data.
        let copy = if self.draws(Disturbance::Reload) { DATA_BYTES_MAX } else { 0 };
        // A quarter more than asked for: classes of sizes, and slabs that are being emptied.
        sum + sum / 4 + copy
    }
}

fn draw_lanes(prng: &mut Prng, clients: usize, named: &[String]) -> Vec<(Kind, usize)> {
    let mut lanes: Vec<(Kind, usize)> = Vec::new();
    let mut left = clients;
    // Those drawn first are surely there, so the order is drawn as well.
    let mut kinds = KINDS.to_vec();
    for at in (1..kinds.len()).rev() {
        kinds.swap(at, prng.below(at as u64 + 1) as usize);
    }
    for (kind, name, fewest, _) in &kinds {
        let wanted = if named.is_empty() { !prng.one_in(4) } else { named.iter().any(|named| named == name) };
        if wanted && (*fewest <= left || !named.is_empty()) {
            left = left.saturating_sub(*fewest);
            lanes.push((*kind, *fewest));
        }
    }
    // The rest goes to one lane after the other, in unequal parts.
    for _ in 0..1000 {
        if left == 0 || lanes.is_empty() {
            break;
        }
        let at = prng.below(lanes.len() as u64) as usize;
        let (kind, members) = &mut lanes[at];
        let (_, _, _, most) = KINDS.iter().find(|(other, ..)| other == kind).expect("all are listed");
        let more = (1 + prng.below(10) as usize).min(left).min(most.saturating_sub(*members));
        *members += more;
        left -= more;
    }
    lanes
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {} workers, {} clients:", self.seed, self.workers, self.clients)?;
        for (kind, members) in &self.lanes {
            write!(f, " {} {members}", name_of(*kind))?;
        }
        write!(f, "; disturbed by")?;
        for (_, name, _) in DISTURBANCES.iter().filter(|(disturbance, ..)| self.draws(*disturbance)) {
            write!(f, " {name}")?;
        }
        let notes = [(self.floods, "floods of messages"), (self.evicts_any, "any key evicted")];
        notes.iter().filter(|(is, _)| *is).try_for_each(|(_, note)| write!(f, "; {note}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::SEEDS;

    fn plan(seed: u64, arguments: &str) -> Plan {
        let arguments: Vec<String> = arguments.split_whitespace().map(str::to_string).collect();
        Plan::draw(seed, &Options::parse(&arguments).unwrap())
    }

    #[test]
    fn a_seed_gives_the_same_plan_again() {
        for seed in 0..50 {
            assert_eq!(plan(seed, "").to_string(), plan(seed, "").to_string());
        }
        assert_ne!(
            plan(1, "").to_string().replace("seed 1", ""),
            plan(2, "").to_string().replace("seed 2", "")
        );
    }

    #[test]
    fn every_plan_keeps_its_limits() {
        for seed in 0..2000 {
            let plan = plan(seed, "");
            let members: usize = plan.lanes.iter().map(|(_, members)| members).sum();
            assert!((8..=200).contains(&plan.clients) && members <= plan.clients, "{plan}");
            assert!(!plan.lanes.is_empty() && WORKERS.contains(&plan.workers), "{plan}");
        }
    }

    /// The options with which CI calls this program.
    fn options_of_ci() -> &'static str {
        let stages = include_str!("../../xtask/src/ci/stages.rs");
        let (_, call) = stages.split_once("\"stress --seeds").expect("CI runs it");
        let end = call.find('"').expect("the call ends");
        let start = stages.len() - call.len() - "--seeds".len();
        &stages[start..][..end + "--seeds".len()]
    }

    #[test]
    fn the_seeds_of_a_check_draw_everything() {
        let ci = options_of_ci();
        let options = Options::parse(&ci.split(' ').map(str::to_string).collect::<Vec<_>>()).unwrap();
        assert_eq!(options.seeds, Some(SEEDS.len()), "CI runs the list, as a number of seeds: {ci}");
        for arguments in ["", ci] {
            let plans: Vec<Plan> = SEEDS.iter().map(|seed| plan(*seed, arguments)).collect();
            for (kind, name, ..) in KINDS {
                assert!(plans.iter().any(|plan| plan.members(kind) > 0), "no seed has {name}: {ci}");
            }
            for (disturbance, name, _) in DISTURBANCES {
                assert!(plans.iter().any(|plan| plan.draws(disturbance)), "no seed has {name}: {ci}");
            }
            for workers in WORKERS {
                assert!(plans.iter().any(|plan| plan.workers == workers), "no seed has {workers} workers");
            }
        }
    }

    #[test]
    fn memory_is_implied_by_the_lanes_that_are_there() {
        let bound = |arguments: &str| plan(3, &format!("--clients 48 {arguments}")).resident_bytes_max();
        let few = bound("--lanes counters --without reload");
        assert!(few < 700 << 20, "{few}");
        assert!(bound("--lanes counters,wide --without reload") > few);
        assert!(bound("--lanes counters,messages --without reload") > few);
        assert!(bound("--lanes counters --disturb reload") > few);
    }

    #[test]
    fn what_is_named_is_what_runs() {
        let plan = plan(3, "--clients 20 --workers 3 --lanes queues,wide");
        assert_eq!((plan.clients, plan.workers, plan.lanes.len()), (20, 3, 2));
        assert!(plan.members(Kind::Queues) >= 4 && plan.members(Kind::Wide) >= 1);
    }
}
