//! Processes, threads and images, from their start to their end.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::{KernelRow, KernelTable, RowSink};
use crate::rows::{Cell, number, text};

/// The most processes, threads and images that are followed at the same time. The row of one
/// beyond the limit is written at once, without its end.
const MAX_LIVE: usize = 1 << 18;
/// The longest text that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// What an event says about the life of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// The object began, or the trace began while it existed.
    Start {
        /// Whether the event is the start itself.
        is_known: bool,
    },
    /// The object ended, or the trace ended while it existed.
    End {
        /// Whether the event is the end itself.
        is_known: bool,
    },
    /// The thread got a name.
    Name,
}

fn classify(hook: u16) -> Option<(KernelTable, Life)> {
    use KernelTable::{Images, Processes, Threads};
    let (known_start, rundown_start) = (Life::Start { is_known: true }, Life::Start { is_known: false });
    let (known_end, rundown_end) = (Life::End { is_known: true }, Life::End { is_known: false });
    Some(match hook {
        hook::PROCESS_START => (Processes, known_start),
        hook::PROCESS_DC_START => (Processes, rundown_start),
        hook::PROCESS_END => (Processes, known_end),
        hook::PROCESS_DC_END => (Processes, rundown_end),
        hook::THREAD_START => (Threads, known_start),
        hook::THREAD_DC_START => (Threads, rundown_start),
        hook::THREAD_END => (Threads, known_end),
        hook::THREAD_DC_END => (Threads, rundown_end),
        hook::THREAD_SET_NAME => (Threads, Life::Name),
        hook::IMAGE_LOAD => (Images, known_start),
        hook::IMAGE_DC_START => (Images, rundown_start),
        hook::IMAGE_UNLOAD => (Images, known_end),
        hook::IMAGE_DC_END => (Images, rundown_end),
        _ => return None,
    })
}

/// The fields of lifetime events, by their names in all versions.
#[derive(Clone, Debug, Default)]
struct LifeFields {
    process_id: Option<u64>,
    parent_id: Option<u64>,
    thread_id: Option<u64>,
    session_id: Option<u64>,
    exit_status: Option<u64>,
    address: Option<u64>,
    size: Option<u64>,
    checksum: Option<u64>,
    time_date_stamp: Option<u64>,
    name: Option<Arc<str>>,
    command_line: Option<Arc<str>>,
    user_sid: Option<Arc<str>>,
}

/// Returns the value of a field as text; `None` for an empty text.
fn read_text(field: &Field, value: &Value<'_>) -> Option<Arc<str>> {
    let mut out = Vec::new();
    push_text(field, value, Style::default(), &mut out);
    out.truncate(MAX_TEXT_BYTES);
    let text = String::from_utf8_lossy(&out);
    (!text.is_empty()).then(|| text.as_ref().into())
}

impl<'p> Visitor<'p> for LifeFields {
    fn value(&mut self, _: usize, field: &Field, value: Value<'p>) {
        match &*field.name {
            "ProcessId" => self.process_id = value.bits(),
            "ParentId" => self.parent_id = value.bits(),
            "TThreadId" | "ThreadId" => self.thread_id = value.bits(),
            "SessionId" => self.session_id = value.bits(),
            "ExitStatus" => self.exit_status = value.bits(),
            "Win32StartAddr" | "ImageBase" | "BaseAddress" => self.address = value.bits(),
            "ImageSize" | "ModuleSize" => self.size = value.bits(),
            "ImageChecksum" => self.checksum = value.bits(),
            "TimeDateStamp" => self.time_date_stamp = value.bits(),
            "ImageFileName" | "FileName" | "ThreadName" => self.name = read_text(field, &value),
            "CommandLine" => self.command_line = read_text(field, &value),
            "UserSID" => self.user_sid = read_text(field, &value),
            _ => {}
        }
    }
}

/// Identifies an object while it exists: the trace, and the process or thread, or the process and
/// the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct ObjectKey {
    table: KernelTable,
    file: usize,
    id: u64,
    address: u64,
}

/// A process, thread or image that exists.
struct Object {
    seen: FileTime,
    start: Option<FileTime>,
    fields: LifeFields,
    process: Option<Arc<str>>,
}

impl Object {
    /// Adds what a later event says and an earlier one did not.
    fn merge(&mut self, fields: LifeFields, process: Option<&str>) {
        let known = &mut self.fields;
        known.exit_status = fields.exit_status.or(known.exit_status);
        known.process_id = known.process_id.or(fields.process_id);
        known.parent_id = known.parent_id.or(fields.parent_id);
        known.session_id = known.session_id.or(fields.session_id);
        known.address = known.address.or(fields.address);
        known.size = known.size.or(fields.size);
        known.checksum = known.checksum.or(fields.checksum);
        known.time_date_stamp = known.time_date_stamp.or(fields.time_date_stamp);
        known.name = fields.name.or_else(|| known.name.take());
        known.command_line = known.command_line.take().or(fields.command_line);
        known.user_sid = known.user_sid.take().or(fields.user_sid);
        self.process = self.process.take().or_else(|| process.map(Into::into));
    }
}

fn write_object(
    key: ObjectKey,
    object: &Object,
    end: Option<FileTime>,
    sink: &mut RowSink<'_>,
) -> Result<()> {
    let Object { seen, start, fields, process } = object;
    let to_time = |time: &Option<FileTime>| time.map_or(Cell::Null, Cell::Time);
    let span = start.zip(end).map(|(start, end)| end.0.saturating_sub(start.0).saturating_mul(100));
    let duration = number(span.and_then(|span| u64::try_from(span).ok()));
    let (start_cell, end_cell) = (to_time(start), to_time(&end));
    let (name, process) = (text(fields.name.as_deref()), text(process.as_deref()));
    let cells: &[Cell<'_>] = match key.table {
        KernelTable::Processes => &[
            Cell::Time(*seen),
            number(fields.process_id),
            number(fields.parent_id),
            name,
            text(fields.command_line.as_deref()),
            text(fields.user_sid.as_deref()),
            number(fields.session_id),
            start_cell,
            end_cell,
            duration,
            // While a process runs, its exit status means "still active".
            number(fields.exit_status.filter(|_| end.is_some())),
        ],
        KernelTable::Threads => &[
            Cell::Time(*seen),
            number(fields.thread_id),
            number(fields.process_id),
            process,
            name,
            number(fields.address),
            start_cell,
            end_cell,
            duration,
        ],
        _ => &[
            Cell::Time(*seen),
            number(fields.process_id),
            process,
            name,
            number(fields.address),
            number(fields.size),
            number(fields.checksum),
            number(fields.time_date_stamp),
            start_cell,
            end_cell,
            duration,
        ],
    };
    sink(&KernelRow { table: key.table, file: key.file, time: *seen, cells })
}

/// Follows the lives of objects.
#[derive(Default)]
struct Lives {
    live: HashMap<ObjectKey, Object>,
    walker: Walker,
}

impl Lives {
    fn add(
        &mut self,
        event: &DescribedEvent<'_>,
        tables: &[KernelTable],
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let Some((table, life)) = event.record.hook().and_then(classify) else { return Ok(()) };
        let Some(schema_match) = event.schema_match.as_ref().ok().filter(|_| tables.contains(&table)) else {
            return Ok(());
        };
        let mut fields = LifeFields::default();
        // If the payload ends early, the fields before its end have been read.
        let _ = self.walker.walk(
            &schema_match.prepared.schema,
            schema_match.payload,
            event.record.pointer_size(),
            &mut fields,
        );
        let id = match table {
            KernelTable::Threads => fields.thread_id,
            _ => fields.process_id,
        };
        let address = if table == KernelTable::Images { fields.address.unwrap_or(0) } else { 0 };
        let key = ObjectKey { table, file: event.file, id: id.unwrap_or(0), address };
        match life {
            Life::Start { is_known } => self.start(key, event, fields, is_known, sink),
            Life::End { is_known } => self.end(key, event, fields, is_known, sink),
            Life::Name => {
                if let (Some(object), Some(name)) = (self.live.get_mut(&key), fields.name) {
                    object.fields.name = Some(name);
                }
                Ok(())
            }
        }
    }

    fn start(
        &mut self,
        key: ObjectKey,
        event: &DescribedEvent<'_>,
        fields: LifeFields,
        is_known: bool,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        if let Some(object) = self.live.get_mut(&key).filter(|_| !is_known) {
            // A rundown may list an object whose start the trace has.
            object.merge(fields, event.process);
            return Ok(());
        }
        let process = event.process.map(Into::into);
        let object = Object { seen: event.time, start: is_known.then_some(event.time), fields, process };
        if self.live.len() >= MAX_LIVE && !self.live.contains_key(&key) {
            return write_object(key, &object, None, sink);
        }
        match self.live.insert(key, object) {
            // The end of an object with the same id was lost.
            Some(previous) => write_object(key, &previous, None, sink),
            None => Ok(()),
        }
    }

    fn end(
        &mut self,
        key: ObjectKey,
        event: &DescribedEvent<'_>,
        fields: LifeFields,
        is_known: bool,
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let known = self.live.remove(&key);
        let first = || Object { seen: event.time, start: None, fields: LifeFields::default(), process: None };
        let mut object = known.unwrap_or_else(first);
        if object.fields.thread_id.is_none() {
            object.fields.thread_id = fields.thread_id;
        }
        object.merge(fields, event.process);
        if is_known {
            return write_object(key, &object, Some(event.time), sink);
        }
        // The rundown at the end of a trace lists objects that still exist; the last rows follow.
        self.live.insert(key, object);
        Ok(())
    }

    fn finish(self, sink: &mut RowSink<'_>) -> Result<()> {
        let mut rest: Vec<(ObjectKey, Object)> = self.live.into_iter().collect();
        rest.sort_by_key(|(key, object)| (object.seen, key.table, key.file, key.id, key.address));
        rest.iter().try_for_each(|(key, object)| write_object(*key, object, None, sink))
    }
}

pub(super) fn read(
    traces: &mut TraceSet,
    tables: &[KernelTable],
    sink: &mut RowSink<'_>,
) -> Result<ReadSummary> {
    let mut lives = Lives::default();
    let reading = traces.read(
        |record, _| record.hook().is_some_and(|hook| classify(hook).is_some()),
        |event| {
            lives.add(event, tables, sink)?;
            Ok(ReadFlow::Continue)
        },
    )?;
    lives.finish(sink)?;
    Ok(reading)
}
