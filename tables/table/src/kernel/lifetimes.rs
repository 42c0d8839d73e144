//! Processes, threads and images, from their start to their end.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::event::{DescribedEvent, ReadFlow};
use traceweir_analysis::report::LifeChange;
use traceweir_analysis::traces::{ReadSummary, TraceSet};
use traceweir_decode::format::{Style, push_text};
use traceweir_decode::schema::Field;
use traceweir_decode::value::Value;
use traceweir_decode::walk::{Visitor, Walker};
use traceweir_format::kernel::hook;
use traceweir_format::time::FileTime;

use super::columns::KernelColumn as C;
use super::{KernelRow, KernelTable, RowSink};
use crate::rows::{Cell, number, text};

/// The most memory of the processes, threads and images that are followed at the same time. The row
/// of one beyond the limit is written at once, without its end.
const MAX_LIVE_BYTES: usize = 64 << 20;
/// Memory of an object besides its texts, in the table and in its sorted list.
const OBJECT_BYTES: usize = 3 * (size_of::<Object>() + size_of::<ObjectKey>());
/// The longest text that is kept, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Returns the table that an event adds to, and what the event reports.
fn classify(hook: u16) -> Option<(KernelTable, LifeChange)> {
    use KernelTable::{Images, Processes, Threads};
    use LifeChange::{End, Exists, Start};
    Some(match hook {
        hook::PROCESS_START => (Processes, Start),
        hook::PROCESS_END => (Processes, End),
        hook::PROCESS_DC_START | hook::PROCESS_DC_END => (Processes, Exists),
        hook::THREAD_START => (Threads, Start),
        hook::THREAD_END => (Threads, End),
        hook::THREAD_DC_START | hook::THREAD_DC_END | hook::THREAD_SET_NAME => (Threads, Exists),
        hook::IMAGE_LOAD => (Images, Start),
        hook::IMAGE_UNLOAD => (Images, End),
        hook::IMAGE_DC_START | hook::IMAGE_DC_END => (Images, Exists),
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
    /// Returns an estimate of the memory of the object.
    fn byte_count(&self) -> usize {
        let LifeFields { name, command_line, user_sid, .. } = &self.fields;
        let texts = [name, command_line, user_sid, &self.process].into_iter().flatten();
        texts.fold(OBJECT_BYTES, |sum, text| sum.saturating_add(text.len()).saturating_add(16))
    }

    /// Adds what a later event says and an earlier one did not.
    fn merge(&mut self, fields: LifeFields, process: Option<&str>) {
        let known = &mut self.fields;
        known.exit_status = fields.exit_status.or(known.exit_status);
        known.process_id = known.process_id.or(fields.process_id);
        known.thread_id = known.thread_id.or(fields.thread_id);
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
    let (start_cell, end_cell, has_ended) = (to_time(start), to_time(&end), end.is_some());
    let (name, process) = (text(fields.name.as_deref()), text(process.as_deref()));
    let time = (C::Time, Cell::Time(*seen));
    let process_id = (C::ProcessId, number(fields.process_id));
    let process = (C::Process, process);
    let [start, end, duration] = [(C::Start, start_cell), (C::End, end_cell), (C::DurationNs, duration)];
    let cells: &[(C, Cell<'_>)] = match key.table {
        KernelTable::Processes => &[
            time,
            process_id,
            (C::ParentProcessId, number(fields.parent_id)),
            (C::Process, name),
            (C::CommandLine, text(fields.command_line.as_deref())),
            (C::UserSid, text(fields.user_sid.as_deref())),
            (C::SessionId, number(fields.session_id)),
            start,
            end,
            duration,
            // While a process runs, its exit status means "still active".
            (C::ExitStatus, number(fields.exit_status.filter(|_| has_ended))),
        ],
        KernelTable::Threads => &[
            time,
            (C::ThreadId, number(fields.thread_id)),
            process_id,
            process,
            (C::Name, name),
            (C::StartAddress, number(fields.address)),
            start,
            end,
            duration,
        ],
        _ => &[
            time,
            process_id,
            process,
            (C::File, name),
            (C::Base, number(fields.address)),
            (C::Size, number(fields.size)),
            (C::Checksum, number(fields.checksum)),
            (C::TimeDateStamp, number(fields.time_date_stamp)),
            start,
            end,
            duration,
        ],
    };
    sink(&KernelRow { table: key.table, file: key.file, time: *seen, cells })
}

/// Follows the lives of objects.
#[derive(Default)]
struct Lives {
    live: HashMap<ObjectKey, Object>,
    live_bytes: usize,
    walker: Walker,
}

impl Lives {
    /// Follows an object, or writes it at once if the limit is reached.
    fn insert(&mut self, key: ObjectKey, object: Object, sink: &mut RowSink<'_>) -> Result<()> {
        let live_bytes = self.live_bytes.saturating_add(object.byte_count());
        if live_bytes > MAX_LIVE_BYTES {
            return write_object(key, &object, None, sink);
        }
        self.live_bytes = live_bytes;
        self.live.insert(key, object);
        Ok(())
    }

    fn remove(&mut self, key: ObjectKey) -> Option<Object> {
        let object = self.live.remove(&key)?;
        self.live_bytes = self.live_bytes.saturating_sub(object.byte_count());
        Some(object)
    }

    fn add(
        &mut self,
        event: &DescribedEvent<'_>,
        tables: &[KernelTable],
        sink: &mut RowSink<'_>,
    ) -> Result<()> {
        let Some((table, change)) = event.record.hook().and_then(classify) else { return Ok(()) };
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
        if change == LifeChange::Start {
            if let Some(previous) = self.remove(key) {
                // The end of an object with the same id was lost.
                write_object(key, &previous, None, sink)?;
            }
            let process = event.process.map(Into::into);
            let object = Object { seen: event.time, start: Some(event.time), fields, process };
            return self.insert(key, object, sink);
        }
        let first = || Object { seen: event.time, start: None, fields: LifeFields::default(), process: None };
        let mut object = self.remove(key).unwrap_or_else(first);
        object.merge(fields, event.process);
        match change {
            LifeChange::End => write_object(key, &object, Some(event.time), sink),
            // A rundown lists objects at the start or the end of a trace; their rows follow.
            _ => self.insert(key, object, sink),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_followed_objects_is_limited() {
        let mut lives = Lives::default();
        let mut written = 0_u64;
        let mut sink = |_: &KernelRow<'_>| {
            written += 1;
            Ok(())
        };
        let text: Arc<str> = "x".repeat(MAX_TEXT_BYTES).into();
        let count = 100_000;
        for id in 0..count {
            let fields = LifeFields {
                name: Some(Arc::clone(&text)),
                command_line: Some(Arc::clone(&text)),
                ..LifeFields::default()
            };
            let key = ObjectKey { table: KernelTable::Processes, file: 0, id, address: 0 };
            let object = Object { seen: FileTime(0), start: None, fields, process: None };
            lives.insert(key, object, &mut sink).unwrap();
        }
        let followed = lives.live.len();
        assert!(followed * 2 * MAX_TEXT_BYTES < MAX_LIVE_BYTES && followed > 10_000, "{followed}");
        let key = ObjectKey { table: KernelTable::Processes, file: 0, id: 7, address: 0 };
        let bytes = lives.live_bytes;
        assert!(lives.remove(key).is_some() && lives.live_bytes < bytes);
        lives.finish(&mut sink).unwrap();
        assert_eq!(written, count - 1);
    }
}
