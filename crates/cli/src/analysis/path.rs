//! Stacks as rows of functions, outermost first, below the process that they are of.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::{Joined, Stack};
use traceweir_format::header::NO_ID;

use super::known::Known;
use super::{FunctionId, Functions, Kind, ProcessId, Processes, Seen};

/// Names of threads that are kept.
const MAX_THREADS: usize = 1 << 17;

/// Frames that recorders take at most: Linux unless told otherwise, and the session or Windows. What has exactly as many goes on behind them, but for rare exceptions.
const LIMITS: [usize; 2] = [127, 192];

/// What stands for the outermost functions of a stack that was cut.
pub(crate) const CUT: &str = "(cut)";

/// Whether a stack ends where the recorder stopped walking.
pub(crate) fn is_cut(stack: &Stack) -> bool {
    let (kernel, user) = (stack.kernel.len(), stack.user.len());
    // The parts of one stack may have been walked apart.
    LIMITS.contains(&kernel.saturating_add(user)) || LIMITS.contains(&user)
}

/// Makes paths; keeps the memory between stacks.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    pub(crate) functions: Functions,
    pub(crate) processes: Processes,
    path: Vec<FunctionId>,
    /// What threads were last called.
    thread_names: HashMap<(ProcessId, u32), Arc<str>>,
    /// Whether threads are told apart.
    by_thread: bool,
    /// Whether stacks that were cut have a mark where their outermost functions are missing.
    pub(crate) marks_cut: bool,
}

impl Paths {
    pub(crate) fn new(by_thread: bool) -> Self {
        Self { by_thread, ..Self::default() }
    }

    /// The process of a thread at an event; where the trace does not tell, the one that the stack says it is of.
    pub(crate) fn process(
        &mut self,
        known: &Known,
        seen: &Seen,
        stack: &Stack,
        thread: u32,
    ) -> (u32, ProcessId) {
        let told = known.process_of(thread, seen.stamp);
        let of_stack = stack.owner.filter(|(_, owner)| *owner == thread).map(|(process, _)| process);
        let pid = if told == NO_ID { of_stack.unwrap_or(NO_ID) } else { told };
        (pid, self.named(known, seen, pid))
    }

    /// The process of a number at an event.
    pub(crate) fn named(&mut self, known: &Known, seen: &Seen, pid: u32) -> ProcessId {
        self.processes.id(pid, known.program_of(pid, seen.stamp))
    }

    /// Remembers what a thread is called at an event.
    pub(crate) fn meet(&mut self, known: &Known, seen: &Seen, process: ProcessId, thread: u32) {
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

    /// What a thread of a process was last called.
    pub(crate) fn thread_name(&self, process: ProcessId, thread: u32) -> Option<&str> {
        self.thread_names.get(&(process, thread)).map(|name| &**name)
    }

    /// A thread for people: its name, where there is one, and its number.
    pub(crate) fn thread_label(&self, process: ProcessId, thread: u32) -> String {
        match self.thread_name(process, thread) {
            Some(name) => format!("{name} ({thread})"),
            None => thread.to_string(),
        }
    }

    /// Process, thread if they are told apart, and the functions of a stack; `innermost` is where it was if the stack does not begin there.
    pub(crate) fn of(
        &mut self,
        known: &mut Known,
        joined: &Joined<Seen>,
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
        if self.marks_cut && is_cut(stack) {
            self.path.push(self.functions.named(CUT, Kind::Other));
        }
        known.functions(seen, stack, pid, &mut self.functions, &mut self.path);
        if let Some(address) = innermost.filter(|it| stack.frames().next() != Some(*it)) {
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
    fn a_stack_of_as_many_frames_as_recorders_take_is_cut() {
        let cut = |kernel: usize, user: usize| {
            is_cut(&Stack { owner: None, kernel: vec![1; kernel], user: vec![1; user] })
        };
        assert!(cut(0, 127) && cut(7, 120) && cut(127, 0) && cut(0, 192) && cut(5, 192));
        assert!(!cut(0, 0) && !cut(0, 126) && !cut(7, 121) && !cut(30, 40));
    }
}
