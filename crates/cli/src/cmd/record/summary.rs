//! The summary of a recording: its events by provider and kind, and the commands to type next.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anstream::eprintln;
use anyhow::Result;
use traceweir::Guid;
use traceweir::relog::is_context;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::schema_files::SchemaFiles;
use traceweir_analysis::traces::TraceSet;
use traceweir_format::kernel::hook;

use crate::cmd::report::has_report;
use crate::existing_output;
use crate::export::format_unnamed_event;
use crate::own_command::own_command;
use crate::progress::TerminalObserver;
use crate::text::{escape, format_count, format_number, quote_for_shell, quote_path_for_shell};

/// Larger files are not read for the summary; `weir stats` reads them.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Maximum number of rows of the table.
const MAX_ROWS: usize = 12;
/// The rate of a shorter recording means nothing.
const MIN_RATE_TIME: Duration = Duration::from_millis(100);

/// The events of a file, by provider and kind.
#[derive(Default)]
struct EventCounts {
    rows: HashMap<EventKind, u64>,
    providers: HashMap<Guid, String>,
    total: u64,
    samples: u64,
    switches: u64,
    /// Whether a report counts any of the events.
    has_report: bool,
    /// Events that describe the machine, its processes and their images.
    descriptions: u64,
}

/// Events of one provider and name.
#[derive(PartialEq, Eq, Hash)]
struct EventKind {
    is_of_kernel: bool,
    provider: Guid,
    name: Arc<str>,
}

/// What the user requested, as far as the summary depends on it.
#[derive(Clone, Copy)]
pub(super) struct SummaryRequest {
    /// Whether context switches were requested.
    pub(super) wants_switches: bool,
    /// Whether nothing was, so that the default profile applied.
    pub(super) is_default_profile: bool,
}

/// Prints what a finished recording contains, and two commands that show more. `collected` is the
/// number of events if the file is too large to be read here. Returns whether the file may have
/// events of programs.
pub(super) fn print(
    file: &Path,
    manifests: &[PathBuf],
    collected: u64,
    elapsed: Duration,
    request: SummaryRequest,
) -> bool {
    let size = file.metadata().map_or(0, |metadata| metadata.len());
    let counts = if size <= MAX_FILE_BYTES { EventCounts::read(file, manifests).ok() } else { None };
    if let Some(counts) = &counts {
        counts.print_table();
    }
    let events = counts.as_ref().map_or(collected, |counts| counts.total);
    let seconds = elapsed.as_secs_f64().max(f64::EPSILON);
    // A ring keeps only the newest of the events.
    let rate = format_count((events.max(collected) as f64 / seconds).round() as u64, "event");
    let (duration, size) = (elapsed.as_secs_f64(), format_size(size));
    match elapsed < MIN_RATE_TIME {
        true => eprintln!("recorded for {duration:.2} s: {size}"),
        false => eprintln!("recorded for {duration:.1} s: {rate} per second, {size}"),
    }
    let has_program_events =
        counts.as_ref().is_none_or(|counts| counts.rows.keys().any(|kind| !kind.is_of_kernel));
    if request.is_default_profile && has_program_events && events > 0 {
        eprintln!("events of programs: level Informational and more severe ones (-p '*' records all levels)");
    }
    if events > 0 {
        let [first, second] = next_commands(file, counts.as_ref(), request.wants_switches);
        eprintln!("next: {first}\n      {second}");
        if cfg!(feature = "view") {
            eprintln!("      {} view {}", own_command(), quote_path_for_shell(file));
        }
    }
    has_program_events
}

impl EventCounts {
    fn read(file: &Path, manifests: &[PathBuf]) -> Result<Self> {
        let schemas = SchemaFiles { manifests: manifests.to_vec(), ..SchemaFiles::default() };
        let mut traces = TraceSet::open(&[file.to_owned()], &schemas, TerminalObserver::create(false))?;
        let mut counts = Self::default();
        traces.read(
            |record, _| !describes_file(record),
            |event| {
                counts.add(event);
                Ok(ReadFlow::Continue)
            },
        )?;
        Ok(counts)
    }

    fn add(&mut self, event: &DescribedEvent<'_>) {
        self.total = self.total.saturating_add(1);
        if is_context(&event.record) {
            self.descriptions = self.descriptions.saturating_add(1);
            return;
        }
        let guid = event.record.provider();
        if let Some(name) = event.provider {
            self.providers.entry(guid).or_insert_with(|| name.to_owned());
        }
        let name = event.schema_match.as_ref().ok().and_then(|schema| schema.prepared.event_name.clone());
        let name = name.unwrap_or_else(|| format_unnamed_event(&event.record).into());
        let is_of_kernel = event.record.hook().is_some();
        let count = self.rows.entry(EventKind { is_of_kernel, provider: guid, name }).or_default();
        *count = count.saturating_add(1);
        let hook = event.record.hook();
        self.samples = self.samples.saturating_add(u64::from(hook == Some(hook::SAMPLED_PROFILE)));
        self.switches = self.switches.saturating_add(u64::from(hook == Some(hook::CONTEXT_SWITCH)));
        self.has_report |= hook.is_some_and(has_report);
    }

    /// Prints events of programs before those of the kernel, and the frequent ones first.
    fn print_table(&self) {
        let label = |kind: &EventKind| match self.providers.get(&kind.provider) {
            Some(provider) => format!("{}/{}", escape(provider), escape(&kind.name)),
            None => format!("{}/{}", kind.provider, escape(&kind.name)),
        };
        let mut rows: Vec<_> =
            self.rows.iter().map(|(kind, count)| (kind.is_of_kernel, Reverse(*count), label(kind))).collect();
        rows.sort();
        // A line about one hidden row would take its place.
        let shown = if rows.len() == MAX_ROWS + 1 { rows.len() } else { MAX_ROWS };
        for (_, Reverse(count), label) in rows.iter().take(shown) {
            eprintln!("{:>12}  {label}", format_number(*count));
        }
        let hidden = rows.len().saturating_sub(shown);
        if hidden > 0 {
            eprintln!("{:>12}  further kinds of events", format_number(hidden as u64));
        }
        if self.descriptions > 0 {
            eprintln!(
                "{:>12}  descriptions of the machine, its processes and images",
                format_number(self.descriptions)
            );
        }
    }

    /// Returns the names of the providers of programs.
    fn program_providers(&self) -> Vec<&str> {
        let kinds = self.rows.keys().filter(|kind| !kind.is_of_kernel);
        let mut names: Vec<&str> =
            kinds.filter_map(|kind| self.providers.get(&kind.provider).map(String::as_str)).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// Returns two commands that show the recorded events, as they can be typed in this shell.
fn next_commands(file: &Path, counts: Option<&EventCounts>, wants_switches: bool) -> [String; 2] {
    let (weir, name) = (own_command(), quote_path_for_shell(file));
    let (samples, switches, has_report) =
        counts.map_or((0, 0, false), |counts| (counts.samples, counts.switches, counts.has_report));
    let program_providers = counts.map(EventCounts::program_providers).unwrap_or_default();
    let dump = match (has_report, program_providers.as_slice()) {
        // Without the option, the kernel's events would hide those of the program.
        (true, [provider]) => format!("{weir} dump {name} --provider {}", quote_for_shell(provider)),
        _ => format!("{weir} dump {name}"),
    };
    let flame = || {
        let page = file.with_extension("html");
        let force = if existing_output::check_other(&page, false).is_err() { " --force" } else { "" };
        format!("{weir} flame {name} -o {}{force}", quote_path_for_shell(&page))
    };
    if !has_report {
        return [dump, format!("{weir} stats {name}")];
    }
    let report = match samples {
        // A program that waits has more switches than samples.
        _ if switches > samples || (wants_switches && switches > 0) => "report sched",
        0 => "report",
        _ => "report cpu",
    };
    let report = format!("{weir} {report} {name}");
    match (program_providers.is_empty(), samples) {
        (false, _) => [dump, report],
        (true, 0) => [report, dump],
        (true, _) => [report, flame()],
    }
}

/// Formats a size for people.
fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format_count(bytes, "byte"),
        1024..1_048_576 => format!("{} KiB", format_number(bytes >> 10)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}
