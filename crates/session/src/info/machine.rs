//! Perf event support of this machine.
//!
//! ```text
//!   /proc/sys/kernel/perf_event_paranoid          exists: the kernel has perf events
//!   /proc/sys/kernel/perf_event_max_sample_rate   largest sample rate: the shortest timer interval
//!   /sys/bus/event_source/devices/cpu*            exists: the processor has counters
//!                                    /events/*       their names
//!                                    /caps/branches  the processor records branches
//! ```
//!
//! The system does not report how many counters can be used at once, but some processors do.
//! Otherwise [`ASSUMED_COUNTERS`] is what every processor with counters has.

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
/// Limits of a counter's interval.
const COUNTER_INTERVALS: (u32, u32) = (4096, 0x7FFF_FFFF);
/// Limits of the interval of the kernel's software counters.
const SOFTWARE_INTERVALS: (u32, u32) = (1, 0x7FFF_FFFF);
/// Profile sources with a fixed id.
const FIXED: [(u32, &str); 7] = [
    (2, "TotalIssues"),
    (6, "BranchInstructions"),
    (8, "DcacheMisses"),
    (9, "IcacheMisses"),
    (10, "CacheMisses"),
    (11, "BranchMispredictions"),
    (19, "TotalCycles"),
];
/// First id of the sources that the processor names.
const FIRST_NAMED: u32 = 0x1000;
/// Largest number of named sources.
const MAX_NAMED: usize = 512;
/// Longest name of a source.
const MAX_NAME: usize = 100;
/// Units of 100 ns per second.
const UNITS_PER_SECOND: u32 = 10_000_000;

/// Perf event support of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    has_perf: bool,
    has_counters: bool,
    most_counters: u32,
    has_branches: bool,
    watchdog: bool,
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
        let number = |name: &str| fs::read_to_string(kernel.join(name)).ok()?.trim().parse::<u32>().ok();
        let devices = counter_devices(&root.join("sys/bus/event_source/devices"));
        let mut machine = Self {
            has_perf: kernel.join("perf_event_paranoid").exists(),
            has_counters: !devices.is_empty(),
            most_counters: counters.filter(|_| !devices.is_empty()).unwrap_or(ASSUMED_COUNTERS),
            has_branches: devices.iter().any(|device| device.join("caps/branches").exists()),
            watchdog: number("nmi_watchdog") == Some(1),
            processors: u32::from(cpu::possible()),
            sources: Vec::new(),
        };
        machine.sources = machine.all_sources(number("perf_event_max_sample_rate"), &devices);
        machine
    }

    fn all_sources(&self, max_rate: Option<u32>, devices: &[PathBuf]) -> Vec<ProfileSource> {
        let least = max_rate.and_then(|rate| UNITS_PER_SECOND.checked_div(rate)).unwrap_or(0);
        let least = TIMER_INTERVALS.0.max(least).min(TIMER_INTERVALS.1);
        let mut all = vec![ProfileSource {
            source: TIMER,
            min_interval: least,
            max_interval: TIMER_INTERVALS.1,
            description: "Timer".to_owned(),
        }];
        if self.has_counters {
            all.extend(FIXED.iter().map(|(id, name)| profile_source(*id, *name, COUNTER_INTERVALS)));
        }
        if self.has_perf {
            let bounds = |id| if is_clock(id) { (least, TIMER_INTERVALS.1) } else { SOFTWARE_INTERVALS };
            all.extend(software_source::ALL.iter().map(|(id, name)| profile_source(*id, *name, bounds(*id))));
        }
        if self.has_counters {
            let mut named = BTreeSet::new();
            devices.iter().for_each(|device| add_events(&device.join("events"), &mut named));
            all.extend(
                (FIRST_NAMED..).zip(named).map(|(id, name)| profile_source(id, name, COUNTER_INTERVALS)),
            );
        }
        all
    }

    /// Returns all profile sources, the timer first.
    #[must_use]
    pub fn sources(&self) -> &[ProfileSource] {
        &self.sources
    }

    /// Returns the number of counters that can be used at once.
    #[must_use]
    pub const fn counters(&self) -> u32 {
        if self.has_counters { self.most_counters } else { 0 }
    }

    /// Returns whether the kernel has perf events.
    #[must_use]
    pub const fn has_perf(&self) -> bool {
        self.has_perf
    }

    /// Returns whether the processor records branches and shows them.
    #[must_use]
    pub const fn has_branches(&self) -> bool {
        self.has_branches
    }

    /// Returns the number of counters that one call may name. Without counters it is the usual
    /// number: a later check reports that there are none.
    pub(super) const fn most_counters(&self) -> u32 {
        self.most_counters
    }

    /// Returns the users of a processor's counters. Other users are not reported by the system; the
    /// kernel's watchdog takes one counter.
    pub(super) fn counter_owners(&self, processor: u32) -> Result<Answer> {
        if processor >= self.processors {
            return invalid("no such processor");
        }
        let free = CounterOwner::default();
        let mut owners = vec![free; self.counters() as usize];
        if let (true, Some(first)) = (self.watchdog, owners.first_mut()) {
            first.kind = 1;
        }
        Ok(Answer::PmcCounterOwners { processor, owners })
    }

    /// Rejects settings that the machine does not support.
    pub(super) fn check(&self, set: &Set) -> Result<()> {
        let missing = |reason| refuse(Status::ERROR_NOT_SUPPORTED, reason);
        match set {
            Set::PmcEventList(_) | Set::PmcCounterList(_) if !self.has_counters => missing(NO_COUNTERS),
            Set::ProfileSourceConfig(ids) if !self.has_counters && !ids.iter().all(|id| is_software(*id)) => {
                missing(NO_COUNTERS)
            }
            // Clearing always works.
            Set::LbrEventList(hooks) if hooks.is_empty() => Ok(()),
            Set::ContextRegister { events, .. } if events.is_empty() => Ok(()),
            Set::LbrConfiguration(_) | Set::LbrEventList(_) if !self.has_branches => {
                missing("the processor, or the virtual machine, records no branches")
            }
            Set::SampledProfileInterval(profile) if !self.has_counters && is_fixed(profile.source) => {
                missing(NO_COUNTERS)
            }
            Set::ContextRegister { .. } | Set::SampledProfileInterval(_) if !self.has_perf => {
                missing("this kernel has no perf events")
            }
            _ => Ok(()),
        }
    }

    /// Rejects counters that do not exist.
    pub(super) fn check_counters(&self, ids: &[u32]) -> Result<()> {
        if ids.iter().any(|id| *id == TIMER || self.source(*id).is_none()) {
            return invalid("no such counter: TraceProfileSourceListInfo lists all of them");
        }
        Ok(())
    }

    /// Finds a profile source by id.
    #[must_use]
    pub fn source(&self, id: u32) -> Option<&ProfileSource> {
        self.sources.iter().find(|source| source.source == id)
    }

    /// Returns the error for a source that does not exist: not supported on this machine, or
    /// unknown.
    pub(super) fn no_source<T>(&self, id: u32) -> Result<T> {
        if is_fixed(id) && !self.has_counters {
            return refuse(Status::ERROR_NOT_SUPPORTED, NO_COUNTERS);
        }
        invalid("no such profile source: TraceProfileSourceListInfo lists all of them")
    }
}

const NO_COUNTERS: &str =
    "the processor, or the virtual machine, has no performance counters that perf events show";

fn profile_source(
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
    FIXED.iter().any(|(source, _)| *source == id)
}

/// Returns the sysfs folders of processor counters.
fn counter_devices(devices: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = all
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(b"cpu"))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Adds the names of events; files that describe scale and unit are none. Of too many, the first by
/// name are kept, whatever the order of the folder.
fn add_events(folder: &Path, names: &mut BTreeSet<String>) {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let all = all.filter_map(|entry| entry.file_name().into_string().ok());
    for name in all.filter(|name| !name.contains('.') && name.len() <= MAX_NAME) {
        names.insert(name);
        if names.len() > MAX_NAMED {
            names.pop_last();
        }
    }
}
