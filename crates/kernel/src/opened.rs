//! The open perf events, and the handlers that their samples go to.
//!
//! ```text
//!   Wanted ──▶ rows for its groups ──▶ one event per row, target and processor, with call
//!                                      chains if stacks are enabled
//!              compared with the open rows: opens what is missing, then closes the rest
//! ```
//!
//! 1. A change is atomic: all new events are opened before the first old one is closed.
//! 2. A row whose tracepoint this kernel lacks, or has with other fields, is skipped and listed by
//!    [`Control::missing`](crate::Control::missing), unless the row carries counters. Any other
//!    error, such as a missing permission, fails the change.

mod watch;

use std::collections::{HashMap, HashSet};
use std::ffi::CString;
use std::hash::{BuildHasherDefault, Hasher};
use std::io;
use std::sync::Arc;

use perf_event_open_sys::bindings as sys;

use crate::asked::{
    Key, fields_of, is_wanted, key_of, max_frames, members_of, name_of, stack_copy_bytes, watermark,
};
use crate::closing::Closing;
use crate::control::Wanted;
use crate::counter::{Code, Counter};
use crate::error::{Error, Result};
use crate::family::{self, file::probe};
use crate::groups::Groups;
use crate::now_ns;
use crate::out::{Beside, Hooks};
use crate::perf_ring::{Attr, Event};
use crate::record::Parts;
use crate::spec::{Source, Spec};
use crate::stack;
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

/// The handler of an event, and what it needs to parse the samples.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) spec: &'static Spec,
    pub(crate) parts: Parts,
    pub(crate) fields: Arc<[Option<Field>]>,
    /// The id of the profile source, if the event has one.
    pub(crate) tag: u32,
    /// The id of the event on the same processor that this one replaces, while the ring may contain
    /// records of that event.
    pub(crate) replaces: Option<u64>,
}

/// The positions of a row's fields in the raw data.
type Fields = Arc<[Option<Field>]>;

/// The table of open events.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) wanted: Wanted,
    /// Open rows, by their index in `family::specs`.
    rows: HashMap<usize, Row>,
    pub(crate) routes: HashMap<u64, Route, BuildHasherDefault<ById>>,
    /// The hook ids of `wanted` as sets.
    pub(crate) beside: Beside,
    pub(crate) missing: Vec<String>,
    /// Opened for the first tracepoint.
    tracefs: Option<Tracefs>,
    formats: HashMap<(&'static str, &'static str), Option<Arc<Format>>>,
    /// The processes or threads for which events are opened.
    pub(crate) targets: Targets,
    /// Events that report forks, exits, names and mappings of single threads.
    tasks: Vec<Event>,
    /// Whether events stay disabled: before [`begin`](Self::begin) and after [`end`](Self::end).
    is_silent: bool,
    /// The number of changes, from which the capture recognizes a new one.
    pub(crate) changes: u64,
    /// The time, in nanoseconds, of the first change since the last poll, and the hook ids before
    /// that change.
    pub(crate) before: Option<(u64, Beside)>,
    /// The largest stack copy per event, if locked memory limits the rings.
    pub(crate) stack_limit: Option<u32>,
    /// Counts this capture as closing after its end. As the last field it is dropped after all
    /// events are closed.
    closing: Option<Closing>,
}

/// An open row, with one event per target and processor.
#[derive(Debug)]
struct Row {
    key: Key,
    attr: Attr,
    spec: &'static Spec,
    fields: Arc<[Option<Field>]>,
    events: Vec<(u64, Event)>,
    /// Counters that are read with the events and stay open as long as they do.
    _members: Vec<Event>,
}

impl Opened {
    /// Creates a table without open events.
    pub(crate) fn empty(wanted: &Wanted) -> Self {
        Self {
            wanted: Wanted { groups: Groups::default(), ..wanted.clone() },
            rows: HashMap::new(),
            routes: HashMap::default(),
            beside: Beside::default(),
            missing: Vec::new(),
            tracefs: None,
            formats: HashMap::new(),
            targets: Targets::new(wanted.scope),
            tasks: Vec::new(),
            is_silent: true,
            changes: 0,
            before: None,
            stack_limit: None,
            closing: None,
        }
    }

    /// Opens and closes events so that they match new settings.
    pub(crate) fn change(&mut self, wanted: &Wanted, rings: &[Arc<Event>]) -> Result<()> {
        // The rings keep their size, which may be smaller than requested.
        let wanted = &Wanted { ring_bytes: self.wanted.ring_bytes, ..wanted.clone() };
        let (stacks, registers) = (Hooks::new(&wanted.stacks), Hooks::new(&wanted.registers));
        let counted = Hooks::new(&wanted.counted);
        let members = members_of(wanted)?;
        let mut missing = Vec::new();
        let mut rows = HashMap::new();
        for (index, spec) in family::specs().enumerate() {
            if !is_wanted(spec, wanted, &stacks) {
                continue;
            }
            let members = if counted.has_any(spec.hooks) { &members[..] } else { &[] };
            let key = key_of(spec, wanted, (&stacks, &registers), members);
            if self.rows.get(&index).is_some_and(|row| row.key == key) {
                continue;
            }
            let opened = match self.attr_of(spec, wanted, &key) {
                Ok(Some((attr, fields))) => {
                    let ids = self.targets.ids();
                    let open = open(&mut self.targets, (spec, &attr), &key.members, (&ids, rings));
                    open.map(|opened_row| (opened_row, attr, fields))
                }
                // A tracepoint with other fields counts as a missing one.
                Ok(None) | Err(Error::Format { .. }) => Err(Error::NotSupported { what: name_of(spec) }),
                Err(error) => Err(error),
            };
            match opened {
                Ok((events, attr, fields)) => drop(rows.insert(index, (events, attr, key, spec, fields))),
                // An event without its counters would not match the settings.
                Err(Error::NotSupported { .. }) if key.members.is_empty() => {
                    let source = key.source.as_ref().map(|source| format!("profile source {}", source.name));
                    missing.push(source.unwrap_or_else(|| name_of(spec)));
                }
                Err(error) => return Err(error),
            }
        }
        // From here on nothing can fail. No new event has reported anything yet.
        let (now, beside) = (now_ns(), std::mem::take(&mut self.beside));
        self.before.get_or_insert((now, beside));
        let stays =
            |index: &usize| family::specs().nth(*index).is_some_and(|spec| is_wanted(spec, wanted, &stacks));
        let gone: Vec<usize> =
            self.rows.keys().copied().filter(|index| !stays(index) || rows.contains_key(index)).collect();
        for (index, ((events, _members), attr, key, spec, fields)) in rows {
            let tag = key.source.as_ref().map_or(0, |source| source.id);
            let old = self.rows.get(&index).map_or(&[][..], |row| &row.events);
            let old = by_target_and_cpu(old);
            for (id, event) in &events {
                let replaces = old.get(&(event.target(), event.cpu())).copied();
                let (parts, fields) = (key.parts, Arc::clone(&fields));
                let route = Route { spec, parts, fields, tag, replaces };
                self.routes.insert(*id, route);
                if !self.is_silent {
                    // Errors are ignored as in `begin`.
                    let _ = event.enable();
                }
            }
            if let Some(old) = self.rows.insert(index, Row { key, attr, spec, fields, events, _members }) {
                self.close(old);
            }
        }
        for index in gone {
            if !stays(&index)
                && let Some(old) = self.rows.remove(&index)
            {
                self.close(old);
            }
        }
        self.beside = Beside { stacks, registers, counted };
        (self.missing, self.wanted) = (missing, wanted.clone());
        if self.tasks.is_empty() {
            let ids = self.targets.ids();
            self.watch_tasks(&ids, rings);
        }
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// Returns the number of records that the open events of a processor have lost.
    pub(crate) fn lost_on(&self, cpu: i32) -> u64 {
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        let all = rows.chain(&self.tasks).filter(|event| event.cpu() == cpu);
        all.filter_map(Event::lost).fold(0, u64::saturating_add)
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

    /// Disables and closes the events of a row. Their routes stay until all their records are read;
    /// the kernel never reuses ids.
    fn close(&mut self, row: Row) {
        for (_, event) in &row.events {
            let _ = event.disable();
        }
    }

    /// Returns the attributes and field positions of a row, or `None` if this kernel lacks it.
    fn attr_of(&mut self, spec: &Spec, wanted: &Wanted, key: &Key) -> Result<Option<(Attr, Fields)>> {
        let mut attr = Attr { sample_type: key.parts.0, ..Attr::default() };
        Targets::limit(wanted.scope, &mut attr);
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC_RAW;
        if spec.wakes {
            attr.__bindgen_anon_2.wakeup_events = 1;
        } else {
            attr.set_watermark(1);
            attr.__bindgen_anon_2.wakeup_watermark = watermark(wanted);
        }
        if key.parts.has(Parts::CALLCHAIN) {
            attr.sample_max_stack = max_frames();
        }
        if key.parts.has(Parts::STACK_USER) {
            attr.sample_stack_user = stack_copy_bytes(key.stack_bytes, self.stack_limit);
            attr.sample_regs_user = stack::register_mask();
        }
        if key.parts.has(Parts::REGS_INTR) {
            attr.sample_regs_intr = stack::register_mask();
        }
        if key.parts.has(Parts::READ) {
            attr.read_format = u64::from(sys::PERF_FORMAT_GROUP);
        }
        let mut fields = Vec::new();
        match spec.source {
            Source::Tracepoint(system, name) => {
                let Some(format) = self.format(system, name)? else { return Ok(None) };
                (attr.type_, attr.config) = (sys::PERF_TYPE_TRACEPOINT, format.id);
                attr.__bindgen_anon_1.sample_period = 1;
                fields = fields_of(spec, &format)?;
            }
            Source::Software { counter, period } => {
                (attr.type_, attr.config) = (sys::PERF_TYPE_SOFTWARE, counter);
                attr.__bindgen_anon_1.sample_period = period;
            }
            Source::Profile => {
                (attr.type_, attr.config) =
                    (sys::PERF_TYPE_SOFTWARE, u64::from(sys::PERF_COUNT_SW_CPU_CLOCK));
                attr.__bindgen_anon_1.sample_period = key.period;
            }
            Source::Counter(_) => {
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

impl Drop for Opened {
    fn drop(&mut self) {
        // A probe can only be removed when no event is open on it.
        self.rows.clear();
        self.tracefs.iter().for_each(probe::remove);
    }
}

/// The events of a row with their ids, and the counters that are read with them.
type Open = (Vec<(u64, Event)>, Vec<Event>);

/// Converts a filter error: the kernel rejects a filter if it lacks one of the fields.
fn filter_failed(spec: &Spec, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotSupported { what: name_of(spec) },
        _ => Error::system(name_of(spec), error),
    }
}

/// Maps target and processor to event id. The order of events carries no meaning, because targets
/// change from one opening of a row to the next.
fn by_target_and_cpu(events: &[(u64, Event)]) -> HashMap<(i32, i32), u64> {
    events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)).collect()
}

/// Opens a row for some targets on each processor, with its counters as group members. Counters do
/// not sample by themselves, so they have no id.
fn open(
    targets: &mut Targets,
    (spec, attr): (&Spec, &Attr),
    members: &[Code],
    (ids, rings): (&[i32], &[Arc<Event>]),
) -> Result<Open> {
    let failed = |e| Error::system(name_of(spec), e);
    let (mut events, mut counters) = (Vec::with_capacity(rings.len()), Vec::new());
    for (id, ring) in ids.iter().flat_map(|id| rings.iter().map(move |ring| (*id, ring))) {
        let Some(event) = targets.open(attr, id, ring.cpu(), &name_of(spec))? else { continue };
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
            counters.push(event.open_beside(&attr, id, ring.cpu()).map_err(counter_failed)?);
        }
        events.push((event.id().map_err(failed)?, event));
    }
    Ok((events, counters))
}

#[cfg(test)]
mod tests;
