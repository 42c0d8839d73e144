//! Settings of the system: sampling intervals of profile sources, and which sources raise events.

use std::collections::BTreeMap;

use traceweir_format::info::{Answer, ProfileInterval, ProfileSource, Set};

use super::invalid;
use super::machine::{Machine, is_clock};
use crate::error::Result;

/// Default interval of a clock, in units of 100 ns.
const DEFAULT_CLOCK_INTERVAL_100_NS: u32 = 10_000;
/// Default interval of a counter: the number of counts between two events.
const DEFAULT_COUNTER_INTERVAL_COUNTS: u32 = 65_536;

/// The settings of the system, which outlive sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Intervals that differ from the default, by source; only of sources that the machine has,
    /// which bounds the map.
    intervals: BTreeMap<u32, u32>,
    /// Sources that raise events.
    configured: Vec<u32>,
}

impl System {
    /// Changes a setting of the system. An interval out of bounds becomes the nearest one within.
    pub fn set(&mut self, set: &Set, machine: &Machine) -> Result<()> {
        machine.check(set)?;
        set.check()?;
        match set {
            Set::SampledProfileInterval(ProfileInterval { source, interval }) => {
                let Some(existing) = machine.find_source(*source) else {
                    return machine.missing_source_error(*source);
                };
                if *interval == default_interval(*source) {
                    self.intervals.remove(source);
                } else {
                    self.intervals
                        .insert(*source, (*interval).clamp(existing.min_interval, existing.max_interval));
                }
                Ok(())
            }
            Set::ProfileSourceConfig(ids) => {
                machine.check_counters(ids)?;
                self.configured.clone_from(ids);
                Ok(())
            }
            _ => invalid("this is a setting of a session"),
        }
    }

    /// Returns the interval of an existing source: in 100 ns if it is a clock, otherwise in counts.
    #[must_use]
    pub fn interval_of(&self, source: &ProfileSource) -> u32 {
        let interval = self.intervals.get(&source.source).copied().unwrap_or(default_interval(source.source));
        interval.clamp(source.min_interval, source.max_interval)
    }

    /// Answers the query for the interval of a source.
    pub fn answer_interval(&self, source: u32, machine: &Machine) -> Result<Answer> {
        let Some(existing) = machine.find_source(source) else { return machine.missing_source_error(source) };
        let interval = self.interval_of(existing);
        Ok(Answer::SampledProfileInterval(ProfileInterval { source, interval }))
    }

    /// Returns whether all settings have their defaults, so that none is lost if the daemon exits.
    #[must_use]
    pub fn is_default(&self) -> bool {
        self.configured.is_empty() && self.intervals.is_empty()
    }

    /// Returns the counters that raise events, for the capture of kernel events: no query returns
    /// them.
    #[must_use]
    pub fn configured(&self) -> &[u32] {
        &self.configured
    }
}

/// Returns the default interval of a source.
const fn default_interval(source: u32) -> u32 {
    if is_clock(source) { DEFAULT_CLOCK_INTERVAL_100_NS } else { DEFAULT_COUNTER_INTERVAL_COUNTS }
}
