//! Counters: profile sources other than the timer, and their perf event codes.
//!
//! ```text
//!   id 2, 6, 8–11, 19  fixed meaning             ──▶ PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE
//!   id 0x0800 …        software counters         ──▶ PERF_TYPE_SOFTWARE
//!   id 0x1000 …        named by the processor    ──▶ devices/cpu/type,
//!                                                    events/NAME "event=0x3c,umask=0x01",
//!                                                    format/event "config:0-7"
//! ```
//!
//! 1. A counter that this machine lacks has no code here, or the kernel rejects it. It is never
//!    replaced by another counter.
//! 2. Reads from sysfs are bounded. A counter name with a path separator or a leading dot is not
//!    looked up there.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use perf_event_open_sys::bindings as sys;
use traceweir_format::spec::info::software_source;

/// The largest number of counters that sample, and of counters that are read with events.
pub const MAX_COUNTERS: usize = 7;
/// The sysfs directory of perf event sources.
const DEVICES_FOLDER: &str = "/sys/bus/event_source/devices";
/// Read limit for files in this directory, which contain one line.
const MAX_FILE_BYTES: u64 = 4096;

/// A profile source that counts events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The id in the list of profile sources (`TraceProfileSourceListInfo`).
    pub id: u32,
    /// The name of the counter.
    pub name: String,
    /// Counts between two samples (units of 100 ns for clocks); ignored if the counter is read with
    /// events.
    pub interval: u32,
}

/// The `type` and `config` of a counter in perf events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CounterCode {
    pub(crate) kind: u32,
    pub(crate) config: u64,
}

impl Counter {
    /// Returns the perf event code, or `None` if there is no such counter.
    pub(crate) fn find_code(&self) -> Option<CounterCode> {
        self.find_code_in(Path::new(DEVICES_FOLDER))
    }

    fn find_code_in(&self, devices: &Path) -> Option<CounterCode> {
        find_fixed_code(self.id).or_else(|| find_processor_code(devices, &self.name))
    }

    /// Returns the interval in the unit of the perf event.
    pub(crate) fn period(&self) -> u64 {
        let unit = if self.id == software_source::TASK_CLOCK { 100 } else { 1 };
        u64::from(self.interval.max(1)).saturating_mul(unit)
    }
}

/// Returns the code of a counter with a fixed meaning.
fn find_fixed_code(id: u32) -> Option<CounterCode> {
    const fn hardware(config: u32) -> Option<CounterCode> {
        Some(CounterCode { kind: sys::PERF_TYPE_HARDWARE, config: config as u64 })
    }
    const fn software(config: u32) -> Option<CounterCode> {
        Some(CounterCode { kind: sys::PERF_TYPE_SOFTWARE, config: config as u64 })
    }
    // Cache, operation (read is 0) and result, one byte each.
    const fn cache_misses(cache: u32) -> Option<CounterCode> {
        let config = cache as u64 | (sys::PERF_COUNT_HW_CACHE_RESULT_MISS as u64) << 16;
        Some(CounterCode { kind: sys::PERF_TYPE_HW_CACHE, config })
    }
    // The ids are those of the documented profile sources.
    match id {
        2 => hardware(sys::PERF_COUNT_HW_INSTRUCTIONS),
        6 => hardware(sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
        8 => cache_misses(sys::PERF_COUNT_HW_CACHE_L1D),
        9 => cache_misses(sys::PERF_COUNT_HW_CACHE_L1I),
        10 => hardware(sys::PERF_COUNT_HW_CACHE_MISSES),
        11 => hardware(sys::PERF_COUNT_HW_BRANCH_MISSES),
        19 => hardware(sys::PERF_COUNT_HW_CPU_CYCLES),
        software_source::TASK_CLOCK => software(sys::PERF_COUNT_SW_TASK_CLOCK),
        software_source::PAGE_FAULTS => software(sys::PERF_COUNT_SW_PAGE_FAULTS),
        software_source::CONTEXT_SWITCHES => software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        _ => None,
    }
}

/// Returns the code of a counter named by the processor, from the first CPU device that has it.
fn find_processor_code(devices: &Path, name: &str) -> Option<CounterCode> {
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        return None;
    }
    let entries = fs::read_dir(devices).ok()?.flatten();
    let is_cpu = |entry: &fs::DirEntry| entry.file_name().as_encoded_bytes().starts_with(b"cpu");
    let mut cpu_devices: Vec<PathBuf> = entries.filter(is_cpu).map(|entry| entry.path()).collect();
    cpu_devices.sort();
    cpu_devices.iter().find_map(|device| {
        let kind = read_text(&device.join("type"))?.trim().parse().ok()?;
        let terms = read_text(&device.join("events").join(name))?;
        Some(CounterCode { kind, config: parse_config(device, terms.trim())? })
    })
}

/// Converts terms such as `event=0x3c,umask=0x01` to `config`, by the formats of the device.
///
/// Returns `None` for terms outside `config` (such as `ldlat` in `config1`).
fn parse_config(device: &Path, terms: &str) -> Option<u64> {
    let mut config = 0_u64;
    for term in terms.split(',') {
        let (name, value) = term.split_once('=').unwrap_or((term, "1"));
        if name.contains('/') {
            return None;
        }
        let value = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok()?,
            None => value.parse().ok()?,
        };
        let format = read_text(&device.join("format").join(name))?;
        config |= distribute_bits(value, format.trim().strip_prefix("config:")?)?;
    }
    Some(config)
}

/// Distributes the bits of a value over the ranges of a format such as `0-7,32-35`, lowest first.
fn distribute_bits(mut value: u64, ranges: &str) -> Option<u64> {
    let mut config = 0_u64;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.parse().ok()?, high.parse().ok()?);
        let bits = high.checked_sub(low)?.checked_add(1).filter(|bits| *bits <= 64)?;
        let mask = u64::MAX.checked_shr(64_u32.checked_sub(bits)?)?;
        config |= (value & mask).checked_shl(low)?;
        value = value.checked_shr(bits).unwrap_or(0);
    }
    (value == 0).then_some(config)
}

/// Reads the start of a text file.
fn read_text(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(id: u32, name: &str) -> Counter {
        Counter { id, name: name.to_owned(), interval: 7 }
    }

    #[test]
    fn counters_with_fixed_meaning_need_no_names() {
        let code = |id| counter(id, "").find_code();
        assert_eq!(code(19), Some(CounterCode { kind: 0, config: 0 }));
        assert_eq!(code(2), Some(CounterCode { kind: 0, config: 1 }));
        assert_eq!(code(8), Some(CounterCode { kind: 3, config: 0x1_0000 }), "L1-dcache-load-misses");
        assert_eq!(code(9), Some(CounterCode { kind: 3, config: 0x1_0001 }));
        assert_eq!(code(0x0801), Some(CounterCode { kind: 1, config: 2 }));
        assert_eq!((code(0), code(5)), (None, None));
        assert_eq!((counter(0x0800, "").period(), counter(19, "").period()), (700, 7));
    }

    #[test]
    fn processor_counters_are_resolved_by_device_formats() {
        let folder = tempfile::tempdir().expect("no temporary folder is created");
        let cpu = folder.path().join("cpu");
        for (file, text) in [
            ("type", "4\n"),
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/edge", "config:18\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("events/plain", "event=0x3c\n"),
            ("events/wide", "event=0x1c2,umask=0x03,edge\n"),
            ("events/loads", "event=0xcd,umask=0x1,ldlat=3\n"),
            ("events/large", "event=0x3c,edge=2\n"),
        ] {
            let path = cpu.join(file);
            fs::create_dir_all(path.parent().expect("the path has no parent")).expect("no folder is created");
            fs::write(path, text).expect("the file is not written");
        }
        let find_code = |name| counter(0x1000, name).find_code_in(folder.path());
        assert_eq!(find_code("plain"), Some(CounterCode { kind: 4, config: 0x3c }));
        // Bit 8 of the event goes to bit 32, the mask to bits 8 to 15, the edge to bit 18.
        assert_eq!(find_code("wide"), Some(CounterCode { kind: 4, config: 0x1_0004_03c2 }));
        assert_eq!((find_code("loads"), find_code("large"), find_code("none")), (None, None, None));
        assert_eq!((find_code("../cpu/events/plain"), find_code("")), (None, None));
    }
}
