//! The stacks of a flame graph, and their weights.

use std::collections::HashMap;
use std::path::PathBuf;

use traceweir_analysis::report::{
    CallPaths, CodeKind, ContextSwitch, EventThread, NodeId, Occurrence, ReportEvent, Scheduler, StackTree,
    TRUNCATED, ThreadReturn, ThreadSelection, TimeWindow, TraceFacts, is_truncated,
};
use traceweir_decode::stack::{Joined, Stack};

use crate::cli::FlameArgs;
use crate::text::{escape, format_count, format_number};

/// The unit of a stack's weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StackMeasure {
    /// Number of samples.
    Samples,
    /// Duration of waits, in nanoseconds.
    Waits,
    /// Number of events that were selected by name or id.
    Events,
}

impl StackMeasure {
    /// Returns the noun for one counted event.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Samples => "sample",
            Self::Waits => "wait",
            Self::Events => "event",
        }
    }

    /// Returns the title of a page.
    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Samples => "Processor time by samples",
            Self::Waits => "Time that threads waited",
            Self::Events => "Events by where they came from",
        }
    }
}

/// Stacks and their weights.
pub(super) struct FlameGraph {
    /// Names of the traces, for the title.
    pub(super) files: String,
    pub(super) paths: CallPaths,
    pub(super) tree: StackTree,
    pub(super) measure: StackMeasure,
    pub(super) total_weight: u64,
    /// Number of samples, waits or events.
    pub(super) event_count: u64,
    pub(super) no_stack_count: u64,
    /// Number of stacks that were truncated at the frame limit.
    pub(super) truncations: u64,
    /// Weight of samples of idle processors that were left out.
    /// Stacks whose user part has only one function.
    pub(super) stacks_without_callers: u64,
    /// Whether the traces name files of code.
    has_images: bool,
    idle_weight: u64,
    /// Weight of processes and threads that were not selected.
    unselected_weight: u64,
    includes_idle: bool,
    thread_selection: ThreadSelection,
    window: TimeWindow,
    schedulers: HashMap<usize, Scheduler<Option<NodeId>>>,
}

impl FlameGraph {
    pub(super) fn new(options: &FlameArgs, measure: StackMeasure, window: TimeWindow) -> Self {
        let mut paths = CallPaths::new(options.by_thread);
        paths.marks_truncated = true;
        Self {
            files: format_file_names(&options.selection.files.files),
            paths,
            tree: StackTree::new(StackTree::DEFAULT_MAX_NODES),
            measure,
            total_weight: 0,
            event_count: 0,
            no_stack_count: 0,
            truncations: 0,
            stacks_without_callers: 0,
            has_images: false,
            idle_weight: 0,
            unselected_weight: 0,
            includes_idle: options.idle,
            thread_selection: options.selection.thread_selection(),
            window,
            schedulers: HashMap::new(),
        }
    }

    /// Adds an event of the trace with its stack.
    pub(super) fn add_event(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>) {
        let (event, stack) = (&joined.event, &joined.stack);
        let is_inside = self.window.contains(event.time_ns);
        match event.occurrence {
            Occurrence::Switch(switch) => self.add_switch(facts, joined, switch),
            Occurrence::Ready { thread } => {
                self.schedulers.entry(event.file).or_default().record_wake(event.time_ns, thread)
            }
            Occurrence::Sample { is_idle: true, weight, .. } if is_inside && !self.includes_idle => {
                self.idle_weight += weight
            }
            Occurrence::Sample { thread, address, weight, .. } if is_inside => {
                let thread = self.paths.find_thread(facts, event, stack, thread);
                self.add_stack(facts, joined, thread, Some(address), weight);
            }
            Occurrence::Chosen { pid, thread } if is_inside => {
                // The owner of the stack caused the event, whichever thread the event is about.
                let (pid, tid) = stack.owner.unwrap_or((pid, thread));
                let process = self.paths.find_process(facts, event, pid);
                self.add_stack(facts, joined, EventThread { process, pid, tid }, None, 1);
            }
            _ => {}
        }
    }

    fn add_stack(
        &mut self,
        facts: &mut TraceFacts,
        joined: &Joined<ReportEvent>,
        thread: EventThread,
        innermost: Option<u64>,
        weight: u64,
    ) {
        if !self.thread_selection.contains(&self.paths.processes, thread.process, thread.tid) {
            self.unselected_weight += weight;
            return;
        }
        let path = self.paths.resolve(facts, joined, thread, innermost).to_vec();
        let node = self.tree.find_or_add(&path);
        self.truncations += u64::from(is_truncated(&joined.stack));
        self.stacks_without_callers += u64::from(self.paths.lacks_callers(facts, &joined.stack, &path));
        self.has_images |= facts.has_images();
        self.add_weight(node, joined.stack.is_empty(), weight);
    }

    pub(super) fn add_weight(&mut self, node: NodeId, is_without_stack: bool, weight: u64) {
        self.tree.add_weight(node, weight);
        self.total_weight = self.total_weight.saturating_add(weight);
        self.event_count += 1;
        self.no_stack_count += u64::from(is_without_stack);
    }

    /// Adds the wait of the thread that the switch resumes. The thread waited at the stack where it
    /// was switched out or, if that stack is unknown, at its current stack.
    fn add_switch(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>, switch: ContextSwitch) {
        let event = &joined.event;
        // A stack belongs to the old thread or to the new thread.
        let owner = joined.stack.owner.map(|(_, thread)| thread);
        let old_node =
            if owner == Some(switch.old) && switch.old != 0 && self.is_selected(facts, joined, switch.old) {
                Some(self.find_stack_node(facts, joined, switch.old))
            } else {
                None
            };
        let (_, thread_return) =
            self.schedulers.entry(event.file).or_default().record_switch(event.time_ns, switch, old_node);
        let Some(ThreadReturn { thread, to, absence: Some(absence), .. }) = thread_return else { return };
        let waited_ns = self.window.overlap_ns(absence.from, to);
        if absence.reason.is_none() || waited_ns == 0 {
            return;
        }
        if !self.is_selected(facts, joined, thread) {
            self.unselected_weight = self.unselected_weight.saturating_add(waited_ns);
            return;
        }
        let new_node = if owner == Some(switch.new) {
            Some(self.find_stack_node(facts, joined, switch.new))
        } else {
            None
        };
        let wait_node = absence.stack.or(new_node);
        let node = wait_node.unwrap_or_else(|| {
            let without_stack = Joined { event: event.clone(), stack: Stack::default() };
            self.find_stack_node(facts, &without_stack, thread)
        });
        // The stack may be that of an earlier switch, so its path has to show whether it was
        // truncated.
        self.truncations += u64::from(wait_node.is_some() && self.is_marked_truncated(node));
        self.add_weight(node, wait_node.is_none(), waited_ns);
    }

    fn is_selected(&mut self, facts: &TraceFacts, joined: &Joined<ReportEvent>, tid: u32) -> bool {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        self.thread_selection.contains(&self.paths.processes, thread.process, tid)
    }

    fn find_stack_node(&mut self, facts: &mut TraceFacts, joined: &Joined<ReportEvent>, tid: u32) -> NodeId {
        let thread = self.paths.find_thread(facts, &joined.event, &joined.stack, tid);
        let path = self.paths.resolve(facts, joined, thread, None);
        self.tree.find_or_add(path)
    }

    pub(super) fn format_total(&self) -> String {
        let left_out = match (self.idle_weight, self.unselected_weight) {
            (0, 0) => String::new(),
            (idle, 0) => format!("; {} of idle processors left out", format_number(idle)),
            (_, _) => "; other processes and threads left out".to_owned(),
        };
        match self.measure {
            StackMeasure::Samples => format_count(self.total_weight, "sample") + &left_out,
            StackMeasure::Waits => {
                let seconds = self.total_weight as f64 / 1e9;
                format!("{seconds:.3} s in {}{left_out}", format_count(self.event_count, "wait"))
            }
            StackMeasure::Events => format_count(self.total_weight, "event") + &left_out,
        }
    }

    /// Returns whether the stack of a node begins with the mark of truncated stacks, after its
    /// process and thread.
    fn is_marked_truncated(&self, node: NodeId) -> bool {
        let path = self.tree.path(node);
        let mut first_functions = path.iter().take(3).map(|id| self.paths.functions.get(*id));
        first_functions
            .any(|function| function.kind == CodeKind::Other && function.name.as_deref() == Some(TRUNCATED))
    }

    pub(super) fn truncation_note(&self) -> String {
        let (truncated, all) =
            (format_number(self.truncations), format_count(self.event_count, self.measure.noun()));
        format!("truncated at the frame limit: the stacks of {truncated} of {all}, marked (cut)")
    }

    /// Returns the weight of stacks that end in code without a file and a name.
    fn unknown_weight(&self) -> u64 {
        let is_unknown = |node: NodeId| {
            let innermost = self.paths.functions.get(self.tree.function(node));
            innermost.kind == CodeKind::Unknown && innermost.name.is_none()
        };
        let ends = self.tree.stack_ends().into_iter().filter(|(node, _)| is_unknown(*node));
        ends.fold(0, |sum, (_, weight)| sum.saturating_add(weight))
    }

    /// Returns a note about stacks that end in unknown code, if there are any.
    pub(super) fn unknown_note(&self) -> Option<String> {
        let weight = self.unknown_weight();
        if weight == 0 {
            return None;
        }
        let percent = 100.0 * weight as f64 / self.total_weight.max(1) as f64;
        let amount = match self.measure {
            StackMeasure::Waits => format!("{:.3} s", weight as f64 / 1e9),
            _ => format_count(weight, self.measure.noun()),
        };
        Some(format!("in unknown code (?): {amount} ({percent:.1} %); {}", self.unknown_hint()))
    }

    /// Explains how frames of unknown code get names.
    pub(super) const fn unknown_hint(&self) -> &'static str {
        if !self.has_images {
            return "the trace has no image events, which name the files of code: weir record --kernel image_load adds them";
        }
        "? is code in no file of the trace; weir record --kernel cpu --unwind 16K follows programs without frame pointers, --symbol-path PATH names symbol files"
    }

    /// Explains why there is nothing to draw.
    pub(super) fn empty_reason(&self) -> String {
        if self.unselected_weight > 0 && self.thread_selection.is_limited() {
            return self
                .thread_selection
                .no_match_message(&self.paths.processes, &(self.measure.noun().to_owned() + "s"));
        }
        if self.idle_weight > 0 {
            return format!(
                "no samples except {} of idle processors, which --idle draws",
                format_number(self.idle_weight)
            );
        }
        match self.measure {
            StackMeasure::Samples => "no samples: the trace has none of the sampled profile (PROFILE, 0x0F2E), which weir record --kernel cpu records; --kind off-cpu and --event NAME draw other events",
            StackMeasure::Waits if !self.schedulers.is_empty() => "no waits: the trace has context switches, but no thread waited and then ran again in the selected time",
            StackMeasure::Waits => "no waits: the trace has no context switches (CSWITCH, 0x0524), which weir record --kernel sched records",
            StackMeasure::Events => "no such event: weir stats FILE lists the events of a trace",
        }
        .to_owned()
    }
}

/// Returns the names of the traces without their folders, and how many more there are.
fn format_file_names(files: &[PathBuf]) -> String {
    const MAX_SHOWN: usize = 3;
    let name = |file: &PathBuf| escape(&file.file_name().unwrap_or(file.as_os_str()).to_string_lossy());
    let mut text = files.iter().take(MAX_SHOWN).map(name).collect::<Vec<_>>().join(", ");
    if files.len() > MAX_SHOWN {
        text += &format!(" and {} more", files.len() - MAX_SHOWN);
    }
    text
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn graph_with_stacks(stacks: &[(&[&str], u64)]) -> FlameGraph {
        let mut graph = FlameGraph {
            files: String::new(),
            paths: CallPaths::new(false),
            tree: StackTree::new(StackTree::DEFAULT_MAX_NODES),
            measure: StackMeasure::Samples,
            total_weight: 0,
            event_count: 0,
            no_stack_count: 0,
            truncations: 0,
            stacks_without_callers: 0,
            has_images: true,
            idle_weight: 0,
            unselected_weight: 0,
            includes_idle: false,
            thread_selection: ThreadSelection::default(),
            window: TimeWindow::default(),
            schedulers: HashMap::new(),
        };
        for (stack, weight) in stacks {
            let path: Vec<_> = stack
                .iter()
                .map(|name| graph.paths.functions.add_placeholder(name, CodeKind::Program))
                .collect();
            let node = graph.tree.find_or_add(&path);
            graph.add_weight(node, false, *weight);
        }
        graph
    }
}
