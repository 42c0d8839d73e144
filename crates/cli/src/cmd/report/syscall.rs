//! `weir report syscall`: reports the system calls of processes.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Result, bail};
use traceweir_analysis::report::{
    Analysis, CallPaths, FunctionId, Latencies, NeededEvents, Occurrence, ProcessId, ReportEvent,
    ThreadSelection, TimeWindow, TraceFacts, elapsed_ns,
};
use traceweir_analysis::traces::ReadSummary;
use traceweir_decode::stack::Joined;
use traceweir_format::header::NO_ID;

use super::page::{
    EventSpan, ReportPage, TableNames, format_ms, format_name, format_percentiles, format_recorded_time,
    put_percentiles, put_process, summary_object,
};
use super::rows::{Rows, row_label};
use crate::cli::ReportSyscallArgs;
use crate::exit::CommandOutcome;
use crate::progress::TerminalObserver;
use crate::reading::reading_outcome;
use crate::text::{JsonObject, format_count, format_number};

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

pub(super) fn run(options: &ReportSyscallArgs) -> Result<CommandOutcome> {
    let needed = NeededEvents { system_calls: true, ..NeededEvents::default() };
    let selection = &options.selection;
    let mut analysis =
        Analysis::open(&selection.options_with(&options.symbols), needed, TerminalObserver::create(false))?;
    let thread_selection = selection.thread_selection();
    let mut calls = CallReport { thread_selection, window: analysis.window, ..CallReport::default() };
    let reading = analysis.read(|facts, joined| calls.add_event(facts, joined))?;
    calls.check_not_empty()?;
    let mut page = ReportPage::new(options.tables);
    calls.add_to_page(&analysis, &reading, &mut page);
    page.print(&reading)?;
    Ok(reading_outcome(&reading))
}

/// Totals of system calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CallTotals {
    calls: u64,
    failures: u64,
    /// Durations of the calls whose end is known.
    time: Latencies,
}

impl CallTotals {
    /// Returns the key by which rows are sorted: time, then calls.
    const fn weight(&self) -> (u64, u64) {
        (self.time.sum_ns, self.calls)
    }

    fn put_into(&self, object: &mut JsonObject) {
        object.number("calls", self.calls).number("failures", self.failures);
        object.number("timed", self.time.count).number("time_ns", self.time.sum_ns);
        put_percentiles(&self.time, object);
    }
}

/// A process and the name of a call.
type CallKey = (ProcessId, Arc<str>);

#[derive(Default)]
struct CallReport {
    paths: CallPaths,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    totals: CallTotals,
    by_name: Rows<Arc<str>, CallTotals>,
    by_process: Rows<ProcessId, CallTotals>,
    by_both: Rows<CallKey, CallTotals>,
    /// Names of calls by function.
    names: HashMap<FunctionId, Arc<str>>,
    /// The call of each thread, by trace and thread.
    pending: HashMap<(usize, u32), (i64, CallKey)>,
    without_thread: u64,
    without_name: u64,
    unselected: u64,
    span: EventSpan,
}

impl CallReport {
    fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
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

    /// Fails if there is nothing to report: zeros would look like a result.
    fn check_not_empty(&self) -> Result<()> {
        if self.totals.calls == 0 && self.unselected > 0 {
            bail!("{}", self.thread_selection.no_match_message(&self.paths.processes, "system calls"));
        }
        if self.totals.calls == 0 {
            bail!(
                "no system calls in the trace, or none in the selected time; weir record --kernel syscall -- CMD records them (as root, or with CAP_PERFMON)"
            );
        }
        Ok(())
    }

    fn add_to_page(&self, analysis: &Analysis, reading: &ReadSummary, page: &mut ReportPage) {
        let totals = &self.totals;
        let mut object = summary_object(analysis, reading);
        totals.put_into(&mut object);
        object.number("without_thread", self.without_thread).number("others", self.unselected);
        page.add_object(&object);
        let seconds = self.span.seconds();
        page.add_line(&format!(
            "{} from first to last in {seconds:.3} s, of {} recorded: {} ms in {}, {}",
            format_count(totals.calls, "system call"),
            format_recorded_time(analysis),
            format_ms(totals.time.sum_ns),
            format_count(totals.time.count, "finished call"),
            format_count(totals.failures, "failure"),
        ));
        page.add_unselected(self.unselected);
        if self.without_thread > 0 {
            page.add_line(&format!(
                "{} of unknown threads, without time: record context switches too (weir record --kernel syscall)",
                format_count(self.without_thread, "call")
            ));
        }
        if self.without_name > 0 {
            page.add_line(&format!(
                "{} without a name: the trace has no address of their function",
                format_count(self.without_name, "call")
            ));
        }
        page.add_losses(analysis, reading);
        let process_label = |id: &ProcessId| self.paths.processes.label(*id);
        let put_id = |id: &ProcessId, object: &mut JsonObject| {
            put_process(object, &self.paths.processes, Some(*id));
        };
        add_table(
            page,
            TableNames { title: "system calls", column: "call", json_kind: "call" },
            &self.by_name,
            |name| name.to_string(),
            |_, _| {},
        );
        add_table(
            page,
            TableNames { title: "processes", column: "process", json_kind: "process" },
            &self.by_process,
            process_label,
            put_id,
        );
        add_table(
            page,
            TableNames {
                title: "system calls by process",
                column: "process and call",
                json_kind: "process_call",
            },
            &self.by_both,
            |(id, name)| format!("{}  {name}", process_label(id)),
            |(id, name), object| {
                put_id(id, object);
                object.text("call", name);
            },
        );
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

/// Adds a table whose last column labels the rows.
fn add_table<K: Eq + std::hash::Hash + Ord>(
    page: &mut ReportPage,
    names: TableNames,
    rows: &Rows<K, CallTotals>,
    label: impl Fn(&K) -> String,
    put_key: impl Fn(&K, &mut JsonObject),
) {
    let label = |key: &Option<&K>| row_label(*key, &label);
    let columns = [
        ("calls", true),
        ("failed", true),
        ("ms", true),
        ("p50 µs", true),
        ("p99 µs", true),
        ("max µs", true),
        (names.column, false),
    ];
    page.add_table(
        names.title,
        columns,
        &rows.sorted_by_weight(CallTotals::weight),
        |(key, totals)| {
            let [p50, p99, max] = format_percentiles(&totals.time);
            let time = if totals.time.count == 0 { "-".to_owned() } else { format_ms(totals.time.sum_ns) };
            let (calls, failures) = (format_number(totals.calls), format_number(totals.failures));
            [calls, failures, time, p50, p99, max, format_name(&label(key))]
        },
        |(key, totals)| {
            let mut object = JsonObject::new();
            object.text("by", names.json_kind).text("name", &label(key));
            if let Some(key) = key {
                put_key(key, &mut object);
            }
            totals.put_into(&mut object);
            object
        },
    );
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
