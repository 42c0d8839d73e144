//! Counts the events of providers: by provider, event and process, and the time between starts and
//! stops.
//!
//! ```text
//!   record ──▶ EventCounter ──▶ EventTables ──▶ page
//!              reader thread     shared         screen thread
//! ```
//!
//! E1  Fields are not decoded. The name of an event is looked up once per schema, and the rest is in
//!     the header: provider, process, thread, opcode, task and activity.
//! E2  An event counts in the second of its own time, so a delay of its session does not change the
//!     rates. A time in the future counts as now.
//! E3  All tables are limited. Events beyond a limit count in its rest row.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use traceweir::consumer;
use traceweir::relog::is_context;
use traceweir_analysis::event::describes_file;
use traceweir_analysis::pairs::{Begun, MAX_OPEN_PAIRS, OpenPairs, PairEvent, PairTask, pair_name};
use traceweir_decode::Decoder;
use traceweir_decode::source::prepared::SchemaId;
use traceweir_format::Guid;
use traceweir_format::header::Record;
use traceweir_format::time::{Clock, FileTime};

use super::history::{History, RecentLatencies, Second};
use super::names::{ProcessName, shown_name};
use super::table::{RowPosition, Table, TableRow};
use crate::export::format_unnamed_event;

const MAX_PROVIDERS: usize = 512;
const MAX_EVENTS: usize = 4096;
const MAX_PROCESSES: usize = 2048;
const MAX_TASKS: usize = 512;
/// The most open starts of one thread.
const MAX_OPEN_PER_THREAD: usize = 64;
/// Number of schemas and of processes whose rows are found without a hash.
const RECENT_SLOTS: usize = 1024;
/// The provider of kernel events, which have no name of their own.
const KERNEL_NAME: &str = "Windows Kernel";

/// The events of one provider.
#[derive(Clone, Debug, Default)]
pub(super) struct ProviderRow {
    /// The name, if an event contained it.
    pub(super) name: Option<Arc<str>>,
    pub(super) events: History,
}

/// The events of one provider and name.
#[derive(Clone, Debug, Default)]
pub(super) struct EventRow {
    pub(super) provider_name: Option<Arc<str>>,
    pub(super) name: Arc<str>,
    pub(super) events: History,
}

/// The events of one process.
#[derive(Clone, Debug, Default)]
pub(super) struct ProcessRow {
    pub(super) name: ProcessName,
    pub(super) events: History,
}

/// The pairs of starts and stops of one task.
#[derive(Clone, Debug, Default)]
pub(super) struct TaskRow {
    pub(super) provider_name: Option<Arc<str>>,
    pub(super) name: Arc<str>,
    pub(super) pairs: History,
    pub(super) latencies: RecentLatencies,
}

/// Implements [`TableRow`] for rows whose history is in a field.
macro_rules! table_row {
    ($row:ident, $history:ident $(, $other:ident)*) => {
        impl TableRow for $row {
            fn is_idle(&self, now: Second) -> bool {
                self.$history.is_idle(now)
            }

            fn absorb(&mut self, other: &Self) {
                self.$history.absorb(&other.$history);
                $(self.$other.absorb(&other.$other);)*
            }
        }
    };
}

table_row!(ProviderRow, events);
table_row!(EventRow, events);
table_row!(ProcessRow, events);
table_row!(TaskRow, pairs, latencies);

/// What identifies the row of an event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum EventKey {
    Named(Guid, Arc<str>),
    /// Provider, id, version and opcode of an event without a known schema.
    Unnamed(Guid, u16, u8, u8),
}

impl EventKey {
    pub(super) const fn provider(&self) -> Guid {
        match self {
            Self::Named(provider, _) | Self::Unnamed(provider, ..) => *provider,
        }
    }
}

/// All counts. A clone is a snapshot, which a paused screen shows.
#[derive(Clone, Debug)]
pub(super) struct EventTables {
    /// The current second, which the screen sets.
    now: Second,
    pub(super) total: History,
    pub(super) providers: Table<Guid, ProviderRow>,
    pub(super) events: Table<EventKey, EventRow>,
    pub(super) processes: Table<u32, ProcessRow>,
    pub(super) tasks: Table<PairTask, TaskRow>,
}

impl EventTables {
    pub(super) fn new(now: FileTime) -> Self {
        Self {
            now: Second::of_time(now),
            total: History::default(),
            providers: Table::with_max_rows(MAX_PROVIDERS),
            events: Table::with_max_rows(MAX_EVENTS),
            processes: Table::with_max_rows(MAX_PROCESSES),
            tasks: Table::with_max_rows(MAX_TASKS),
        }
    }

    /// Sets the current time.
    pub(super) fn set_now(&mut self, now: FileTime) {
        self.now = Second::of_time(now);
    }

    /// Returns the second in which an event counts (E2).
    fn second_of(&self, time: FileTime) -> Second {
        // The screen sets the time once a second, and events can be newer.
        Second::of_time(time).min(Second(self.now.0.saturating_add(1)))
    }
}

/// Locks counts that another thread shares.
pub(super) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A start whose stop has not come.
#[derive(Debug)]
struct OpenSpan {
    start_ns: i64,
    provider_name: Option<Arc<str>>,
    name: Arc<str>,
}

/// Process and thread: a reused thread id must not pair with a start of another process.
type ThreadKey = (u32, u32);

/// The rows of the events of a recent schema.
#[derive(Clone, Copy, Debug)]
struct RecentSchema {
    schema: SchemaId,
    provider: Guid,
    rows: EventRows,
    /// The generations of the tables of events and providers.
    generations: (u64, u64),
}

#[derive(Clone, Copy, Debug)]
struct EventRows {
    provider: RowPosition,
    event: RowPosition,
}

#[derive(Clone, Copy, Debug)]
struct RecentProcess {
    pid: u32,
    row: RowPosition,
    generation: u64,
}

/// Counts records in shared tables.
pub(super) struct EventCounter {
    tables: Arc<Mutex<EventTables>>,
    open: OpenPairs<ThreadKey, OpenSpan>,
    recent_schemas: Vec<Option<RecentSchema>>,
    recent_processes: Vec<Option<RecentProcess>>,
    /// Returns the name of the program of a process.
    find_process_name: fn(u32) -> Option<String>,
}

impl EventCounter {
    pub(super) fn new(tables: Arc<Mutex<EventTables>>, find_process_name: fn(u32) -> Option<String>) -> Self {
        Self {
            tables,
            open: OpenPairs::with_max_per_thread(MAX_OPEN_PER_THREAD),
            recent_schemas: vec![None; RECENT_SLOTS],
            recent_processes: vec![None; RECENT_SLOTS],
            find_process_name,
        }
    }

    /// Counts an event of a live session.
    pub(super) fn count_event(&mut self, event: &consumer::Event<'_>, decoder: &mut Decoder) {
        self.count(event.record, event.time, event.clock, decoder);
    }

    /// Counts a record, unless it describes the file or other events.
    pub(super) fn count(
        &mut self,
        record: &Record<'_>,
        time: FileTime,
        clock: &Clock,
        decoder: &mut Decoder,
    ) {
        if describes_file(record) || is_context(record) {
            return;
        }
        let shared = Arc::clone(&self.tables);
        let mut tables = lock(&shared);
        let second = tables.second_of(time);
        tables.total.add(second, 1);
        let rows = self.find_event_rows(record, time, second, decoder, &mut tables);
        tables.providers.row_mut(rows.provider).events.add(second, 1);
        tables.events.row_mut(rows.event).events.add(second, 1);
        self.count_process(record.process_id(), second, &mut tables);
        let thread = (record.process_id(), record.thread_id());
        if let Some(pair_event) = PairEvent::from_record(record, thread) {
            let time_ns = clock.nanos_since_start(record.time());
            self.count_pair_event(&pair_event, time_ns, second, rows, &mut tables);
        }
    }

    /// Returns the rows of an event (E1).
    fn find_event_rows(
        &mut self,
        record: &Record<'_>,
        time: FileTime,
        second: Second,
        decoder: &mut Decoder,
        tables: &mut EventTables,
    ) -> EventRows {
        let provider = record.provider();
        let Ok(located) = decoder.locate_at(record, time) else {
            return add_unnamed_event(record, second, decoder, tables);
        };
        let decoder: &Decoder = decoder;
        let prepared = decoder.get(&located).prepared;
        let (schema, generations) =
            (prepared.id(), (tables.events.generation(), tables.providers.generation()));
        let slot = schema.number() as usize % RECENT_SLOTS;
        if let Some(Some(recent)) = self.recent_schemas.get(slot)
            && (recent.schema, recent.provider, recent.generations) == (schema, provider, generations)
        {
            return recent.rows;
        }
        let Some(name) = prepared.event_name.as_deref() else {
            return add_unnamed_event(record, second, decoder, tables);
        };
        let name = shown_name(name);
        let find_provider_name = || {
            let own_name = prepared.schema.names.provider.as_deref();
            own_name.or_else(|| known_provider_name(record, decoder)).map(shown_name)
        };
        let key = EventKey::Named(provider, Arc::clone(&name));
        let rows = add_event(&key, second, tables, || (find_provider_name(), name));
        if let Some(slot) = self.recent_schemas.get_mut(slot) {
            let generations = (tables.events.generation(), tables.providers.generation());
            *slot = Some(RecentSchema { schema, provider, rows, generations });
        }
        rows
    }

    fn count_process(&mut self, pid: u32, second: Second, tables: &mut EventTables) {
        let slot = pid as usize % RECENT_SLOTS;
        let generation = tables.processes.generation();
        let recent = self.recent_processes.get(slot).copied().flatten();
        let row = match recent.filter(|recent| (recent.pid, recent.generation) == (pid, generation)) {
            Some(recent) => recent.row,
            None => {
                let row = tables.processes.find_or_add(&pid, second, ProcessRow::default);
                let generation = tables.processes.generation();
                if let Some(slot) = self.recent_processes.get_mut(slot) {
                    *slot = Some(RecentProcess { pid, row, generation });
                }
                row
            }
        };
        let is_rest = row.is_rest();
        let row = tables.processes.row_mut(row);
        row.events.add(second, 1);
        if !is_rest {
            row.name.refresh(second, || (self.find_process_name)(pid));
        }
    }

    fn count_pair_event(
        &mut self,
        event: &PairEvent<ThreadKey>,
        time_ns: i64,
        second: Second,
        rows: EventRows,
        tables: &mut EventTables,
    ) {
        if event.is_start {
            let row = tables.events.row_mut(rows.event);
            let (provider_name, name) = (row.provider_name.clone(), Arc::clone(&row.name));
            let span = OpenSpan { start_ns: time_ns, provider_name, name };
            let begun = self.open.begin(event, |_, _| span);
            if matches!(begun, Begun::Full) && self.open.len() >= MAX_OPEN_PAIRS {
                // Threads that ended have left starts behind, which would stay for ever.
                self.open = OpenPairs::with_max_per_thread(MAX_OPEN_PER_THREAD);
            }
            return;
        }
        let Some(start) = self.open.end(event) else { return };
        let OpenSpan { start_ns, provider_name, name } = start.data;
        let new_row = || TaskRow { provider_name, name: pair_name(&name).into(), ..TaskRow::default() };
        let row = tables.tasks.find_or_add(&event.task, second, new_row);
        let row = tables.tasks.row_mut(row);
        row.pairs.add(second, 1);
        row.latencies.add(second, u64::try_from(time_ns.saturating_sub(start_ns)).unwrap_or(0));
    }
}

/// Returns the name that a decoder knows for the provider of a record.
fn known_provider_name<'d>(record: &Record<'_>, decoder: &'d Decoder) -> Option<&'d str> {
    decoder.provider_name(&record.provider()).or_else(|| record.hook().map(|_| KERNEL_NAME))
}

/// Returns the rows of an event without a known name, and adds them if they are new.
fn add_unnamed_event(
    record: &Record<'_>,
    second: Second,
    decoder: &Decoder,
    tables: &mut EventTables,
) -> EventRows {
    let descriptor = record.descriptor();
    let key = EventKey::Unnamed(record.provider(), descriptor.id, descriptor.version, descriptor.opcode);
    add_event(&key, second, tables, || {
        let provider_name = known_provider_name(record, decoder).map(shown_name);
        (provider_name, shown_name(&format_unnamed_event(record)))
    })
}

/// Returns the rows of an event, and adds them if they are new. `find_names` returns the names of
/// the provider and of the event.
fn add_event(
    key: &EventKey,
    second: Second,
    tables: &mut EventTables,
    find_names: impl FnOnce() -> (Option<Arc<str>>, Arc<str>),
) -> EventRows {
    let provider = tables.providers.find_or_add(&key.provider(), second, ProviderRow::default);
    let mut new_provider_name = None;
    let event = tables.events.find_or_add(key, second, || {
        let (provider_name, name) = find_names();
        new_provider_name.clone_from(&provider_name);
        EventRow { provider_name, name, events: History::default() }
    });
    if !provider.is_rest() && new_provider_name.is_some() {
        tables.providers.row_mut(provider).name = new_provider_name;
    }
    EventRows { provider, event }
}

#[cfg(test)]
mod tests;
