//! The lines of a table on the screen: chosen, sorted and cut from the counts.
//!
//! ```text
//!   tables ──filter──▶ lines ──sort──▶ those that fit on the screen, with their histories
//! ```

use std::cmp::Ordering;
use std::sync::Arc;

use traceweir_analysis::pairs::PairTask;
use traceweir_analysis::report::Latencies;
use traceweir_format::Guid;
use traceweir_format::header::NO_ID;

use super::events::{EventKey, EventTables, TaskRow};
use super::history::{History, Second};
use super::kernel::{KernelRow, KernelTables};
use crate::text::{format_number, matches_pattern};

/// The most numbers of a line.
const MAX_VALUES: usize = 7;
/// The name of the row of all keys beyond the limit of a table.
const REST_NAME: &str = "(all others)";

/// What the screen shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Tab {
    #[default]
    Providers,
    Events,
    Processes,
    Latency,
    Kernel,
}

/// A column of numbers.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) title: &'static str,
    pub(super) width: u16,
    pub(super) format: fn(f64) -> String,
}

const fn column(title: &'static str, width: u16, format: fn(f64) -> String) -> Column {
    Column { title, width, format }
}

const PROVIDER_COLUMNS: &[Column] = &[
    column("LEVEL", 8, format_level),
    column("EVENTS/S", 10, format_whole),
    column("EVENTS", 13, format_whole),
];
const EVENT_COLUMNS: &[Column] = &[column("EVENTS/S", 10, format_whole), column("EVENTS", 13, format_whole)];
const PROCESS_COLUMNS: &[Column] =
    &[column("PID", 8, format_id), column("EVENTS/S", 10, format_whole), column("EVENTS", 13, format_whole)];
const LATENCY_COLUMNS: &[Column] = &[
    column("PAIRS/S", 8, format_whole),
    column("P50", 8, format_duration),
    column("P90", 8, format_duration),
    column("P99", 8, format_duration),
    column("MAX", 8, format_duration),
];
const KERNEL_COLUMNS: &[Column] = &[
    column("PID", 8, format_id),
    column("CPU %", 6, format_tenth),
    column("SWITCH/S", 8, format_whole),
    column("WAKE P50", 8, format_duration),
    column("WAKE P99", 8, format_duration),
    column("DISK/S", 7, format_bytes),
    column("NET/S", 7, format_bytes),
];

impl Tab {
    pub(super) const ALL: [Self; 5] =
        [Self::Providers, Self::Events, Self::Processes, Self::Latency, Self::Kernel];

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Providers => "Providers",
            Self::Events => "Events",
            Self::Processes => "Processes",
            Self::Latency => "Latency",
            Self::Kernel => "Kernel",
        }
    }

    /// Returns the heading of the names.
    pub(super) const fn name_title(self) -> &'static str {
        match self {
            Self::Providers => "PROVIDER",
            Self::Events => "EVENT",
            Self::Processes | Self::Kernel => "PROCESS",
            Self::Latency => "START AND STOP",
        }
    }

    pub(super) const fn columns(self) -> &'static [Column] {
        match self {
            Self::Providers => PROVIDER_COLUMNS,
            Self::Events => EVENT_COLUMNS,
            Self::Processes => PROCESS_COLUMNS,
            Self::Latency => LATENCY_COLUMNS,
            Self::Kernel => KERNEL_COLUMNS,
        }
    }

    /// Returns the order before the user chooses one: by rate, or by processor time.
    pub(super) const fn default_order(self) -> SortOrder {
        let column = match self {
            Self::Events | Self::Latency => 1,
            Self::Providers | Self::Processes | Self::Kernel => 2,
        };
        SortOrder { column, is_reversed: false }
    }

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|tab| *tab == self).unwrap_or(0)
    }
}

/// The order of lines. Numbers are in descending and names in ascending order, unless reversed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SortOrder {
    /// 0 for the name, or the number of a column from 1.
    pub(super) column: usize,
    pub(super) is_reversed: bool,
}

/// Identifies a line while its position changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LineKey {
    Provider(Guid),
    Event(EventKey),
    Process(u32),
    Task(PairTask),
    Rest,
}

impl LineKey {
    /// Returns the provider of a line, if it has one.
    pub(super) const fn provider(&self) -> Option<Guid> {
        match self {
            Self::Provider(guid) => Some(*guid),
            Self::Event(key) => Some(key.provider()),
            Self::Process(_) | Self::Task(_) | Self::Rest => None,
        }
    }
}

/// A line of the table.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) key: LineKey,
    pub(super) name: Arc<str>,
    pub(super) provider_name: Option<Arc<str>>,
    /// The numbers of the columns. Without a number, NaN.
    pub(super) values: [f64; MAX_VALUES],
    /// Amounts by second, the oldest first.
    pub(super) history: Vec<u64>,
}

impl Line {
    /// Returns the name with that of its provider.
    pub(super) fn full_name(&self) -> String {
        match self.sort_name() {
            ("", name) => name.to_owned(),
            (provider, name) => format!("{provider}/{name}"),
        }
    }

    /// Returns the name of the provider, if it is a part of the name of the line, and the name.
    fn sort_name(&self) -> (&str, &str) {
        let has_provider = matches!(self.key, LineKey::Event(_) | LineKey::Task(_));
        let provider = self.provider_name.as_deref().filter(|_| has_provider);
        (provider.unwrap_or_default(), &self.name)
    }
}

/// The line that the user selected.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    pub(super) index: usize,
    /// The line to stay on when the order changes; without one, the index stays.
    pub(super) key: Option<LineKey>,
    /// Whether the selection stays on the line that the index leads to.
    pub(super) is_pinned: bool,
    /// Index of the first line on the screen.
    pub(super) first: usize,
}

/// What to show.
pub(super) struct PageRequest<'r> {
    pub(super) tab: Tab,
    pub(super) order: SortOrder,
    /// Text or pattern that names must match; empty for all.
    pub(super) filter: &'r str,
    /// Number of lines that fit on the screen.
    pub(super) height: usize,
    /// Number of seconds of each history.
    pub(super) history: usize,
    /// The second that the rates are of.
    pub(super) second: Second,
    /// Returns the level that a provider of this id and name is enabled with.
    pub(super) find_level: &'r dyn Fn(Guid, Option<&str>) -> Option<u8>,
}

/// The counts that lines are made from.
#[derive(Clone, Copy)]
pub(super) struct PageSource<'s> {
    pub(super) events: Option<&'s EventTables>,
    pub(super) kernel: Option<&'s KernelTables>,
}

/// The lines on the screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Page {
    pub(super) lines: Vec<Line>,
    /// Index of the selected line in `lines`.
    pub(super) selected: usize,
    /// Index of the first of `lines` among all that the filter keeps.
    pub(super) first: usize,
    /// Number of lines that the filter keeps.
    pub(super) kept: usize,
}

impl Page {
    /// Builds the lines, and updates the selection to a line that exists.
    pub(super) fn build(
        source: PageSource<'_>,
        request: &PageRequest<'_>,
        selection: &mut Selection,
    ) -> Self {
        let mut candidates = list_candidates(source, request);
        candidates.retain(|candidate| keeps(request.filter, &candidate.line));
        candidates.sort_by(|a, b| compare(request.order, &a.line, &b.line));
        let found = selection.key.as_ref().and_then(|key| candidates.iter().position(|c| c.line.key == *key));
        selection.index = found.unwrap_or(selection.index).min(candidates.len().saturating_sub(1));
        let is_pinned = selection.is_pinned;
        selection.key =
            candidates.get(selection.index).filter(|_| is_pinned).map(|candidate| candidate.line.key.clone());
        let height = request.height.max(1);
        let least_first = selection.index.saturating_add(1).saturating_sub(height);
        let most_first = selection.index.min(candidates.len().saturating_sub(height));
        selection.first = selection.first.max(least_first).min(most_first);
        let kept = candidates.len();
        let shown = candidates.into_iter().skip(selection.first).take(height).map(|candidate| {
            let history = candidate.history.amounts_until(request.second, request.history);
            Line { history, ..candidate.line }
        });
        let (first, selected) = (selection.first, selection.index.saturating_sub(selection.first));
        Self { lines: shown.collect(), selected, first, kept }
    }
}

/// A line without its history, and where that is.
struct Candidate<'s> {
    line: Line,
    history: &'s History,
}

/// Collects candidates.
struct Candidates<'s> {
    list: Vec<Candidate<'s>>,
}

impl<'s> Candidates<'s> {
    fn push<const N: usize>(
        &mut self,
        key: LineKey,
        name: Arc<str>,
        provider_name: Option<Arc<str>>,
        history: &'s History,
        numbers: [f64; N],
    ) {
        let mut values = [f64::NAN; MAX_VALUES];
        values.iter_mut().zip(numbers).for_each(|(value, number)| *value = number);
        let line = Line { key, name, provider_name, values, history: Vec::new() };
        self.list.push(Candidate { line, history });
    }

    /// Adds the row of all keys beyond the limit, if there are any.
    fn push_rest<const N: usize>(&mut self, history: &'s History, numbers: [f64; N]) {
        if history.total() > 0 {
            self.push(LineKey::Rest, REST_NAME.into(), None, history, numbers);
        }
    }
}

fn list_candidates<'s>(source: PageSource<'s>, request: &PageRequest<'_>) -> Vec<Candidate<'s>> {
    let mut candidates = Candidates { list: Vec::new() };
    match (request.tab, source) {
        (Tab::Providers, PageSource { events: Some(tables), .. }) => {
            list_providers(tables, request, &mut candidates);
        }
        (Tab::Events, PageSource { events: Some(tables), .. }) => {
            list_events(tables, request.second, &mut candidates);
        }
        (Tab::Processes, PageSource { events: Some(tables), .. }) => {
            list_processes(tables, request.second, &mut candidates);
        }
        (Tab::Latency, PageSource { events: Some(tables), .. }) => {
            list_tasks(tables, request.second, &mut candidates);
        }
        (Tab::Kernel, PageSource { kernel: Some(tables), .. }) => {
            list_kernel(tables, request.second, &mut candidates);
        }
        _ => {}
    }
    candidates.list
}

fn list_providers<'s>(tables: &'s EventTables, request: &PageRequest<'_>, candidates: &mut Candidates<'s>) {
    let counts = |history: &History| (history.amount_in(request.second) as f64, history.total() as f64);
    for (guid, row) in tables.providers.rows() {
        let name = row.name.clone().unwrap_or_else(|| format!("{{{guid}}}").into());
        let level = (request.find_level)(*guid, row.name.as_deref()).map_or(f64::NAN, f64::from);
        let (rate, total) = counts(&row.events);
        let key = LineKey::Provider(*guid);
        candidates.push(key, name, row.name.clone(), &row.events, [level, rate, total]);
    }
    let rest = &tables.providers.rest().events;
    let (rate, total) = counts(rest);
    candidates.push_rest(rest, [f64::NAN, rate, total]);
}

fn list_events<'s>(tables: &'s EventTables, second: Second, candidates: &mut Candidates<'s>) {
    let numbers = |history: &History| [history.amount_in(second) as f64, history.total() as f64];
    for (key, row) in tables.events.rows() {
        let provider_name =
            row.provider_name.clone().or_else(|| Some(format!("{{{}}}", key.provider()).into()));
        let line_key = LineKey::Event(key.clone());
        candidates.push(line_key, Arc::clone(&row.name), provider_name, &row.events, numbers(&row.events));
    }
    let rest = &tables.events.rest().events;
    candidates.push_rest(rest, numbers(rest));
}

fn list_processes<'s>(tables: &'s EventTables, second: Second, candidates: &mut Candidates<'s>) {
    let numbers = |id: f64, history: &History| [id, history.amount_in(second) as f64, history.total() as f64];
    for (pid, row) in tables.processes.rows() {
        let name = process_name(*pid, row.name.name.as_ref());
        let history = &row.events;
        candidates.push(LineKey::Process(*pid), name, None, history, numbers(f64::from(*pid), history));
    }
    let rest = &tables.processes.rest().events;
    candidates.push_rest(rest, numbers(f64::NAN, rest));
}

/// Returns the name of a process, or a substitute.
fn process_name(pid: u32, name: Option<&Arc<str>>) -> Arc<str> {
    match name {
        Some(name) => Arc::clone(name),
        None if pid == NO_ID => "(unknown)".into(),
        None if pid == 0 => "(kernel)".into(),
        None => "(ended)".into(),
    }
}

fn percentile(latencies: &Latencies, percent: u64) -> f64 {
    latencies.percentile(percent).map_or(f64::NAN, |nanoseconds| nanoseconds as f64)
}

fn list_tasks<'s>(tables: &'s EventTables, second: Second, candidates: &mut Candidates<'s>) {
    let numbers = |row: &TaskRow| {
        let recent = row.latencies.recent(second);
        let [p50, p90, p99, max] = [50, 90, 99, 100].map(|percent| percentile(&recent, percent));
        [row.pairs.amount_in(second) as f64, p50, p90, p99, max]
    };
    for (task, row) in tables.tasks.rows() {
        let (key, name) = (LineKey::Task(*task), Arc::clone(&row.name));
        candidates.push(key, name, row.provider_name.clone(), &row.pairs, numbers(row));
    }
    let rest = tables.tasks.rest();
    candidates.push_rest(&rest.pairs, numbers(rest));
}

fn list_kernel<'s>(tables: &'s KernelTables, second: Second, candidates: &mut Candidates<'s>) {
    let numbers = |id: f64, row: &KernelRow| {
        let wakes = row.wakes.recent(second);
        let amount = |history: &History| history.amount_in(second) as f64;
        let cpu_percent = amount(&row.cpu_ns) / 1e7;
        let [disk, network] = [&row.disk_bytes, &row.network_bytes].map(amount);
        let (p50, p99) = (percentile(&wakes, 50), percentile(&wakes, 99));
        [id, cpu_percent, amount(&row.switches), p50, p99, disk, network]
    };
    for (pid, row) in tables.processes.rows() {
        let name = process_name(*pid, row.name.name.as_ref());
        let id = if *pid == NO_ID { f64::NAN } else { f64::from(*pid) };
        candidates.push(LineKey::Process(*pid), name, None, &row.cpu_ns, numbers(id, row));
    }
    let rest = tables.processes.rest();
    candidates.push_rest(&rest.cpu_ns, numbers(f64::NAN, rest));
}

/// Returns whether a filter keeps a line: its name contains the text, in which `*` and `?` are
/// wildcards, ignoring case. A filter also keeps a process by its id.
fn keeps(filter: &str, line: &Line) -> bool {
    let is_id = || matches!(line.key, LineKey::Process(pid) if pid.to_string() == filter);
    let pattern = || format!("*{}*", filter.to_lowercase());
    let has_name =
        || line.key != LineKey::Rest && matches_pattern(&pattern(), &line.full_name().to_lowercase());
    filter.is_empty() || is_id() || has_name()
}

fn compare(order: SortOrder, a: &Line, b: &Line) -> Ordering {
    let by_name = || a.sort_name().cmp(&b.sort_name());
    let by_value = |column: usize| {
        let value = |line: &Line| line.values.get(column).copied().unwrap_or(f64::NAN);
        // Lines without a number come last.
        let number = |line: &Line| Some(value(line)).filter(|value| !value.is_nan());
        match (number(a), number(b)) {
            (Some(a), Some(b)) => b.total_cmp(&a),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => Ordering::Equal,
        }
    };
    let ordering = match order.column.checked_sub(1) {
        None => by_name(),
        Some(column) => by_value(column),
    };
    let ordering = if order.is_reversed { ordering.reverse() } else { ordering };
    ordering.then_with(by_name)
}

fn format_whole(value: f64) -> String {
    if value.is_nan() { String::new() } else { format_number(value.round() as u64) }
}

fn format_id(value: f64) -> String {
    if value.is_nan() { String::new() } else { (value as u64).to_string() }
}

fn format_tenth(value: f64) -> String {
    if value.is_nan() { String::new() } else { format!("{value:.1}") }
}

/// Formats a level; without one, the provider is not enabled any more.
fn format_level(value: f64) -> String {
    const NAMES: [&str; 6] = ["all", "critical", "error", "warning", "info", "verbose"];
    if value.is_nan() {
        return "off".to_owned();
    }
    NAMES.get(value as usize).map_or_else(|| value.to_string(), |name| (*name).to_owned())
}

/// Formats nanoseconds in at most seven columns.
fn format_duration(nanoseconds: f64) -> String {
    scale(nanoseconds, &[("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)], " ")
}

/// Formats bytes in at most seven columns; none without bytes.
pub(super) fn format_bytes(bytes: f64) -> String {
    if bytes == 0.0 {
        return String::new();
    }
    scale(bytes, &[("B", 1.0), ("K", 1024.0), ("M", 1048576.0), ("G", 1073741824.0)], "")
}

/// Formats a value with the largest unit that it has, with three digits.
fn scale(value: f64, units: &[(&str, f64)], separator: &str) -> String {
    if value.is_nan() {
        return String::new();
    }
    let fitting = units.iter().rfind(|(_, size)| value >= *size).or_else(|| units.first());
    let Some((unit, size)) = fitting else { return String::new() };
    let scaled = value / size;
    let decimals = match scaled {
        _ if *size == 1.0 => 0,
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.decimals$}{separator}{unit}")
}

#[cfg(test)]
mod tests;
