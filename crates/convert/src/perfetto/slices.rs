//! Track events: slices, instants and counters, with their fields as debug annotations.

use std::sync::Arc;

use anyhow::Result;
use traceweir_analysis::report::NetworkTransfer;

use super::fields::{annotation, event, packet};
use super::tracks::{TrackKey, TrackUuid, Tracks};
use super::writer::PerfettoWriter;
use crate::activity::{
    ActivityTables, EventDetail, FieldValue, Loss, ProcessIndex, Slice, SliceTrack, StackFrame,
    network_bytes, network_fields, network_name,
};
use crate::protobuf::Message;

/// The provider of system calls in the activity.
const SYSTEM_CALLS: &str = "System calls";

impl PerfettoWriter<'_> {
    pub(super) fn begin_slice(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        slice: &Slice,
        stack: &[StackFrame],
    ) -> Result<()> {
        let track = match slice.track {
            SliceTrack::Thread => self.thread_track(tables, slice.thread)?,
            SliceTrack::Task { lane } => {
                let owner = slice.thread.and_then(|thread| tables.lives.process_of(thread));
                // The lanes of system calls are those of a thread.
                let thread = slice.thread.filter(|_| &*slice.detail.provider == SYSTEM_CALLS);
                let key = TrackKey::Task {
                    process: owner,
                    thread,
                    provider: Arc::clone(&slice.detail.provider),
                    name: if thread.is_some() { "".into() } else { Arc::clone(&slice.name) },
                    lane,
                };
                let name = match thread.and_then(|thread| tables.output_ids(Some(thread)).1) {
                    Some(tid) => format!("{SYSTEM_CALLS} of thread {tid}"),
                    None => slice.name.to_string(),
                };
                self.find_track(tables, &key, &name)?
            }
        };
        self.open.insert(slice.id, track);
        let stack = self.intern_stack(tables, stack);
        self.write_event(at, event::SLICE_BEGIN, track, Some(&slice.name), Some(&slice.detail), stack)
    }

    pub(super) fn end_slice(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        slice: &Slice,
        stop: Option<&EventDetail>,
    ) -> Result<()> {
        let track = match self.open.remove(&slice.id) {
            Some(track) => track,
            None => self.thread_track(tables, slice.thread)?,
        };
        self.write_event(at, event::SLICE_END, track, None, stop, None)
    }

    pub(super) fn add_counter(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        process: Option<ProcessIndex>,
        name: &Arc<str>,
        value: f64,
    ) -> Result<()> {
        let track = self.find_track(tables, &TrackKey::Counter { process, name: Arc::clone(name) }, name)?;
        self.packet.put_u64(packet::TIMESTAMP, at);
        self.packet.put_message(packet::TRACK_EVENT, |message| {
            message.put_u64(event::TYPE, event::COUNTER).put_u64(event::TRACK_UUID, track.0);
            message.put_f64(event::DOUBLE_COUNTER_VALUE, value);
        });
        self.end_packet()
    }

    /// Adds to the sum of a counter, and writes the sum.
    #[allow(clippy::cast_precision_loss)] // Sums are shown, not compared.
    pub(super) fn add_total(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        name: String,
        bytes: u64,
    ) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let counter: Arc<str> = name.as_str().into();
        if self.totals.len() >= Tracks::MAX_TRACKS && !self.totals.contains_key(&name) {
            return Ok(());
        }
        let total = self.totals.entry(name).or_default();
        *total = total.saturating_add(bytes);
        let value = *total as f64;
        self.add_counter(tables, at, None, &counter, value)
    }

    pub(super) fn add_network(
        &mut self,
        tables: &ActivityTables,
        at: u64,
        process: Option<ProcessIndex>,
        transfer: &NetworkTransfer,
    ) -> Result<()> {
        let track = match process {
            Some(process) => self.process_track(tables, process)?,
            None => self.find_track(tables, &TrackKey::Named("Network"), "Network")?,
        };
        let (name, values) = (network_name(transfer), network_fields(transfer));
        self.write_named(at, event::INSTANT, track, ("network", &name), &values)?;
        self.add_total(tables, at, format!("{name} bytes"), network_bytes(transfer))
    }

    /// Writes a loss: an instant in a packet that says that packets before it are missing.
    pub(super) fn add_loss(&mut self, tables: &ActivityTables, at: u64, loss: &Loss) -> Result<()> {
        if let Some(cpu) = loss.cpu {
            let machine = tables.traces.iter().find(|trace| trace.name == loss.trace);
            let cpu = tables.output_cpu(machine.map_or(0, |trace| trace.machine), cpu);
            self.write_bundle(cpu, true)?;
        }
        let track = self.find_track(tables, &TrackKey::Named("Losses"), "Losses")?;
        let number = |name: &str, value: Option<u64>| Some((Arc::from(name), FieldValue::Unsigned(value?)));
        let trace = FieldValue::Text((&*loss.trace).into());
        let values = [
            Some((Arc::from("trace"), trace)),
            number("cpu", loss.cpu.map(u64::from)),
            number("lost events", loss.events),
            number("lost buffers", loss.buffers),
        ];
        let values: Vec<(Arc<str>, FieldValue)> = values.into_iter().flatten().collect();
        self.clear_interned();
        self.packet.put_u64(packet::PREVIOUS_PACKET_DROPPED, 1);
        self.write_named(at, event::INSTANT, track, ("loss", "Lost events"), &values)
    }

    /// Writes the begin or end of a slice, or an instant. The end of a slice has no name.
    pub(super) fn write_event(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        name: Option<&str>,
        detail: Option<&EventDetail>,
        callstack: Option<u64>,
    ) -> Result<()> {
        let provider = detail.map(|detail| &*detail.provider);
        let values = detail.map(|detail| detail.fields.values.as_slice()).unwrap_or_default();
        let attributes = detail.map(EventDetail::attributes).unwrap_or_default();
        self.write_track_event(at, kind, track, provider.zip(name), &[values, &attributes], callstack)
    }

    /// Writes an event that has no [`EventDetail`]: category, name and fields.
    pub(super) fn write_named(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        names: (&str, &str),
        values: &[(Arc<str>, FieldValue)],
    ) -> Result<()> {
        self.write_track_event(at, kind, track, Some(names), &[values], None)
    }

    pub(super) fn write_track_event(
        &mut self,
        at: u64,
        kind: u64,
        track: TrackUuid,
        names: Option<(&str, &str)>,
        values: &[&[(Arc<str>, FieldValue)]],
        callstack: Option<u64>,
    ) -> Result<()> {
        let Self { interning, new_interned, .. } = self;
        let mut message = Message::default();
        message.put_u64(event::TYPE, kind).put_u64(event::TRACK_UUID, track.0);
        if let Some((category, name)) = names {
            message.put_u64(event::CATEGORY_IIDS, interning.intern_category(category, new_interned));
            message.put_u64(event::NAME_IID, interning.intern_event_name(name, new_interned));
        }
        for (name, value) in values.iter().copied().flatten() {
            message.put_message(event::DEBUG_ANNOTATIONS, |message| {
                message.put_u64(annotation::NAME_IID, interning.intern_field_name(name, new_interned));
                put_value(value, message);
            });
        }
        if let Some(iid) = callstack {
            message.put_u64(event::CALLSTACK_IID, iid);
        }
        self.begin_interned_packet(at);
        self.packet.put_bytes(packet::TRACK_EVENT, message.bytes());
        self.end_packet()
    }
}

/// Adds the value of a debug annotation.
fn put_value(value: &FieldValue, message: &mut Message) {
    match value {
        FieldValue::Null => message.put_text(annotation::STRING_VALUE, ""),
        FieldValue::Bool(value) => message.put_u64(annotation::BOOL_VALUE, (*value).into()),
        FieldValue::Unsigned(value) => message.put_u64(annotation::UINT_VALUE, *value),
        FieldValue::Signed(value) => message.put_i64(annotation::INT_VALUE, *value),
        FieldValue::Double(value) => message.put_f64(annotation::DOUBLE_VALUE, *value),
        FieldValue::Text(text) => message.put_text(annotation::STRING_VALUE, text),
        FieldValue::Array(elements) => {
            for element in elements {
                message.put_message(annotation::ARRAY_VALUES, |message| put_value(element, message));
            }
            message
        }
        FieldValue::Struct(members) => {
            for (name, value) in members {
                message.put_message(annotation::DICT_ENTRIES, |message| {
                    message.put_text(annotation::NAME, name);
                    put_value(value, message);
                });
            }
            message
        }
    };
}
