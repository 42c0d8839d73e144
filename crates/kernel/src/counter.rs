//! Counters: profile sources beside the timer, as perf events name them.
//!
//! ```text
//!   id 2, 6, 8 … 19        fixed meaning               ──▶ PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE
//!   id 0x0800 …            the kernel's own counters   ──▶ PERF_TYPE_SOFTWARE
//!   id 0x1000 …            named by the processor      ──▶ devices/cpu/type, events/NAME "event=0x3c,umask=0x01", format/event "config:0-7"
//! ```
//!
//! 1. A counter that this machine does not have is [`None`] here or refused when it is opened: it is never replaced by another.
//! 2. What sysfs says is read in bounds; a name with a separator in it is none of its files.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use perf_event_open_sys::bindings as sys;
use traceweir_format::spec::info::software_source;

/// Counters that are sampled, and those that are read with events, at most.
pub const MAX_COUNTERS: usize = 7;
/// Where the kernel lists what counts.
const DEVICES: &str = "/sys/bus/event_source/devices";
/// A file there is a line.
const MAX_FILE: u64 = 4096;

/// A profile source that counts: its id as class 7 tells it, its name, and after how many counts it samples (100 ns for clocks).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// Its id.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Counts from sample to sample; of no account where it is read with events.
    pub interval: u32,
}

/// What perf events call it: `type` and `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) kind: u32,
    pub(crate) config: u64,
}

impl Counter {
    /// How it is opened; `None`: there is no such counter.
    pub(crate) fn code(&self) -> Option<Code> {
        self.code_in(Path::new(DEVICES))
    }

    fn code_in(&self, devices: &Path) -> Option<Code> {
        fixed(self.id).or_else(|| named(devices, &self.name))
    }

    /// Its interval as perf events count it.
    pub(crate) fn period(&self) -> u64 {
        let unit = if self.id == software_source::TASK_CLOCK { 100 } else { 1 };
        u64::from(self.interval.max(1)).saturating_mul(unit)
    }
}

/// Those whose id says what they are.
fn fixed(id: u32) -> Option<Code> {
    const fn hardware(config: u32) -> Option<Code> {
        Some(Code { kind: sys::PERF_TYPE_HARDWARE, config: config as u64 })
    }
    const fn software(config: u32) -> Option<Code> {
        Some(Code { kind: sys::PERF_TYPE_SOFTWARE, config: config as u64 })
    }
    // Cache, operation (read is 0) and result, a byte each.
    const fn misses(cache: u32) -> Option<Code> {
        let config = cache as u64 | (sys::PERF_COUNT_HW_CACHE_RESULT_MISS as u64) << 16;
        Some(Code { kind: sys::PERF_TYPE_HW_CACHE, config })
    }
    match id {
        2 => hardware(sys::PERF_COUNT_HW_INSTRUCTIONS),
        6 => hardware(sys::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
        8 => misses(sys::PERF_COUNT_HW_CACHE_L1D),
        9 => misses(sys::PERF_COUNT_HW_CACHE_L1I),
        10 => hardware(sys::PERF_COUNT_HW_CACHE_MISSES),
        11 => hardware(sys::PERF_COUNT_HW_BRANCH_MISSES),
        19 => hardware(sys::PERF_COUNT_HW_CPU_CYCLES),
        software_source::TASK_CLOCK => software(sys::PERF_COUNT_SW_TASK_CLOCK),
        software_source::PAGE_FAULTS => software(sys::PERF_COUNT_SW_PAGE_FAULTS),
        software_source::CONTEXT_SWITCHES => software(sys::PERF_COUNT_SW_CONTEXT_SWITCHES),
        _ => None,
    }
}

/// Those that the processor names, in the first of its devices that has it.
fn named(devices: &Path, name: &str) -> Option<Code> {
    if name.is_empty() || name.contains(['/', '\0']) || name.starts_with('.') {
        return None;
    }
    let all = fs::read_dir(devices).ok()?.flatten();
    let mut found: Vec<PathBuf> =
        all.filter(|it| it.file_name().as_encoded_bytes().starts_with(b"cpu")).map(|it| it.path()).collect();
    found.sort();
    found.iter().find_map(|device| {
        let kind = read(&device.join("type"))?.trim().parse().ok()?;
        let terms = read(&device.join("events").join(name))?;
        Some(Code { kind, config: config_of(device, terms.trim())? })
    })
}

/// `event=0x3c,umask=0x01` by the formats of its device. Terms that are not part of `config` (as `ldlat` of `config1`) make it none of ours.
fn config_of(device: &Path, terms: &str) -> Option<u64> {
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
        let format = read(&device.join("format").join(name))?;
        config |= spread(value, format.trim().strip_prefix("config:")?)?;
    }
    Some(config)
}

/// Lays the bits of a value into the ranges of a format, `0-7,32-35`, lowest first.
fn spread(mut value: u64, ranges: &str) -> Option<u64> {
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

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_FILE).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counter(id: u32, name: &str) -> Counter {
        Counter { id, name: name.to_owned(), interval: 7 }
    }

    #[test]
    fn counters_of_fixed_meaning_need_no_names() {
        let code = |id| counter(id, "").code();
        assert_eq!(code(19), Some(Code { kind: 0, config: 0 }));
        assert_eq!(code(2), Some(Code { kind: 0, config: 1 }));
        assert_eq!(code(8), Some(Code { kind: 3, config: 0x1_0000 }), "L1-dcache-load-misses");
        assert_eq!(code(9), Some(Code { kind: 3, config: 0x1_0001 }));
        assert_eq!(code(0x0801), Some(Code { kind: 1, config: 2 }));
        assert_eq!((code(0), code(5)), (None, None));
        assert_eq!((counter(0x0800, "").period(), counter(19, "").period()), (700, 7));
    }

    #[test]
    fn names_of_a_processor_are_resolved_by_its_own_formats() {
        let folder = tempfile::tempdir().expect("a folder");
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
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a file");
        }
        let config = |name| counter(0x1000, name).code_in(folder.path());
        assert_eq!(config("plain"), Some(Code { kind: 4, config: 0x3c }));
        assert_eq!(config("wide"), Some(Code { kind: 4, config: 0x1_0004_03c2 }));
        assert_eq!((config("loads"), config("large"), config("none")), (None, None, None));
        assert_eq!((config("../cpu/events/plain"), config("")), (None, None));
    }
}
