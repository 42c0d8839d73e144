//! The system calls of processes.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::rows::Rows;
use super::span::EventSpan;
use super::{
    CallPaths, FunctionId, Latencies, Occurrence, ProcessId, ReportEvent, ThreadSelection, TimeWindow,
    TraceFacts, elapsed_ns,
};

/// Maximum number of threads whose call is awaited.
const MAX_PENDING: usize = 1 << 17;
/// Maximum number of calls with different names.
const MAX_NAMES: usize = 1 << 14;
/// Prefixes of the kernel's entry functions, and of those of Windows.
const ENTRY_PREFIXES: [&str; 5] = ["__x64_sys_", "__arm64_sys_", "__ia32_sys_", "__se_sys_", "sys_"];
/// The largest number of an error on Linux.
const MAX_ERRNO: i32 = 4095;
/// The first NTSTATUS that is an error.
const FIRST_NT_ERROR: u32 = 0xC000_0000;

/// Totals of system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTotals {
    /// Number of calls.
    pub calls: u64,
    /// Number of calls that failed.
    pub failures: u64,
    /// Durations of the calls whose end is known.
    pub time: Latencies,
}

impl CallTotals {
    /// Returns the key by which rows are sorted: time, then calls.
    pub const fn weight(&self) -> (u64, u64) {
        (self.time.sum_ns, self.calls)
    }
}

/// A process and the name of a call.
pub type CallKey = (ProcessId, Arc<str>);

/// The system calls of a trace by name and process.
#[derive(Default)]
pub struct SystemCallReport {
    /// The functions and processes of the report.
    pub paths: CallPaths,
    /// The processes and threads that the report covers.
    pub thread_selection: ThreadSelection,
    window: TimeWindow,
    /// The totals of all rows.
    pub totals: CallTotals,
    /// One row per name of a call.
    pub by_name: Rows<Arc<str>, CallTotals>,
    /// One row per process.
    pub by_process: Rows<ProcessId, CallTotals>,
    /// One row per process and name.
    pub by_both: Rows<CallKey, CallTotals>,
    /// Names of calls by function.
    names: HashMap<FunctionId, Arc<str>>,
    /// The call of each thread, by trace and thread.
    pending: HashMap<(usize, u32), (i64, CallKey)>,
    /// Calls of unknown threads, whose end is unknown too.
    pub without_thread: u64,
    /// Calls without the address of their function.
    pub without_name: u64,
    /// Events of processes and threads that are not selected.
    pub unselected: u64,
    /// The time from the first to the last counted event.
    pub span: EventSpan,
}

impl SystemCallReport {
    /// Creates a report of the selected processes and threads in a time window.
    pub fn new(thread_selection: ThreadSelection, window: TimeWindow) -> Self {
        Self { thread_selection, window, ..Self::default() }
    }

    /// Adds an event of a trace. Events arrive in time order.
    pub fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let event = &joined.event;
        match event.occurrence {
            Occurrence::SystemCallStart { thread, address } => self.add_start(facts, joined, thread, address),
            Occurrence::SystemCallEnd { thread: Some(thread), status } => {
                let Some((start_ns, key)) = self.pending.remove(&(event.file, thread)) else { return };
                let duration_ns = elapsed_ns(start_ns, event);
                let failures = u64::from(is_failure(status, facts.is_linux()));
                self.each_row(&key, |totals| {
                    totals.time.add(duration_ns);
                    totals.failures += failures;
                });
            }
            _ => {}
        }
    }

    fn add_start(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread: Option<u32>,
        address: u64,
    ) {
        let event = &joined.event;
        // A thread that begins a call has ended its previous one, even if the event is missing.
        if let Some(thread) = thread {
            self.pending.remove(&(event.file, thread));
        }
        if !self.window.contains(event.time_ns) {
            return;
        }
        let tid = thread.unwrap_or(NO_ID);
        let caller = self.paths.find_thread(facts, event, &joined.stack, tid);
        if !self.thread_selection.contains(&self.paths.processes, caller.process, tid) {
            self.unselected += 1;
            return;
        }
        self.span.add(event.time_ns);
        self.without_thread += u64::from(thread.is_none());
        let name = self.find_name(facts, event, address, caller.pid);
        let key = (caller.process, name);
        self.each_row(&key, |totals| totals.calls += 1);
        if let Some(thread) = thread
            && self.pending.len() < MAX_PENDING
        {
            self.pending.insert((event.file, thread), (event.time_ns, key));
        }
    }

    /// Returns the name of a call by the address of its function in the kernel.
    fn find_name(&mut self, facts: &mut TraceFacts, event: &ReportEvent, address: u64, pid: u32) -> Arc<str> {
        if address == 0 {
            self.without_name += 1;
            return "(unknown)".into();
        }
        let mut functions = Vec::new();
        facts.resolve_address(event, address, pid, &mut self.paths.functions, &mut functions);
        let Some(function) = functions.first().copied() else { return "(unknown)".into() };
        if let Some(name) = self.names.get(&function) {
            return Arc::clone(name);
        }
        let function_entry = self.paths.functions.get(function);
        let label = function_entry.name.as_deref().map_or_else(|| function_entry.label(), call_name);
        let name: Arc<str> = label.into();
        if self.names.len() < MAX_NAMES {
            self.names.insert(function, Arc::clone(&name));
        }
        name
    }

    fn each_row(&mut self, key: &CallKey, change: impl Fn(&mut CallTotals)) {
        change(&mut self.totals);
        change(self.by_process.get_mut(key.0));
        change(self.by_name.get_mut(Arc::clone(&key.1)));
        change(self.by_both.get_mut(key.clone()));
    }
}

/// Returns the name of a call by the name of its function in the kernel.
fn call_name(function: &str) -> String {
    let prefix = ENTRY_PREFIXES.iter().find(|prefix| function.starts_with(**prefix));
    function.get(prefix.map_or(0, |prefix| prefix.len())..).unwrap_or(function).to_owned()
}

/// Returns whether the result of a call is an error: −1 to −4095 on Linux, an error status on
/// Windows.
fn is_failure(status: u32, is_linux: bool) -> bool {
    if is_linux { (-MAX_ERRNO..0).contains(&status.cast_signed()) } else { status >= FIRST_NT_ERROR }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_the_names_of_the_manual() {
        assert_eq!(call_name("__x64_sys_openat"), "openat");
        assert_eq!(call_name("__arm64_sys_read"), "read");
        assert_eq!(call_name("NtReadFile"), "NtReadFile");
    }

    #[test]
    fn addresses_are_not_failures() {
        assert!(is_failure((-2_i32).cast_unsigned(), true) && is_failure(0xC000_0034, false));
        // The lower half of the address that mmap returned, and the status "pending" of Windows.
        assert!(!is_failure(0xF7A1_0000, true) && !is_failure(0x103, false) && !is_failure(7, true));
    }
}
