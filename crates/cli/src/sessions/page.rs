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

use traceweir::session::{ProviderEnable, ProviderInfo, SessionSummary};
use traceweir::{ClockKind, LogFileMode, SessionId, Status};
use traceweir_format::spec::system::is_system_provider;

use super::by_name::is_listed_with_others;
use super::kernel::KernelState;
use super::report::{counts_kib, is_at_limit};
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
pub(crate) fn status(p: &SessionSummary, state: SessionState) -> String {
    match (state, p.end_status.unwrap_or(Status::ERROR_SUCCESS)) {
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
    provider: &'p ProviderInfo,
    enable: &'p ProviderEnable,
}

/// Returns the providers that a session enables.
fn enabled(id: SessionId, providers: &[ProviderInfo]) -> Vec<Enabled<'_>> {
    let all = providers.iter().flat_map(|provider| enables(provider).map(move |enable| (provider, enable)));
    let own = all.filter(|(provider, enable)| {
        enable.session == id && !is_listed_with_others(provider, enable, providers)
    });
    own.map(|(provider, enable)| Enabled { provider, enable }).collect()
}

/// Returns the enables of a provider: by sessions, then by private sessions.
fn enables(provider: &ProviderInfo) -> impl Iterator<Item = &ProviderEnable> {
    provider.sessions.iter().chain(&provider.private_sessions)
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
    p: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
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

fn collection(lines: &mut Lines, p: &SessionSummary, state: SessionState) {
    lines.line("Name", plain(&p.name)).line("Status", status(p, state));
    if let Some(folder) = p.log_file.as_deref().and_then(Path::parent) {
        lines.line("Root Path", plain_path(folder));
    }
    lines
        .line("Segment", on_off(p.mode.contains(LogFileMode::NEWFILE)))
        .line("Segment Max Size", max_size(p));
}

fn on_off(is_on: bool) -> &'static str {
    if is_on { "On" } else { "Off" }
}

fn max_size(p: &SessionSummary) -> String {
    match p.maximum_file_bytes {
        None => "no limit".to_owned(),
        Some(bytes) if counts_kib(p) => format!("{} KiB", bytes >> 10),
        Some(bytes) => format!("{} MiB", bytes >> 20),
    }
}

fn trace(lines: &mut Lines, p: &SessionSummary) {
    let name = plain(&p.name);
    lines.line("Name", format!("{name}\\{name}")).line("Type", "Trace");
    lines.line("Session Id", format!("{:#x}", p.id.number()));
    lines.line("Session Guid", format!("{{{}}}", p.guid));
    if let Some(file) = &p.log_file {
        lines.line("Output Location", plain_path(file));
    }
    lines
        .line("Append", on_off(p.mode.contains(LogFileMode::APPEND)))
        .line("Circular", on_off(p.mode.contains(LogFileMode::CIRCULAR)));
    lines.line("Buffer Size", format!("{} KiB", p.buffer_kib));
    let (there, free) = (p.buffers, p.free_buffers);
    lines.line("Buffers", format!("{there} ({} to {}), {free} free", p.minimum_buffers, p.maximum_buffers));
    let timer =
        if p.flush_timer.is_zero() { "none".to_owned() } else { format!("{} s", p.flush_timer.as_secs()) };
    lines.line("Buffer Flush Timer", timer);
    if p.flush_threshold > 0 {
        lines.line("Flush Threshold", format!("{} buffers", p.flush_threshold));
    }
    lines.line("Clock Type", clock_type(p.clock)).line("File Mode", file_mode(p));
    lines.line("Log Mode", format!("{:#x} ({})", p.mode.bits(), mode_names(p.mode)));
    if p.low_latency {
        lines.line("Low Latency", "On");
    }
}

fn file_mode(p: &SessionSummary) -> &'static str {
    match (p.log_file.is_some(), p.mode.contains(LogFileMode::REAL_TIME)) {
        _ if p.mode.contains(LogFileMode::BUFFERING) => "Buffered",
        (true, true) => "File and Real-time",
        (false, true) => "Real-time",
        (_, false) => "File",
    }
}

fn counters(lines: &mut Lines, p: &SessionSummary) {
    let cause = &p.lost;
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
        .line("Buffers Lost", grouped(p.buffers_lost.into()))
        .line("Real-time Events Lost", grouped(p.real_time_events_lost))
        .line("Real-time Buffers Lost", grouped(p.real_time_buffers_lost.into()))
        .line("Uncounted Processes", grouped(p.uncounted_processes.into()))
        .line("Damaged Regions", grouped(p.damaged_regions.into()))
        .line("Processes", grouped(p.processes.into()))
        .line("Consumers", grouped(p.consumers.into()))
        .line("Collector Thread", p.collector_thread)
        .line("Collector Time", format!("{:.3} s", p.collector_time.as_secs_f64()));
}

fn provider(lines: &mut Lines, enabled: &Enabled<'_>) {
    let Enabled { provider, enable } = enabled;
    lines.0.push_str("Provider:\n");
    let name = enabled.name().map_or_else(|| "-".to_owned(), plain);
    lines.line("Name", name).line("Provider Guid", format!("{{{}}}", provider.guid));
    lines.line("Level", level_name(enable.level.as_int()));
    let mask = |bits: u64| format!("{bits:#x}");
    lines.line("KeywordsAll", mask(enable.all_keywords.bits()));
    lines.line("KeywordsAny", mask(enable.keywords.bits()));
    lines
        .line("Properties", enable_text::properties(enable))
        .line("Filter Type", enable_text::filters(enable));
    lines.line("Kind", kind(provider)).line("Processes", processes(provider, enable));
}

/// Formats how many processes have registered a provider, and how many of them the session traces.
fn processes(provider: &ProviderInfo, enable: &ProviderEnable) -> String {
    let registered = grouped(provider.pids.len() as u64);
    format!("{registered} registered, {} traced", grouped(enable.traced.into()))
}

/// Returns the kind of a provider.
pub(crate) fn kind(provider: &ProviderInfo) -> &'static str {
    match provider {
        ProviderInfo { is_group: true, .. } => "group",
        ProviderInfo { is_classic: true, .. } => "classic",
        ProviderInfo { guid, .. } if is_system_provider(guid) => "system",
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

fn clock_type(clock: Option<ClockKind>) -> &'static str {
    match clock {
        Some(ClockKind::SystemTime) => "System",
        Some(ClockKind::CpuCycles) => "Cycle",
        _ => "Performance",
    }
}

fn clock_name(clock: Option<ClockKind>) -> &'static str {
    match clock {
        Some(ClockKind::SystemTime) => "system",
        Some(ClockKind::CpuCycles) => "cycles",
        _ => "qpc",
    }
}

/// Formats a session as one JSON object.
pub(crate) fn json(
    p: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
    kernel: Option<&KernelState>,
) -> String {
    let mut object = Object::new();
    object.text("name", &p.name).text("status", state_name(p, state)).text("status_text", &status(p, state));
    configuration(&mut object, p);
    measured(&mut object, p);
    let providers = enabled(p.id, providers).into_iter().map(|enabled| {
        let Enabled { provider, enable } = &enabled;
        let mut object = Object::new();
        object.text("guid", &provider.guid.to_string()).optional("name", enabled.name());
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
pub(crate) fn write_enable(object: &mut Object, enable: &ProviderEnable) {
    object.number("level", enable.level.as_int()).mask("any", enable.keywords.bits());
    object.mask("all", enable.all_keywords.bits()).mask("property", enable.properties.bits());
    object.raw("filters", &array(enable.filters.iter().map(|filter| format!("\"{:#x}\"", filter.kind()))));
    object.raw("filtered", &array(enable.filters.iter().filter_map(enable_text::object)));
    object.number("traced", enable.traced);
}

/// Returns the name of a provider, if known: its own, else the first that it was enabled by.
pub(crate) fn named(provider: &ProviderInfo) -> Option<&str> {
    let given = enables(provider).map(|enable| enable.name.as_str());
    std::iter::once(provider.name.as_str()).chain(given).find(|name| !name.is_empty())
}

fn state_name(p: &SessionSummary, state: SessionState) -> &'static str {
    match state {
        SessionState::Running => "running",
        SessionState::Ended if p.end_status.is_none() && !is_at_limit(p) => "stopped",
        SessionState::Ended => "ended",
    }
}

fn configuration(object: &mut Object, p: &SessionSummary) {
    let file = p.log_file.as_ref().map(|f| f.display().to_string());
    let kib = p.maximum_file_bytes.unwrap_or(0) >> 10;
    object
        .number("id", p.id.number())
        .text("guid", &p.guid.to_string())
        .mask("mode", p.mode.bits())
        .text("modes", &mode_names(p.mode))
        .text("clock", clock_name(p.clock))
        .optional("file", file.as_deref())
        .number("buffer_kib", p.buffer_kib)
        .number("minimum_buffers", p.minimum_buffers)
        .number("maximum_buffers", p.maximum_buffers)
        .number("maximum_file_kib", kib)
        .number("maximum_file_mib", kib >> 10)
        .number("flush_timer", p.flush_timer.as_secs())
        .number("flush_threshold", p.flush_threshold)
        .mask("enable_flags", p.kernel_flags)
        .raw("low_latency", if p.low_latency { "true" } else { "false" });
}

fn measured(object: &mut Object, p: &SessionSummary) {
    let cause = &p.lost;
    let mut lost = Object::new();
    lost.number("no_room", cause.no_room)
        .number("not_written", cause.not_written)
        .number("damaged", cause.damaged)
        .number("no_region", cause.no_region)
        .number("kernel", cause.kernel)
        .number("overwritten", cause.overwritten);
    object
        .number("buffers", p.buffers)
        .number("free_buffers", p.free_buffers)
        .number("events", p.events)
        .number("buffers_written", p.buffers_written)
        .number("events_lost", p.events_lost)
        .raw("lost_by_cause", &lost.finish())
        .number("log_buffers_lost", p.buffers_lost)
        .number("overwritten_buffers", p.overwritten_buffers)
        .number("real_time_buffers_lost", p.real_time_buffers_lost)
        .number("real_time_events_lost", p.real_time_events_lost)
        .number("processes", p.processes)
        .number("consumers", p.consumers)
        .number("damaged_regions", p.damaged_regions)
        .number("uncounted_processes", p.uncounted_processes)
        .number("collector_thread", p.collector_thread)
        .number("collector_ns", u64::try_from(p.collector_time.as_nanos()).unwrap_or(u64::MAX))
        .number("end_status", p.end_status.map_or(0, |status| status.0));
}

#[cfg(test)]
mod tests;
