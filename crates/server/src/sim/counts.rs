//! Counts of events in the lives of machines: a sweep shows that it met what it looks for.

/// Counts of events in all lives.
#[derive(Default, Clone, Copy, Debug)]
pub struct Counts {
    pub lives: u64,
    pub steps: u64,
    pub calls: u64,
    pub crashes: u64,
    pub exits: u64,
    pub rewrites: u64,
    pub saves: u64,
    pub refused: u64,
    pub failed_starts: u64,
    pub hangs: u64,
    pub clock_steps: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        self.lives += other.lives;
        self.steps += other.steps;
        self.calls += other.calls;
        self.crashes += other.crashes;
        self.exits += other.exits;
        self.rewrites += other.rewrites;
        self.saves += other.saves;
        self.refused += other.refused;
        self.failed_starts += other.failed_starts;
        self.hangs += other.hangs;
        self.clock_steps += other.clock_steps;
    }
}
