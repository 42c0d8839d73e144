//! Who: the processes and threads that a trace's own kernel events name, at any time.
//!
//! ```text
//!   thread 42   ──start──[ process 7 ]──end──      ──start──[ process 9 ]──────▶   ids are used again
//!   look-up     (thread, time) ──▶ process,  (process, time) ──▶ image name
//! ```
//!
//! A rundown event at the start or end of a session says that something was alive all along, so a span that only such an event
//! opens or closes reaches to the ends of time. What a hostile trace can make this keep is bounded.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use traceweir_format::header::{NO_ID, Record};
use traceweir_format::spec::event::class;
use traceweir_format::spec::types::OutType;

use crate::format::{Style, text};
use crate::schema::{Field, Kind};
use crate::source::Found;
use crate::value::Value;
use crate::walk::{Visitor, Walker};

/// The most spans kept.
const MAX_SPANS: usize = 1 << 20;

/// The opcode of an image event when an image is loaded.
const IMAGE_LOAD: u8 = 10;

/// A time in which an id meant one thing.
#[derive(Clone, Debug)]
struct Span<T> {
    from: i64,
    until: i64,
    what: T,
}

/// All spans of one kind of id.
#[derive(Debug)]
struct Spans<T> {
    by_id: FxHashMap<u32, Vec<Span<T>>>,
    count: usize,
}

impl<T> Default for Spans<T> {
    fn default() -> Self {
        Self { by_id: FxHashMap::default(), count: 0 }
    }
}

impl<T: Clone + PartialEq> Spans<T> {
    fn note(&mut self, id: u32, life: Life, time: i64, what: T) {
        let spans = self.by_id.entry(id).or_default();
        let open = spans.last_mut().filter(|s| s.until == i64::MAX && s.what == what);
        match (life, open) {
            (Life::End, Some(span)) => span.until = time,
            (Life::Start, Some(span)) => {
                span.until = time;
                spans.push(Span { from: time, until: i64::MAX, what });
                self.count = self.count.saturating_add(1);
            }
            (Life::Rundown, Some(_)) => {}
            (_, None) if self.count >= MAX_SPANS => {}
            (life, None) => {
                let from = if life == Life::Start { time } else { i64::MIN };
                let until = if life == Life::End { time } else { i64::MAX };
                spans.push(Span { from, until, what });
                self.count = self.count.saturating_add(1);
            }
        }
    }

    /// What the id meant at a time; failing that, the span that is nearest.
    fn at(&self, id: u32, time: i64) -> Option<&T> {
        let spans = self.by_id.get(&id)?;
        let inside = spans.iter().rev().find(|s| s.from <= time && time <= s.until);
        let distance = |s: &&Span<T>| s.from.abs_diff(time).min(s.until.abs_diff(time));
        inside.or_else(|| spans.iter().min_by_key(distance)).map(|s| &s.what)
    }
}

/// What an event says about the life of a process or thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Start,
    End,
    Rundown,
}

impl Life {
    const fn of(opcode: u8) -> Option<Self> {
        match opcode {
            1 => Some(Self::Start),
            2 => Some(Self::End),
            3 | 4 | 39 => Some(Self::Rundown),
            _ => None,
        }
    }
}

/// Process and thread that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Actor {
    /// The process, or [`NO_ID`].
    pub pid: u32,
    /// The thread, or [`NO_ID`].
    pub tid: u32,
}

/// The processes and threads of a trace.
#[derive(Debug, Default)]
pub struct Actors {
    threads: Spans<u32>,
    processes: Spans<Arc<str>>,
    walker: Walker,
}

/// The fields of an event that name somebody, in order of their appearance.
#[derive(Default)]
struct Names {
    pid: Option<u32>,
    tid: Option<u32>,
    image: Option<Arc<str>>,
}

impl<'p> Visitor<'p> for Names {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        let Kind::Value { output, .. } = &field.kind else { return };
        let id = || value.as_u64().and_then(|v| u32::try_from(v).ok());
        match *output {
            OutType::PID if self.pid.is_none() => self.pid = id(),
            OutType::TID if self.tid.is_none() => self.tid = id(),
            _ if &*field.name == "ImageFileName" => {
                let mut name = Vec::new();
                text(field, &value, Style::default(), &mut name);
                self.image = Some(String::from_utf8_lossy(&name).into());
            }
            _ => {}
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

impl Actors {
    /// Whether an event may tell something to [`Actors::observe`].
    #[inline]
    #[must_use]
    pub fn is_informative(record: &Record<'_>) -> bool {
        record.hook().is_some_and(|hook| {
            let [opcode, group] = hook.to_le_bytes();
            matches!(group, 3 | 5) && Life::of(opcode).is_some()
        })
    }

    /// Learns from a process or thread event.
    pub fn observe(&mut self, record: &Record<'_>, found: &Found<'_, '_>) {
        let (class, Some(life)) = (record.provider(), Life::of(record.descriptor().opcode)) else { return };
        let names = self.names(record, found);
        let time = record.time();
        match (names.pid, names.tid, names.image) {
            (Some(pid), _, Some(image)) if class == class::PROCESS => {
                self.processes.note(pid, life, time, image)
            }
            (Some(pid), Some(tid), _) if class == class::THREAD => self.threads.note(tid, life, time, pid),
            _ => {}
        }
    }

    fn names(&mut self, record: &Record<'_>, found: &Found<'_, '_>) -> Names {
        let mut names = Names::default();
        // A payload that ends early has named whom it could.
        let _ = self.walker.walk(&found.known.schema, found.payload, record.pointer_size(), &mut names);
        names
    }

    /// Whom a kernel event is about, where that is not what its header says.
    pub fn attribute(&mut self, record: &Record<'_>, found: &Found<'_, '_>) -> Option<Actor> {
        record.hook()?;
        let names = self.names(record, found);
        let header = Actor { pid: record.process_id(), tid: record.thread_id() };
        let actor = match (names.pid, names.tid) {
            (Some(pid), Some(tid)) => Actor { pid, tid },
            // The configuration names the process of a service, and its header the thread that asked.
            (Some(pid), None) if record.provider() == class::CONFIG => Actor { pid, tid: header.tid },
            // An image is loaded by a thread of its process, or by another process that starts this one.
            (Some(pid), None) if is_image_load(record) && pid == header.pid => header,
            (Some(pid), None) => Actor { pid, tid: NO_ID },
            (None, Some(tid)) => Actor { pid: self.process_of(tid, record.time()).unwrap_or(NO_ID), tid },
            (None, None) => return None,
        };
        (actor != header).then_some(actor)
    }

    /// The process that a thread belonged to at a time.
    #[must_use]
    pub fn process_of(&self, tid: u32, time: i64) -> Option<u32> {
        // The idle threads all have the id 0 and belong to process 0.
        self.threads.at(tid, time).copied().or((tid == 0).then_some(0))
    }

    /// The image name of a process at a time.
    #[must_use]
    pub fn image_of(&self, pid: u32, time: i64) -> Option<&str> {
        self.processes.at(pid, time).map(|n| &**n)
    }
}

fn is_image_load(record: &Record<'_>) -> bool {
    record.provider() == class::IMAGE && record.descriptor().opcode == IMAGE_LOAD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_used_again_means_what_it_meant_then() {
        let mut spans = Spans::default();
        spans.note(42, Life::Rundown, 100, 7);
        spans.note(42, Life::End, 200, 7);
        spans.note(42, Life::Start, 300, 9);
        let at = |t| spans.at(42, t).copied();
        assert_eq!(
            (at(0), at(150), at(299), at(301), at(i64::MAX)),
            (Some(7), Some(7), Some(9), Some(9), Some(9))
        );
        assert_eq!(spans.at(43, 0), None);
    }

    #[test]
    fn a_missed_end_does_not_hide_the_next_start() {
        let mut spans = Spans::default();
        spans.note(1, Life::Start, 10, "a");
        spans.note(1, Life::Start, 20, "b");
        assert_eq!((spans.at(1, 15), spans.at(1, 25)), (Some(&"a"), Some(&"b")));
    }

    #[test]
    fn an_end_alone_reaches_back_to_the_beginning() {
        let mut spans = Spans::default();
        spans.note(5, Life::End, 10, 3);
        assert_eq!(spans.at(5, -1), Some(&3));
    }
}
