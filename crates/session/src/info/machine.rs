//! Perf event support of this machine.
//!
//! ```text
//!   /proc/sys/kernel/perf_event_paranoid          exists: the kernel has perf events
//!   /proc/sys/kernel/perf_event_max_sample_rate   largest sample rate: the shortest timer interval
//!   /proc/sys/kernel/nmi_watchdog                 1: the kernel's watchdog takes one counter
//!   /sys/bus/event_source/devices/cpu*            exists: the processor has counters
//!                                    /events/*       their names
//!                                    /caps/branches  the processor records branches
//! ```
//!
//! Some processors report how many counters can be used at once; Linux does not. For processors
//! that do not report it, [`ASSUMED_COUNTERS`] is used: every processor with counters has at least
//! as many.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use traceweir_format::info::{Answer, CounterOwner, ProfileSource, Set};
use traceweir_format::spec::info::software_source;
use traceweir_format::spec::status::Status;
use traceweir_transport::cpu;

use super::{invalid, refuse};
use crate::error::Result;

/// Number of counters if the processor has any and does not report how many.
const ASSUMED_COUNTERS: u32 = 4;
/// Id of the timer, a profile source that every machine has.
pub const TIMER: u32 = 0;
/// Limits of the timer's interval, in 100 ns.
const TIMER_INTERVALS: (u32, u32) = (1221, 1_000_000);
/// Limits of a counter's interval, in counts.
const COUNTER_INTERVALS: (u32, u32) = (4096, 0x7FFF_FFFF);
/// Limits of the interval of the kernel's software counters, in counts.
const SOFTWARE_INTERVALS: (u32, u32) = (1, 0x7FFF_FFFF);
/// Profile sources with a fixed id, which is their `KPROFILE_SOURCE` number of Windows.
const FIXED_SOURCES: [(u32, &str); 7] = [
    (2, "TotalIssues"),
    (6, "BranchInstructions"),
    (8, "DcacheMisses"),
    (9, "IcacheMisses"),
    (10, "CacheMisses"),
    (11, "BranchMispredictions"),
    (19, "TotalCycles"),
];
/// First id of the sources that the processor names.
const FIRST_NAMED_SOURCE: u32 = 0x1000;
/// Largest number of named sources.
const MAX_NAMED_SOURCES: usize = 512;
/// Longest name of a source.
const MAX_NAME_BYTES: usize = 100;
/// Units of 100 ns per second.
const UNITS_PER_SECOND: u32 = 10_000_000;

/// Perf event support of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    has_perf: bool,
    has_counters: bool,
    max_counters: u32,
    has_branches: bool,
    has_watchdog: bool,
    processors: u32,
    sources: Vec<ProfileSource>,
}

impl Machine {
    /// Inspects this machine.
    #[must_use]
    pub fn inspect() -> Self {
        Self::inspect_below(Path::new("/"), cpu::counters())
    }

    /// Inspects the machine whose files are below `root`, and whose processors report `counters`
    /// counters.
    #[must_use]
    pub fn inspect_below(root: &Path, counters: Option<u32>) -> Self {
        let kernel = root.join("proc/sys/kernel");
        let read_number = |name: &str| fs::read_to_string(kernel.join(name)).ok()?.trim().parse::<u32>().ok();
        let devices = list_counter_devices(&root.join("sys/bus/event_source/devices"));
        let mut machine = Self {
            has_perf: kernel.join("perf_event_paranoid").exists(),
            has_counters: !devices.is_empty(),
            max_counters: counters.filter(|_| !devices.is_empty()).unwrap_or(ASSUMED_COUNTERS),
            has_branches: devices.iter().any(|device| device.join("caps/branches").exists()),
            has_watchdog: read_number("nmi_watchdog") == Some(1),
            processors: u32::from(cpu::possible()),
            sources: Vec::new(),
        };
        machine.sources = machine.list_sources(read_number("perf_event_max_sample_rate"), &devices);
        machine
    }

    fn list_sources(&self, max_rate: Option<u32>, devices: &[PathBuf]) -> Vec<ProfileSource> {
        let min_interval = max_rate.and_then(|rate| UNITS_PER_SECOND.checked_div(rate)).unwrap_or(0);
        let min_interval = TIMER_INTERVALS.0.max(min_interval).min(TIMER_INTERVALS.1);
        let mut sources = vec![ProfileSource {
            source: TIMER,
            min_interval,
            max_interval: TIMER_INTERVALS.1,
            description: "Timer".to_owned(),
        }];
        if self.has_counters {
            sources.extend(
                FIXED_SOURCES.iter().map(|(id, name)| build_profile_source(*id, *name, COUNTER_INTERVALS)),
            );
        }
        if self.has_perf {
            let bounds =
                |id| if is_clock(id) { (min_interval, TIMER_INTERVALS.1) } else { SOFTWARE_INTERVALS };
            sources.extend(
                software_source::ALL.iter().map(|(id, name)| build_profile_source(*id, *name, bounds(*id))),
            );
        }
        if self.has_counters {
            let mut named = BTreeSet::new();
            devices.iter().for_each(|device| add_events(&device.join("events"), &mut named));
            sources.extend(
                (FIRST_NAMED_SOURCE..)
                    .zip(named)
                    .map(|(id, name)| build_profile_source(id, name, COUNTER_INTERVALS)),
            );
        }
        sources
    }

    /// Returns all profile sources, the timer first.
    #[must_use]
    pub fn sources(&self) -> &[ProfileSource] {
        &self.sources
    }

    /// Returns the number of counters that can be used at once.
    #[must_use]
    pub const fn counters(&self) -> u32 {
        if self.has_counters { self.max_counters } else { 0 }
    }

    /// Returns whether the kernel has perf events.
    #[must_use]
    pub const fn has_perf(&self) -> bool {
        self.has_perf
    }

    /// Returns whether the processor records branches and perf events report them.
    #[must_use]
    pub const fn has_branches(&self) -> bool {
        self.has_branches
    }

    /// Returns the number of counters that one call may name. Without counters, it is
    /// [`ASSUMED_COUNTERS`]: a later check reports that the machine has no counters.
    pub(super) const fn max_counters(&self) -> u32 {
        self.max_counters
    }

    /// Returns the users of a processor's counters. The only known user is the kernel's watchdog,
    /// which takes one counter: Linux does not report others.
    pub(super) fn counter_owners(&self, processor: u32) -> Result<Answer> {
        if processor >= self.processors {
            return invalid("no such processor");
        }
        let free = CounterOwner::default();
        let mut owners = vec![free; self.counters() as usize];
        if let (true, Some(first)) = (self.has_watchdog, owners.first_mut()) {
            // In use, by an owner without a tag.
            first.kind = 1;
        }
        Ok(Answer::PmcCounterOwners { processor, owners })
    }

    /// Rejects settings that the machine does not support.
    pub(super) fn check(&self, set: &Set) -> Result<()> {
        let not_supported = |reason| refuse(Status::ERROR_NOT_SUPPORTED, reason);
        match set {
            Set::PmcEventList(_) | Set::PmcCounterList(_) if !self.has_counters => not_supported(NO_COUNTERS),
            Set::ProfileSourceConfig(ids) if !self.has_counters && !ids.iter().all(|id| is_software(*id)) => {
                not_supported(NO_COUNTERS)
            }
            // Clearing always works.
            Set::LbrEventList(hooks) if hooks.is_empty() => Ok(()),
            Set::ContextRegister { events, .. } if events.is_empty() => Ok(()),
            Set::LbrConfiguration(_) | Set::LbrEventList(_) if !self.has_branches => {
                not_supported("the processor, or the virtual machine, records no branches")
            }
            Set::SampledProfileInterval(profile) if !self.has_counters && is_fixed(profile.source) => {
                not_supported(NO_COUNTERS)
            }
            Set::ContextRegister { .. } | Set::SampledProfileInterval(_) if !self.has_perf => {
                not_supported("this kernel has no perf events")
            }
            _ => Ok(()),
        }
    }

    /// Rejects counters that do not exist.
    pub(super) fn check_counters(&self, ids: &[u32]) -> Result<()> {
        if ids.iter().any(|id| *id == TIMER || self.find_source(*id).is_none()) {
            return invalid("no such counter: TraceProfileSourceListInfo lists all of them");
        }
        Ok(())
    }

    /// Finds a profile source by id.
    #[must_use]
    pub fn find_source(&self, id: u32) -> Option<&ProfileSource> {
        self.sources.iter().find(|source| source.source == id)
    }

    /// Returns the error for a source that does not exist: not supported on this machine, or
    /// unknown.
    pub(super) fn missing_source_error<T>(&self, id: u32) -> Result<T> {
        if is_fixed(id) && !self.has_counters {
            return refuse(Status::ERROR_NOT_SUPPORTED, NO_COUNTERS);
        }
        invalid("no such profile source: TraceProfileSourceListInfo lists all of them")
    }
}

const NO_COUNTERS: &str =
    "the processor, or the virtual machine, has no performance counters that perf events show";

fn build_profile_source(
    source: u32,
    name: impl Into<String>,
    (min_interval, max_interval): (u32, u32),
) -> ProfileSource {
    ProfileSource { source, min_interval, max_interval, description: name.into() }
}

fn is_software(id: u32) -> bool {
    software_source::ALL.iter().any(|(source, _)| *source == id)
}

/// Returns whether the interval of a source is a time.
pub(super) const fn is_clock(id: u32) -> bool {
    matches!(id, TIMER | software_source::TASK_CLOCK)
}

fn is_fixed(id: u32) -> bool {
    FIXED_SOURCES.iter().any(|(source, _)| *source == id)
}

/// Returns the sysfs folders of processor counters.
fn list_counter_devices(devices: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut cpu_devices: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"cpu"))
        .map(|entry| entry.path())
        .collect();
    cpu_devices.sort();
    cpu_devices
}

/// Adds the names of events, without files that describe scale and unit. If there are too many, the
/// first by name are kept.
fn add_events(folder: &Path, names: &mut BTreeSet<String>) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let file_names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    for name in file_names.filter(|name| !name.contains('.') && name.len() <= MAX_NAME_BYTES) {
        names.insert(name);
        if names.len() > MAX_NAMED_SOURCES {
            names.pop_last();
        }
    }
}
