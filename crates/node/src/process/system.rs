//! Limits of the system around the process, read once at start: memory, control groups, and settings that
//! will hurt.
//!
//! ```text
//! /proc/self/cgroup   0::/system.slice/isotherm.service   version 2: /sys/fs/cgroup/.../memory.max, and its parents'
//!                     9:memory:/docker/4711               version 1: /sys/fs/cgroup/memory/.../memory.limit_in_bytes
//! ```
//! Inside a container the path may not exist; then the mounted folder is the group itself. The standard
//! library knows how many CPUs a group allows (`available_parallelism`).

use std::fs;
use std::path::{Path, PathBuf};

use isotherm_config::Config;
use isotherm_runtime::log;

const GROUPS: &str = "/sys/fs/cgroup";
/// Version 1 says "no limit" by a number near 2^63.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The machine's memory; a guess where the system does not say.
pub fn machine_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    match info.totalram as u64 * u64::from(info.mem_unit) {
        0 => 64 << 30,
        bytes => bytes,
    }
}

/// Returns the bytes of memory that the control groups of this process allow; `None` if they allow
/// everything.
pub fn group_memory_bytes() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    group_limit(&groups, Path::new(GROUPS))
}

/// Returns the bytes of memory that there can be: the machine's, or the part that a control group leaves of
/// it.
pub fn memory_bytes() -> u64 {
    let machine = machine_memory_bytes();
    group_memory_bytes().map_or(machine, |limit| limit.min(machine))
}

fn group_limit(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        smallest_on_the_way(&root, path, file)
    });
    limits.min()
}

/// The smallest limit of a group and all groups that it is in.
fn smallest_on_the_way(root: &Path, path: &str, file: &str) -> Option<u64> {
    let inner = PathBuf::from(path.trim_start_matches('/'));
    inner.ancestors().filter_map(|group| read_limit(&root.join(group).join(file))).min()
}

fn read_limit(path: &Path) -> Option<u64> {
    // "max" is no number.
    let bytes: u64 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    (bytes < NO_LIMIT_BYTES).then_some(bytes)
}

/// Logs one line for each setting of the system that will hurt.
pub fn warn(config: &Config) {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    if read("/proc/sys/vm/overcommit_memory").trim() == "2" {
        log::warning(
            "WARNING The system does not overcommit memory (vm.overcommit_memory = 2): memory is committed in steps, and \
             may be refused although there is free memory. To fix this issue add 'vm.overcommit_memory = 1' to /etc/sysctl.conf \
             and then reboot or run the command 'sysctl vm.overcommit_memory=1' for this to take effect.",
        );
    }
    // COMPAT(server): The warning about transparent huge pages at start concerns buffers and large values
    // only, and LATENCY DOCTOR mentions huge pages only where the system uses them without being asked. Why:
    // the keyspace asks for huge pages itself where they cost no memory.
    if read("/sys/kernel/mm/transparent_hugepage/enabled").contains("[always]") {
        log::warning(
            "WARNING You have Transparent Huge Pages (THP) support enabled in your kernel. Keys use them \
             only where they cost no memory, but buffers and large values use more than they need. To fix this issue run the command \
             'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled' as root, and add it to your /etc/rc.local in \
             order to retain the setting after a reboot.",
        );
    }
    let backlog = i64::from(config.tcp_backlog());
    if let Ok(most) = read("/proc/sys/net/core/somaxconn").trim().parse::<i64>()
        && most < backlog
    {
        log::warning(format!(
            "WARNING: The TCP backlog setting of {backlog} cannot be enforced because /proc/sys/net/core/somaxconn is set \
             to the lower value of {most}."
        ));
    }
    if let Some(limit) = group_memory_bytes().filter(|limit| *limit < machine_memory_bytes()) {
        let maxmemory = config.maxmemory_bytes();
        log::notice(format!("The cgroup memory limit of this process is {limit} bytes."));
        if maxmemory == 0 || maxmemory >= limit {
            log::warning(format!(
                "WARNING: with maxmemory {maxmemory} the server may exceed the cgroup memory limit ({limit}) and be killed \
                 by the kernel. Consider a maxmemory of three quarters of that limit."
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(groups: &str, files: &[(&str, &str)], expected: Option<u64>) {
        let root = std::env::temp_dir().join(format!("isotherm-groups-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("it is in a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        assert_eq!(group_limit(groups, &root), expected, "{groups} {files:?}");
        let _ = fs::remove_dir_all(&root);
    }

    #[test]
    fn limits_of_groups() {
        let v2 = "0::/a/b\n";
        check(v2, &[], None);
        check(v2, &[("a/b/memory.max", "max\n")], None);
        check(v2, &[("a/b/memory.max", "4096\n"), ("a/memory.max", "8192\n")], Some(4096));
        check(v2, &[("a/b/memory.max", "max\n"), ("a/memory.max", "8192\n")], Some(8192));
        // In a container that does not see the way to its group.
        check("0::/elsewhere\n", &[("memory.max", "77\n")], Some(77));
        let v1 = "3:cpu,cpuacct:/x\n2:memory:/x\n";
        check(v1, &[("memory/x/memory.limit_in_bytes", "9223372036854771712\n")], None);
        check(v1, &[("memory/x/memory.limit_in_bytes", "1000\n"), ("cpu/x/memory.max", "5")], Some(1000));
        check("", &[("memory.max", "1")], None);
    }
}
