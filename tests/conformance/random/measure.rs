//! Measures the resources of a process: descriptors, mapped memory files, memory.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::helpers::TEST_TIMEOUT;

/// Resources that a process holds.
#[derive(Debug)]
pub(super) struct ProcessResources {
    process_name: &'static str,
    descriptors: usize,
    regions: usize,
    memory_kib: u64,
}

/// Growth of memory that is not a leak: the allocator keeps memory of threads that have ended.
const ALLOWED_GROWTH_KIB: u64 = 24 << 10;

impl ProcessResources {
    pub(super) fn of_daemon() -> Self {
        let id = std::env::var(crate::DAEMON_PID_VARIABLE).expect("the variable has no process id");
        Self::read("the daemon", PathBuf::from("/proc").join(id))
    }

    pub(super) fn of_this_process() -> Self {
        Self::read("this process", PathBuf::from("/proc/self"))
    }

    fn read(process_name: &'static str, process: PathBuf) -> Self {
        let read_proc_file = |file: &str| {
            std::fs::read_to_string(process.join(file)).expect("the files of the process cannot be read")
        };
        let status = read_proc_file("status");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        Self {
            process_name,
            descriptors: std::fs::read_dir(process.join("fd"))
                .expect("the descriptors cannot be listed")
                .count(),
            regions: read_proc_file("maps").lines().filter(|line| line.contains("memfd:")).count(),
            memory_kib: memory.and_then(|kib| kib.parse().ok()).expect("the status has no resident size"),
        }
    }

    /// Returns the resources that have grown. Waits up to [`TEST_TIMEOUT`] until they have shrunk
    /// again, because ended threads and sessions release their resources later.
    pub(super) fn remaining_growth(&self, measure: impl Fn() -> Self) -> Vec<String> {
        let start = Instant::now();
        loop {
            let growth = self.list_growth(&measure());
            if growth.is_empty() || start.elapsed() > TEST_TIMEOUT {
                return growth;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn list_growth(&self, now: &Self) -> Vec<String> {
        let growth_of = |resource: &str, before: u64, now: u64, allowed_growth: u64| {
            (now > before + allowed_growth)
                .then(|| format!("{}: {resource} {before}, then {now}", self.process_name))
        };
        let growth = [
            growth_of("descriptors", self.descriptors as u64, now.descriptors as u64, 0),
            growth_of("maps of memory files", self.regions as u64, now.regions as u64, 0),
            growth_of("KiB of memory", self.memory_kib, now.memory_kib, ALLOWED_GROWTH_KIB),
        ];
        growth.into_iter().flatten().collect()
    }
}
