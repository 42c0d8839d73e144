//! `weir stats`: counts events and bytes by provider, event and process.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow, describes_file};
use traceweir_analysis::filter::EventFilter;
use traceweir_analysis::selection::EventSelection;
use traceweir_analysis::traces::parallel::EventWorker;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_decode::format::push_json_string;
use traceweir_format::Guid;
use traceweir_format::header::{NO_ID, Record};

use crate::cli::{GroupBy, StatsArgs};
use crate::exit::CommandOutcome;
use crate::export::format_unnamed_event;
use crate::filter::check_times;
use crate::output::print_text;
use crate::progress::TerminalObserver;
use crate::reading::{print_warnings, reading_outcome};
use crate::text::{
    ColumnKind, escape, format_count, format_events, format_number, format_table_of, format_tenths,
};

/// Number of events and bytes of a row, or of all events.
#[derive(Clone, Copy, Default)]
struct EventTotals {
    events: u64,
    bytes: u64,
}

impl EventTotals {
    fn add(&mut self, other: Self) {
        self.events += other.events;
        self.bytes += other.bytes;
    }
}

/// The provider, event or process of a row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum RowKey {
    Provider(Guid),
    /// Provider, name, id (for kernel events, the type) and version.
    Event(Guid, Arc<str>, u16, u8),
    Process(u32),
}

impl RowKey {
    /// Returns the table that the row belongs to.
    const fn table_name(&self) -> &'static str {
        match self {
            Self::Provider(_) => "provider",
            Self::Event(..) => "event",
            Self::Process(_) => "process",
        }
    }
}

#[derive(Default)]
struct TraceStats {
    totals: EventTotals,
    /// Number of events that describe the log file; no other number includes them.
    file_events: u64,
    rows: HashMap<RowKey, EventTotals>,
    /// The first name of each provider.
    providers: HashMap<Guid, OrderedName>,
    /// The last name of each process.
    processes: HashMap<u32, OrderedName>,
    /// The position and the time of the first event.
    first: Option<(u64, i64)>,
    last_time: Option<i64>,
}

/// A name, and the position of the event that has it.
struct OrderedName {
    order: u64,
    name: Box<str>,
}

/// Counts the events of some batches.
struct StatsWorker<'f> {
    stats: TraceStats,
    selection: EventSelection<'f>,
    by: GroupBy,
}

impl EventWorker for StatsWorker<'_> {
    fn add_event(&mut self, event: &DescribedEvent<'_>, order: u64, _: &mut Vec<u8>) {
        if self.selection.accepts(event) {
            self.stats.add_event(event, order, self.by);
        }
    }
}

/// Maximum length of a name in a table, in characters.
const MAX_NAME_CHARS: usize = 256;

fn truncate_name(name: &str) -> String {
    name.chars().take(MAX_NAME_CHARS).collect()
}

pub(super) fn run(options: &StatsArgs) -> Result<CommandOutcome> {
    let mut traces =
        TraceSet::open(&options.files.files, &options.schemas.files(), TerminalObserver::create(false))?;
    let filter = EventFilter::new(&options.filters.criteria(), traces.start());
    check_times(&filter, "--to");
    let threads = if filter.head.is_none() { traces.choose_threads(options.threads.requested) } else { 1 };
    let (stats, reading) = match threads {
        1 => read_stats(&mut traces, &filter, options.by)?,
        _ => read_stats_in_parallel(&mut traces, &filter, options.by, threads)?,
    };
    let text = stats.format_page(options);
    print_text(&text)?;
    if stats.totals.events == 0 && filter.is_restrictive() {
        eprintln!("no event matched");
    }
    print_warnings(&reading);
    Ok(reading_outcome(&reading))
}

fn read_stats_in_parallel(
    traces: &mut TraceSet,
    filter: &EventFilter,
    by: GroupBy,
    threads: usize,
) -> Result<(TraceStats, ReadSummary)> {
    let create_worker = |_| {
        let (stats, selection) = (TraceStats::default(), EventSelection::new(filter));
        StatsWorker { stats, selection, by }
    };
    let mut workers: Vec<StatsWorker<'_>> = (0..threads).map(create_worker).collect();
    let accepts = |record: &Record<'_>, time| filter.accepts_header(record, time);
    let reading = traces.read_in_parallel(&mut workers, accepts, |_| Ok(()))?;
    let mut stats = TraceStats::default();
    workers.into_iter().for_each(|worker| stats.merge(worker.stats));
    Ok((stats, reading))
}

fn read_stats(traces: &mut TraceSet, filter: &EventFilter, by: GroupBy) -> Result<(TraceStats, ReadSummary)> {
    let mut stats = TraceStats::default();
    let mut selection = EventSelection::new(filter);
    let mut order = 0;
    let reading = traces.read(
        |record, time| filter.accepts_header(record, time),
        |event| {
            if !selection.accepts(event) {
                return Ok(ReadFlow::Continue);
            }
            order += 1;
            stats.add_event(event, order, by);
            Ok(selection.count(event))
        },
    )?;
    Ok((stats, reading))
}

impl TraceStats {
    /// Adds what another thread counted.
    fn merge(&mut self, other: Self) {
        self.totals.add(other.totals);
        self.file_events += other.file_events;
        for (key, totals) in other.rows {
            self.rows.entry(key).or_default().add(totals);
        }
        for (guid, name) in other.providers {
            let is_first = self.providers.get(&guid).is_none_or(|known| name.order < known.order);
            if is_first {
                self.providers.insert(guid, name);
            }
        }
        for (pid, name) in other.processes {
            let is_last = self.processes.get(&pid).is_none_or(|known| name.order > known.order);
            if is_last {
                self.processes.insert(pid, name);
            }
        }
        self.first = [self.first, other.first].into_iter().flatten().min();
        self.last_time = self.last_time.max(other.last_time);
    }

    /// Adds an event; `order` is larger for later events.
    fn add_event(&mut self, event: &DescribedEvent<'_>, order: u64, by: GroupBy) {
        let record = &event.record;
        if describes_file(record) {
            self.file_events += 1;
            return;
        }
        let bytes = record.bytes().len() as u64;
        let guid = record.provider();
        self.first.get_or_insert((order, event.time.0));
        self.last_time = self.last_time.max(Some(event.time.0));
        let add_one = |totals: &mut EventTotals| {
            totals.events += 1;
            totals.bytes += bytes;
        };
        add_one(&mut self.totals);
        if let Some(name) = event.provider {
            let first_name = || OrderedName { order, name: truncate_name(name).into() };
            self.providers.entry(guid).or_insert_with(first_name);
        }
        if matches!(by, GroupBy::All | GroupBy::Provider) {
            add_one(self.rows.entry(RowKey::Provider(guid)).or_default());
        }
        if matches!(by, GroupBy::All | GroupBy::Event) {
            let descriptor = record.descriptor();
            let name = event.schema_match.as_ref().ok().and_then(|schema| schema.prepared.event_name.clone());
            let name = name.unwrap_or_else(|| {
                format!("{} v{}", format_unnamed_event(record), descriptor.version).into()
            });
            let name = if name.len() > MAX_NAME_CHARS { truncate_name(&name).into() } else { name };
            let id = if record.hook().is_some() { u16::from(descriptor.opcode) } else { descriptor.id };
            add_one(self.rows.entry(RowKey::Event(guid, name, id, descriptor.version)).or_default());
        }
        if matches!(by, GroupBy::All | GroupBy::Process) {
            let (pid, _) = event.concerned_ids();
            // After exec, a process has the name of the new program instead of the name of its
            // parent.
            if let Some(name) = event.process {
                match self.processes.get_mut(&pid) {
                    Some(known) if *known.name == *name => known.order = order,
                    _ => drop(self.processes.insert(pid, OrderedName { order, name: name.into() })),
                }
            }
            add_one(self.rows.entry(RowKey::Process(pid)).or_default());
        }
    }

    fn seconds(&self) -> f64 {
        self.first
            .zip(self.last_time)
            .map_or(0.0, |((_, first), last)| last.saturating_sub(first) as f64 / 1e7)
    }

    fn format_page(&self, options: &StatsArgs) -> String {
        let mut page = String::new();
        if !options.json {
            let events = format_events(self.totals.events, self.file_events);
            let bytes = format_count(self.totals.bytes, "byte");
            let _ = writeln!(page, "{events}, {bytes} in {:.3} s", self.seconds());
        }
        for name in ["provider", "event", "process"] {
            let mut rows: Vec<_> = self.rows.iter().filter(|(k, _)| k.table_name() == name).collect();
            if rows.is_empty() {
                continue;
            }
            rows.sort_by_cached_key(|(key, totals)| {
                (std::cmp::Reverse(totals.events), self.row_label(key), (*key).clone())
            });
            let max_rows = if options.top == 0 { rows.len() } else { options.top };
            self.format_table(name, &rows, max_rows, options.json, &mut page);
        }
        page
    }

    fn format_table(
        &self,
        name: &str,
        rows: &[(&RowKey, &EventTotals)],
        max_rows: usize,
        as_json: bool,
        page: &mut String,
    ) {
        let shown = rows.iter().take(max_rows);
        if as_json {
            return shown.for_each(|(key, totals)| self.write_json_row(name, key, totals, page));
        }
        use ColumnKind::{Number, Path};
        let mut lines = vec![["events", "bytes", "events/s", "share", name].map(str::to_owned)];
        let mut label_counts: HashMap<String, usize> = HashMap::new();
        rows.iter().for_each(|(key, _)| *label_counts.entry(self.row_label(key)).or_default() += 1);
        lines.extend(shown.map(|(key, totals)| {
            let share = totals.events as f64 * 100.0 / self.totals.events.max(1) as f64;
            let mut label = self.row_label(key);
            if let RowKey::Event(_, _, id, version) = key
                && label_counts.get(&label).is_some_and(|count| *count > 1)
            {
                label = format!("{label} (id {id}, version {version})");
            }
            [
                format_number(totals.events),
                format_number(totals.bytes),
                format_tenths(self.events_per_second(totals.events)),
                format!("{share:.1}%"),
                escape(&label),
            ]
        }));
        page.push('\n');
        page.push_str(&format_table_of(&lines, &[Number, Number, Number, Number, Path]));
        if rows.len() > max_rows {
            let hidden = format_number((rows.len() - max_rows) as u64);
            let _ = writeln!(page, "{hidden} more (--top 0 shows all)");
        }
    }

    fn events_per_second(&self, events: u64) -> f64 {
        let seconds = self.seconds();
        if seconds > 0.0 { events as f64 / seconds } else { 0.0 }
    }

    fn write_json_row(&self, name: &str, key: &RowKey, totals: &EventTotals, page: &mut String) {
        let mut out = format!("{{\"by\":\"{name}\",\"name\":").into_bytes();
        push_json_string(&self.row_label(key), &mut out);
        page.push_str(&String::from_utf8_lossy(&out));
        self.write_json_ids(key, page);
        let rate = self.events_per_second(totals.events);
        let _ =
            writeln!(page, ",\"events\":{},\"bytes\":{},\"rate\":{rate:.3}}}", totals.events, totals.bytes);
    }

    fn write_json_ids(&self, key: &RowKey, page: &mut String) {
        let _ = match key {
            RowKey::Provider(guid) => write!(page, ",\"guid\":\"{guid}\""),
            RowKey::Event(guid, _, id, version) => {
                write!(page, ",\"guid\":\"{guid}\",\"id\":{id},\"version\":{version}")
            }
            RowKey::Process(NO_ID) => write!(page, ",\"pid\":-1"),
            RowKey::Process(pid) => write!(page, ",\"pid\":{pid}"),
        };
    }

    fn row_label(&self, key: &RowKey) -> String {
        let provider_name =
            |guid: &Guid| self.providers.get(guid).map_or_else(|| guid.to_string(), |n| n.name.to_string());
        match key {
            RowKey::Provider(guid) => {
                // Kernel events share one provider name; their class distinguishes them.
                match traceweir_format::kernel::class_name(guid) {
                    Some(class) => format!("{} ({class})", provider_name(guid)),
                    None => provider_name(guid),
                }
            }
            RowKey::Event(guid, name, ..) => format!("{}/{name}", provider_name(guid)),
            RowKey::Process(NO_ID) => "(no process)".to_owned(),
            RowKey::Process(pid) => match self.processes.get(pid) {
                Some(OrderedName { name, .. }) => format!("{name} ({pid})"),
                None => pid.to_string(),
            },
        }
    }
}
