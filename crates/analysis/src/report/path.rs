//! Stacks as paths of functions, outermost first, below their process.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::{Joined, Stack};
use traceweir_format::header::NO_ID;

use super::trace_facts::TraceFacts;
use super::{CodeKind, FunctionId, FunctionTable, ProcessId, ProcessTable, ReportEvent};

const MAX_THREADS: usize = 1 << 17;

/// Frame limits of recorders: 127 is the default of Linux, 192 the limit of sessions and Windows.
/// A stack with exactly one of these numbers of frames was truncated, with rare exceptions.
const FRAME_LIMITS: [usize; 2] = [127, 192];

/// Stands for the outermost functions of a truncated stack.
pub const TRUNCATED: &str = "(cut)";

/// Returns whether the recorder probably stopped walking a stack at its frame limit.
pub fn is_truncated(stack: &Stack) -> bool {
    let (kernel, user) = (stack.kernel.len(), stack.user.len());
    // The kernel walks both parts together, up to one limit. A user part that was unwound from a
    // stack copy has the limit for itself.
    FRAME_LIMITS.contains(&kernel.saturating_add(user)) || FRAME_LIMITS.contains(&user)
}

/// A thread and its process at the time of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventThread {
    pub process: ProcessId,
    pub pid: u32,
    pub tid: u32,
}

/// Builds call paths; each path reuses the memory of the previous one.
#[derive(Debug, Default)]
pub struct CallPaths {
    pub functions: FunctionTable,
    pub processes: ProcessTable,
    path: Vec<FunctionId>,
    /// The last name of each thread.
    thread_names: HashMap<(ProcessId, u32), Arc<str>>,
    /// Whether a path contains the thread.
    includes_threads: bool,
    /// Whether truncated stacks get a mark in place of their missing functions.
    pub marks_truncated: bool,
}

impl CallPaths {
    pub fn new(includes_threads: bool) -> Self {
        Self { includes_threads, ..Self::default() }
    }

    /// Finds the process of a thread at an event. If the trace does not define that process, the
    /// pid is taken from the stack, provided that the thread owns the stack.
    pub fn find_thread(
        &mut self,
        facts: &TraceFacts,
        event: &ReportEvent,
        stack: &Stack,
        tid: u32,
    ) -> EventThread {
        let known_pid = facts.process_of(tid, event.stamp);
        let stack_pid = stack.owner.filter(|(_, owner)| *owner == tid).map(|(process, _)| process);
        let pid = if known_pid == NO_ID { stack_pid.unwrap_or(NO_ID) } else { known_pid };
        EventThread { process: self.find_process(facts, event, pid), pid, tid }
    }

    /// Returns the process of a pid at an event.
    pub fn find_process(&mut self, facts: &TraceFacts, event: &ReportEvent, pid: u32) -> ProcessId {
        self.processes.find_or_add(pid, facts.program_of(pid, event.stamp))
    }

    pub fn learn_thread_name(
        &mut self,
        facts: &TraceFacts,
        event: &ReportEvent,
        process: ProcessId,
        thread: u32,
    ) {
        let Some(name) = facts.thread_name(thread, event.stamp) else { return };
        let has_room = self.thread_names.len() < MAX_THREADS;
        match self.thread_names.get_mut(&(process, thread)) {
            Some(last) => *last = name,
            None if has_room => {
                self.thread_names.insert((process, thread), name);
            }
            None => {}
        }
    }

    pub fn thread_name(&self, process: ProcessId, thread: u32) -> Option<&str> {
        self.thread_names.get(&(process, thread)).map(|name| &**name)
    }

    /// Formats name and id of a thread for people.
    pub fn thread_label(&self, process: ProcessId, thread: u32) -> String {
        match self.thread_name(process, thread) {
            Some(name) => format!("{name} ({thread})"),
            None => thread.to_string(),
        }
    }

    /// Returns whether the user part of a stack lacks callers, as those of programs without frame
    /// pointers do: it has only the function that ran, or a caller is unknown. `path` is that of
    /// the stack.
    pub fn lacks_callers(&self, facts: &TraceFacts, stack: &Stack, path: &[FunctionId]) -> bool {
        let is_unknown = |id: &FunctionId| {
            let function = self.functions.get(*id);
            function.kind == CodeKind::Unknown && function.name.is_none()
        };
        let callers = path.split_last().map_or(&[][..], |(_, callers)| callers);
        stack.user.len() == 1 || (facts.is_linux() && callers.iter().any(is_unknown))
    }

    /// Returns the path of a stack: the process, the thread if paths contain threads, and
    /// functions. `innermost` is the instruction address of the event. It is appended unless the
    /// innermost frame of the stack has this address.
    pub fn resolve(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread: EventThread,
        innermost: Option<u64>,
    ) -> &[FunctionId] {
        let Joined { event, stack } = joined;
        self.path.clear();
        self.path
            .push(self.functions.add_placeholder(&self.processes.label(thread.process), CodeKind::Process));
        if self.includes_threads {
            let label = match facts.thread_name(thread.tid, event.stamp) {
                Some(name) => format!("{name} ({})", thread.tid),
                None => format!("thread {}", thread.tid),
            };
            self.path.push(self.functions.add_placeholder(&label, CodeKind::Thread));
        }
        if self.marks_truncated && is_truncated(stack) {
            self.path.push(self.functions.add_placeholder(TRUNCATED, CodeKind::Other));
        }
        facts.resolve_stack(event, stack, thread.pid, &mut self.functions, &mut self.path);
        if let Some(address) = innermost.filter(|address| stack.frames().next() != Some(*address)) {
            facts.resolve_address(event, address, thread.pid, &mut self.functions, &mut self.path);
        } else if stack.is_empty() {
            self.path.push(self.functions.add_placeholder("(no stack)", CodeKind::Other));
        }
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_at_the_frame_limit_is_truncated() {
        let is_cut = |kernel: usize, user: usize| {
            is_truncated(&Stack { owner: None, kernel: vec![1; kernel], user: vec![1; user] })
        };
        assert!(is_cut(0, 127) && is_cut(7, 120) && is_cut(127, 0) && is_cut(0, 192) && is_cut(5, 192));
        assert!(!is_cut(0, 0) && !is_cut(0, 126) && !is_cut(7, 121) && !is_cut(30, 40));
    }
}
