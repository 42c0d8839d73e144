//! Hardware of this machine and privileges of this process. They are read without the library,
//! because tests compare the library's answers with them.
#![allow(dead_code)] // Each test program uses only some of these functions.

/// The processor's hardware for perf events.
#[derive(Clone, Copy)]
pub(crate) struct Machine {
    /// Whether the processor has performance counters.
    pub(crate) has_counters: bool,
    /// Whether the processor records its last branches.
    pub(crate) has_branches: bool,
}

impl Machine {
    pub(crate) fn inspect() -> Self {
        let devices = std::fs::read_dir("/sys/bus/event_source/devices").into_iter().flatten().flatten();
        let processors: Vec<_> =
            devices.filter(|device| device.file_name().to_string_lossy().starts_with("cpu")).collect();
        let has_branches = processors.iter().any(|device| device.path().join("caps/branches").exists());
        Self { has_counters: !processors.is_empty(), has_branches }
    }
}

/// Bit of `CAP_SETUID` in [`capabilities`].
pub(crate) const SETUID: u64 = 1 << 7;
/// Bit of `CAP_SYS_ADMIN`.
pub(crate) const SYS_ADMIN: u64 = 1 << 21;
/// Bit of `CAP_PERFMON`.
pub(crate) const PERFMON: u64 = 1 << 38;

/// Returns the effective capabilities of this process, one bit each.
pub(crate) fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let bits = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(bits.trim(), 16).unwrap()
}
