//! Stacks as paths of functions, outermost first, below their process.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::{Joined, Stack};
use traceweir_format::header::NO_ID;

use super::trace_facts::TraceFacts;
use super::{FunctionId, Functions, Kind, ProcessId, Processes, ReportEvent};

/// Maximum number of thread names.
const MAX_THREADS: usize = 1 << 17;

/// Frame limits of recorders: the default of Linux, and that of sessions and Windows. A stack of
/// exactly that many frames was truncated, with rare exceptions.
const FRAME_LIMITS: [usize; 2] = [127, 192];

/// Stands for the outermost functions of a truncated stack.
pub(crate) const TRUNCATED: &str = "(cut)";

/// Returns whether the recorder stopped walking a stack at its frame limit.
pub(crate) fn is_truncated(stack: &Stack) -> bool {
    let (kernel, user) = (stack.kernel.len(), stack.user.len());
    // The parts of a stack may have been walked separately.
    FRAME_LIMITS.contains(&kernel.saturating_add(user)) || FRAME_LIMITS.contains(&user)
}

/// Builds paths; keeps its memory between stacks.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) functions: Functions,
    pub(crate) processes: Processes,
    path: Vec<FunctionId>,
    /// The last name of each thread.
    thread_names: HashMap<(ProcessId, u32), Arc<str>>,
    /// Whether a path contains the thread.
    by_thread: bool,
    /// Whether truncated stacks get a mark in place of their missing functions.
    pub(crate) marks_truncated: bool,
}

impl Paths {
    pub(crate) fn new(by_thread: bool) -> Self {
        Self { by_thread, ..Self::default() }
    }

    /// Returns the process of a thread at an event; if the trace does not contain it, the owner of
    /// the stack.
    pub(crate) fn process(
        &mut self,
        known: &TraceFacts,
        seen: &ReportEvent,
        stack: &Stack,
        thread: u32,
    ) -> (u32, ProcessId) {
        let known_pid = known.process_of(thread, seen.stamp);
        let stack_pid = stack.owner.filter(|(_, owner)| *owner == thread).map(|(process, _)| process);
        let pid = if known_pid == NO_ID { stack_pid.unwrap_or(NO_ID) } else { known_pid };
        (pid, self.process_by_pid(known, seen, pid))
    }

    /// Returns the process of a pid at an event.
    pub(crate) fn process_by_pid(&mut self, known: &TraceFacts, seen: &ReportEvent, pid: u32) -> ProcessId {
        self.processes.id(pid, known.program_of(pid, seen.stamp))
    }

    /// Stores the name of a thread at an event.
    pub(crate) fn learn_thread_name(
        &mut self,
        known: &TraceFacts,
        seen: &ReportEvent,
        process: ProcessId,
        thread: u32,
    ) {
        let Some(name) = known.thread_name(thread, seen.stamp) else { return };
        let has_room = self.thread_names.len() < MAX_THREADS;
        match self.thread_names.get_mut(&(process, thread)) {
            Some(last) => *last = name,
            None if has_room => {
                self.thread_names.insert((process, thread), name);
            }
            None => {}
        }
    }

    /// Returns the last name of a thread.
    pub(crate) fn thread_name(&self, process: ProcessId, thread: u32) -> Option<&str> {
        self.thread_names.get(&(process, thread)).map(|name| &**name)
    }

    /// Returns name and id of a thread for people.
    pub(crate) fn thread_label(&self, process: ProcessId, thread: u32) -> String {
        match self.thread_name(process, thread) {
            Some(name) => format!("{name} ({thread})"),
            None => thread.to_string(),
        }
    }

    /// Returns the path of a stack: process, thread if wanted, and functions. `innermost` is the
    /// address of the event, if the stack does not begin with it.
    pub(crate) fn resolve(
        &mut self,
        known: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        (process, pid, thread): (ProcessId, u32, u32),
        innermost: Option<u64>,
    ) -> &[FunctionId] {
        let Joined { what: seen, stack } = joined;
        self.path.clear();
        self.path.push(self.functions.named(&self.processes.label(process), Kind::Process));
        if self.by_thread {
            let label = match known.thread_name(thread, seen.stamp) {
                Some(name) => format!("{name} ({thread})"),
                None => format!("thread {thread}"),
            };
            self.path.push(self.functions.named(&label, Kind::Thread));
        }
        if self.marks_truncated && is_truncated(stack) {
            self.path.push(self.functions.named(TRUNCATED, Kind::Other));
        }
        known.functions(seen, stack, pid, &mut self.functions, &mut self.path);
        if let Some(address) = innermost.filter(|address| stack.frames().next() != Some(*address)) {
            known.function(seen, address, pid, &mut self.functions, &mut self.path);
        } else if stack.is_empty() {
            self.path.push(self.functions.named("(no stack)", Kind::Other));
        }
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_at_the_frame_limit_is_truncated() {
        let truncated = |kernel: usize, user: usize| {
            is_truncated(&Stack { owner: None, kernel: vec![1; kernel], user: vec![1; user] })
        };
        assert!(
            truncated(0, 127)
                && truncated(7, 120)
                && truncated(127, 0)
                && truncated(0, 192)
                && truncated(5, 192)
        );
        assert!(!truncated(0, 0) && !truncated(0, 126) && !truncated(7, 121) && !truncated(30, 40));
    }
}
