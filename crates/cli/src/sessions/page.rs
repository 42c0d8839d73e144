//! Formats a session for `weir query` and `weir list`: a page in the style of logman, and a JSON
//! object.
//!
//! ```text
//!   Name, Status, Root Path, Segment         the collection
//!   Name\Name, Type, … File Mode             the trace: its settings
//!   Kernel Events …                          kernel events
//!   Events Lost …                            collected events, and lost ones by cause
//!   Provider: …                              one block per enabled provider
//! ```
//!
//! `docs/cli-json.md` documents the fields of the object; their meaning does not change.

use std::fmt::Write;
use std::path::Path;

use traceweir::Status;
use traceweir::controller::{EnableEntry, Properties, ProviderEntry};
use traceweir_format::spec::session::{
    EVENT_TRACE_BUFFERING_MODE as BUFFERING, EVENT_TRACE_FILE_MODE_APPEND as APPEND,
    EVENT_TRACE_FILE_MODE_CIRCULAR as CIRCULAR, EVENT_TRACE_FILE_MODE_NEWFILE as NEWFILE,
    EVENT_TRACE_REAL_TIME_MODE as REAL_TIME,
};
use traceweir_format::spec::system::is_system_provider;

use super::by_name::is_listed_with_others;
use super::kernel::KernelState;
use super::report::{counts_kib, has, is_at_limit};
use super::{enable_text, mode_names};
use crate::text::{Object, array, grouped, plain, plain_path};

/// Whether a session is running or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Running,
    /// The properties are those at its end.
    Ended,
}

/// Returns the status of a session for people.
pub(crate) fn status(p: &Properties, state: SessionState) -> String {
    match (state, Status(p.end_status)) {
        (SessionState::Running, _) => "Running".to_owned(),
        (SessionState::Ended, Status::ERROR_SUCCESS) if is_at_limit(p) => {
            "Ended: its file reached its size".to_owned()
        }
        (SessionState::Ended, Status::ERROR_SUCCESS) => "Stopped".to_owned(),
        (SessionState::Ended, status) => format!("Ended: {status} ({})", status.0),
    }
}

/// A provider that a session enables.
struct Enabled<'p> {
    provider: &'p ProviderEntry,
    enable: &'p EnableEntry,
}

/// Returns the providers that a session enables.
fn enabled(id: u64, providers: &[ProviderEntry]) -> Vec<Enabled<'_>> {
    let all = providers.iter().flat_map(|provider| enables(provider).map(move |enable| (provider, enable)));
    let own = all.filter(|(provider, enable)| {
        enable.session == id && !is_listed_with_others(provider, enable, providers)
    });
    own.map(|(provider, enable)| Enabled { provider, enable }).collect()
}

/// Returns the enables of a provider: by sessions, then by private sessions.
fn enables(provider: &ProviderEntry) -> impl Iterator<Item = &EnableEntry> {
    provider.sessions.iter().chain(&provider.privates)
}

impl<'p> Enabled<'p> {
    /// Returns the name that the provider registered, else the name that it was enabled by.
    fn name(&self) -> Option<&'p str> {
        [&self.provider.name, &self.enable.name].into_iter().map(String::as_str).find(|name| !name.is_empty())
    }
}

/// Lines with a name and a value.
struct Lines(String);

impl Lines {
    fn line(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let _ = writeln!(self.0, "{:<23} {value}", format!("{name}:"));
        self
    }

    fn blank(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }
}

/// Formats the page of a session.
pub(crate) fn page(
    p: &Properties,
    state: SessionState,
    providers: &[ProviderEntry],
    kernel: Option<&KernelState>,
) -> String {
    let mut lines = Lines(String::new());
    collection(&mut lines, p, state);
    trace(lines.blank(), p);
    for (name, value) in kernel.map(KernelState::lines).unwrap_or_default() {
        lines.line(name, value);
    }
    counters(lines.blank(), p);
    for enabled in enabled(p.id, providers) {
        provider(lines.blank(), &enabled);
    }
    lines.0
}

fn collection(lines: &mut Lines, p: &Properties, state: SessionState) {
    lines.line("Name", plain(&p.config.name)).line("Status", status(p, state));
    if let Some(folder) = p.config.log_file.as_deref().and_then(Path::parent) {
        lines.line("Root Path", plain_path(folder));
    }
    lines.line("Segment", on_off(has(p, NEWFILE))).line("Segment Max Size", max_size(p));
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "On" } else { "Off" }
}

fn max_size(p: &Properties) -> String {
    match p.config.maximum_file_size {
        0 => "no limit".to_owned(),
        most => format!("{most} {}", if counts_kib(p) { "KiB" } else { "MiB" }),
    }
}

fn trace(lines: &mut Lines, p: &Properties) {
    let c = &p.config;
    let name = plain(&c.name);
    lines.line("Name", format!("{name}\\{name}")).line("Type", "Trace");
    lines.line("Session Id", format!("{:#x}", p.id)).line("Session Guid", format!("{{{}}}", c.guid));
    if let Some(file) = &c.log_file {
        lines.line("Output Location", plain_path(file));
    }
    lines.line("Append", on_off(has(p, APPEND))).line("Circular", on_off(has(p, CIRCULAR)));
    lines.line("Buffer Size", format!("{} KiB", c.buffer_size));
    let (there, free) = (p.number_of_buffers, p.free_buffers);
    lines.line("Buffers", format!("{there} ({} to {}), {free} free", c.minimum_buffers, c.maximum_buffers));
    let timer = if c.flush_timer == 0 { "none".to_owned() } else { format!("{} s", c.flush_timer) };
    lines.line("Buffer Flush Timer", timer);
    if c.flush_threshold > 0 {
        lines.line("Flush Threshold", format!("{} buffers", c.flush_threshold));
    }
    lines.line("Clock Type", clock_type(c.clock)).line("File Mode", file_mode(p));
    lines.line("Log Mode", format!("{:#x} ({})", c.log_file_mode, mode_names(c.log_file_mode)));
    if c.low_latency {
        lines.line("Low Latency", "On");
    }
}

fn file_mode(p: &Properties) -> &'static str {
    match (p.config.log_file.is_some(), has(p, REAL_TIME)) {
        _ if has(p, BUFFERING) => "Buffered",
        (true, true) => "File and Real-time",
        (false, true) => "Real-time",
        (_, false) => "File",
    }
}

fn counters(lines: &mut Lines, p: &Properties) {
    let cause = &p.lost_by_cause;
    lines
        .line("Events", grouped(p.events))
        .line("Buffers Written", grouped(p.buffers_written.into()))
        .line("Events Lost", grouped(p.events_lost))
        .line("  No Room", grouped(cause.no_room))
        .line("  Not Written", grouped(cause.not_written))
        .line("  Damaged", grouped(cause.damaged))
        .line("  No Region", grouped(cause.no_region))
        .line("  Perf Rings Full", grouped(cause.kernel))
        .line("  Overwritten", grouped(cause.overwritten))
        .line("Buffers Lost", grouped(p.log_buffers_lost.into()))
        .line("Real-time Events Lost", grouped(p.real_time_events_lost))
        .line("Real-time Buffers Lost", grouped(p.real_time_buffers_lost.into()))
        .line("Uncounted Processes", grouped(p.uncounted_processes.into()))
        .line("Damaged Regions", grouped(p.damaged_regions.into()))
        .line("Processes", grouped(p.processes.into()))
        .line("Consumers", grouped(p.consumers.into()))
        .line("Collector Thread", p.logger_thread_id)
        .line("Collector Time", format!("{:.3} s", p.collector_ns as f64 / 1e9));
}

fn provider(lines: &mut Lines, enabled: &Enabled<'_>) {
    let Enabled { provider, enable } = enabled;
    lines.0.push_str("Provider:\n");
    let name = enabled.name().map_or_else(|| "-".to_owned(), plain);
    lines.line("Name", name).line("Provider Guid", format!("{{{}}}", provider.provider));
    lines.line("Level", level_name(enable.level));
    let mask = |bits: u64| format!("{bits:#x}");
    lines.line("KeywordsAll", mask(enable.all)).line("KeywordsAny", mask(enable.any));
    lines
        .line("Properties", enable_text::properties(enable))
        .line("Filter Type", enable_text::filters(enable));
    lines.line("Kind", kind(provider)).line("Processes", processes(provider, enable));
}

/// Formats how many processes have registered a provider, and how many of them the session traces.
fn processes(provider: &ProviderEntry, enable: &EnableEntry) -> String {
    let registered = grouped(provider.pids.len() as u64);
    format!("{registered} registered, {} traced", grouped(enable.traced.into()))
}

/// Returns the kind of a provider.
pub(crate) fn kind(provider: &ProviderEntry) -> &'static str {
    match provider {
        ProviderEntry { is_group: true, .. } => "group",
        ProviderEntry { is_classic: true, .. } => "classic",
        ProviderEntry { provider, .. } if is_system_provider(provider) => "system",
        _ => "modern",
    }
}

fn level_name(level: u8) -> String {
    let name = match level {
        0 => "all",
        1 => "Critical",
        2 => "Error",
        3 => "Warning",
        4 => "Information",
        5 => "Verbose",
        _ => return level.to_string(),
    };
    format!("{level} ({name})")
}

fn clock_type(clock: u32) -> &'static str {
    match clock {
        2 => "System",
        3 => "Cycle",
        _ => "Performance",
    }
}

fn clock_name(clock: u32) -> &'static str {
    match clock {
        2 => "system",
        3 => "cycles",
        _ => "qpc",
    }
}

/// Formats a session as one JSON object.
pub(crate) fn json(
    p: &Properties,
    state: SessionState,
    providers: &[ProviderEntry],
    kernel: Option<&KernelState>,
) -> String {
    let mut object = Object::new();
    object
        .text("name", &p.config.name)
        .text("status", state_name(p, state))
        .text("status_text", &status(p, state));
    configuration(&mut object, p);
    measured(&mut object, p);
    let providers = enabled(p.id, providers).into_iter().map(|enabled| {
        let Enabled { provider, enable } = &enabled;
        let mut object = Object::new();
        object.text("guid", &provider.provider.to_string()).optional("name", enabled.name());
        write_enable(&mut object, enable);
        object.text("kind", kind(provider));
        object.raw("pids", &array(provider.pids.iter().map(ToString::to_string)));
        object.finish()
    });
    object.raw("providers", &array(providers));
    if let Some(kernel) = kernel {
        object.raw("kernel", &kernel.json());
    }
    object.finish()
}

/// Adds the parameters of an enable to a JSON object.
pub(crate) fn write_enable(object: &mut Object, enable: &EnableEntry) {
    object.number("level", enable.level).mask("any", enable.any).mask("all", enable.all);
    object.mask("property", enable.property);
    object.raw("filters", &array(enable.filters.iter().map(|filter| format!("\"{:#x}\"", filter.kind))));
    object.raw("filtered", &array(enable.filters.iter().filter_map(enable_text::object)));
    object.number("traced", enable.traced);
}

/// Returns the name of a provider, if known: its own, else the first that it was enabled by.
pub(crate) fn named(provider: &ProviderEntry) -> Option<&str> {
    let given = enables(provider).map(|enable| enable.name.as_str());
    std::iter::once(provider.name.as_str()).chain(given).find(|name| !name.is_empty())
}

fn state_name(p: &Properties, state: SessionState) -> &'static str {
    match state {
        SessionState::Running => "running",
        SessionState::Ended if p.end_status == 0 && !is_at_limit(p) => "stopped",
        SessionState::Ended => "ended",
    }
}

fn configuration(object: &mut Object, p: &Properties) {
    let c = &p.config;
    let file = c.log_file.as_ref().map(|f| f.display().to_string());
    let most = u64::from(c.maximum_file_size);
    let kib = if counts_kib(p) { most } else { most << 10 };
    object
        .number("id", p.id)
        .text("guid", &c.guid.to_string())
        .mask("mode", c.log_file_mode)
        .text("modes", &mode_names(c.log_file_mode))
        .text("clock", clock_name(c.clock))
        .optional("file", file.as_deref())
        .number("buffer_kib", c.buffer_size)
        .number("minimum_buffers", c.minimum_buffers)
        .number("maximum_buffers", c.maximum_buffers)
        .number("maximum_file_kib", kib)
        .number("maximum_file_mib", kib >> 10)
        .number("flush_timer", c.flush_timer)
        .number("flush_threshold", c.flush_threshold)
        .mask("enable_flags", c.enable_flags)
        .raw("low_latency", if c.low_latency { "true" } else { "false" });
}

fn measured(object: &mut Object, p: &Properties) {
    let cause = &p.lost_by_cause;
    let mut lost = Object::new();
    lost.number("no_room", cause.no_room)
        .number("not_written", cause.not_written)
        .number("damaged", cause.damaged)
        .number("no_region", cause.no_region)
        .number("kernel", cause.kernel)
        .number("overwritten", cause.overwritten);
    object
        .number("buffers", p.number_of_buffers)
        .number("free_buffers", p.free_buffers)
        .number("events", p.events)
        .number("buffers_written", p.buffers_written)
        .number("events_lost", p.events_lost)
        .raw("lost_by_cause", &lost.finish())
        .number("log_buffers_lost", p.log_buffers_lost)
        .number("overwritten_buffers", p.overwritten_buffers)
        .number("real_time_buffers_lost", p.real_time_buffers_lost)
        .number("real_time_events_lost", p.real_time_events_lost)
        .number("processes", p.processes)
        .number("consumers", p.consumers)
        .number("damaged_regions", p.damaged_regions)
        .number("uncounted_processes", p.uncounted_processes)
        .number("collector_thread", p.logger_thread_id)
        .number("collector_ns", p.collector_ns)
        .number("end_status", p.end_status);
}

#[cfg(test)]
mod tests;
