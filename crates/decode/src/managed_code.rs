//! Names the code that the .NET runtime generated in the processes of a trace.
//!
//! ```text
//!   MethodLoad, MethodUnload, rundown ──▶ address ranges of each process, each with a time span
//!   module events ────────────────────▶ file names of modules
//!   (process, address, time) ──▶ the method that was loaded last of those that contain both
//! ```
//!
//! 1. An event is about the process in its header, and about no other.
//! 2. A load begins a range; an unload, or a load at the same address, ends it. The range of a
//!    method without a load event begins when the process id was last released, or before the
//!    trace.
//! 3. Ranges may overlap in a hostile trace. A lookup inspects at most [`MAX_INSPECTED`] of them.
//! 4. Memory is bounded: [`MAX_METHODS`], [`MAX_MODULES`] and [`MAX_TOTAL_NAME_BYTES`].

mod signature;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use traceweir_format::dotnet::{MethodChange, MethodEvent, MethodName, ModuleEvent, is_code_event};
use traceweir_format::header::Record;

use self::signature::shorten_parameters;

/// The most methods of all processes.
pub const MAX_METHODS: usize = 1 << 19;
/// The most modules of all processes.
pub const MAX_MODULES: usize = 1 << 16;
/// The most bytes of all names.
pub const MAX_TOTAL_NAME_BYTES: usize = 64 << 20;
/// The most ranges that a lookup inspects.
pub const MAX_INSPECTED: usize = 4096;
/// The longest name of a type with its method, in characters.
const MAX_METHOD_CHARS: usize = 300;
/// The longest file name of a module, in characters.
const MAX_MODULE_CHARS: usize = 128;

/// The code of one method.
#[derive(Clone, Debug)]
struct CodeRange {
    start: u64,
    /// The first address after the code; not beyond the address space.
    end: u64,
    from: i64,
    until: i64,
    method_id: u64,
    module_id: u64,
    name: Option<Arc<str>>,
}

/// The code of one process.
#[derive(Debug, Default)]
struct ProcessCode {
    /// In the order of their events.
    ranges: Vec<CodeRange>,
    /// The loaded method at each start address.
    live: HashMap<u64, usize>,
    /// Names of methods, for events without names.
    names: HashMap<u64, Arc<str>>,
    /// File names of modules.
    modules: HashMap<u64, Arc<str>>,
    /// Indices of `ranges` by start address, each with the greatest end up to here; empty if
    /// `ranges` has changed.
    sorted: Vec<(usize, u64)>,
}

/// A method that contains an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedMethod {
    /// The full name of the type, the name of the method, and its parameters.
    pub name: Arc<str>,
    /// The file name of the module.
    pub module: Option<Arc<str>>,
    /// The address of the first instruction.
    pub start: u64,
    /// When the method was loaded: with the start, it identifies the method in its process.
    pub loaded_at: i64,
}

/// The generated code of all processes of a trace.
#[derive(Debug, Default)]
pub struct ManagedCode {
    by_process: HashMap<u32, ProcessCode>,
    interned: HashSet<Arc<str>>,
    name_bytes: usize,
    method_count: usize,
    module_count: usize,
    /// Traces that share the limits, or 0.
    traces: usize,
}

impl ManagedCode {
    /// Divides the memory limits among traces that are read together.
    pub const fn share_limits(&mut self, traces: usize) {
        self.traces = traces;
    }

    /// Returns the share of this trace of a limit.
    fn share_of(&self, limit: usize) -> usize {
        limit.checked_div(self.traces).unwrap_or(limit)
    }

    /// Returns whether [`ManagedCode::observe`] may learn from an event.
    #[inline]
    #[must_use]
    pub fn is_informative(record: &Record<'_>) -> bool {
        is_code_event(record)
    }

    /// Learns from an event; events come in order of time. `free_since` is the time at which the
    /// process id was last released, or `i64::MIN`.
    pub fn observe(&mut self, record: &Record<'_>, free_since: i64) {
        if let Some(event) = MethodEvent::parse(record) {
            self.add_method(record.process_id(), record.time(), free_since, event);
        } else if let Some(event) = ModuleEvent::parse(record) {
            self.add_module(record.process_id(), &event);
        }
    }

    /// Learns from a method event of a process at a time.
    pub fn add_method(&mut self, process: u32, time: i64, free_since: i64, event: MethodEvent) {
        if event.size == 0 || self.method_count >= self.share_of(MAX_METHODS) {
            return;
        }
        let name = event.name.as_ref().and_then(|name| self.intern(&format_method(name)));
        let code = self.by_process.entry(process).or_default();
        // A method id costs as much memory as a range, so both count.
        if let Some(name) = &name
            && code.names.insert(event.method_id, Arc::clone(name)).is_none()
        {
            self.method_count = self.method_count.saturating_add(1);
        }
        let live = code.live.get(&event.start).copied();
        let live_range = live.and_then(|index| code.ranges.get_mut(index));
        let is_new_process = live_range.as_ref().is_some_and(|range| range.from < free_since);
        if let Some(range) = live_range.filter(|_| !is_new_process) {
            let is_same = range.method_id == event.method_id;
            if is_same && event.change != MethodChange::Load {
                range.name = range.name.take().or(name);
                if event.change == MethodChange::Unload {
                    range.until = time;
                    code.live.remove(&event.start);
                }
                return;
            }
            range.until = time;
        }
        let is_taken = live.is_some() && !is_new_process;
        let from = match event.change {
            MethodChange::Load => time,
            _ if is_taken => time,
            MethodChange::Unload | MethodChange::Rundown => free_since,
        };
        let until = if event.change == MethodChange::Unload { time } else { i64::MAX };
        code.live.remove(&event.start);
        if event.change != MethodChange::Unload {
            code.live.insert(event.start, code.ranges.len());
        }
        let end = event.start.saturating_add(u64::from(event.size));
        let MethodEvent { start, method_id, module_id, .. } = event;
        code.ranges.push(CodeRange { start, end, from, until, method_id, module_id, name });
        code.sorted.clear();
        self.method_count = self.method_count.saturating_add(1);
    }

    /// Learns the file name of a module of a process.
    pub fn add_module(&mut self, process: u32, event: &ModuleEvent) {
        let name = event.path.rsplit(['\\', '/']).next().unwrap_or_default();
        if name.is_empty() || self.module_count >= self.share_of(MAX_MODULES) {
            return;
        }
        let name: String = name.chars().take(MAX_MODULE_CHARS).collect();
        let Some(name) = self.intern(&name) else { return };
        let code = self.by_process.entry(process).or_default();
        if code.modules.insert(event.module_id, name).is_none() {
            self.module_count = self.module_count.saturating_add(1);
        }
    }

    /// Returns the number of methods; the number of names counts too.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.method_count
    }

    /// Returns whether no method is known.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.method_count == 0
    }

    /// Returns the bytes of all names.
    #[must_use]
    pub const fn name_bytes(&self) -> usize {
        self.name_bytes
    }

    /// Returns the method at an address of a process at a time. Methods that were loaded before
    /// `not_before`, when the process id was last released, belong to another process.
    pub fn find(&mut self, process: u32, address: u64, time: i64, not_before: i64) -> Option<ManagedMethod> {
        let code = self.by_process.get_mut(&process)?;
        code.sort();
        let next = code.sorted.partition_point(|(index, _)| {
            code.ranges.get(*index).is_some_and(|range| range.start <= address)
        });
        let candidates = code.sorted.get(..next).unwrap_or_default().iter().rev();
        let mut best: Option<(i64, usize)> = None;
        for (index, greatest_end) in candidates.take(MAX_INSPECTED) {
            if *greatest_end <= address {
                break;
            }
            let Some(range) = code.ranges.get(*index) else { continue };
            let is_inside =
                address < range.end && (range.from..=range.until).contains(&time) && range.from >= not_before;
            if is_inside && best.is_none_or(|best| best < (range.from, *index)) {
                best = Some((range.from, *index));
            }
        }
        let range = code.ranges.get(best?.1)?;
        let name = range.name.as_ref().or_else(|| code.names.get(&range.method_id))?;
        Some(ManagedMethod {
            name: Arc::clone(name),
            module: code.modules.get(&range.module_id).cloned(),
            start: range.start,
            loaded_at: range.from,
        })
    }

    /// Interns a name; `None` if the limit is reached.
    fn intern(&mut self, name: &str) -> Option<Arc<str>> {
        if let Some(known) = self.interned.get(name) {
            return Some(Arc::clone(known));
        }
        let bytes = self.name_bytes.saturating_add(name.len());
        if bytes > self.share_of(MAX_TOTAL_NAME_BYTES) {
            return None;
        }
        self.name_bytes = bytes;
        let name: Arc<str> = name.into();
        self.interned.insert(Arc::clone(&name));
        Some(name)
    }
}

impl ProcessCode {
    /// Sorts the ranges by start address, unless they are sorted.
    fn sort(&mut self) {
        if self.sorted.len() == self.ranges.len() {
            return;
        }
        let mut starts: Vec<(u64, usize)> =
            self.ranges.iter().enumerate().map(|(index, range)| (range.start, index)).collect();
        starts.sort_unstable();
        let mut greatest_end = 0;
        self.sorted = starts
            .into_iter()
            .map(|(_, index)| {
                greatest_end = self.ranges.get(index).map_or(0, |range| range.end).max(greatest_end);
                (index, greatest_end)
            })
            .collect();
    }
}

/// Formats the name of a method: `Namespace.Type.Method(String,int32)`.
fn format_method(name: &MethodName) -> String {
    let separator = if name.namespace.is_empty() { "" } else { "." };
    let full_name = [&*name.namespace, separator, &*name.name].concat();
    let full_name: String = full_name.chars().take(MAX_METHOD_CHARS).collect();
    full_name + &shorten_parameters(&name.signature)
}

#[cfg(test)]
mod tests;
