//! Lines of INFO about saving and loading.

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

/// The lines that there are only while a file is loaded.
pub fn loading_lines(store: Store<'_>) -> Vec<(&'static str, String)> {
    if !is_loading(store) {
        return Vec::new();
    }
    let loading = &store.state.loading;
    let [started, total, loaded, used] =
        [&loading.started_seconds, &loading.total_bytes, &loading.loaded_bytes, &loading.used_memory_bytes]
            .map(|counter| counter.load(Relaxed));
    let elapsed_ms = steady_now().ms_since(SteadyMs(loading.begun_ms.load(Relaxed)));
    let elapsed = elapsed_ms.max(0) as u64 / 1000;
    let percent = if total == 0 { 0.0 } else { loaded as f64 * 100.0 / total as f64 };
    // The rest is taken to load as fast as the part before.
    let eta = (elapsed * total.saturating_sub(loaded)).checked_div(loaded).unwrap_or(1);
    vec![
        ("loading_start_time", started.to_string()),
        ("loading_total_bytes", total.to_string()),
        ("loading_rdb_used_mem", used.to_string()),
        ("loading_loaded_bytes", loaded.to_string()),
        ("loading_loaded_perc", format!("{percent:.2}")),
        ("loading_eta_seconds", eta.to_string()),
    ]
}
