//! The open perf events, and the handlers that their samples go to.
//!
//! ```text
//!   CaptureSettings ──▶ rows for its groups ──▶ one event per row, target and processor,
//!                                               with call chains if stacks are enabled
//!       compared with the open rows: opens new events, then closes those that are not needed
//!
//!   apply_settings ─▶ events: opened, disabled ──begin──▶ all enabled ──▶ further threads are
//!                                                                         watched when found
//! ```
//!
//! 1. A change is atomic: all new events are opened before the first old one is closed.
//! 2. A row whose tracepoint this kernel lacks, or has with other fields, is skipped and listed by
//!    [`CaptureControl::missing_events`](crate::CaptureControl::missing_events). If the row carries
//!    counters, the change fails instead. It also fails on any other error, such as a missing
//!    permission.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use perf_event_open_sys::bindings as sys;

use crate::attributes::{
    EventKey, find_counter_codes, find_fields, is_event_needed, max_frames, stack_copy_bytes,
    task_records_attr, watermark_bytes,
};
use crate::clock::now_ns;
use crate::closing::ClosingCapture;
use crate::counter::{Counter, CounterCode};
use crate::error::{Error, Result};
use crate::families::{self, RowId};
use crate::family::file::probe;
use crate::groups::Groups;
use crate::perf_ring::{Attr, PerfEvent};
use crate::record::SampleParts;
use crate::scope::ProcessScope;
use crate::settings::{CaptureScope, CaptureSettings, EventExtras};
use crate::spec::{PerfEventSpec, PerfSource};
use crate::stack::registers;
use crate::targets::Targets;
use crate::tracefs::{Tracefs, TracepointField, TracepointFormat};

/// A hasher for event ids. The kernel chooses them, so they need no protection against collisions.
#[derive(Default)]
pub(crate) struct EventIdHasher(u64);

impl Hasher for EventIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, id: u64) {
        // Spreads the id over the high and the low bits, both of which the table uses.
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// The row of an event, and what is needed to parse its samples.
#[derive(Clone, Debug)]
pub(crate) struct EventRoute {
    pub(crate) row: RowId,
    pub(crate) parts: SampleParts,
    pub(crate) fields: FieldOffsets,
    /// The id of the profile source, if the event has one.
    pub(crate) source_id: u32,
    /// The id of the event on the same processor that this one replaces, while the ring may contain
    /// records of that event.
    pub(crate) replaces: Option<u64>,
}

/// The positions of a row's fields in the raw data.
type FieldOffsets = Arc<[Option<TracepointField>]>;

/// Routes by event id.
type EventRoutes = HashMap<u64, EventRoute, BuildHasherDefault<EventIdHasher>>;

/// A change of settings that no poll has seen yet; of several changes, the first.
#[derive(Debug)]
pub(crate) struct PendingChange {
    pub(crate) time_ns: u64,
    /// The `extras` before the change.
    pub(crate) extras_before: EventExtras,
}

#[derive(Debug)]
pub(crate) struct OpenEvents {
    pub(crate) settings: CaptureSettings,
    rows: HashMap<RowId, OpenRow>,
    pub(crate) routes: EventRoutes,
    /// The hook ids for stacks, registers and counters in `settings`, as sets.
    pub(crate) extras: EventExtras,
    /// The names of selected events that this kernel does not have.
    pub(crate) missing: Vec<String>,
    /// Opened when the first tracepoint is needed.
    tracefs: Option<Tracefs>,
    formats: HashMap<(&'static str, &'static str), Option<Arc<TracepointFormat>>>,
    /// The processes or threads for which events are opened.
    pub(crate) targets: Targets,
    /// Events that report forks, exits, names and mappings of single threads.
    task_events: Vec<PerfEvent>,
    /// Whether events stay disabled: before [`begin`](Self::begin) and after [`end`](Self::end).
    are_events_disabled: bool,
    /// The number of changes, from which the capture recognizes a new one.
    pub(crate) changes: u64,
    /// Present if the settings have changed since the last poll.
    pub(crate) pending_change: Option<PendingChange>,
    /// The largest stack copy per event, if locked memory limits the rings.
    pub(crate) stack_limit_bytes: Option<u32>,
    /// Counts this capture as closing after its end. As the last field it is dropped after all
    /// events are closed.
    closing: Option<ClosingCapture>,
}

/// An open row, with one event per target and processor.
#[derive(Debug)]
struct OpenRow {
    key: EventKey,
    attr: Attr,
    spec: &'static PerfEventSpec,
    fields: FieldOffsets,
    events: Vec<(u64, PerfEvent)>,
    /// Counters that are read with the events and stay open as long as they do.
    counters: Vec<PerfEvent>,
}

impl OpenRow {
    /// Returns the route of an event of this row.
    fn build_route(&self, row: RowId, replaces: Option<u64>) -> EventRoute {
        let source_id = self.key.source.as_ref().map_or(0, |source| source.id);
        EventRoute { row, parts: self.key.parts, fields: Arc::clone(&self.fields), source_id, replaces }
    }
}

impl OpenEvents {
    pub(crate) fn new_empty(settings: &CaptureSettings) -> Self {
        Self {
            settings: CaptureSettings { groups: Groups::default(), ..settings.clone() },
            rows: HashMap::new(),
            routes: HashMap::default(),
            extras: EventExtras::default(),
            missing: Vec::new(),
            tracefs: None,
            formats: HashMap::new(),
            targets: Targets::new(settings.scope, &settings.process_trees),
            task_events: Vec::new(),
            are_events_disabled: true,
            changes: 0,
            pending_change: None,
            stack_limit_bytes: None,
            closing: None,
        }
    }

    /// Opens and closes events so that they match new settings.
    pub(crate) fn apply_settings(
        &mut self,
        settings: &CaptureSettings,
        rings: &[Arc<PerfEvent>],
    ) -> Result<()> {
        // The rings keep their size, which may be smaller than requested.
        let settings = &CaptureSettings { ring_bytes: self.settings.ring_bytes, ..settings.clone() };
        let extras = EventExtras::new(settings);
        let counters = find_counter_codes(settings)?;
        let mut missing = Vec::new();
        let mut new_rows = Vec::new();
        for (id, spec) in
            families::specs().filter(|(_, spec)| is_event_needed(spec, settings, &extras.stacks))
        {
            let key = EventKey::new(spec, settings, &extras, &counters);
            if self.rows.get(&id).is_some_and(|row| row.key == key) {
                continue;
            }
            let (has_counters, source) = (!key.counters.is_empty(), key.source.clone());
            match self.open_row(spec, settings, key, rings) {
                Ok(row) => new_rows.push((id, row)),
                // An event without its counters would not match the settings.
                Err(Error::NotSupported { .. }) if !has_counters => {
                    let name = source.map(|source| format!("profile source {}", source.name));
                    missing.push(name.unwrap_or_else(|| spec.name()));
                }
                Err(error) => return Err(error),
            }
        }
        // From here on nothing can fail. No new event has reported anything yet.
        let extras_before = std::mem::replace(&mut self.extras, extras);
        self.pending_change.get_or_insert(PendingChange { time_ns: now_ns(), extras_before });
        for (id, row) in new_rows {
            let old = self.rows.remove(&id);
            let old_events = map_ids_by_target_and_cpu(old.as_ref().map_or(&[], |old| &old.events));
            for (event_id, event) in &row.events {
                let replaces = old_events.get(&(event.target(), event.cpu())).copied();
                self.routes.insert(*event_id, row.build_route(id, replaces));
                if !self.are_events_disabled {
                    // Errors are ignored as in `begin`.
                    let _ = event.enable();
                }
            }
            self.rows.insert(id, row);
            old.into_iter().for_each(close_row);
        }
        let is_unneeded =
            |_: &RowId, row: &mut OpenRow| !is_event_needed(row.spec, settings, &self.extras.stacks);
        self.rows.extract_if(is_unneeded).for_each(|(_, row)| close_row(row));
        (self.missing, self.settings) = (missing, settings.clone());
        if self.task_events.is_empty() {
            let ids = self.targets.target_ids();
            self.open_task_events(&ids, rings);
        }
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// Opens the events of a row for all targets.
    fn open_row(
        &mut self,
        spec: &'static PerfEventSpec,
        settings: &CaptureSettings,
        key: EventKey,
        rings: &[Arc<PerfEvent>],
    ) -> Result<OpenRow> {
        let (attr, fields) = match self.build_attr(spec, settings, &key) {
            Ok(Some(attr_and_fields)) => attr_and_fields,
            // A tracepoint with other fields counts as a missing one.
            Ok(None) | Err(Error::Format { .. }) => {
                return Err(Error::NotSupported { what: spec.name() });
            }
            Err(error) => return Err(error),
        };
        let ids = self.targets.target_ids();
        let OpenedEvents { events, counters } =
            open_row_events(&mut self.targets, spec, &attr, &key.counters, &ids, rings)?;
        Ok(OpenRow { key, attr, spec, fields, events, counters })
    }

    /// Returns the number of records that the open events of a processor have lost.
    pub(crate) fn lost_records_on(&self, cpu: i32) -> u64 {
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        let events = rows.chain(&self.task_events).filter(|event| event.cpu() == cpu);
        events.filter_map(PerfEvent::lost_records).fold(0, u64::saturating_add)
    }

    /// Removes the routes of closed events. Call this after reading all records from before the
    /// change.
    pub(crate) fn forget_closed_events(&mut self) {
        let open: HashSet<u64> =
            self.rows.values().flat_map(|row| row.events.iter().map(|(id, _)| *id)).collect();
        self.routes.retain(|id, route| {
            route.replaces = None;
            open.contains(id)
        });
    }

    /// Enables all open events, and from now on also those that are opened later.
    pub(crate) fn begin(&mut self) {
        self.are_events_disabled = false;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.task_events.iter().chain(rows) {
            // Not expected to fail: the same credentials have just opened the event.
            let _ = event.enable();
        }
    }

    /// Disables all open events, and those that are opened later. Dropping the table closes them.
    pub(crate) fn end(&mut self) {
        self.are_events_disabled = true;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.task_events.iter().chain(rows) {
            // Errors are ignored as in `begin`.
            let _ = event.disable();
        }
        self.closing.get_or_insert_with(ClosingCapture::begin);
    }

    /// Searches for threads that do not inherit events from a watched thread, and watches them.
    /// `process_scope` and `is_followed`: see [`Targets::find_new_threads`].
    pub(crate) fn watch_new_threads(
        &mut self,
        rings: &[Arc<PerfEvent>],
        process_scope: Option<&ProcessScope>,
        is_followed: impl Fn(u32) -> bool,
    ) {
        let new = self.targets.find_new_threads(process_scope, is_followed);
        self.watch_threads(&new, rings);
    }

    /// Opens the task events and all rows for these threads, as far as possible.
    fn watch_threads(&mut self, threads: &[i32], rings: &[Arc<PerfEvent>]) {
        self.open_task_events(threads, rings);
        for (row_id, row) in &mut self.rows {
            let (spec, attr, codes) = (row.spec, &row.attr, &row.key.counters);
            let opened = open_row_events(&mut self.targets, spec, attr, codes, threads, rings);
            let Ok(OpenedEvents { events, counters }) = opened else {
                self.targets.count_unwatched();
                continue;
            };
            for (event_id, event) in &events {
                self.routes.insert(*event_id, row.build_route(*row_id, None));
                if !self.are_events_disabled {
                    let _ = event.enable();
                }
            }
            row.events.extend(events);
            row.counters.extend(counters);
        }
    }

    /// Opens the task events of these threads, in captures that watch each thread separately. A
    /// thread that cannot be watched is skipped. It is counted unless it has ended or the kernel
    /// forbids watching it.
    fn open_task_events(&mut self, threads: &[i32], rings: &[Arc<PerfEvent>]) {
        if self.settings.scope == CaptureScope::Everything {
            return;
        }
        let purpose = "tasks of a thread";
        let attr = task_records_attr(&self.settings);
        let enable = |event: &PerfEvent| if self.are_events_disabled { Ok(()) } else { event.enable() };
        for (id, ring) in threads.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
            // The events of the rings already report the tasks of their target.
            if id == Targets::ring_target(CaptureScope::Own) {
                continue;
            }
            match self.targets.open(&attr, id, ring.cpu(), purpose) {
                Ok(Some(event)) if event.redirect_to(ring).and_then(|()| enable(&event)).is_ok() => {
                    self.task_events.push(event);
                }
                // `Targets::open` has counted the thread if necessary.
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.targets.count_unwatched(),
            }
        }
    }

    /// Returns the attributes and field positions of a row, or `None` if this kernel lacks it.
    fn build_attr(
        &mut self,
        spec: &PerfEventSpec,
        settings: &CaptureSettings,
        key: &EventKey,
    ) -> Result<Option<(Attr, FieldOffsets)>> {
        let mut attr = Attr { sample_type: key.parts.0, ..Attr::default() };
        Targets::restrict_attr(settings.scope, &mut attr);
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC;
        if spec.wakes_session {
            attr.__bindgen_anon_2.wakeup_events = 1;
        } else {
            attr.set_watermark(1);
            attr.__bindgen_anon_2.wakeup_watermark = watermark_bytes(settings);
        }
        if key.parts.has(SampleParts::CALLCHAIN) {
            attr.sample_max_stack = max_frames();
        }
        if key.parts.has(SampleParts::STACK_USER) {
            attr.sample_stack_user = stack_copy_bytes(key.stack_bytes, self.stack_limit_bytes);
            attr.sample_regs_user = registers::mask();
        }
        if key.parts.has(SampleParts::REGS_INTR) {
            attr.sample_regs_intr = registers::mask();
        }
        if key.parts.has(SampleParts::READ) {
            attr.read_format = u64::from(sys::PERF_FORMAT_GROUP);
        }
        let mut fields = Vec::new();
        match spec.source {
            PerfSource::Tracepoint(system, name) => {
                let Some(format) = self.find_format(system, name)? else { return Ok(None) };
                (attr.type_, attr.config) = (sys::PERF_TYPE_TRACEPOINT, format.id);
                attr.__bindgen_anon_1.sample_period = 1;
                fields = find_fields(spec, &format)?;
            }
            PerfSource::Software { counter, period } => {
                (attr.type_, attr.config) = (sys::PERF_TYPE_SOFTWARE, counter);
                attr.__bindgen_anon_1.sample_period = period;
            }
            PerfSource::Profile => {
                (attr.type_, attr.config) =
                    (sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_CPU_CLOCK));
                attr.__bindgen_anon_1.sample_period = key.period;
            }
            PerfSource::Counter(_) => {
                let Some(code) = key.source.as_ref().and_then(Counter::find_code) else { return Ok(None) };
                (attr.type_, attr.config) = (code.kind, code.config);
                attr.__bindgen_anon_1.sample_period = key.period;
            }
        }
        Ok(Some((attr, fields.into())))
    }

    /// Returns the format of a tracepoint, or `None` if this kernel lacks it.
    fn find_format(
        &mut self,
        system: &'static str,
        name: &'static str,
    ) -> Result<Option<Arc<TracepointFormat>>> {
        if let Some(format) = self.formats.get(&(system, name)) {
            return Ok(format.clone());
        }
        let tracefs = match &mut self.tracefs {
            Some(tracefs) => tracefs,
            unopened => unopened.insert(Tracefs::open()?),
        };
        if system == probe::SYSTEM {
            probe::define(tracefs);
        }
        let format = match tracefs.read_format(system, name) {
            Ok(format) => Some(Arc::new(format)),
            Err(Error::NotSupported { .. }) => None,
            Err(other) => return Err(other),
        };
        self.formats.insert((system, name), format.clone());
        Ok(format)
    }
}

impl Drop for OpenEvents {
    fn drop(&mut self) {
        // A probe can only be removed when no event is open on it.
        self.rows.clear();
        self.tracefs.iter().for_each(probe::remove);
    }
}

/// Disables and closes the events of a row. Their routes stay until all their records are read; the
/// kernel never reuses ids.
fn close_row(row: OpenRow) {
    for (_, event) in &row.events {
        let _ = event.disable();
    }
}

/// The events of a row for some targets.
struct OpenedEvents {
    /// The events with their ids.
    events: Vec<(u64, PerfEvent)>,
    /// Counters that are read with the events.
    counters: Vec<PerfEvent>,
}

/// Converts a filter error: the kernel rejects a filter if it lacks one of the fields.
fn convert_filter_error(spec: &PerfEventSpec, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotSupported { what: spec.name() },
        _ => Error::system(spec.name(), error),
    }
}

/// Maps target and processor to event id. The order of events carries no meaning, because targets
/// change from one opening of a row to the next.
fn map_ids_by_target_and_cpu(events: &[(u64, PerfEvent)]) -> HashMap<(i32, i32), u64> {
    events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)).collect()
}

/// Opens a row for some targets on each processor, with its counters as group members. Counters do
/// not sample by themselves, so they have no id.
fn open_row_events(
    targets: &mut Targets,
    spec: &PerfEventSpec,
    attr: &Attr,
    counter_codes: &[CounterCode],
    target_ids: &[i32],
    rings: &[Arc<PerfEvent>],
) -> Result<OpenedEvents> {
    let to_error = |e| Error::system(spec.name(), e);
    let (mut events, mut counters) = (Vec::with_capacity(rings.len()), Vec::new());
    for (id, ring) in target_ids.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
        let Some(event) = targets.open(attr, id, ring.cpu(), &spec.name())? else { continue };
        event.redirect_to(ring).map_err(to_error)?;
        if let Some(filter) = spec.filter.and_then(|filter| CString::new(filter).ok()) {
            event.set_filter(&filter).map_err(|e| convert_filter_error(spec, e))?;
        }
        for code in counter_codes {
            let mut attr = Attr { type_: code.kind, config: code.config, ..Attr::default() };
            // All events of a group use the same clock.
            attr.set_use_clockid(1);
            attr.clockid = libc::CLOCK_MONOTONIC;
            let to_counter_error = |e| Error::system("counter for an event", e);
            counters.push(event.open_in_group(&attr, id, ring.cpu()).map_err(to_counter_error)?);
        }
        events.push((event.read_id().map_err(to_error)?, event));
    }
    Ok(OpenedEvents { events, counters })
}

#[cfg(test)]
mod tests;
