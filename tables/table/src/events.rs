//! The table `events`: one row for each event, with the same columns for every event.
//!
//! ```text
//!   DescribedEvent ──▶ EventColumns: one builder for each wanted column ──▶ RecordBatch
//! ```
//!
//! Only wanted columns are built: without `payload`, `message`, `undecoded` and `raw`, no payload is
//! decoded.

mod columns;
mod shared;

use std::fmt;
use std::sync::Arc;

use anyhow::Result;
use arrow_array::{ArrayRef, RecordBatch, TimestampNanosecondArray, UInt32Array, new_null_array};
use arrow_schema::{DataType, SchemaRef};
use traceweir_analysis::event::DescribedEvent;
use traceweir_analysis::frames::resolve_stack;
use traceweir_decode::Undecoded;
use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::source::SchemaMatch;
use traceweir_decode::source::prepared::SchemaId;
use traceweir_decode::walk::Walker;
use traceweir_format::Guid;
use traceweir_format::stack_walk::StackWalk;

pub use self::columns::{ColumnSet, EventColumn};
use self::shared::{Kind, SharedValues, Source};
use crate::column::{Column, time_type, unix_nanoseconds};
use crate::dictionary::{NO_NAME, NameKey};
use crate::json::push_payload;

/// Returns a number for tables of recent schemas. Schemas that are prepared one after the other have
/// different numbers.
#[inline]
pub(crate) fn slot_of(schema: SchemaId) -> usize {
    // The low bits suffice for a slot.
    usize::from(schema.number() as u16)
}

/// Builds the rows of the table `events`.
pub struct EventColumns {
    wanted: ColumnSet,
    needs_kinds: bool,
    needs_sources: bool,
    schema: SchemaRef,
    /// Builders of the wanted columns, except the numbers of `kinds` and `sources`, times and sizes.
    columns: [Option<Column>; EventColumn::ALL.len()],
    /// Times in nanoseconds since 1970, if they are wanted.
    times: Vec<i64>,
    /// Sizes of the payloads, if they are wanted.
    payload_bytes: Vec<u32>,
    rows: usize,
    bytes: usize,
    /// The number of the last trace, and the key of its host.
    last_host: Option<(usize, NameKey)>,
    kinds: SharedValues<Kind>,
    sources: SharedValues<Source>,
    walker: Walker,
    expander: MessageExpander,
    /// JSON of a payload that is decoded only to find its defects.
    unwanted: Vec<u8>,
}

impl fmt::Debug for EventColumns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventColumns({:?}, {} rows)", self.wanted, self.rows)
    }
}

/// Bytes of a row besides its texts and lists, for limits of memory.
const ROW_BYTES: usize = 120;
/// Bytes of a GUID as text.
const GUID_BYTES: usize = 36;

impl EventColumns {
    /// Creates builders for these columns.
    #[must_use]
    pub fn new(wanted: ColumnSet) -> Self {
        let (kinds, sources) = (SharedValues::<Kind>::COLUMNS, SharedValues::<Source>::COLUMNS);
        let is_shared = |column| kinds.contains(&column) || sources.contains(&column);
        let columns = EventColumn::ALL.map(|column| {
            let data_type = column.data_type();
            // Dictionaries of shared names need a builder, shared numbers do not.
            let is_number =
                matches!(column, EventColumn::Time | EventColumn::PayloadBytes) || is_shared(column);
            let has_builder = matches!(data_type, DataType::Dictionary(..)) || !is_number;
            (wanted.contains(column) && has_builder).then(|| Column::new(&data_type))
        });
        Self {
            wanted,
            needs_kinds: kinds.iter().any(|column| wanted.contains(*column)),
            needs_sources: sources.iter().any(|column| wanted.contains(*column)),
            schema: wanted.schema(),
            columns,
            times: Vec::new(),
            payload_bytes: Vec::new(),
            rows: 0,
            bytes: 0,
            last_host: None,
            kinds: SharedValues::default(),
            sources: SharedValues::default(),
            walker: Walker::default(),
            expander: MessageExpander::default(),
            unwanted: Vec::new(),
        }
    }

    /// Returns the number of rows since the last batch.
    #[must_use]
    pub const fn rows(&self) -> usize {
        self.rows
    }

    /// Returns an estimate of the bytes of these rows.
    #[must_use]
    pub const fn byte_count(&self) -> usize {
        self.bytes
    }

    /// Returns the schema of the batches.
    #[must_use]
    pub const fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    #[inline(always)]
    fn column(&mut self, column: EventColumn) -> Option<&mut Column> {
        self.columns.get_mut(column as usize).and_then(Option::as_mut)
    }

    /// Returns a column that is null in most rows, ready for the value of this row. Rows without a
    /// value need no call.
    fn sparse_column(&mut self, column: EventColumn) -> Option<&mut Column> {
        let rows = self.rows;
        let column = self.column(column)?;
        column.pad(rows.saturating_sub(1));
        Some(column)
    }

    /// Returns the key of a name in the dictionary of a column; none if the column is not wanted.
    #[inline]
    fn name_key(&mut self, column: EventColumn, name: Option<&str>) -> NameKey {
        let (Some(Column::Name(column)), Some(name)) = (self.column(column), name) else { return NO_NAME };
        let before = column.dictionary_bytes();
        let key = column.find_or_add(name);
        let added = column.dictionary_bytes().saturating_sub(before);
        self.bytes = self.bytes.saturating_add(added);
        key
    }

    /// Appends an event. `host` is the host of its trace.
    pub fn push_event(&mut self, event: &DescribedEvent<'_>, host: &str) {
        self.push_head(event, host);
        self.push_payload(event);
    }

    /// Appends an event without the columns `payload`, `message`, `undecoded` and `raw`. The caller
    /// adds the last two with [`Self::push_undecoded`].
    pub(crate) fn push_head(&mut self, event: &DescribedEvent<'_>, host: &str) {
        self.rows = self.rows.saturating_add(1);
        self.bytes = self.bytes.saturating_add(ROW_BYTES);
        let record = &event.record;
        if self.wanted.contains(EventColumn::Time) {
            // Times that do not fit are those of damaged events; the nearest keeps the column
            // sorted and free of nulls.
            let limit = if event.time.0 < 0 { i64::MIN } else { i64::MAX };
            self.times.push(unix_nanoseconds(event.time).unwrap_or(limit));
        }
        if self.needs_kinds {
            self.push_kind(event, host);
        }
        if self.needs_sources {
            self.push_source(event);
        }
        if self.wanted.contains(EventColumn::PayloadBytes) {
            // A record has at most 65,535 bytes.
            self.payload_bytes.push(record.payload().len() as u32);
        }
        if self.wanted.contains(EventColumn::Activity) {
            self.push_guid(EventColumn::Activity, record.activity());
        }
        if event.may_have_items && self.wanted.contains(EventColumn::RelatedActivity) {
            self.push_guid(EventColumn::RelatedActivity, record.items().related_activity());
        }
        self.push_stack(event);
    }

    #[inline]
    fn push_guid(&mut self, column: EventColumn, guid: Option<Guid>) {
        if let Some(guid) = guid
            && let Some(Column::Text(column)) = self.sparse_column(column)
        {
            column.push(Some(&guid.to_ascii()));
            self.bytes = self.bytes.saturating_add(GUID_BYTES);
        }
    }

    #[inline]
    fn push_kind(&mut self, event: &DescribedEvent<'_>, host: &str) {
        let descriptor = event.record.descriptor();
        let host = match self.last_host {
            Some((file, key)) if file == event.file => key,
            _ => {
                let key = self.name_key(EventColumn::Host, Some(host));
                self.last_host = Some((event.file, key));
                key
            }
        };
        // Without a schema that names it, the name of a provider may change when the decoder
        // learns one.
        let prepared = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared);
        let prepared = prepared.filter(|prepared| prepared.schema.names.provider.is_some());
        let of = prepared.map(|prepared| (prepared.id(), event.record.provider()));
        let schema_slot = of.map_or(0, |(schema, _)| slot_of(schema));
        let slot = schema_slot ^ usize::from(descriptor.id) ^ usize::from(descriptor.opcode) << 3;
        let is_recent = |kind: &Kind| (kind.of, kind.descriptor, kind.host) == (of, descriptor, host);
        if of.is_some() && self.kinds.recent(slot).is_some_and(is_recent) {
            self.kinds.repeat(slot);
        } else {
            let kind = self.name_kind(event, of, host);
            self.kinds.push(slot, kind);
        }
    }

    #[cold]
    fn name_kind(&mut self, event: &DescribedEvent<'_>, of: Option<(SchemaId, Guid)>, host: NameKey) -> Kind {
        let prepared = event.schema_match.as_ref().ok().map(|schema_match| schema_match.prepared);
        let name = prepared.and_then(|prepared| prepared.event_name.as_deref());
        let id = event.record.provider().to_ascii();
        let id = std::str::from_utf8(&id).ok();
        Kind {
            of,
            descriptor: event.record.descriptor(),
            host,
            provider: self.name_key(EventColumn::Provider, event.provider),
            provider_id: self.name_key(EventColumn::ProviderId, id),
            event: self.name_key(EventColumn::Event, name),
        }
    }

    #[inline]
    fn push_source(&mut self, event: &DescribedEvent<'_>) {
        let record = &event.record;
        let writer = (record.process_id(), record.thread_id());
        let (process_id, thread_id) = event.actor.map_or(writer, |actor| (actor.pid, actor.tid));
        let source = Source {
            process_id,
            thread_id,
            writer_process_id: writer.0,
            writer_thread_id: writer.1,
            cpu: record.cpu(),
            process: self.name_key(EventColumn::Process, event.process),
        };
        self.sources.push(source.slot(), source);
    }

    fn push_stack(&mut self, event: &DescribedEvent<'_>) {
        if event.may_have_items && self.wanted.contains(EventColumn::Stack) {
            if let Some(walk) = StackWalk::parse(&event.record) {
                self.push_frames(walk.frames(event.definitions()));
            } else {
                self.push_frames(event.frames());
            }
        }
        if !self.wanted.contains(EventColumn::Functions) {
            return;
        }
        let resolved = if event.symbols.is_some() { resolve_stack(event) } else { None };
        let Some(resolved) = resolved else { return };
        let Some(list) = self.sparse_column(EventColumn::Functions) else { return };
        let mut added = 0_usize;
        if let Column::List(column) = list {
            for address in &resolved {
                if address.frames.is_empty() {
                    column.items.push_text(&format!("{:#x}", address.address));
                }
                for name in address.labels(event.record.pointer_size()) {
                    added = added.saturating_add(name.len());
                    column.items.push_text(&name);
                }
            }
        }
        list.end_list();
        self.bytes = self.bytes.saturating_add(added);
    }

    /// Appends the addresses of a stack, if there is one.
    #[inline]
    fn push_frames(&mut self, frames: Option<impl Iterator<Item = u64>>) {
        let Some(frames) = frames else { return };
        let Some(stack) = self.sparse_column(EventColumn::Stack) else { return };
        let Column::List(list) = stack else { return };
        let before = list.items.len();
        frames.for_each(|frame| list.items.push_unsigned(frame));
        let added = list.items.len().saturating_sub(before).saturating_mul(size_of::<u64>());
        stack.end_list();
        self.bytes = self.bytes.saturating_add(added);
    }

    fn push_payload(&mut self, event: &DescribedEvent<'_>) {
        let Self { columns, walker, wanted, unwanted, .. } = self;
        let decodes = [EventColumn::Payload, EventColumn::Undecoded, EventColumn::Raw];
        let mut misfit: Option<Undecoded> = None;
        let mut raw: Option<&[u8]> = None;
        let mut added = 0_usize;
        match &event.schema_match {
            Ok(schema_match) if decodes.iter().any(|column| wanted.contains(*column)) => {
                let mut payload = column_of(columns, EventColumn::Payload);
                unwanted.clear();
                let out = match &mut payload {
                    Some(Column::Text(column)) => column.open_value(),
                    _ => unwanted,
                };
                let before = out.len();
                let walked = push_payload(walker, schema_match, event.record.pointer_size(), out);
                added = out.len().saturating_sub(before);
                if let Some(Column::Text(column)) = payload {
                    column.end_value();
                }
                match walked {
                    Ok([]) => {}
                    Ok(extra) => raw = Some(extra),
                    Err(reason) => (raw, misfit) = (Some(schema_match.payload), Some(reason)),
                }
            }
            Ok(_) => {}
            Err(reason) => {
                if let Some(column) = column_of(columns, EventColumn::Payload) {
                    column.push_null();
                }
                (raw, misfit) = (Some(event.record.payload()), Some(reason.clone()));
            }
        }
        self.bytes = self.bytes.saturating_add(added);
        if misfit.is_some() || raw.is_some() {
            self.push_undecoded(misfit.as_ref(), raw);
        }
        if let Ok(schema_match) = &event.schema_match
            && schema_match.prepared.message.is_some()
        {
            self.push_message(schema_match, event.record.pointer_size());
        }
    }

    fn push_message(&mut self, schema_match: &SchemaMatch<'_, '_>, pointer_size: usize) {
        let Self { columns, expander, rows, .. } = self;
        let Some(column) = column_of(columns, EventColumn::Message) else { return };
        column.pad(rows.saturating_sub(1));
        let Column::Text(column) = column else { return };
        let out = column.open_value();
        let before = out.len();
        let expanded = expander.expand(schema_match, pointer_size, Style::default(), out);
        make_utf8(out, before);
        self.bytes = self.bytes.saturating_add(out.len().saturating_sub(before));
        if expanded.is_some() { column.end_value() } else { column.push_null() }
    }

    /// Appends the columns `undecoded` and `raw`: why a payload was not decoded, and the bytes that
    /// were not.
    pub(crate) fn push_undecoded(&mut self, reason: Option<&Undecoded>, raw: Option<&[u8]>) {
        if let Some(reason) = reason
            && self.wanted.contains(EventColumn::Undecoded)
        {
            let key = self.name_key(EventColumn::Undecoded, Some(&reason.to_string()));
            if let Some(Column::Name(column)) = self.sparse_column(EventColumn::Undecoded) {
                column.push_key(key);
            }
        }
        if let Some(raw) = raw
            && let Some(Column::Bytes(column)) = self.sparse_column(EventColumn::Raw)
        {
            column.push(Some(raw));
            self.bytes = self.bytes.saturating_add(raw.len());
        }
    }

    /// Begins new dictionaries for the next batch.
    pub(crate) fn forget_names(&mut self) {
        self.last_host = None;
        self.columns.iter_mut().flatten().for_each(Column::forget_names);
    }

    /// Returns the arrays of the columns, and begins the next batch.
    pub(crate) fn finish_arrays(&mut self) -> Result<Vec<ArrayRef>> {
        let rows = std::mem::take(&mut self.rows);
        self.bytes = 0;
        // A column whose dictionary is large begins a new one.
        self.last_host = None;
        let Self { wanted, columns, times, payload_bytes, kinds, sources, .. } = self;
        let mut arrays = Vec::new();
        for column in wanted.iter() {
            if let Some(array) = kinds.array(column).or_else(|| sources.array(column)) {
                arrays.push(array);
                continue;
            }
            match column {
                EventColumn::Time => {
                    let times = TimestampNanosecondArray::from(std::mem::take(times));
                    arrays.push(Arc::new(times.with_data_type(time_type())));
                    continue;
                }
                EventColumn::PayloadBytes => {
                    arrays.push(Arc::new(UInt32Array::from(std::mem::take(payload_bytes))));
                    continue;
                }
                _ => {}
            }
            let Some(builder) = column_of(columns, column) else { continue };
            if let Column::Name(names) = &mut *builder {
                match column {
                    EventColumn::Host => names.push_keys(kinds.of_rows(|kind| kind.host)),
                    EventColumn::Provider => names.push_keys(kinds.of_rows(|kind| kind.provider)),
                    EventColumn::ProviderId => names.push_keys(kinds.of_rows(|kind| kind.provider_id)),
                    EventColumn::Event => names.push_keys(kinds.of_rows(|kind| kind.event)),
                    EventColumn::Process => names.push_keys(sources.of_rows(|source| source.process)),
                    _ => {}
                }
            }
            if builder.len() == 0 && !matches!(builder, Column::Name(_)) {
                // Offsets of nulls need no check.
                arrays.push(new_null_array(&column.data_type(), rows));
                continue;
            }
            builder.pad(rows);
            arrays.push(builder.finish()?);
        }
        kinds.clear();
        sources.clear();
        Ok(arrays)
    }

    /// Returns the rows as a batch, and begins the next batch.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let rows = self.rows;
        let arrays = self.finish_arrays()?;
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)?)
    }
}

/// Returns a column under construction.
fn column_of(columns: &mut [Option<Column>], column: EventColumn) -> Option<&mut Column> {
    columns.get_mut(column as usize).and_then(Option::as_mut)
}

/// Replaces what is not UTF-8 after an offset; messages repeat bytes of the payload.
fn make_utf8(out: &mut Vec<u8>, from: usize) {
    let appended = out.get(from..).unwrap_or_default();
    if std::str::from_utf8(appended).is_err() {
        let text = String::from_utf8_lossy(appended).into_owned();
        out.truncate(from);
        out.extend_from_slice(text.as_bytes());
    }
}
