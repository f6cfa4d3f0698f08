//! Conditions that hold in each cell, and by how much one may be missed.
//!
//! CI, with other work on few cores, allows ten times as much beyond each limit, and a wait that is
//! too long is asked for once more. `--strict yes` takes the limits themselves.

use std::fmt;
use std::time::Duration;

use super::cell::{Cell, Disk};
use super::client::{Counts, Missing};
use super::watch::{Longest, Sample};

/// Segment of the log: on a disk that is filled its keys are the least that makes room.
const SEGMENT_BYTES: u64 = 64 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Invariant {
    /// Copies go before anything is evicted or refused.
    Copies,
    /// Keys are evicted for want of disk only, about as many as are written.
    Evicted,
    /// Writes are refused only while the disk takes nothing, and reads while it gives nothing.
    Refused,
    Used,
    Resident,
    HotGet,
    /// All is as before soon after the shortage.
    Back,
    /// Each key that was acknowledged and that no policy may drop is there.
    Kept,
    /// The server runs and answers.
    Process,
}

impl Invariant {
    pub fn name(self) -> &'static str {
        match self {
            Invariant::Copies => "copies first",
            Invariant::Evicted => "evicted",
            Invariant::Refused => "refused",
            Invariant::Used => "used memory",
            Invariant::Resident => "resident memory",
            Invariant::HotGet => "hot GET",
            Invariant::Back => "back",
            Invariant::Kept => "kept",
            Invariant::Process => "process",
        }
    }

    /// Returns whether the machine may have caused it.
    pub fn is_of_time(self) -> bool {
        matches!(self, Invariant::HotGet | Invariant::Back)
    }
}

pub struct Bounds {
    /// Part of maxmemory that copies may take; then what may be used and resident, of the same.
    droppable: f64,
    used: f64,
    resident: f64,
    /// Keys a key that is written.
    evicted: f64,
    pub get: Duration,
    pub back: Duration,
}

impl Bounds {
    pub const STRICT: Bounds = Bounds {
        droppable: 0.05,
        used: 1.05,
        resident: 1.2,
        evicted: 1.2,
        get: Duration::from_millis(20),
        back: Duration::from_secs(10),
    };
    /// Ten times what is allowed beyond; but for copies, whose own limit is an eighth of maxmemory, and for
    /// keys, which are counted whatever the machine does.
    pub const CI: Bounds = Bounds {
        droppable: 0.1,
        used: 1.5,
        resident: 3.0,
        evicted: 2.0,
        get: Duration::from_millis(200),
        back: Duration::from_secs(20),
    };
}

/// Samples of one server.
#[derive(Clone, Default)]
pub struct Seen {
    pub samples: Vec<Sample>,
    /// Resident bytes, the most; and before there was data.
    pub resident_max: u64,
    pub base: u64,
}

/// All that was seen of a cell.
#[derive(Clone, Default)]
pub struct Figures {
    /// The primary, then its replica.
    pub servers: Vec<Seen>,
    pub hot_get: Longest,
    pub machine: Longest,
    /// Replies before the shortage, and in it.
    pub prepared: Counts,
    pub worked: Counts,
    /// The shortage begins, and ends.
    pub shortage: (Duration, Duration),
    /// Time from the end of the shortage until all was as before; what was not, otherwise.
    pub back: Option<Result<Duration, String>>,
    pub missing: Missing,
    /// Ends of the server or of its answers.
    pub ended: Vec<String>,
}

impl Figures {
    pub fn evicted(&self) -> u64 {
        self.servers.first().and_then(|seen| seen.samples.last()).map_or(0, |sample| sample.evicted)
    }

    pub fn refused(&self) -> u64 {
        self.prepared.refused + self.worked.refused
    }

    /// The look at which most was used, of all servers.
    pub fn fullest(&self) -> Sample {
        let samples = self.servers.iter().flat_map(|seen| &seen.samples);
        samples.max_by_key(|sample| sample.counted()).cloned().unwrap_or_default()
    }

    pub fn used_ratio(&self, cell: &Cell) -> f64 {
        self.fullest().counted() as f64 / cell.maxmemory_bytes() as f64
    }

    /// Resident bytes over maxmemory, without those before there was data and what has limits of its own.
    pub fn resident_ratio(&self, cell: &Cell) -> f64 {
        let of_data = self.servers.iter().map(|seen| {
            let not_counted = seen.samples.iter().map(|sample| sample.not_counted).max().unwrap_or(0);
            seen.resident_max.saturating_sub(seen.base + not_counted)
        });
        of_data.max().unwrap_or(0) as f64 / cell.maxmemory_bytes() as f64
    }

    pub fn get_beyond_machine(&self) -> Duration {
        self.hot_get.took.saturating_sub(self.machine.took)
    }
}

#[derive(Clone, Debug)]
pub struct Fault {
    pub invariant: Invariant,
    pub text: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant.name(), self.text)
    }
}

/// Returns all that did not hold.
pub fn judge(cell: &Cell, seen: &Figures, bounds: &Bounds) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut note = |invariant, text| faults.push(Fault { invariant, text });
    seen.ended.iter().for_each(|why| note(Invariant::Process, why.clone()));
    if let Some(text) = copies(cell, seen, bounds) {
        note(Invariant::Copies, text);
    }
    if let Some(text) = evicted(cell, seen, bounds) {
        note(Invariant::Evicted, text);
    }
    refused(cell, seen).into_iter().for_each(|text| note(Invariant::Refused, text));
    let (used, resident) = (seen.used_ratio(cell), seen.resident_ratio(cell));
    if used > bounds.used {
        let Sample { at, state, droppable, .. } = seen.fullest();
        let (at, mb) = (at.as_secs_f64(), droppable >> 20);
        let text = format!(
            "{used:.2} x maxmemory at {at:.1} s (disk: {state}, {mb} MB of copies), {:.2} are allowed",
            bounds.used
        );
        note(Invariant::Used, text);
    }
    if resident > bounds.resident {
        let text =
            format!("{resident:.2} x maxmemory beyond the empty server, {:.2} are allowed", bounds.resident);
        note(Invariant::Resident, text);
    }
    if seen.get_beyond_machine() > bounds.get {
        let (took, at) = (ms(seen.hot_get.took), seen.hot_get.at.as_secs_f64());
        let machine = ms(seen.machine.took);
        let text = format!(
            "{took} after {at:.1} s; the machine's own longest is {machine}, {} more are allowed",
            ms(bounds.get)
        );
        note(Invariant::HotGet, text);
    }
    match &seen.back {
        Some(Ok(took)) if *took > bounds.back => {
            note(Invariant::Back, format!("after {:.1} s", took.as_secs_f64()))
        }
        Some(Err(why)) => note(Invariant::Back, why.clone()),
        _ => {}
    }
    if let Some(text) = kept(seen) {
        note(Invariant::Kept, text);
    }
    faults
}

fn ms(time: Duration) -> String {
    format!("{:.0} ms", time.as_secs_f64() * 1e3)
}

/// Steps from one sample to the next in which keys or writes were given up, though there were copies at both
/// ends.
fn copies(cell: &Cell, seen: &Figures, bounds: &Bounds) -> Option<String> {
    let least = (cell.maxmemory_bytes() as f64 * bounds.droppable) as u64;
    for server in &seen.servers {
        for pair in server.samples.windows(2) {
            let (before, after) = (&pair[0], &pair[1]);
            let droppable = before.droppable.min(after.droppable);
            let (evicted, refused) =
                (after.evicted.saturating_sub(before.evicted), after.refused.saturating_sub(before.refused));
            if droppable > least && evicted + refused > 0 {
                let (at, mb) = (after.at.as_secs_f64(), droppable >> 20);
                return Some(format!(
                    "{evicted} keys evicted, {refused} writes refused by {at:.1} s, beside {mb} MB of copies"
                ));
            }
        }
    }
    None
}

fn evicted(cell: &Cell, seen: &Figures, bounds: &Bounds) -> Option<String> {
    let evicted = seen.evicted();
    if evicted == 0 {
        return None;
    }
    if !cell.disk.costs_keys() {
        return Some(format!("{evicted} keys, and the disk is only {}", cell.disk.name()));
    }
    let written = seen.worked.acknowledged;
    let segment = if cell.disk == Disk::Small { SEGMENT_BYTES / cell.value_bytes as u64 } else { 0 };
    let allowed = (written as f64 * bounds.evicted) as u64 + segment;
    (evicted > allowed)
        .then(|| format!("{evicted} keys for {written} that were written, {allowed} are allowed"))
}

fn refused(cell: &Cell, seen: &Figures) -> Vec<String> {
    let mut texts = Vec::new();
    let mut note = |counts: &Counts, when: &str, costs_writes: bool, costs_reads: bool| {
        if counts.refused > 0 && !costs_writes {
            texts.push(format!(
                "{} of {} writes {when}",
                counts.refused,
                counts.refused + counts.acknowledged
            ));
        }
        if counts.unread > 0 && !costs_reads {
            texts.push(format!("{} commands could not read a value {when}", counts.unread));
        }
        texts.extend(counts.errors.iter().map(|error| format!("{error} {when}")));
    };
    note(&seen.prepared, "before the shortage", cell.disk == Disk::Small, false);
    note(&seen.worked, "in it", cell.disk.costs_writes(), cell.disk.costs_reads());
    texts
}

fn kept(seen: &Figures) -> Option<String> {
    let missing = &seen.missing;
    if missing.lost > 0 {
        let (lost, of) = (missing.lost, missing.looked_for);
        return Some(format!("{lost} of {of} keys that were acknowledged: {}", missing.reported.join("; ")));
    }
    let evicted = seen.evicted();
    (missing.droppable > evicted).then(|| {
        format!("{} of {} keys are gone, {evicted} were evicted", missing.droppable, missing.looked_for)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::cell::{Chosen, Policy, Workload};

    fn cell(disk: Disk) -> Cell {
        let chosen =
            Chosen { workload: Some(Workload::Fill), policy: Some(Policy::AllkeysLru), disk: Some(disk) };
        Cell { maxmemory_mb: 100, value_bytes: 4096, ..Cell::draw(1, chosen) }
    }

    fn sample(used_mb: u64, droppable_mb: u64, evicted: u64) -> Sample {
        Sample { used: used_mb << 20, droppable: droppable_mb << 20, evicted, ..Sample::default() }
    }

    fn found(disk: Disk, samples: &[Sample], change: impl Fn(&mut Figures)) -> Vec<Invariant> {
        let mut seen = Figures::default();
        seen.servers.push(Seen { samples: samples.to_vec(), ..Seen::default() });
        seen.worked.acknowledged = 100;
        change(&mut seen);
        judge(&cell(disk), &seen, &Bounds::STRICT).iter().map(|fault| fault.invariant).collect()
    }

    #[test]
    fn copies_go_before_keys() {
        let full = [sample(100, 6, 0), sample(100, 6, 1)];
        assert_eq!(found(Disk::Full, &full, |_| {}), [Invariant::Copies]);
        assert_eq!(found(Disk::Full, &[sample(100, 6, 0), sample(100, 4, 1)], |_| {}), []);
        assert_eq!(found(Disk::Full, &[sample(100, 6, 1), sample(100, 6, 1)], |_| {}), []);
    }

    #[test]
    fn keys_are_given_up_for_want_of_disk_only() {
        let some = [sample(90, 0, 10)];
        assert_eq!(found(Disk::HungWrite, &some, |_| {}), [Invariant::Evicted]);
        assert_eq!(found(Disk::Full, &some, |_| {}), []);
        let many = [sample(90, 0, 20_000)];
        assert_eq!(found(Disk::Full, &many, |_| {}), [Invariant::Evicted]);
        assert_eq!(found(Disk::Full, &many, |seen| seen.worked.acknowledged = 20_000), []);
        // A segment of 16384 such keys.
        assert_eq!(found(Disk::Small, &many, |seen| seen.worked.acknowledged = 4_000), []);
    }

    #[test]
    fn a_disk_that_works_refuses_nothing() {
        let refused = |seen: &mut Figures| seen.worked.refused = 1;
        assert_eq!(found(Disk::Slow, &[], refused), [Invariant::Refused]);
        assert_eq!(found(Disk::Failing, &[], refused), []);
        assert_eq!(found(Disk::Failing, &[], |seen| seen.prepared.refused = 1), [Invariant::Refused]);
        assert_eq!(found(Disk::Unreadable, &[], |seen| seen.worked.unread = 1), []);
        assert_eq!(found(Disk::Full, &[], |seen| seen.worked.unread = 1), [Invariant::Refused]);
        assert_eq!(
            found(Disk::Full, &[], |seen| seen.worked.errors.push("ERR".into())),
            [Invariant::Refused]
        );
    }

    #[test]
    fn what_has_limits_of_its_own_is_not_counted() {
        let mut above = sample(110, 0, 0);
        assert_eq!(found(Disk::Fast, std::slice::from_ref(&above), |_| {}), [Invariant::Used]);
        above.not_counted = 10 << 20;
        assert_eq!(found(Disk::Fast, &[above], |_| {}), []);
        let resident = |seen: &mut Figures| seen.servers[0].resident_max = 130 << 20;
        assert_eq!(found(Disk::Fast, &[], resident), [Invariant::Resident]);
    }

    #[test]
    fn waits_count_beyond_the_machine_s_own() {
        let get = |got_ms: u64, machine_ms: u64| {
            found(Disk::Fast, &[], |seen| {
                seen.hot_get.took = Duration::from_millis(got_ms);
                seen.machine.took = Duration::from_millis(machine_ms);
            })
        };
        assert_eq!(get(30, 0), [Invariant::HotGet]);
        assert_eq!(get(30, 15), []);
        let back = |back| found(Disk::Fast, &[], |seen| seen.back = Some(Ok(Duration::from_secs(back))));
        assert_eq!((back(9), back(11)), (vec![], vec![Invariant::Back]));
    }

    #[test]
    fn what_is_gone_was_evicted() {
        let gone = |seen: &mut Figures| seen.missing.droppable = 5;
        assert_eq!(found(Disk::Full, &[sample(90, 0, 5)], gone), []);
        assert_eq!(found(Disk::Full, &[sample(90, 0, 4)], gone), [Invariant::Kept]);
        assert_eq!(found(Disk::Full, &[], |seen| seen.missing.lost = 1), [Invariant::Kept]);
    }
}
