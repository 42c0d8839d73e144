//! Describes the machine that figures belong to.

/// Facts about the machine, for readers of recorded figures.
#[derive(Clone, Debug)]
pub(crate) struct MeasuredMachine {
    /// The model name of the processor.
    pub(crate) cpu: String,
    /// Number of usable processors.
    pub(crate) cores: usize,
    /// Installed memory in MiB.
    pub(crate) memory_mib: u64,
    /// The release of the kernel.
    pub(crate) kernel: String,
}

impl MeasuredMachine {
    /// Queries the system; unknown facts stay empty. Must be called before the process is pinned to
    /// a core: afterwards only that core would count as usable.
    pub(crate) fn describe() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpu = value_of(&read("/proc/cpuinfo"), "model name").to_owned();
        let memory = read("/proc/meminfo");
        let kib: u64 = value_of(&memory, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            cpu,
            cores,
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// Returns the value of the first line `name : value`.
fn value_of<'t>(text: &'t str, name: &str) -> &'t str {
    let mut pairs = text.lines().filter_map(|l| l.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map_or("", |(_, value)| value.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name\t: other\n";
        assert_eq!(value_of(text, "model name"), "Some CPU @ 2 GHz");
        assert_eq!(value_of(text, "MemTotal"), "");
    }
}
