//! Names that a trace defines for the numbers in its events.
//!
//! ```text
//!   files     FileIo/Name, FileCreate, FileDelete, FileRundown   FileObject, FileName
//!   threads   Thread/Start, End, DCStart, DCEnd, SetName         TThreadId or ThreadId, ThreadName
//!   disks     SystemConfig/PhyDisk                               DiskNumber, Manufacturer
//!   key ──▶ its names, oldest first
//! ```
//!
//! A key means the last name at or before its time, else the first one after it, because a rundown
//! may be at the end. The number of names is limited.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::format::{Style, text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

/// Maximum number of names of one trace, and of one key.
const MAX_NAMES: usize = 1 << 18;
const MAX_PER_KEY: usize = 1 << 10;
/// Maximum length of a name, in characters.
const MAX_NAME_CHARS: usize = 400;

/// The events that define names of one kind, and their fields.
struct Source {
    hooks: &'static [u16],
    keys: &'static [&'static str],
    name: &'static str,
    /// Whether 0 is a valid key.
    has_zero: bool,
}

static FILES: Source = Source {
    hooks: &[hook::FILE_NAME, hook::FILE_NAME_CREATE, hook::FILE_NAME_DELETE, hook::FILE_NAME_RUNDOWN],
    keys: &["FileObject"],
    name: "FileName",
    has_zero: false,
};
static THREADS: Source = Source {
    hooks: &[
        hook::THREAD_START,
        hook::THREAD_END,
        hook::THREAD_DC_START,
        hook::THREAD_DC_END,
        hook::THREAD_SET_NAME,
    ],
    keys: &["TThreadId", "ThreadId"],
    name: "ThreadName",
    has_zero: false,
};
static DISKS: Source = Source {
    hooks: &[hook::CONFIG_PHYSICAL_DISK],
    keys: &["DiskNumber"],
    name: "Manufacturer",
    has_zero: true,
};

/// The names of one kind in a trace.
pub(super) struct Names {
    source: &'static Source,
    by_key: HashMap<u64, Vec<(i64, Arc<str>)>>,
    count: usize,
    walker: Walker,
}

struct NameFields {
    source: &'static Source,
    key: Option<u64>,
    name: Vec<u8>,
}

impl<'p> Visitor<'p> for NameFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.source.keys.contains(&&*field.name) {
            self.key = value.bits();
        } else if *field.name == *self.source.name {
            text(field, &value, Style::default(), &mut self.name);
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

impl Names {
    fn new(source: &'static Source) -> Self {
        Self { source, by_key: HashMap::new(), count: 0, walker: Walker::default() }
    }

    /// Returns the names of files, by the keys in disk transfers.
    pub(super) fn of_files() -> Self {
        Self::new(&FILES)
    }

    /// Returns the names of threads.
    pub(super) fn of_threads() -> Self {
        Self::new(&THREADS)
    }

    /// Returns the names of disks.
    pub(super) fn of_disks() -> Self {
        Self::new(&DISKS)
    }

    /// Returns whether [`observe`](Self::observe) can learn from an event.
    pub(super) fn is_informative(&self, record: &Record<'_>) -> bool {
        record.hook().is_some_and(|hook| self.source.hooks.contains(&hook))
    }

    /// Learns from an event that defines a name.
    pub(super) fn observe(&mut self, record: &Record<'_>, found: &SchemaMatch<'_, '_>) {
        let mut fields = NameFields { source: self.source, key: None, name: Vec::new() };
        let _ = self.walker.walk(&found.prepared.schema, found.payload, record.pointer_size(), &mut fields);
        if let Some(key) = fields.key {
            self.note(key, record.time(), String::from_utf8_lossy(&fields.name).trim_end());
        }
    }

    fn note(&mut self, key: u64, time: i64, name: &str) {
        if (key == 0 && !self.source.has_zero) || name.is_empty() || self.count >= MAX_NAMES {
            return;
        }
        let all = self.by_key.entry(key).or_default();
        if all.len() >= MAX_PER_KEY
            || all.last().is_some_and(|(_, last)| last.chars().eq(name.chars().take(MAX_NAME_CHARS)))
        {
            return;
        }
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let index = all.partition_point(|(then, _)| *then <= time);
        all.insert(index, (time, name.into()));
        self.count += 1;
    }

    /// Returns the name of a key at a time.
    pub(super) fn name_at(&self, key: u64, time: i64) -> Option<Arc<str>> {
        let all = self.by_key.get(&key)?;
        let after = all.partition_point(|(then, _)| *then <= time);
        all.get(after.saturating_sub(1)).map(|(_, name)| Arc::clone(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_means_last_name_before_or_first_name_after() {
        let mut names = Names::of_files();
        names.note(7, 10, "a");
        names.note(7, 15, "a");
        names.note(7, 20, "b");
        let at = |key, time| names.name_at(key, time);
        assert_eq!(at(7, 5).as_deref(), Some("a"));
        assert_eq!((at(7, 19).as_deref(), at(7, 20).as_deref()), (Some("a"), Some("b")));
        assert_eq!(at(8, 5), None);
        assert_eq!(names.count, 2);
    }

    #[test]
    fn number_of_names_is_limited() {
        let mut names = Names::of_files();
        for time in 0..5000 {
            names.note(7, time, &format!("{time}"));
        }
        assert_eq!(names.by_key[&7].len(), MAX_PER_KEY);
        names.count = MAX_NAMES;
        names.note(8, 0, "x");
        assert_eq!(names.name_at(8, 0), None);
    }
}
