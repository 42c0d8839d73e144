//! What perf events offer on this machine.
//!
//! ```text
//!   /proc/sys/kernel/perf_event_paranoid               there: the kernel has perf events
//!   /proc/sys/kernel/perf_event_max_sample_rate        samples a second at most: the shortest interval of the timer
//!   /sys/bus/event_source/devices/cpu*                 there: the processor has counters
//!                                     /events/*        their names
//!                                     /caps/branches   it records branches
//! ```
//!
//! How many counters can be used at once the system does not say, but some processors do; where neither does, [`ASSUMED_COUNTERS`] is what every processor with
//! counters has.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use traceweir_format::info::{Answer, CounterOwner, ProfileSource, Set};
use traceweir_format::spec::info::software_source;
use traceweir_format::spec::status::Status;
use traceweir_transport::cpu;

use super::{invalid, refuse};
use crate::error::Result;

/// Counters at a time where the processor has any and does not say how many.
const ASSUMED_COUNTERS: u32 = 4;
/// The id of the timer, a profile source that every machine has.
pub const TIMER: u32 = 0;
/// Bounds of the timer's interval, in 100 ns.
const TIMER_INTERVALS: (u32, u32) = (1221, 1_000_000);
/// Bounds of a counter's interval.
const COUNTER_INTERVALS: (u32, u32) = (4096, 0x7FFF_FFFF);
/// Bounds of the interval of what the kernel counts itself.
const SOFTWARE_INTERVALS: (u32, u32) = (1, 0x7FFF_FFFF);
/// Sources with a fixed id.
const FIXED: [(u32, &str); 7] = [
    (2, "TotalIssues"),
    (6, "BranchInstructions"),
    (8, "DcacheMisses"),
    (9, "IcacheMisses"),
    (10, "CacheMisses"),
    (11, "BranchMispredictions"),
    (19, "TotalCycles"),
];
/// The first id of those that the processor names.
const FIRST_NAMED: u32 = 0x1000;
/// The most of those, and the longest name.
const MAX_NAMED: usize = 512;
const MAX_NAME: usize = 100;
/// 100 ns in a second.
const TICKS: u32 = 10_000_000;

/// What this machine has.
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
    /// This machine as it is now.
    #[must_use]
    pub fn look() -> Self {
        Self::at(Path::new("/"), cpu::counters())
    }

    /// The machine whose files begin there, and whose processors say that they have so many counters.
    #[must_use]
    pub fn at(root: &Path, counters: Option<u32>) -> Self {
        let kernel = root.join("proc/sys/kernel");
        let number = |name: &str| fs::read_to_string(kernel.join(name)).ok()?.trim().parse::<u32>().ok();
        let devices = processors_in(&root.join("sys/bus/event_source/devices"));
        let mut machine = Self {
            has_perf: kernel.join("perf_event_paranoid").exists(),
            has_counters: !devices.is_empty(),
            most_counters: counters.filter(|_| !devices.is_empty()).unwrap_or(ASSUMED_COUNTERS),
            has_branches: devices.iter().any(|it| it.join("caps/branches").exists()),
            watchdog: number("nmi_watchdog") == Some(1),
            processors: u32::from(cpu::possible()),
            sources: Vec::new(),
        };
        machine.sources = machine.all_sources(number("perf_event_max_sample_rate"), &devices);
        machine
    }

    fn all_sources(&self, max_rate: Option<u32>, devices: &[PathBuf]) -> Vec<ProfileSource> {
        let least = max_rate.and_then(|rate| TICKS.checked_div(rate)).unwrap_or(0);
        let least = TIMER_INTERVALS.0.max(least).min(TIMER_INTERVALS.1);
        let mut all = vec![ProfileSource {
            source: TIMER,
            min_interval: least,
            max_interval: TIMER_INTERVALS.1,
            description: "Timer".to_owned(),
        }];
        if self.has_counters {
            all.extend(FIXED.iter().map(|(id, name)| counting(*id, *name, COUNTER_INTERVALS)));
        }
        if self.has_perf {
            let bounds = |id| if is_clock(id) { (least, TIMER_INTERVALS.1) } else { SOFTWARE_INTERVALS };
            all.extend(software_source::ALL.iter().map(|(id, name)| counting(*id, *name, bounds(*id))));
        }
        if self.has_counters {
            let mut named = BTreeSet::new();
            devices.iter().for_each(|it| add_events(&it.join("events"), &mut named));
            all.extend((FIRST_NAMED..).zip(named).map(|(id, name)| counting(id, name, COUNTER_INTERVALS)));
        }
        all
    }

    /// All profile sources, the timer first.
    #[must_use]
    pub fn sources(&self) -> &[ProfileSource] {
        &self.sources
    }

    /// Counters that can be used at once.
    #[must_use]
    pub const fn counters(&self) -> u32 {
        if self.has_counters { self.most_counters } else { 0 }
    }

    /// Whether the kernel has perf events.
    #[must_use]
    pub const fn has_perf(&self) -> bool {
        self.has_perf
    }

    /// Whether the processor records branches, and shows them.
    #[must_use]
    pub const fn has_branches(&self) -> bool {
        self.has_branches
    }

    /// Counters that one call may name. Where there are none it is the usual number: that there are none is said later, and otherwise.
    pub(super) const fn most_counters(&self) -> u32 {
        self.most_counters
    }

    /// Who uses the counters of a processor. What others use cannot be told by name; the watchdog of the kernel takes one.
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

    /// Refuses what the machine can never do.
    pub(super) fn check(&self, set: &Set) -> Result<()> {
        let missing = |why| refuse(Status::ERROR_NOT_SUPPORTED, why);
        match set {
            Set::PmcEventList(_) | Set::PmcCounterList(_) if !self.has_counters => missing(NO_COUNTERS),
            Set::ProfileSourceConfig(ids) if !self.has_counters && !ids.iter().all(|id| is_software(*id)) => {
                missing(NO_COUNTERS)
            }
            // What there is not can be cleared.
            Set::LbrEventList(hooks) if hooks.is_empty() => Ok(()),
            Set::ContextRegister { events, .. } if events.is_empty() => Ok(()),
            Set::LbrConfiguration(_) | Set::LbrEventList(_) if !self.has_branches => {
                missing("the processor, or the virtual machine, records no branches")
            }
            Set::SampledProfileInterval(it) if !self.has_counters && is_fixed(it.source) => {
                missing(NO_COUNTERS)
            }
            Set::ContextRegister { .. } | Set::SampledProfileInterval(_) if !self.has_perf => {
                missing("this kernel has no perf events")
            }
            _ => Ok(()),
        }
    }

    /// Refuses counters that there are not.
    pub(super) fn check_counters(&self, ids: &[u32]) -> Result<()> {
        if ids.iter().any(|id| *id == TIMER || self.source(*id).is_none()) {
            return invalid("no such counter: TraceProfileSourceListInfo tells all of them");
        }
        Ok(())
    }

    /// One source.
    #[must_use]
    pub fn source(&self, id: u32) -> Option<&ProfileSource> {
        self.sources.iter().find(|it| it.source == id)
    }

    /// Why a source is not there: it might be elsewhere, or nowhere.
    pub(super) fn no_source<T>(&self, id: u32) -> Result<T> {
        if is_fixed(id) && !self.has_counters {
            return refuse(Status::ERROR_NOT_SUPPORTED, NO_COUNTERS);
        }
        invalid("no such profile source: TraceProfileSourceListInfo tells all of them")
    }
}

const NO_COUNTERS: &str =
    "the processor, or the virtual machine, has no performance counters that perf events show";

fn counting(source: u32, name: impl Into<String>, (min_interval, max_interval): (u32, u32)) -> ProfileSource {
    ProfileSource { source, min_interval, max_interval, description: name.into() }
}

fn is_software(id: u32) -> bool {
    software_source::ALL.iter().any(|(source, _)| *source == id)
}

/// Whether the interval of a source is time.
pub(super) const fn is_clock(id: u32) -> bool {
    matches!(id, TIMER | software_source::TASK_CLOCK)
}

fn is_fixed(id: u32) -> bool {
    FIXED.iter().any(|(source, _)| *source == id)
}

/// Folders of processors' counters.
fn processors_in(devices: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(devices).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> =
        all.filter(|it| it.file_name().as_encoded_bytes().starts_with(b"cpu")).map(|it| it.path()).collect();
    found.sort();
    found
}

/// Names of events; what describes their scale and unit is no event. Of too many those are kept that come first by name, in whatever order the folder tells them.
fn add_events(folder: &Path, names: &mut BTreeSet<String>) {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let all = all.filter_map(|it| it.file_name().into_string().ok());
    for name in all.filter(|name| !name.contains('.') && name.len() <= MAX_NAME) {
        names.insert(name);
        if names.len() > MAX_NAMED {
            names.pop_last();
        }
    }
}
