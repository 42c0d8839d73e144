//! Settings of the system: how often profile sources sample, and which of them raise events.

use std::collections::BTreeMap;

use traceweir_format::info::{Answer, ProfileInterval, ProfileSource, Set};

use super::invalid;
use super::machine::{Machine, is_clock};
use crate::error::Result;

/// A clock's interval from the start, in 100 ns.
const USUAL_TIMER: u32 = 10_000;
/// A counter's.
const USUAL_COUNTER: u32 = 65_536;

/// The settings; they outlive sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// Of sources that the machine has, so there are no more than those; none where it is the usual one.
    intervals: BTreeMap<u32, u32>,
    configured: Vec<u32>,
}

impl System {
    /// Sets something of the system. An interval out of bounds becomes the nearest within.
    pub fn set(&mut self, set: &Set, machine: &Machine) -> Result<()> {
        machine.check(set)?;
        set.check()?;
        match set {
            Set::SampledProfileInterval(ProfileInterval { source, interval }) => {
                let Some(it) = machine.source(*source) else { return machine.no_source(*source) };
                if *interval == usual(*source) {
                    self.intervals.remove(source);
                } else {
                    self.intervals.insert(*source, (*interval).clamp(it.min_interval, it.max_interval));
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

    /// How often a source samples that there is: in 100 ns where it is a clock, in counts else.
    #[must_use]
    pub fn interval_of(&self, source: &ProfileSource) -> u32 {
        let interval = self.intervals.get(&source.source).copied().unwrap_or(usual(source.source));
        interval.clamp(source.min_interval, source.max_interval)
    }

    /// The answer to the question how often a source samples.
    pub fn interval(&self, source: u32, machine: &Machine) -> Result<Answer> {
        let Some(it) = machine.source(source) else { return machine.no_source(source) };
        let interval = self.interval_of(it);
        Ok(Answer::SampledProfileInterval(ProfileInterval { source, interval }))
    }

    /// Whether all is as it was from the start: whoever keeps the settings keeps nothing then.
    #[must_use]
    pub fn is_as_usual(&self) -> bool {
        self.configured.is_empty() && self.intervals.is_empty()
    }

    /// Counters that raise events, for who captures kernel events: no question tells them.
    #[must_use]
    pub fn configured(&self) -> &[u32] {
        &self.configured
    }
}

/// The interval of a source from the start.
const fn usual(source: u32) -> u32 {
    if is_clock(source) { USUAL_TIMER } else { USUAL_COUNTER }
}
