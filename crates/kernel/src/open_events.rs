//! The open perf events, and the handlers that their samples go to.
//!
//! ```text
//!   CaptureSettings ──▶ rows for its groups ──▶ one event per row, target and processor,
//!                                               with call chains if stacks are enabled
//!       compared with the open rows: opens what is missing, then closes the rest
//!
//!   change ─▶ rows, tasks: opened, disabled ──begin──▶ all enabled ──▶ further threads are
//!                                                                      watched when found
//! ```
//!
//! 1. A change is atomic: all new events are opened before the first old one is closed.
//! 2. A row whose tracepoint this kernel lacks, or has with other fields, is skipped and listed by
//!    [`Control::missing_events`](crate::Control::missing_events), unless the row carries counters.
//!    Any other error, such as a missing permission, fails the change.

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use perf_event_open_sys::bindings as sys;

use crate::attributes::{
    EventKey, counter_codes, find_fields, is_needed, max_frames, stack_copy_bytes, tasks_attr, watermark,
};
use crate::clock::now_ns;
use crate::closing::Closing;
use crate::counter::{Code, Counter};
use crate::error::{Error, Result};
use crate::families::{self, RowId};
use crate::family::file::probe;
use crate::groups::Groups;
use crate::perf_ring::{Attr, PerfEvent};
use crate::record::Parts;
use crate::settings::{CaptureSettings, EventExtras, Scope};
use crate::spec::{PerfSource, Spec};
use crate::stack::registers;
use crate::targets::Targets;
use crate::tracefs::{Field, Format, Tracefs};

/// A hasher for event ids. The kernel chooses them, so they need no protection against collisions.
#[derive(Default)]
pub(crate) struct ById(u64);

impl Hasher for ById {
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
pub(crate) struct Route {
    pub(crate) row: RowId,
    pub(crate) parts: Parts,
    pub(crate) fields: Fields,
    /// The id of the profile source, if the event has one.
    pub(crate) tag: u32,
    /// The id of the event on the same processor that this one replaces, while the ring may contain
    /// records of that event.
    pub(crate) replaces: Option<u64>,
}

/// The positions of a row's fields in the raw data.
type Fields = Arc<[Option<Field>]>;

/// Routes by event id.
type Routes = HashMap<u64, Route, BuildHasherDefault<ById>>;

/// The table of open events.
#[derive(Debug)]
pub(crate) struct OpenEvents {
    pub(crate) settings: CaptureSettings,
    rows: HashMap<RowId, OpenRow>,
    pub(crate) routes: Routes,
    /// The hook ids of `settings` as sets.
    pub(crate) extras: EventExtras,
    pub(crate) missing: Vec<String>,
    /// Opened for the first tracepoint.
    tracefs: Option<Tracefs>,
    formats: HashMap<(&'static str, &'static str), Option<Arc<Format>>>,
    /// The processes or threads for which events are opened.
    pub(crate) targets: Targets,
    /// Events that report forks, exits, names and mappings of single threads.
    tasks: Vec<PerfEvent>,
    /// Whether events stay disabled: before [`begin`](Self::begin) and after [`end`](Self::end).
    is_silent: bool,
    /// The number of changes, from which the capture recognizes a new one.
    pub(crate) changes: u64,
    /// The time, in nanoseconds, of the first change since the last poll, and the hook ids before
    /// that change.
    pub(crate) before: Option<(u64, EventExtras)>,
    /// The largest stack copy per event, if locked memory limits the rings.
    pub(crate) stack_limit: Option<u32>,
    /// Counts this capture as closing after its end. As the last field it is dropped after all
    /// events are closed.
    closing: Option<Closing>,
}

/// An open row, with one event per target and processor.
#[derive(Debug)]
struct OpenRow {
    key: EventKey,
    attr: Attr,
    spec: &'static Spec,
    fields: Fields,
    events: Vec<(u64, PerfEvent)>,
    /// Counters that are read with the events and stay open as long as they do.
    members: Vec<PerfEvent>,
}

impl OpenRow {
    /// Returns the route of an event of this row.
    fn route(&self, row: RowId, replaces: Option<u64>) -> Route {
        let tag = self.key.source.as_ref().map_or(0, |source| source.id);
        Route { row, parts: self.key.parts, fields: Arc::clone(&self.fields), tag, replaces }
    }
}

impl OpenEvents {
    /// Creates a table without open events.
    pub(crate) fn empty(settings: &CaptureSettings) -> Self {
        Self {
            settings: CaptureSettings { groups: Groups::default(), ..settings.clone() },
            rows: HashMap::new(),
            routes: HashMap::default(),
            extras: EventExtras::default(),
            missing: Vec::new(),
            tracefs: None,
            formats: HashMap::new(),
            targets: Targets::new(settings.scope),
            tasks: Vec::new(),
            is_silent: true,
            changes: 0,
            before: None,
            stack_limit: None,
            closing: None,
        }
    }

    /// Opens and closes events so that they match new settings.
    pub(crate) fn change(&mut self, settings: &CaptureSettings, rings: &[Arc<PerfEvent>]) -> Result<()> {
        // The rings keep their size, which may be smaller than requested.
        let settings = &CaptureSettings { ring_bytes: self.settings.ring_bytes, ..settings.clone() };
        let extras = EventExtras::new(settings);
        let counters = counter_codes(settings)?;
        let mut missing = Vec::new();
        let mut new_rows = Vec::new();
        for (id, spec) in families::specs().filter(|(_, spec)| is_needed(spec, settings, &extras.stacks)) {
            let key = EventKey::new(spec, settings, &extras, &counters);
            if self.rows.get(&id).is_some_and(|row| row.key == key) {
                continue;
            }
            let (has_counters, source) = (!key.members.is_empty(), key.source.clone());
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
        self.before.get_or_insert((now_ns(), extras_before));
        for (id, row) in new_rows {
            let old = self.rows.remove(&id);
            let old_events = by_target_and_cpu(old.as_ref().map_or(&[], |old| &old.events));
            for (event_id, event) in &row.events {
                let replaces = old_events.get(&(event.target(), event.cpu())).copied();
                self.routes.insert(*event_id, row.route(id, replaces));
                if !self.is_silent {
                    // Errors are ignored as in `begin`.
                    let _ = event.enable();
                }
            }
            self.rows.insert(id, row);
            old.into_iter().for_each(close);
        }
        let is_unneeded = |_: &RowId, row: &mut OpenRow| !is_needed(row.spec, settings, &self.extras.stacks);
        self.rows.extract_if(is_unneeded).for_each(|(_, row)| close(row));
        (self.missing, self.settings) = (missing, settings.clone());
        if self.tasks.is_empty() {
            let ids = self.targets.ids();
            self.watch_tasks(&ids, rings);
        }
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// Opens the events of a row for all targets.
    fn open_row(
        &mut self,
        spec: &'static Spec,
        settings: &CaptureSettings,
        key: EventKey,
        rings: &[Arc<PerfEvent>],
    ) -> Result<OpenRow> {
        let (attr, fields) = match self.build_attr(spec, settings, &key) {
            Ok(Some(found)) => found,
            // A tracepoint with other fields counts as a missing one.
            Ok(None) | Err(Error::Format { .. }) => {
                return Err(Error::NotSupported { what: spec.name() });
            }
            Err(error) => return Err(error),
        };
        let ids = self.targets.ids();
        let (events, members) = open(&mut self.targets, (spec, &attr), &key.members, (&ids, rings))?;
        Ok(OpenRow { key, attr, spec, fields, events, members })
    }

    /// Returns the number of records that the open events of a processor have lost.
    pub(crate) fn lost_on(&self, cpu: i32) -> u64 {
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        let all = rows.chain(&self.tasks).filter(|event| event.cpu() == cpu);
        all.filter_map(PerfEvent::lost).fold(0, u64::saturating_add)
    }

    /// Removes the routes of closed events. Call this after reading all records from before the
    /// change.
    pub(crate) fn forget_closed(&mut self) {
        let open: HashSet<u64> =
            self.rows.values().flat_map(|row| row.events.iter().map(|(id, _)| *id)).collect();
        self.routes.retain(|id, route| {
            route.replaces = None;
            open.contains(id)
        });
    }

    /// Enables all open events, and from now on also those that are opened later.
    pub(crate) fn begin(&mut self) {
        self.is_silent = false;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // Not expected to fail: the same credentials have just opened the event.
            let _ = event.enable();
        }
    }

    /// Disables all open events, and those that are opened later. Dropping the table closes them.
    pub(crate) fn end(&mut self) {
        self.is_silent = true;
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        for event in self.tasks.iter().chain(rows) {
            // Errors are ignored as in `begin`.
            let _ = event.disable();
        }
        self.closing.get_or_insert_with(Closing::begin);
    }

    /// Watches threads that are not descendants of watched threads.
    pub(crate) fn watch_new_threads(&mut self, rings: &[Arc<PerfEvent>], is_followed: impl Fn(u32) -> bool) {
        let new = self.targets.find_new_threads(is_followed);
        self.watch(&new, rings);
    }

    /// Opens the task events and all rows for these threads, as far as possible.
    fn watch(&mut self, threads: &[i32], rings: &[Arc<PerfEvent>]) {
        self.watch_tasks(threads, rings);
        for (row_id, row) in &mut self.rows {
            let opened = open(&mut self.targets, (row.spec, &row.attr), &row.key.members, (threads, rings));
            let Ok((events, members)) = opened else {
                self.targets.count_unwatched();
                continue;
            };
            for (event_id, event) in &events {
                self.routes.insert(*event_id, row.route(*row_id, None));
                if !self.is_silent {
                    let _ = event.enable();
                }
            }
            row.events.extend(events);
            row.members.extend(members);
        }
    }

    /// Opens the task events of these threads, in captures that watch each thread separately. A
    /// thread that cannot be watched is counted and skipped.
    fn watch_tasks(&mut self, threads: &[i32], rings: &[Arc<PerfEvent>]) {
        if self.settings.scope == Scope::Everything {
            return;
        }
        let what = "tasks of a thread";
        let attr = tasks_attr(&self.settings);
        let enable = |event: &PerfEvent| if self.is_silent { Ok(()) } else { event.enable() };
        for (id, ring) in threads.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
            // The events of the rings already report the tasks of their owner.
            if id == Targets::owner(Scope::Own) {
                continue;
            }
            match self.targets.open(&attr, id, ring.cpu(), what) {
                Ok(Some(event)) if event.write_to(ring).and_then(|()| enable(&event)).is_ok() => {
                    self.tasks.push(event);
                }
                // `Targets::open` has counted it if necessary.
                Ok(None) => {}
                Ok(Some(_)) | Err(_) => self.targets.count_unwatched(),
            }
        }
    }

    /// Returns the attributes and field positions of a row, or `None` if this kernel lacks it.
    fn build_attr(
        &mut self,
        spec: &Spec,
        settings: &CaptureSettings,
        key: &EventKey,
    ) -> Result<Option<(Attr, Fields)>> {
        let mut attr = Attr { sample_type: key.parts.0, ..Attr::default() };
        Targets::limit(settings.scope, &mut attr);
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC_RAW;
        if spec.wakes {
            attr.__bindgen_anon_2.wakeup_events = 1;
        } else {
            attr.set_watermark(1);
            attr.__bindgen_anon_2.wakeup_watermark = watermark(settings);
        }
        if key.parts.has(Parts::CALLCHAIN) {
            attr.sample_max_stack = max_frames();
        }
        if key.parts.has(Parts::STACK_USER) {
            attr.sample_stack_user = stack_copy_bytes(key.stack_bytes, self.stack_limit);
            attr.sample_regs_user = registers::mask();
        }
        if key.parts.has(Parts::REGS_INTR) {
            attr.sample_regs_intr = registers::mask();
        }
        if key.parts.has(Parts::READ) {
            attr.read_format = u64::from(sys::PERF_FORMAT_GROUP);
        }
        let mut fields = Vec::new();
        match spec.source {
            PerfSource::Tracepoint(system, name) => {
                let Some(format) = self.format(system, name)? else { return Ok(None) };
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
                let Some(code) = key.source.as_ref().and_then(Counter::code) else { return Ok(None) };
                (attr.type_, attr.config) = (code.kind, code.config);
                attr.__bindgen_anon_1.sample_period = key.period;
            }
        }
        Ok(Some((attr, fields.into())))
    }

    /// Returns the format of a tracepoint, or `None` if this kernel lacks it.
    fn format(&mut self, system: &'static str, name: &'static str) -> Result<Option<Arc<Format>>> {
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
        let format = match tracefs.format(system, name) {
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
fn close(row: OpenRow) {
    for (_, event) in &row.events {
        let _ = event.disable();
    }
}

/// The events of a row with their ids, and the counters that are read with them.
type Open = (Vec<(u64, PerfEvent)>, Vec<PerfEvent>);

/// Converts a filter error: the kernel rejects a filter if it lacks one of the fields.
fn filter_failed(spec: &Spec, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotSupported { what: spec.name() },
        _ => Error::system(spec.name(), error),
    }
}

/// Maps target and processor to event id. The order of events carries no meaning, because targets
/// change from one opening of a row to the next.
fn by_target_and_cpu(events: &[(u64, PerfEvent)]) -> HashMap<(i32, i32), u64> {
    events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)).collect()
}

/// Opens a row for some targets on each processor, with its counters as group members. Counters do
/// not sample by themselves, so they have no id.
fn open(
    targets: &mut Targets,
    (spec, attr): (&Spec, &Attr),
    members: &[Code],
    (ids, rings): (&[i32], &[Arc<PerfEvent>]),
) -> Result<Open> {
    let failed = |e| Error::system(spec.name(), e);
    let (mut events, mut counters) = (Vec::with_capacity(rings.len()), Vec::new());
    for (id, ring) in ids.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
        let Some(event) = targets.open(attr, id, ring.cpu(), &spec.name())? else { continue };
        event.write_to(ring).map_err(failed)?;
        if let Some(filter) = spec.filter.and_then(|filter| CString::new(filter).ok()) {
            event.filter(&filter).map_err(|e| filter_failed(spec, e))?;
        }
        for code in members {
            let mut attr = Attr { type_: code.kind, config: code.config, ..Attr::default() };
            // All events of a group use the same clock.
            attr.set_use_clockid(1);
            attr.clockid = libc::CLOCK_MONOTONIC_RAW;
            let counter_failed = |e| Error::system("counter for an event", e);
            counters.push(event.open_in_group(&attr, id, ring.cpu()).map_err(counter_failed)?);
        }
        events.push((event.id().map_err(failed)?, event));
    }
    Ok((events, counters))
}

#[cfg(test)]
mod tests;
