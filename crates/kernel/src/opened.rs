//! The perf events that are open, and where their samples go.
//!
//! ```text
//!   Wanted ──▶ rows that serve its groups ──▶ an event a row, target and processor, with call chains where stacks are wanted
//!               compared with what is open:    opens what is missing, then closes what is not wanted any more
//! ```
//!
//! 1. A change is made wholly or not at all: all new events are opened before the first old one is closed.
//! 2. A row whose tracepoint this kernel does not have, or has with other fields, is left out and named in [`Control::missing`](crate::Control::missing); only what is not permitted refuses a change.

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

/// Numbers of events are the kernel's own: they need no hashing.
#[derive(Default)]
pub(crate) struct ById(u64);

impl Hasher for ById {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, id: u64) {
        // Both halves of the table's use of it get something of the number.
        self.0 = id.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Where the samples of an event go.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) spec: &'static Spec,
    pub(crate) parts: Parts,
    pub(crate) fields: Arc<[Option<Field>]>,
    /// The id of the profile source, for those that have one.
    pub(crate) tag: u32,
    /// The event on the same processor in whose place it was opened, as long as that may have records in the ring.
    pub(crate) replaces: Option<u64>,
}

/// Where the fields of a row lie.
type Fields = Arc<[Option<Field>]>;

/// Events that are open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) wanted: Wanted,
    /// By row.
    rows: HashMap<usize, Row>,
    pub(crate) routes: HashMap<u64, Route, BuildHasherDefault<ById>>,
    /// Hooks of `wanted`, to be asked quickly.
    pub(crate) beside: Beside,
    pub(crate) missing: Vec<String>,
    /// Opened when the first tracepoint is wanted.
    tracefs: Option<Tracefs>,
    formats: HashMap<(&'static str, &'static str), Option<Arc<Format>>>,
    /// Whom events are opened for.
    pub(crate) targets: Targets,
    /// Events that tell of the tasks of single threads.
    tasks: Vec<Event>,
    /// Nothing tells anything before [`begin`](Self::begin).
    is_silent: bool,
    /// Counts changes, so that the capture sees that there was one.
    pub(crate) changes: u64,
    /// What was wanted beside events until the first change that the capture has not seen, and when that was, in nanoseconds.
    pub(crate) before: Option<(u64, Beside)>,
    /// The most bytes of a program's stack that come with an event, where rings are limited.
    pub(crate) stack_limit: Option<u32>,
    /// Counts this capture from its end on. The last field: it is dropped when all events are closed.
    closing: Option<Closing>,
}

/// One row, open on each processor.
#[derive(Debug)]
struct Row {
    key: Key,
    attr: Attr,
    spec: &'static Spec,
    fields: Arc<[Option<Field>]>,
    events: Vec<(u64, Event)>,
    /// Counters that are read with them, open as long as they are.
    _members: Vec<Event>,
}

impl Opened {
    /// Nothing is open yet.
    pub(crate) fn nothing(wanted: &Wanted) -> Self {
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

    pub(crate) fn change(&mut self, wanted: &Wanted, rings: &[Arc<Event>]) -> Result<()> {
        // The rings stay as they are, which may be smaller than was wanted.
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
                    open.map(|it| (it, attr, fields))
                }
                // One whose fields are others than we know is another one.
                Ok(None) | Err(Error::Format { .. }) => Err(Error::NotSupported { what: name_of(spec) }),
                Err(error) => Err(error),
            };
            match opened {
                Ok((events, attr, fields)) => drop(rows.insert(index, (events, attr, key, spec, fields))),
                // Without its counters an event would not be what is wanted.
                Err(Error::NotSupported { .. }) if key.members.is_empty() => {
                    let source = key.source.as_ref().map(|it| format!("profile source {}", it.name));
                    missing.push(source.unwrap_or_else(|| name_of(spec)));
                }
                Err(error) => return Err(error),
            }
        }
        // Nothing can fail any more. No new event has told anything so far.
        let (now, beside) = (now_ns(), std::mem::take(&mut self.beside));
        self.before.get_or_insert((now, beside));
        let stays =
            |index: &usize| family::specs().nth(*index).is_some_and(|spec| is_wanted(spec, wanted, &stacks));
        let gone: Vec<usize> =
            self.rows.keys().copied().filter(|index| !stays(index) || rows.contains_key(index)).collect();
        for (index, ((events, _members), attr, key, spec, fields)) in rows {
            let tag = key.source.as_ref().map_or(0, |it| it.id);
            let old = self.rows.get(&index).map_or(&[][..], |row| &row.events);
            let old = by_place(old);
            for (id, event) in &events {
                let replaces = old.get(&(event.target(), event.cpu())).copied();
                let (parts, fields) = (key.parts, Arc::clone(&fields));
                let route = Route { spec, parts, fields, tag, replaces };
                self.routes.insert(*id, route);
                if !self.is_silent {
                    // As in `begin`.
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

    /// What the open events of a processor have lost.
    pub(crate) fn lost_on(&self, cpu: i32) -> u64 {
        let rows = self.rows.values().flat_map(|row| row.events.iter().map(|(_, event)| event));
        let all = rows.chain(&self.tasks).filter(|event| event.cpu() == cpu);
        all.filter_map(Event::lost).fold(0, u64::saturating_add)
    }

    /// Forgets where samples of events go that are closed: call when all that was written before the change is read.
    pub(crate) fn forget_closed(&mut self) {
        let open: HashSet<u64> =
            self.rows.values().flat_map(|row| row.events.iter().map(|it| it.0)).collect();
        self.routes.retain(|id, route| {
            route.replaces = None;
            open.contains(id)
        });
    }

    /// Ends the events of a row. What they wrote and nobody has read keeps its route until then: numbers are never used again.
    fn close(&mut self, row: Row) {
        for (_, event) in &row.events {
            let _ = event.disable();
        }
    }

    /// How a row is to be opened, and where its fields are; `None`: this kernel does not have it.
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

    fn format(&mut self, system: &'static str, name: &'static str) -> Result<Option<Arc<Format>>> {
        if let Some(known) = self.formats.get(&(system, name)) {
            return Ok(known.clone());
        }
        let tracefs = match &mut self.tracefs {
            Some(tracefs) => tracefs,
            unopened => unopened.insert(Tracefs::open()?),
        };
        if system == probe::SYSTEM {
            probe::define(tracefs);
        }
        let found = match tracefs.format(system, name) {
            Ok(format) => Some(Arc::new(format)),
            Err(Error::NotSupported { .. }) => None,
            Err(other) => return Err(other),
        };
        self.formats.insert((system, name), found.clone());
        Ok(found)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        // Probes can be removed when nothing is open on them.
        self.rows.clear();
        self.tracefs.iter().for_each(probe::remove);
    }
}

/// Events of a row with their numbers, and the counters that are read with them.
type Open = (Vec<(u64, Event)>, Vec<Event>);

/// A filter that the kernel does not understand names a field that is not there.
fn filter_failed(spec: &Spec, error: io::Error) -> Error {
    match error.raw_os_error() {
        Some(libc::EINVAL) => Error::NotSupported { what: name_of(spec) },
        _ => Error::system(name_of(spec), error),
    }
}

/// Events of a row by whom and where they watch. Their order says nothing: targets come and go from one opening to the next.
fn by_place(events: &[(u64, Event)]) -> HashMap<(i32, i32), u64> {
    events.iter().map(|(id, event)| ((event.target(), event.cpu()), *id)).collect()
}

/// Opens a row for some targets on each processor, with its counters behind it: they have no samples of their own, and so no number.
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
            // A group has one clock.
            attr.set_use_clockid(1);
            attr.clockid = libc::CLOCK_MONOTONIC_RAW;
            let unable = |e| Error::system("a counter beside an event", e);
            counters.push(event.open_beside(&attr, id, ring.cpu()).map_err(unable)?);
        }
        events.push((event.id().map_err(failed)?, event));
    }
    Ok((events, counters))
}

#[cfg(test)]
mod tests;
