//! Progress of saving and of loading, for INFO.

use isotherm_stdx::steady::SteadyMs;
use std::sync::atomic::Ordering::Relaxed;

use isotherm_node::mail::tasks::Tasks;
use isotherm_node::persistence::Store;
use isotherm_node::persistence::state::{Job, Saving};
use isotherm_runtime::time::steady_now;

/// The state of saving at one moment.
pub struct SavingReport {
    pub saving: Saving,
    pub changes_since: u64,
    pub keys: u64,
    pub keys_total: u64,
}

impl SavingReport {
    pub fn of(store: Store<'_>) -> SavingReport {
        let saving = store.state.saving().clone();
        let changes_since = store.stats.changes().saturating_sub(saving.saved_changes);
        let progress = &store.state.progress;
        let is_running = saving.running.is_some();
        let of = |counter: &std::sync::atomic::AtomicU64| if is_running { counter.load(Relaxed) } else { 0 };
        SavingReport { changes_since, keys: of(&progress.keys), keys_total: of(&progress.keys_total), saving }
    }

    pub fn is_running(&self, job: Job) -> bool {
        self.saving.running.is_some_and(|running| running.job == job)
    }

    pub fn is_in_background(&self) -> bool {
        self.is_running(Job::BackgroundSave) || self.is_running(Job::Stream)
    }

    /// Returns for how many seconds a walk for this job has been under way; -1 if there is none.
    pub fn running_seconds(&self, job: Job) -> i64 {
        let running = self.saving.running.filter(|running| running.job == job);
        running.map_or(-1, |running| running.began.elapsed().as_secs() as i64)
    }

    /// Returns the progress of the save in percent, by keys.
    pub fn percent(&self) -> f64 {
        if self.keys_total == 0 { 0.0 } else { self.keys as f64 * 100.0 / self.keys_total as f64 }
    }
}

pub fn is_loading(store: Store<'_>) -> bool {
    store.mail.tasks().has(Tasks::LOADING)
}

/// Progress of a load.
pub struct LoadingReport {
    pub started_seconds: u64,
    pub total_bytes: u64,
    pub loaded_bytes: u64,
    pub used_memory_bytes: u64,
    elapsed_seconds: u64,
}

impl LoadingReport {
    /// Returns how far it is; `None` unless a file is loaded.
    pub fn of(store: Store<'_>) -> Option<LoadingReport> {
        let loading = &store.state.loading;
        let elapsed_ms = steady_now().ms_since(SteadyMs(loading.begun_ms.load(Relaxed)));
        is_loading(store).then(|| LoadingReport {
            started_seconds: loading.started_seconds.load(Relaxed),
            total_bytes: loading.total_bytes.load(Relaxed),
            loaded_bytes: loading.loaded_bytes.load(Relaxed),
            used_memory_bytes: loading.used_memory_bytes.load(Relaxed),
            elapsed_seconds: elapsed_ms.max(0) as u64 / 1000,
        })
    }

    pub fn percent(&self) -> f64 {
        if self.total_bytes == 0 { 0.0 } else { self.loaded_bytes as f64 * 100.0 / self.total_bytes as f64 }
    }

    /// The rest is taken to load as fast as the part before.
    pub fn eta_seconds(&self) -> u64 {
        let left_bytes = self.total_bytes.saturating_sub(self.loaded_bytes);
        (self.elapsed_seconds * left_bytes).checked_div(self.loaded_bytes).unwrap_or(1)
    }
}
