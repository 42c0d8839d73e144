//! Formats a session for `weir query` and `weir list`: a page in the style of logman, and a JSON
//! object.
//!
//! ```text
//!   Name, Status, Root Path, Segment         logman's data collector set
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
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::spec::system::is_system_provider;

use super::by_name::is_listed_with_others;
use super::kernel::KernelState;
use super::report::{is_at_limit, is_limit_in_kib};
use super::{enable_text, mode_names};
use crate::text::{JsonObject, escape, escape_path, format_count, format_number, json_array};

/// Whether a session is running or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    Running,
    /// The summary has the values at the end of the session.
    Ended,
}

/// Formats the status of a session for people.
pub(crate) fn format_status(summary: &SessionSummary, state: SessionState) -> String {
    match (state, summary.end_status.unwrap_or(Status::ERROR_SUCCESS)) {
        (SessionState::Running, _) => "Running".to_owned(),
        (SessionState::Ended, Status::ERROR_SUCCESS) if is_at_limit(summary) => {
            "Ended: its file reached its size limit".to_owned()
        }
        (SessionState::Ended, Status::ERROR_SUCCESS) => "Stopped".to_owned(),
        (SessionState::Ended, status) => format!("Ended: {status} ({})", status.0),
    }
}

/// An enable of a session, with its provider.
struct ListedEnable<'p> {
    provider: &'p ProviderInfo,
    enable: &'p ProviderEnable,
}

/// Returns the enables of a session. An enable by the hash of a name is left out if it is listed
/// with the providers that it reaches.
fn list_enables(id: SessionId, providers: &[ProviderInfo]) -> Vec<ListedEnable<'_>> {
    let enables = providers
        .iter()
        .flat_map(|provider| provider_enables(provider).map(move |enable| (provider, enable)));
    let session_enables = enables.filter(|(provider, enable)| {
        enable.session == id && !is_listed_with_others(provider, enable, providers)
    });
    session_enables.map(|(provider, enable)| ListedEnable { provider, enable }).collect()
}

/// Returns the enables of a provider: by sessions, then by private sessions.
fn provider_enables(provider: &ProviderInfo) -> impl Iterator<Item = &ProviderEnable> {
    provider.sessions.iter().chain(&provider.private_sessions)
}

impl<'p> ListedEnable<'p> {
    /// Returns the name that the provider registered, or else the name in the enable.
    fn name(&self) -> Option<&'p str> {
        [&self.provider.name, &self.enable.name].into_iter().map(String::as_str).find(|name| !name.is_empty())
    }
}

/// A page of lines with a name and a value.
struct PageLines(String);

impl PageLines {
    fn add_line(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let _ = writeln!(self.0, "{:<23} {value}", format!("{name}:"));
        self
    }

    fn add_blank_line(&mut self) -> &mut Self {
        self.0.push('\n');
        self
    }
}

pub(crate) fn format_page(
    summary: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
    kernel: Option<&KernelState>,
) -> String {
    let mut lines = PageLines(String::new());
    add_collector_set(&mut lines, summary, state);
    add_trace_settings(lines.add_blank_line(), summary);
    for (name, value) in kernel.map(KernelState::format_lines).unwrap_or_default() {
        lines.add_line(name, value);
    }
    add_counters(lines.add_blank_line(), summary);
    for listed in list_enables(summary.id, providers) {
        add_provider(lines.add_blank_line(), &listed);
    }
    lines.0
}

fn add_collector_set(lines: &mut PageLines, summary: &SessionSummary, state: SessionState) {
    lines.add_line("Name", escape(&summary.name)).add_line("Status", format_status(summary, state));
    if let Some(folder) = summary.log_file.as_deref().and_then(Path::parent) {
        lines.add_line("Root Path", escape_path(folder));
    }
    lines
        .add_line("Segment", format_on_off(summary.mode.contains(LogFileMode::NEWFILE)))
        .add_line("Segment Max Size", format_max_size(summary));
}

fn format_on_off(is_on: bool) -> &'static str {
    if is_on { "On" } else { "Off" }
}

fn format_max_size(summary: &SessionSummary) -> String {
    match summary.maximum_file_bytes {
        None => "no limit".to_owned(),
        Some(bytes) if is_limit_in_kib(summary) => format!("{} KiB", format_number(bytes >> 10)),
        Some(bytes) => format!("{} MiB", format_number(bytes >> 20)),
    }
}

fn add_trace_settings(lines: &mut PageLines, summary: &SessionSummary) {
    let name = escape(&summary.name);
    lines.add_line("Name", format!("{name}\\{name}")).add_line("Type", "Trace");
    lines.add_line("Session Id", format!("{:#x}", summary.id.number()));
    lines.add_line("Session Guid", format!("{{{}}}", summary.guid));
    if let Some(file) = &summary.log_file {
        lines.add_line("Output Location", escape_path(file));
    }
    lines
        .add_line("Append", format_on_off(summary.mode.contains(LogFileMode::APPEND)))
        .add_line("Circular", format_on_off(summary.mode.contains(LogFileMode::CIRCULAR)));
    lines.add_line("Buffer Size", format!("{} KiB", format_number(summary.buffer_kib.into())));
    let [count, minimum, maximum, free] =
        [summary.buffers, summary.minimum_buffers, summary.maximum_buffers, summary.free_buffers]
            .map(|count| format_number(count.into()));
    lines.add_line("Buffers", format!("{count} ({minimum} to {maximum}), {free} free"));
    let timer = if summary.flush_timer.is_zero() {
        "none".to_owned()
    } else {
        format!("{} s", summary.flush_timer.as_secs())
    };
    lines.add_line("Buffer Flush Timer", timer);
    if summary.flush_threshold > 0 {
        lines.add_line("Flush Threshold", format_count(summary.flush_threshold.into(), "buffer"));
    }
    lines.add_line("Clock Type", page_clock(summary.clock)).add_line("File Mode", file_mode_name(summary));
    lines.add_line("Log Mode", format!("{:#x} ({})", summary.mode.bits(), mode_names(summary.mode)));
    if summary.low_latency {
        lines.add_line("Low Latency", "On");
    }
}

fn file_mode_name(summary: &SessionSummary) -> &'static str {
    match (summary.log_file.is_some(), summary.mode.contains(LogFileMode::REAL_TIME)) {
        _ if summary.mode.contains(LogFileMode::BUFFERING) => "Buffered",
        (true, true) => "File and Real-time",
        (false, true) => "Real-time",
        (_, false) => "File",
    }
}

fn add_counters(lines: &mut PageLines, summary: &SessionSummary) {
    let losses = &summary.lost;
    lines
        .add_line("Events", format_number(summary.events))
        .add_line("Buffers Written", format_number(summary.buffers_written.into()))
        .add_line("Events Lost", format_number(summary.events_lost))
        .add_line("  No Room", format_number(losses.no_room))
        .add_line("  Not Written", format_number(losses.not_written))
        .add_line("  Damaged", format_number(losses.damaged))
        .add_line("  No Region", format_number(losses.no_region))
        .add_line("  Perf Rings Full", format_number(losses.kernel))
        .add_line("  Overwritten", format_number(losses.overwritten))
        .add_line("Buffers Lost", format_number(summary.buffers_lost.into()))
        .add_line("Real-time Events Lost", format_number(summary.real_time_events_lost))
        .add_line("Real-time Buffers Lost", format_number(summary.real_time_buffers_lost.into()))
        .add_line("Unknown Losses", format_count(summary.uncounted_processes.into(), "process"))
        .add_line("Damaged Regions", format_number(summary.damaged_regions.into()))
        .add_line("Processes", format_number(summary.processes.into()))
        .add_line("Consumers", format_number(summary.consumers.into()))
        .add_line("Collector Thread", summary.collector_thread)
        .add_line("Collector Time", format!("{:.3} s", summary.collector_time.as_secs_f64()));
}

fn add_provider(lines: &mut PageLines, listed: &ListedEnable<'_>) {
    let ListedEnable { provider, enable } = listed;
    lines.0.push_str("Provider:\n");
    let name = listed.name().map_or_else(|| "-".to_owned(), escape);
    // The GUID of a program's own choice is known as long as a process has registered it.
    let is_hash =
        provider.pids.is_empty() && listed.name().is_some_and(|name| provider.guid.is_hash_of(name));
    let source = if is_hash { " (hash of the name; no process has registered it now)" } else { "" };
    lines.add_line("Name", name).add_line("Provider Guid", format!("{{{}}}{source}", provider.guid));
    lines.add_line("Level", level_name(enable.level.as_int()));
    let hex = |bits: u64| format!("{bits:#x}");
    lines.add_line("KeywordsAll", hex(enable.all_keywords.bits()));
    lines.add_line("KeywordsAny", hex(enable.keywords.bits()));
    lines
        .add_line("Properties", enable_text::format_properties(enable))
        .add_line("Filter Type", enable_text::format_filters(enable));
    lines.add_line("Kind", provider_kind(provider)).add_line("Processes", format_processes(provider, enable));
}

/// Formats how many processes have registered a provider, and how many of them the session traces.
fn format_processes(provider: &ProviderInfo, enable: &ProviderEnable) -> String {
    let registered = format_number(provider.pids.len() as u64);
    format!("{registered} registered, {} traced", format_number(enable.traced.into()))
}

pub(crate) fn provider_kind(provider: &ProviderInfo) -> &'static str {
    match provider {
        ProviderInfo { is_group: true, .. } => "group",
        ProviderInfo { is_classic: true, .. } => "classic",
        ProviderInfo { guid, .. } if is_system_provider(guid) => "system",
        ProviderInfo { guid, .. } if kernel_provider_name(guid).is_some() => "kernel",
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

fn page_clock(clock: Option<ClockKind>) -> &'static str {
    match clock {
        Some(ClockKind::SystemTime) => "System",
        Some(ClockKind::CpuCycles) => "Cycle",
        _ => "Performance",
    }
}

fn json_clock(clock: Option<ClockKind>) -> &'static str {
    match clock {
        Some(ClockKind::SystemTime) => "system",
        Some(ClockKind::CpuCycles) => "cycles",
        _ => "qpc",
    }
}

pub(crate) fn format_json(
    summary: &SessionSummary,
    state: SessionState,
    providers: &[ProviderInfo],
    kernel: Option<&KernelState>,
) -> String {
    let mut object = JsonObject::new();
    object
        .text("name", &summary.name)
        .text("status", json_status(summary, state))
        .text("status_text", &format_status(summary, state));
    put_settings(&mut object, summary);
    put_counters(&mut object, summary);
    let providers = list_enables(summary.id, providers).into_iter().map(|listed| {
        let ListedEnable { provider, enable } = &listed;
        let mut object = JsonObject::new();
        object.text("guid", &provider.guid.to_string()).optional("name", listed.name());
        put_enable(&mut object, enable);
        object.text("kind", provider_kind(provider));
        object.raw("pids", &json_array(provider.pids.iter().map(ToString::to_string)));
        object.finish()
    });
    object.raw("providers", &json_array(providers));
    if let Some(kernel) = kernel {
        object.raw("kernel", &kernel.format_json());
    }
    object.finish()
}

/// Adds the parameters of an enable to a JSON object.
pub(crate) fn put_enable(object: &mut JsonObject, enable: &ProviderEnable) {
    object.number("level", enable.level.as_int()).mask("any", enable.keywords.bits());
    object.mask("all", enable.all_keywords.bits()).mask("property", enable.properties.bits());
    object
        .raw("filters", &json_array(enable.filters.iter().map(|filter| format!("\"{:#x}\"", filter.kind()))));
    object.raw("filtered", &json_array(enable.filters.iter().filter_map(enable_text::format_filter_json)));
    object.number("traced", enable.traced);
}

/// Returns the name that a provider registered, or else the first name in its enables.
pub(crate) fn provider_name(provider: &ProviderInfo) -> Option<&str> {
    let names = provider_enables(provider).map(|enable| enable.name.as_str());
    std::iter::once(provider.name.as_str()).chain(names).find(|name| !name.is_empty())
}

fn json_status(summary: &SessionSummary, state: SessionState) -> &'static str {
    match state {
        SessionState::Running => "running",
        SessionState::Ended if summary.end_status.is_none() && !is_at_limit(summary) => "stopped",
        SessionState::Ended => "ended",
    }
}

fn put_settings(object: &mut JsonObject, summary: &SessionSummary) {
    let file = summary.log_file.as_ref().map(|f| f.display().to_string());
    let kib = summary.maximum_file_bytes.unwrap_or(0) >> 10;
    object
        .number("id", summary.id.number())
        .text("guid", &summary.guid.to_string())
        .mask("mode", summary.mode.bits())
        .text("modes", &mode_names(summary.mode))
        .text("clock", json_clock(summary.clock))
        .optional("file", file.as_deref())
        .number("buffer_kib", summary.buffer_kib)
        .number("minimum_buffers", summary.minimum_buffers)
        .number("maximum_buffers", summary.maximum_buffers)
        .number("maximum_file_kib", kib)
        .number("maximum_file_mib", kib >> 10)
        .number("flush_timer", summary.flush_timer.as_secs())
        .number("flush_threshold", summary.flush_threshold)
        .mask("enable_flags", summary.kernel_flags)
        .raw("low_latency", if summary.low_latency { "true" } else { "false" });
}

fn put_counters(object: &mut JsonObject, summary: &SessionSummary) {
    let losses = &summary.lost;
    let mut lost = JsonObject::new();
    lost.number("no_room", losses.no_room)
        .number("not_written", losses.not_written)
        .number("damaged", losses.damaged)
        .number("no_region", losses.no_region)
        .number("kernel", losses.kernel)
        .number("overwritten", losses.overwritten);
    object
        .number("buffers", summary.buffers)
        .number("free_buffers", summary.free_buffers)
        .number("events", summary.events)
        .number("buffers_written", summary.buffers_written)
        .number("events_lost", summary.events_lost)
        .raw("lost_by_cause", &lost.finish())
        .number("log_buffers_lost", summary.buffers_lost)
        .number("overwritten_buffers", summary.overwritten_buffers)
        .number("real_time_buffers_lost", summary.real_time_buffers_lost)
        .number("real_time_events_lost", summary.real_time_events_lost)
        .number("processes", summary.processes)
        .number("consumers", summary.consumers)
        .number("damaged_regions", summary.damaged_regions)
        .number("uncounted_processes", summary.uncounted_processes)
        .number("collector_thread", summary.collector_thread)
        .number("collector_ns", u64::try_from(summary.collector_time.as_nanos()).unwrap_or(u64::MAX))
        .number("end_status", summary.end_status.map_or(0, |status| status.0));
}

#[cfg(test)]
mod tests;
