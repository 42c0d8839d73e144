//! Processes and threads.

use std::collections::BTreeMap;

use super::Rundown;
use crate::out::Out;
use crate::record::{Context, Other};
use crate::spec::Spec;
use crate::state::State as All;

/// Processes and threads that are alive.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    processes: BTreeMap<u32, Process>,
    /// The process of a thread.
    threads: BTreeMap<u32, u32>,
}

/// A process that is alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Process {}

impl Tasks {
    /// All processes, by their ids.
    pub(crate) fn processes(&self) -> impl Iterator<Item = u32> {
        self.processes.keys().copied()
    }

    /// The process of a thread, where it is known.
    pub(crate) fn process_of(&self, thread: u32) -> Option<u32> {
        self.threads.get(&thread).copied()
    }
}

pub(crate) static SPECS: &[Spec] = &[];

pub(crate) fn on_other(_state: &mut All, _context: &Context, _other: &Other<'_>, _out: &mut Out<'_>) {}

pub(crate) fn run_down(_state: &mut All, _when: Rundown, _out: &mut Out<'_>) {}

pub(crate) fn beside(_state: &mut All) {}
