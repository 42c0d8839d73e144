//! What is wanted of the kernel, and the perf events that give it.
//!
//! ```text
//!   Wanted ──▶ rows that serve its groups ──▶ an event a row and processor, with call chains where stacks are wanted
//!               compared with what is open:    opens what is missing, then closes what is not wanted any more
//! ```
//!
//! 1. A change is made wholly or not at all: all new events are opened before the first old one is closed.
//! 2. A row whose tracepoint this kernel does not have is left out and named in [`Control::missing`]; only what is not permitted refuses a change.
//! 3. Whoever changes and whoever reads share the table under a lock that is never held across anything slow.

use std::collections::HashMap;
use std::ffi::CString;
use std::hash::{BuildHasherDefault, Hasher};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use perf_event_open_sys::bindings as sys;

use crate::error::{Error, Result};
use crate::family::{self, file::probe};
use crate::groups::Groups;
use crate::out::Hooks;
use crate::perf_ring::{Attr, Event};
use crate::record::Parts;
use crate::spec::{Source, Spec};
use crate::tracefs::{self, Field, Format};

/// The most frames that a stack has, whatever the kernel allows.
const MAX_FRAMES: u16 = 192;
/// How often the timer samples from the start, in 100 ns.
const USUAL_INTERVAL: u32 = 10_000;

/// Whose events are captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of the whole machine; needs `CAP_PERFMON`, or a kernel that is not paranoid.
    #[default]
    Everything,
    /// Those of this user's own processes, as far as the kernel allows.
    Own,
}

/// What is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Groups of events.
    pub groups: Groups,
    /// Events whose stacks are wanted, by their hooks.
    pub stacks: Vec<u16>,
    /// Events whose registers are wanted, by their hooks.
    pub registers: Vec<u16>,
    /// How often the timer samples, in 100 ns.
    pub interval: u32,
    /// Bytes of the program's stack that come with each stack, to be unwound by its tables; 0: frame pointers alone.
    pub stack_bytes: u32,
    /// Whose events.
    pub scope: Scope,
    /// Bytes of each processor's ring.
    pub ring_bytes: usize,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            groups: Groups::default(),
            stacks: Vec::new(),
            registers: Vec::new(),
            interval: USUAL_INTERVAL,
            stack_bytes: 0,
            scope: Scope::Everything,
            ring_bytes: 2 << 20,
        }
    }
}

/// Changes a capture from outside; any thread may.
#[derive(Clone, Debug)]
pub struct Control {
    pub(crate) shared: Arc<Shared>,
}

/// What a capture and its control have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    opened: Mutex<Opened>,
    /// The event of each processor's ring.
    rings: Vec<Arc<Event>>,
    /// Whether everything that is there is to be told again.
    pub(crate) is_rundown_due: AtomicBool,
}

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
}

/// Events that are open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) wanted: Wanted,
    /// By row.
    rows: HashMap<usize, Row>,
    pub(crate) routes: HashMap<u64, Route, BuildHasherDefault<ById>>,
    /// Hooks of `wanted.stacks`, to be asked quickly.
    pub(crate) stacks: Hooks,
    missing: Vec<String>,
    folder: Option<PathBuf>,
    formats: HashMap<(&'static str, &'static str), Option<Arc<Format>>>,
    /// Counts changes, so that the capture sees that there was one.
    pub(crate) changes: u64,
}

/// One row, open on each processor.
#[derive(Debug)]
struct Row {
    key: Key,
    events: Vec<(u64, Event)>,
}

/// What makes one opening of a row different from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Key {
    parts: Parts,
    interval: u32,
    stack_bytes: u32,
}

impl Control {
    pub(crate) fn new(wanted: &Wanted, rings: Vec<Arc<Event>>) -> Self {
        let opened = Opened {
            wanted: Wanted { groups: Groups::default(), ..wanted.clone() },
            rows: HashMap::new(),
            routes: HashMap::default(),
            stacks: Hooks::default(),
            missing: Vec::new(),
            folder: tracefs::folder(),
            formats: HashMap::new(),
            changes: 0,
        };
        let (opened, is_rundown_due) = (Mutex::new(opened), AtomicBool::new(false));
        Self { shared: Arc::new(Shared { opened, rings, is_rundown_due }) }
    }

    /// Wants something else from now on. Scope and rings stay as they were at the start.
    pub fn set(&self, wanted: &Wanted) -> Result<()> {
        self.shared.opened().change(wanted, &self.shared.rings)
    }

    /// Tracepoints that are wanted and that this kernel does not have.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        self.shared.opened().missing.clone()
    }

    /// Tells of everything that is there, at the next look.
    pub fn run_down(&self) {
        self.shared.is_rundown_due.store(true, Relaxed);
    }
}

impl Shared {
    pub(crate) fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Opened {
    fn change(&mut self, wanted: &Wanted, rings: &[Arc<Event>]) -> Result<()> {
        let stacks = Hooks::new(&wanted.stacks);
        let mut missing = Vec::new();
        let mut rows = HashMap::new();
        for (index, spec) in family::specs().enumerate() {
            if !wanted.groups.has_any(spec.groups) {
                continue;
            }
            let key = key_of(spec, wanted, &stacks);
            if self.rows.get(&index).is_some_and(|row| row.key == key) {
                continue;
            }
            let Some((attr, fields)) = self.attr_of(spec, wanted, key)? else {
                missing.push(name_of(spec));
                continue;
            };
            rows.insert(index, (open(spec, &attr, rings)?, key, spec, fields));
        }
        // Nothing can fail any more.
        let stays = |index: &usize| {
            family::specs().nth(*index).is_some_and(|spec| wanted.groups.has_any(spec.groups))
        };
        let gone: Vec<usize> =
            self.rows.keys().copied().filter(|index| !stays(index) || rows.contains_key(index)).collect();
        for (index, (events, key, spec, fields)) in rows {
            for (id, event) in &events {
                self.routes.insert(*id, Route { spec, parts: key.parts, fields: Arc::clone(&fields) });
                // An event that cannot be switched on was just opened by the same rights.
                let _ = event.enable();
            }
            if let Some(old) = self.rows.insert(index, Row { key, events }) {
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
        (self.stacks, self.missing, self.wanted) = (stacks, missing, wanted.clone());
        self.changes = self.changes.wrapping_add(1);
        Ok(())
    }

    /// Ends the events of a row. What they wrote and nobody has read keeps its route: numbers are never used again.
    fn close(&mut self, row: Row) {
        for (_, event) in &row.events {
            let _ = event.disable();
        }
    }

    /// How a row is to be opened, and where its fields are; `None`: this kernel does not have it.
    fn attr_of(
        &mut self,
        spec: &Spec,
        wanted: &Wanted,
        key: Key,
    ) -> Result<Option<(Attr, Arc<[Option<Field>]>)>> {
        let mut attr = Attr { sample_type: key.parts.0, ..Attr::default() };
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.clockid = libc::CLOCK_MONOTONIC_RAW;
        if spec.wakes {
            attr.__bindgen_anon_2.wakeup_events = 1;
        } else {
            attr.set_watermark(1);
            attr.__bindgen_anon_2.wakeup_watermark = watermark(wanted.ring_bytes);
        }
        if key.parts.has(Parts::CALLCHAIN) {
            attr.sample_max_stack = max_frames();
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
                attr.__bindgen_anon_1.sample_period = u64::from(key.interval).saturating_mul(100);
            }
        }
        Ok(Some((attr, fields.into())))
    }

    fn format(&mut self, system: &'static str, name: &'static str) -> Result<Option<Arc<Format>>> {
        if let Some(known) = self.formats.get(&(system, name)) {
            return Ok(known.clone());
        }
        let Some(folder) = &self.folder else {
            let source = std::io::Error::from_raw_os_error(libc::EACCES);
            return Err(Error::NotPermitted {
                what: "tracefs, where tracepoints are described,".into(),
                source,
            });
        };
        if system == probe::SYSTEM {
            probe::define(folder);
        }
        let found = match tracefs::format(folder, system, name) {
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
        self.folder.iter().for_each(|folder| probe::remove(folder));
    }
}

/// Bytes that wake who waits for a ring.
pub(crate) fn watermark(ring_bytes: usize) -> u32 {
    u32::try_from(ring_bytes / 4).unwrap_or(u32::MAX)
}

fn key_of(spec: &Spec, wanted: &Wanted, stacks: &Hooks) -> Key {
    let mut parts = Parts::ALWAYS.with(spec.parts);
    if matches!(spec.source, Source::Tracepoint(..)) {
        parts = parts.with(Parts::RAW);
    }
    if stacks.has_any(spec.hooks) {
        parts = parts.with(Parts::CALLCHAIN);
    }
    let interval = if spec.source == Source::Profile { wanted.interval } else { 0 };
    Key { parts, interval, stack_bytes: 0 }
}

fn name_of(spec: &Spec) -> String {
    match spec.source {
        Source::Tracepoint(system, name) => format!("{system}:{name}"),
        Source::Software { counter, .. } => format!("software event {counter}"),
        Source::Profile => "cpu-clock".to_owned(),
    }
}

fn fields_of(spec: &Spec, format: &Format) -> Result<Vec<Option<Field>>> {
    let find = |name: &&str| match name.strip_prefix('?') {
        Some(optional) => Ok(format.field(optional)),
        None => match format.field(name) {
            Some(field) => Ok(Some(field)),
            None => Err(Error::Format { name: name_of(spec), field: (*name).to_owned() }),
        },
    };
    spec.fields.iter().map(find).collect()
}

fn open(spec: &Spec, attr: &Attr, rings: &[Arc<Event>]) -> Result<Vec<(u64, Event)>> {
    let failed = |e| Error::system(name_of(spec), e);
    let mut events = Vec::with_capacity(rings.len());
    for (cpu, ring) in rings.iter().enumerate() {
        let event = Event::open(attr, -1, i32::try_from(cpu).unwrap_or(-1)).map_err(failed)?;
        event.write_to(ring).map_err(failed)?;
        if let Some(filter) = spec.filter.and_then(|filter| CString::new(filter).ok()) {
            event.filter(&filter).map_err(failed)?;
        }
        events.push((event.id().map_err(failed)?, event));
    }
    Ok(events)
}

/// Frames of a stack at most: what the kernel allows, and what the published limit is.
pub(crate) fn max_frames() -> u16 {
    let text = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_stack").unwrap_or_default();
    text.trim().parse::<u16>().unwrap_or(127).min(MAX_FRAMES)
}
