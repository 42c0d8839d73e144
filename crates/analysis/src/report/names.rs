//! Names that a trace defines for the numbers in its events.
//!
//! ```text
//!   names of  events                                             fields with key and name
//!   files     FileIo/Name, FileCreate, FileDelete, FileRundown   FileObject, FileName
//!   threads   Thread/Start, End, DCStart, DCEnd, SetName         TThreadId or ThreadId, ThreadName
//!   disks     SystemConfig/PhyDisk                               DiskNumber, Manufacturer
//!   key ──▶ its names, oldest first
//! ```
//!
//! A key has the last name at or before the time of an event, else the first name after that time,
//! because a rundown may be at the end of the trace. The number of names is limited.

use std::collections::HashMap;
use std::sync::Arc;

use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::header::Record;
use traceweir_format::kernel::hook;

const MAX_NAMES: usize = 1 << 18;
const MAX_NAMES_PER_KEY: usize = 1 << 10;
const MAX_NAME_CHARS: usize = 400;

/// The events that define names of one kind, and their fields.
struct NameSource {
    hooks: &'static [u16],
    key_fields: &'static [&'static str],
    name_field: &'static str,
    /// Whether 0 is a valid key.
    allows_key_zero: bool,
}

static FILES: NameSource = NameSource {
    hooks: &[hook::FILE_NAME, hook::FILE_NAME_CREATE, hook::FILE_NAME_DELETE, hook::FILE_NAME_RUNDOWN],
    key_fields: &["FileObject"],
    name_field: "FileName",
    allows_key_zero: false,
};
static THREADS: NameSource = NameSource {
    hooks: &[
        hook::THREAD_START,
        hook::THREAD_END,
        hook::THREAD_DC_START,
        hook::THREAD_DC_END,
        hook::THREAD_SET_NAME,
    ],
    key_fields: &["TThreadId", "ThreadId"],
    name_field: "ThreadName",
    allows_key_zero: false,
};
static DISKS: NameSource = NameSource {
    hooks: &[hook::CONFIG_PHYSICAL_DISK],
    key_fields: &["DiskNumber"],
    name_field: "Manufacturer",
    allows_key_zero: true,
};

/// The names of one kind in a trace.
pub(super) struct TraceNames {
    source: &'static NameSource,
    /// Times and names, oldest first.
    by_key: HashMap<u64, Vec<(i64, Arc<str>)>>,
    count: usize,
    walker: Walker,
}

struct NameFields {
    source: &'static NameSource,
    key: Option<u64>,
    name: Vec<u8>,
}

impl<'p> Visitor<'p> for NameFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        if self.source.key_fields.contains(&&*field.name) {
            self.key = value.bits();
        } else if *field.name == *self.source.name_field {
            push_text(field, &value, Style::default(), &mut self.name);
        }
    }
    fn begin_array(&mut self, _: usize, _: &Field, _: usize) {}
    fn end_array(&mut self, _: usize, _: &Field) {}
    fn begin_struct(&mut self, _: usize, _: &Field) {}
    fn end_struct(&mut self, _: usize, _: &Field) {}
}

impl TraceNames {
    fn new(source: &'static NameSource) -> Self {
        Self { source, by_key: HashMap::new(), count: 0, walker: Walker::default() }
    }

    /// Returns an empty table of file names, by the keys in disk transfers.
    pub(super) fn for_files() -> Self {
        Self::new(&FILES)
    }

    pub(super) fn for_threads() -> Self {
        Self::new(&THREADS)
    }

    pub(super) fn for_disks() -> Self {
        Self::new(&DISKS)
    }

    /// Returns whether [`observe`](Self::observe) can learn from an event.
    pub(super) fn is_informative(&self, record: &Record<'_>) -> bool {
        record.hook().is_some_and(|hook| self.source.hooks.contains(&hook))
    }

    /// Learns from an event that defines a name.
    pub(super) fn observe(&mut self, record: &Record<'_>, schema_match: &SchemaMatch<'_, '_>) {
        let mut fields = NameFields { source: self.source, key: None, name: Vec::new() };
        let _ = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            record.pointer_size(),
            &mut fields,
        );
        if let Some(key) = fields.key {
            self.add_name(key, record.time(), String::from_utf8_lossy(&fields.name).trim_end());
        }
    }

    fn add_name(&mut self, key: u64, time: i64, name: &str) {
        if (key == 0 && !self.source.allows_key_zero) || name.is_empty() || self.count >= MAX_NAMES {
            return;
        }
        let names_of_key = self.by_key.entry(key).or_default();
        if names_of_key.len() >= MAX_NAMES_PER_KEY
            || names_of_key.last().is_some_and(|(_, last)| last.chars().eq(name.chars().take(MAX_NAME_CHARS)))
        {
            return;
        }
        let name: String = name.chars().take(MAX_NAME_CHARS).collect();
        let index = names_of_key.partition_point(|(name_time, _)| *name_time <= time);
        names_of_key.insert(index, (time, name.into()));
        self.count += 1;
    }

    /// Returns the name of a key at a time.
    pub(super) fn name_at(&self, key: u64, time: i64) -> Option<Arc<str>> {
        let names_of_key = self.by_key.get(&key)?;
        let next = names_of_key.partition_point(|(name_time, _)| *name_time <= time);
        names_of_key.get(next.saturating_sub(1)).map(|(_, name)| Arc::clone(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_means_last_name_before_or_first_name_after() {
        let mut names = TraceNames::for_files();
        names.add_name(7, 10, "a");
        names.add_name(7, 15, "a");
        names.add_name(7, 20, "b");
        let name_at = |key, time| names.name_at(key, time);
        assert_eq!(name_at(7, 5).as_deref(), Some("a"));
        assert_eq!((name_at(7, 19).as_deref(), name_at(7, 20).as_deref()), (Some("a"), Some("b")));
        assert_eq!(name_at(8, 5), None);
        assert_eq!(names.count, 2);
    }

    #[test]
    fn number_of_names_is_limited() {
        let mut names = TraceNames::for_files();
        for time in 0..5000 {
            names.add_name(7, time, &format!("{time}"));
        }
        assert_eq!(names.by_key[&7].len(), MAX_NAMES_PER_KEY);
        names.count = MAX_NAMES;
        names.add_name(8, 0, "x");
        assert_eq!(names.name_at(8, 0), None);
    }
}
