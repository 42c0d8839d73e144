//! What this machine has and this process may, read by the tests' own means: nothing here asks the library, whose answers are compared with it.
#![allow(dead_code)] // Each test program uses its part.

/// What the processor offers to perf events.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    pub(crate) has_counters: bool,
    pub(crate) has_branches: bool,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let devices = std::fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
        let processors: Vec<_> =
            devices.filter(|it| it.file_name().to_string_lossy().starts_with("cpu")).collect();
        let has_branches = processors.iter().any(|it| it.path().join("caps/branches").exists());
        Self { has_counters: !processors.is_empty(), has_branches }
    }
}

/// The capabilities to be another user, to administer the system and to profile it.
pub(crate) const SETUID: u64 = 1 << 7;
pub(crate) const SYS_ADMIN: u64 = 1 << 21;
pub(crate) const PERFMON: u64 = 1 << 38;

/// The effective capabilities of this process, one bit each.
pub(crate) fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(bits.trim(), 16).unwrap()
}
