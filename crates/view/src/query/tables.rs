//! Tables of a time span: processes, threads, events, files, connections.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::index::series::Summary;
use crate::index::threads::ThreadIndex;
use crate::index::{Index, RUN, Transfer};
use crate::json::JsonWriter;
use crate::query::links::LinkIds;
use crate::query::tracks::kind_label;
use crate::query::transfers::{TransferTarget, name_of};
use crate::query::waits::for_waits;
use crate::query::{LoopGuard, QueryLimits, TimeSpan, process_label, thread_label};
use crate::trace::TraceView;

const MAX_ROWS: usize = 500;

/// The names of the tables.
pub(crate) const TABLES: [&str; 5] = ["processes", "threads", "events", "files", "connections"];

/// The table of a question, its time span and order.
#[derive(Clone, Debug)]
pub(crate) struct TableQuery {
    /// One of [`TABLES`].
    pub(crate) name: String,
    pub(crate) span: TimeSpan,
    /// Rows that do not contain this text are left out.
    pub(crate) search: String,
    /// `None` for the order in which tables are shown first.
    pub(crate) sort: Option<TableSort>,
}

/// The column that a table is sorted by. The reply has the first rows of this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSort {
    /// Index of the column.
    pub(crate) column: usize,
    pub(crate) is_descending: bool,
}

impl TableSort {
    /// Parses the number of a column, which counts from 1; a minus puts the largest first.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        let column = digits.parse::<usize>().ok()?.checked_sub(1)?;
        Some(Self { column, is_descending: digits.len() < text.len() })
    }
}

/// Times of a thread or process in a span.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadTotals {
    running_ns: u64,
    switches: u64,
    waits: u64,
    waiting_ns: u64,
    ready_ns: u64,
    samples: u64,
}

enum Cell {
    Text(String),
    Number(u64),
    /// The trace lacks the events that the column needs.
    Missing,
    Link(&'static str, u64, String),
    /// A thread or process, with the value of the option of filters that names it.
    Actor(&'static str, u32, String, String),
}

/// What cells are compared by.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum SortKey {
    Missing,
    Number(u64),
    /// In lower case.
    Text(String),
}

impl Cell {
    fn sort_key(&self) -> SortKey {
        match self {
            Self::Missing => SortKey::Missing,
            Self::Number(number) => SortKey::Number(*number),
            Self::Text(text) | Self::Link(.., text) | Self::Actor(_, _, text, _) => {
                SortKey::Text(text.to_lowercase())
            }
        }
    }
}

struct Table {
    /// Names and units of the columns.
    columns: Vec<(&'static str, &'static str)>,
    rows: Vec<Vec<Cell>>,
    /// The numbers by which the rows are sorted unless a column is chosen; larger first.
    weights: Vec<u64>,
    /// The events that columns need and the trace lacks, and how to record them.
    missing: Option<String>,
}

impl Table {
    fn new(columns: &[(&'static str, &'static str)]) -> Self {
        Self { columns: columns.to_vec(), rows: Vec::new(), weights: Vec::new(), missing: None }
    }

    fn push(&mut self, weight: u64, cells: Vec<Cell>) {
        self.rows.push(cells);
        self.weights.push(weight);
    }
}

/// Fills a table. Returns false if there is no table of that name.
pub(crate) fn fill_table(
    view: &TraceView,
    query: &TableQuery,
    limits: &QueryLimits,
    json: &mut JsonWriter,
) -> bool {
    let index = view.index();
    let mut guard = LoopGuard::new(limits);
    let guard = &mut guard;
    let table = match query.name.as_str() {
        "processes" => list_processes(&index, query.span, guard),
        "threads" => list_threads(&index, query.span, guard),
        "events" => list_kinds(&index, query.span, guard),
        "files" => list_files(&index, query.span, false, guard),
        "connections" => list_files(&index, query.span, true, guard),
        _ => return false,
    };
    push_table(&table, query, guard.has_stopped(), json);
    true
}

fn add_up_threads(index: &Index, span: TimeSpan, guard: &mut LoopGuard<'_>) -> BTreeMap<u32, ThreadTotals> {
    // Rows of the same weight are in the order of these ids.
    let mut totals: BTreeMap<u32, ThreadTotals> = BTreeMap::new();
    for cpu in &index.cpus {
        cpu.runs.for_each(span.from, span.to, &index.store, |item| {
            if item.value & 3 == RUN {
                let overlap = item.end().min(span.to).saturating_sub(item.start.max(span.from));
                let entry = totals.entry(u32::try_from(item.value >> 2).unwrap_or(1)).or_default();
                entry.running_ns = entry.running_ns.saturating_add(u64::try_from(overlap).unwrap_or(0));
                entry.switches += u64::from(item.start >= span.from);
            }
            guard.may_continue()
        });
    }
    for_waits(index, span, guard, |wait| {
        let entry = totals.entry(u32::try_from(wait.thread).unwrap_or(1)).or_default();
        entry.waits += 1;
    });
    for (number, entry) in &mut totals {
        let Some(thread) = index.threads.get(ThreadIndex(*number)) else { continue };
        if !guard.may_continue() {
            break;
        }
        // A wait of `for_waits` lasts until the thread runs again: a part of it is ready time.
        let [_, _, ready, waiting] = thread.states.summarize(span.from, span.to, &index.store).totals;
        entry.ready_ns = ready.max(0).unsigned_abs();
        entry.waiting_ns = waiting.max(0).unsigned_abs();
    }
    let begin = index.samples.find_time(span.from, &index.store);
    let end = index.samples.find_time(span.to.saturating_add(1), &index.store);
    index.samples.for_rows(begin, end, &index.store, |_, values| {
        if let [_, thread, _, weight] = values {
            let entry = totals.entry(u32::try_from(*thread).unwrap_or(1)).or_default();
            entry.samples = entry.samples.saturating_add(*weight);
        }
        guard.may_continue()
    });
    totals
}

const THREAD_COLUMNS: [(&str, &str); 6] = [
    ("CPU time", "ns"),
    ("Switches", ""),
    ("Waits", ""),
    ("Waiting", "ns"),
    ("Ready", "ns"),
    ("Samples", ""),
];

/// Which of the events that the columns of threads need were recorded.
#[derive(Clone, Copy, Debug)]
struct RecordedEvents {
    switches: bool,
    samples: bool,
}

impl RecordedEvents {
    fn new(index: &Index) -> Self {
        Self { switches: index.has_switches(), samples: index.has_samples() }
    }

    /// Names the events that were not recorded.
    fn missing(self) -> Option<String> {
        let events = [
            (self.switches, "context switches (weir record --kernel sched)"),
            (self.samples, "samples (weir record --kernel cpu)"),
        ];
        let missing = events.into_iter().filter(|(is_recorded, _)| !is_recorded).map(|(_, name)| name);
        let names = missing.collect::<Vec<_>>().join(", ");
        (!names.is_empty()).then(|| format!("not recorded: {names}"))
    }

    /// Adds the cells of [`THREAD_COLUMNS`].
    fn push_totals(self, totals: &ThreadTotals, cells: &mut Vec<Cell>) {
        let ThreadTotals { running_ns, switches, waits, waiting_ns, ready_ns, samples } = *totals;
        let cell = |number, is_recorded| if is_recorded { Cell::Number(number) } else { Cell::Missing };
        let by_switches = [running_ns, switches, waits, waiting_ns, ready_ns];
        cells.extend(by_switches.map(|number| cell(number, self.switches)));
        cells.push(cell(samples, self.samples));
    }
}

fn list_threads(index: &Index, span: TimeSpan, guard: &mut LoopGuard<'_>) -> Table {
    let (threads, processes) = (LinkIds::of_threads(index), LinkIds::of_processes(index));
    let mut columns = vec![("Thread", ""), ("Process", "")];
    columns.extend(THREAD_COLUMNS);
    let recorded = RecordedEvents::new(index);
    let mut table = Table { missing: recorded.missing(), ..Table::new(&columns) };
    for (number, totals) in add_up_threads(index, span, guard) {
        let Some(thread) = index.threads.get(ThreadIndex(number)) else { continue };
        let process = thread.process;
        let mut cells = vec![
            Cell::Actor("thread", number, thread_label(thread), threads.value(number)),
            Cell::Actor("process", process, process_label(index, process), processes.value(process)),
        ];
        recorded.push_totals(&totals, &mut cells);
        table.push(totals.running_ns.max(totals.samples), cells);
    }
    table
}

fn list_processes(index: &Index, span: TimeSpan, guard: &mut LoopGuard<'_>) -> Table {
    let mut by_process: BTreeMap<u32, (ThreadTotals, u64)> = BTreeMap::new();
    for (number, totals) in add_up_threads(index, span, guard) {
        let Some(thread) = index.threads.get(ThreadIndex(number)) else { continue };
        let (sum, threads) = by_process.entry(thread.process).or_default();
        sum.running_ns = sum.running_ns.saturating_add(totals.running_ns);
        sum.switches = sum.switches.saturating_add(totals.switches);
        sum.waits = sum.waits.saturating_add(totals.waits);
        sum.waiting_ns = sum.waiting_ns.saturating_add(totals.waiting_ns);
        sum.ready_ns = sum.ready_ns.saturating_add(totals.ready_ns);
        sum.samples = sum.samples.saturating_add(totals.samples);
        *threads += 1;
    }
    // Without switches and samples, the processes that wrote events.
    for (number, process) in (0_u32..).zip(&index.threads.processes) {
        if process.events > 0 && process.first <= span.to && process.last >= span.from {
            by_process.entry(number).or_default();
        }
    }
    let ids = LinkIds::of_processes(index);
    let mut columns = vec![("Process", ""), ("Active threads", "")];
    columns.extend(THREAD_COLUMNS);
    let recorded = RecordedEvents::new(index);
    let mut table = Table { missing: recorded.missing(), ..Table::new(&columns) };
    for (process, (totals, threads)) in by_process {
        let label = process_label(index, process);
        let mut cells =
            vec![Cell::Actor("process", process, label, ids.value(process)), Cell::Number(threads)];
        recorded.push_totals(&totals, &mut cells);
        table.push(totals.running_ns.max(totals.samples), cells);
    }
    table
}

fn list_kinds(index: &Index, span: TimeSpan, guard: &mut LoopGuard<'_>) -> Table {
    let mut table = Table::new(&[("Event", ""), ("Provider", ""), ("Count", ""), ("Level", "")]);
    for (number, kind) in (0_u64..).zip(&index.kinds.kinds) {
        if !guard.may_continue() {
            break;
        }
        let Summary { count, .. } = kind.marks.summarize(span.from, span.to, &index.store);
        if count > 0 {
            let provider = index.kinds.provider_of(kind).map_or_else(String::new, |p| p.name.to_string());
            table.push(
                count,
                vec![
                    Cell::Link("kind", number, kind_label(kind)),
                    Cell::Text(provider),
                    Cell::Number(count),
                    Cell::Number(kind.descriptor.level.into()),
                ],
            );
        }
    }
    table
}

/// Numbers and bytes of the operations on a file or connection.
#[derive(Clone, Copy, Debug, Default)]
struct FileTotals {
    incoming: (u64, u64),
    outgoing: (u64, u64),
    duration_ns: u64,
}

impl FileTotals {
    fn add(&mut self, other: &Self) {
        let add = |a: (u64, u64), b: (u64, u64)| (a.0.saturating_add(b.0), a.1.saturating_add(b.1));
        self.incoming = add(self.incoming, other.incoming);
        self.outgoing = add(self.outgoing, other.outgoing);
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
    }
}

/// The name of a file, and whether its transfers are those of a disk.
type FileKey = (Option<Arc<str>>, bool);

fn list_files(index: &Index, span: TimeSpan, wants_connections: bool, guard: &mut LoopGuard<'_>) -> Table {
    let mut totals: HashMap<(u32, bool), FileTotals> = HashMap::new();
    let begin = index.transfers.find_time(span.from, &index.store);
    let end = index.transfers.find_time(span.to.saturating_add(1), &index.store);
    index.transfers.for_rows(begin, end, &index.store, |_, values| {
        let may_continue = guard.may_continue();
        let [_, duration, bytes, _, file, transfer, ..] = values else { return may_continue };
        let Some(transfer) = Transfer::from_number(*transfer) else { return may_continue };
        if transfer.is_network() != wants_connections {
            return may_continue;
        }
        let key = (u32::try_from(*file).unwrap_or(0), transfer.is_disk());
        let entry = totals.entry(key).or_default();
        let side = if transfer.is_incoming() { &mut entry.incoming } else { &mut entry.outgoing };
        *side = (side.0.saturating_add(1), side.1.saturating_add(*bytes));
        entry.duration_ns = entry.duration_ns.saturating_add(*duration);
        may_continue
    });
    let mut table = if wants_connections {
        Table::new(&[
            ("Connection", ""),
            ("Received", "bytes"),
            ("Receives", ""),
            ("Sent", "bytes"),
            ("Sends", ""),
        ])
    } else {
        Table::new(&[
            ("File", ""),
            ("Level", ""),
            ("Read", "bytes"),
            ("Reads", ""),
            ("Written", "bytes"),
            ("Writes", ""),
            ("Disk time", "ns"),
        ])
    };
    // A file has several keys: one for each time that it was opened.
    let mut by_name: BTreeMap<FileKey, (u32, FileTotals)> = BTreeMap::new();
    for ((file, is_disk), totals) in totals {
        let (first, sum) =
            by_name.entry((name_of(index, file), is_disk)).or_insert((file, FileTotals::default()));
        *first = file.min(*first);
        sum.add(&totals);
    }
    for ((_, is_disk), (file, totals)) in by_name {
        let target = TransferTarget { is_connection: wants_connections, file };
        let mut cells = vec![Cell::Link(target.link_type(), file.into(), target.label(index))];
        if !wants_connections {
            cells.push(Cell::Text(if is_disk { "disk" } else { "file system" }.to_owned()));
        }
        let (incoming, outgoing) = (totals.incoming, totals.outgoing);
        cells.extend([incoming.1, incoming.0, outgoing.1, outgoing.0].map(Cell::Number));
        if !wants_connections {
            cells.push(Cell::Number(totals.duration_ns));
        }
        table.push(incoming.1.saturating_add(outgoing.1), cells);
    }
    table
}

/// Writes the first rows of a table that contain the text of the query, in its order.
fn push_table(table: &Table, query: &TableQuery, is_partial: bool, json: &mut JsonWriter) {
    let search = query.search.to_lowercase();
    let has_text = |cells: &[Cell]| {
        cells.iter().any(|cell| match cell {
            Cell::Text(text) | Cell::Link(.., text) | Cell::Actor(_, _, text, _) => {
                text.to_lowercase().contains(&search)
            }
            Cell::Number(_) | Cell::Missing => false,
        })
    };
    let mut order: Vec<(u64, usize)> = table.weights.iter().copied().zip(0..).collect();
    if !search.is_empty() {
        order.retain(|(_, row)| table.rows.get(*row).is_some_and(|cells| has_text(cells)));
    }
    order.sort_by_key(|(weight, row)| (u64::MAX - weight, *row));
    if let Some(TableSort { column, is_descending }) = query.sort {
        // Rows with equal cells stay in the order of their weights.
        let key_of = |row: usize| table.rows.get(row)?.get(column).map(Cell::sort_key);
        if is_descending {
            order.sort_by_cached_key(|(_, row)| Reverse(key_of(*row)));
        } else {
            order.sort_by_cached_key(|(_, row)| key_of(*row));
        }
    }
    json.object(|json| {
        json.key("columns");
        json.array(|json| {
            for (name, unit) in &table.columns {
                json.array(|json| {
                    json.text(name);
                    json.text(unit);
                });
            }
        });
        json.key("total");
        json.number(order.len() as u64);
        json.key("partial");
        json.flag(is_partial);
        json.key("missing");
        json.optional_text(table.missing.as_deref());
        json.key("rows");
        json.array(|json| {
            for cells in order.iter().take(MAX_ROWS).filter_map(|(_, row)| table.rows.get(*row)) {
                json.array(|json| cells.iter().for_each(|cell| push_cell(cell, json)));
            }
        });
    });
}

fn push_cell(cell: &Cell, json: &mut JsonWriter) {
    match cell {
        Cell::Text(text) => json.text(text),
        Cell::Number(number) => json.number(*number),
        Cell::Missing => json.optional_text(None),
        Cell::Actor(kind, number, text, value) => json.array(|json| {
            json.text(kind);
            json.number(*number);
            json.text(text);
            json.text(value);
        }),
        Cell::Link(kind, number, text) => json.array(|json| {
            json.text(kind);
            json.number(*number);
            json.text(text);
        }),
    }
}

#[cfg(test)]
mod tests;
