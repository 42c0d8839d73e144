//! An event of a file or session in the structures that callbacks get: EVENT_RECORD, and EVENT_TRACE for the older ones.
//!
//! ```text
//!   record in its buffer   [ header │ items │ payload ]
//!                              │        ▲        ▲
//!   EVENT_RECORD           [ copy  │ ExtendedData ─▶ items[…].DataPtr │ UserData ]
//! ```
//!
//! 1. Nothing is allocated and no payload copied: the structures live here and point into the buffer, for as long as a callback runs.
//! 2. What a file does not keep is added: 32 or 64 bits, classic, private, whether there are CPU times, how the payload is described.
//!
//! Flags: `docs/spec` of the header, "a consumer adds the rest".

use std::ffi::c_void;

use traceweir::Guid;
use traceweir_format::header::extended::MAX_ITEMS;
use traceweir_format::header::{Family, Record};
use traceweir_format::logfile::LogFileHeader;
use traceweir_format::spec::event::{
    CHANNEL_TRACELOGGING, EVENT_HEADER_FLAG_32_BIT_HEADER, EVENT_HEADER_FLAG_64_BIT_HEADER,
    EVENT_HEADER_FLAG_CLASSIC_HEADER, EVENT_HEADER_FLAG_DECODE_GUID, EVENT_HEADER_FLAG_EXTENDED_INFO,
    EVENT_HEADER_FLAG_NO_CPUTIME, EVENT_HEADER_FLAG_PRIVATE_SESSION, EVENT_HEADER_FLAG_PROCESSOR_INDEX,
    EVENT_HEADER_FLAG_STRING_ONLY, EVENT_HEADER_FLAG_TRACE_MESSAGE, EventDescriptor, ExtType,
};
use traceweir_format::spec::session::{EVENT_TRACE_PRIVATE_IN_PROC, EVENT_TRACE_PRIVATE_LOGGER_MODE};

use super::layout::{BufferContext, EventHeader, EventRecord, EventTrace, ExtendedDataItem, InstanceItem};
use crate::types::EventTraceHeader;

/// EVENT_HEADER_PROPERTY_…
const PROPERTY_XML: u16 = 1;
const PROPERTY_LEGACY_EVENTLOG: u16 = 4;
/// What is recorded of a processor's alignment.
const ALIGNMENT: u16 = 8;
/// Processors whose numbers one byte holds.
const BYTE_PROCESSORS: u32 = 256;
const NO_ITEM: ExtendedDataItem =
    ExtendedDataItem { reserved1: 0, ext_type: 0, linkage: 0, data_size: 0, data_ptr: 0 };

/// What the extended items of an event are.
struct Items {
    count: u16,
    /// One names the provider that it was enabled by.
    has_control: bool,
    /// One describes its fields.
    has_schema: bool,
}

/// Makes one event after the other.
pub(super) struct Assembler {
    record: EventRecord,
    trace: EventTrace,
    items: [ExtendedDataItem; MAX_ITEMS],
    instance: InstanceItem,
    /// What the program wants to find in each event.
    context: *mut c_void,
    /// Flags that all events of the session have.
    common: u16,
    logger: u16,
    wide_index: bool,
}

impl Assembler {
    pub(super) fn new(context: *mut c_void) -> Self {
        let event_header = EventHeader {
            size: 0,
            header_type: 0,
            flags: 0,
            event_property: 0,
            thread_id: 0,
            process_id: 0,
            time_stamp: 0,
            provider_id: Guid::NULL,
            event_descriptor: EventDescriptor::default(),
            kernel_time: 0,
            user_time: 0,
            activity_id: Guid::NULL,
        };
        let record = EventRecord {
            event_header,
            buffer_context: BufferContext { processor_index: 0, logger_id: 0 },
            extended_data_count: 0,
            user_data_length: 0,
            extended_data: std::ptr::null_mut(),
            user_data: std::ptr::null_mut(),
            user_context: std::ptr::null_mut(),
        };
        Self {
            record,
            trace: EventTrace::NONE,
            items: [NO_ITEM; MAX_ITEMS],
            instance: InstanceItem { instance_id: 0, parent_instance_id: 0, parent_guid: Guid::NULL },
            context,
            common: 0,
            logger: 0,
            wide_index: false,
        }
    }

    /// What is known of the session.
    pub(super) fn begin(&mut self, header: &LogFileHeader, logger: u16) {
        let is_private =
            header.log_file_mode & (EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC) != 0;
        self.wide_index = header.processors > BYTE_PROCESSORS;
        self.common = if is_private { EVENT_HEADER_FLAG_PRIVATE_SESSION } else { 0 };
        self.logger = logger;
    }

    /// The event as EVENT_RECORD; it holds until the next one.
    #[inline(always)]
    pub(super) fn record(&mut self, record: &Record<'_>, stamp: i64) -> *mut EventRecord {
        let is_wide = self.has_wide_index(record);
        let flags = self.flags_of(record, is_wide);
        if record.family() == Family::Event {
            self.of_event(record, flags);
        } else {
            self.of_other(record, flags);
        }
        self.record.event_header.time_stamp = stamp;
        self.record.buffer_context = self.context_of(record, is_wide);
        let payload = record.payload();
        // A record has 16 bits of size.
        self.record.user_data_length = payload.len() as u16;
        self.record.user_data = address_of(payload);
        self.record.user_context = self.context;
        &raw mut self.record
    }

    /// The flags that a file does not keep and that every kind of event has.
    #[inline(always)]
    fn flags_of(&self, record: &Record<'_>, is_wide: bool) -> u16 {
        let width = if record.pointer_size() == 4 {
            EVENT_HEADER_FLAG_32_BIT_HEADER
        } else {
            EVENT_HEADER_FLAG_64_BIT_HEADER
        };
        let index = if is_wide { EVENT_HEADER_FLAG_PROCESSOR_INDEX } else { 0 };
        self.common | width | index
    }

    /// An EVENT has the structure's own header in the file.
    #[inline(always)]
    fn of_event(&mut self, record: &Record<'_>, flags: u16) {
        let bytes = record.bytes();
        if let Some(head) = bytes.first_chunk::<{ size_of::<EventHeader>() }>() {
            // SAFETY: as many bytes as the structure has, whose fields are numbers in the file's order; little endian, as this crate's targets are.
            self.record.event_header = unsafe { head.as_ptr().cast::<EventHeader>().read_unaligned() };
        }
        let Items { count, has_control, has_schema } = self.take_items(record);
        let header = &mut self.record.event_header;
        // In the file the high byte is the record's marker.
        header.header_type &= 0xFF;
        let kept = header.flags & EVENT_HEADER_FLAG_STRING_ONLY;
        let describes_itself = has_schema || header.event_descriptor.channel == CHANNEL_TRACELOGGING;
        if kept == 0 && !describes_itself {
            header.event_property |= PROPERTY_XML;
        }
        let items = if count == 0 { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
        let decoded = if has_control { EVENT_HEADER_FLAG_DECODE_GUID } else { 0 };
        header.flags = kept | flags | items | decoded | flag_of_times(header.kernel_time, header.user_time);
    }

    /// The extended items of an EVENT, walked once.
    ///
    /// Their links are those of the record: it has been found to end with an item that is linked to none, and to have no more than there is room for.
    #[inline(always)]
    fn take_items(&mut self, record: &Record<'_>) -> Items {
        // A bit for each of the types that count here; all beyond 62 share one.
        let (mut count, mut kinds) = (0_u16, 0_u64);
        for (to, (head, data)) in self.items.iter_mut().zip(record.items().published()) {
            *to = item_of(head, data);
            kinds |= 1_u64 << (head >> 16 & 0xFFFF).min(63);
            count = count.wrapping_add(1);
        }
        self.set_items(count);
        let has = |kind: ExtType| kinds & (1 << kind.0) != 0;
        Items { count, has_control: has(ExtType::CONTROL_GUID), has_schema: has(ExtType::EVENT_SCHEMA_TL) }
    }

    /// Kernel events, classic ones and messages.
    #[inline(never)]
    fn of_other(&mut self, record: &Record<'_>, flags: u16) {
        let (kernel_time, user_time) = record.cpu_times().unwrap_or((0, 0));
        let (own, event_property) = match record.family() {
            Family::Message => (EVENT_HEADER_FLAG_TRACE_MESSAGE, 0),
            Family::Other(_) => (0, 0),
            _ => (EVENT_HEADER_FLAG_CLASSIC_HEADER, PROPERTY_LEGACY_EVENTLOG),
        };
        self.record.event_header = EventHeader {
            size: record.bytes().len() as u16,
            header_type: 0,
            flags: flags | own | flag_of_times(kernel_time, user_time),
            event_property,
            thread_id: record.thread_id(),
            process_id: record.process_id(),
            time_stamp: 0,
            provider_id: record.provider(),
            event_descriptor: record.descriptor(),
            kernel_time,
            user_time,
            activity_id: Guid::NULL,
        };
        let instance = self.instance_of(record);
        let counters = record.pmc_counters();
        let counters = (!counters.is_empty()).then(|| extended(ExtType::PMC_COUNTERS, counters));
        let count = self.make_items([instance, counters]);
        if count != 0 {
            self.record.event_header.flags |= EVENT_HEADER_FLAG_EXTENDED_INFO;
        }
    }

    /// The item of a classic event that names its instance; it points to a structure that lives here.
    fn instance_of(&mut self, record: &Record<'_>) -> Option<ExtendedDataItem> {
        let instance = record.instance()?;
        self.instance = InstanceItem {
            instance_id: instance.id,
            parent_instance_id: instance.parent_id,
            parent_guid: instance.parent_class,
        };
        let data_ptr = (&raw const self.instance).expose_provenance() as u64;
        let data_size = size_of::<InstanceItem>() as u16;
        Some(ExtendedDataItem { ext_type: ExtType::INSTANCE_INFO.0, data_size, data_ptr, ..NO_ITEM })
    }

    /// Items that the record has no heads for, in this order: all but the last are linked to the next. How many.
    fn make_items<const N: usize>(&mut self, made: [Option<ExtendedDataItem>; N]) -> u16 {
        const { assert!(N <= MAX_ITEMS) };
        let mut count = 0_u16;
        let mut rest = made.into_iter().flatten().peekable();
        for to in &mut self.items {
            let Some(item) = rest.next() else { break };
            *to = ExtendedDataItem { linkage: u16::from(rest.peek().is_some()), ..item };
            count = count.wrapping_add(1);
        }
        self.set_items(count);
        count
    }

    #[inline]
    fn set_items(&mut self, count: u16) {
        self.record.extended_data_count = count;
        self.record.extended_data = if count == 0 { std::ptr::null_mut() } else { self.items.as_mut_ptr() };
    }

    /// The event as EVENT_TRACE; it holds until the next one.
    pub(super) fn trace(&mut self, record: &Record<'_>, stamp: i64) -> *mut EventTrace {
        let (descriptor, payload) = (record.descriptor(), record.payload());
        let (client_context, flags) = record.cpu_times().unwrap_or((0, 0));
        let size = size_of::<EventTraceHeader>().saturating_add(payload.len());
        self.trace = EventTrace {
            header: EventTraceHeader {
                size: u16::try_from(size).unwrap_or(u16::MAX),
                field_type_flags: 0,
                kind: descriptor.opcode,
                level: descriptor.level,
                version: u16::from(descriptor.version),
                thread_id: record.thread_id(),
                process_id: record.process_id(),
                time_stamp: stamp,
                guid: record.provider(),
                client_context,
                flags,
            },
            mof_data: address_of(payload),
            mof_length: payload.len() as u32,
            buffer_context: self.context_of(record, self.has_wide_index(record)),
            ..EventTrace::NONE
        };
        if let Some(instance) = record.instance() {
            self.trace.instance_id = instance.id;
            self.trace.parent_instance_id = instance.parent_id;
            self.trace.parent_guid = instance.parent_class;
        }
        &raw mut self.trace
    }

    /// The last EVENT_TRACE without its payload, which is gone.
    pub(super) fn last_trace(&self) -> EventTrace {
        EventTrace { mof_data: std::ptr::null_mut(), mof_length: 0, ..self.trace }
    }

    /// Whether the processor's number needs more than a byte, in this event or in any of the session.
    #[inline]
    fn has_wide_index(&self, record: &Record<'_>) -> bool {
        self.wide_index || record.cpu() > 0xFF
    }

    #[inline]
    fn context_of(&self, record: &Record<'_>, is_wide: bool) -> BufferContext {
        let cpu = record.cpu();
        let processor_index = if is_wide { cpu } else { cpu & 0xFF | ALIGNMENT << 8 };
        BufferContext { processor_index, logger_id: self.logger }
    }
}

#[inline(always)]
const fn flag_of_times(kernel_time: u32, user_time: u32) -> u16 {
    if kernel_time | user_time == 0 { EVENT_HEADER_FLAG_NO_CPUTIME } else { 0 }
}

/// An item of which the first eight bytes are known as a number.
#[inline(always)]
fn item_of(head: u64, data: &[u8]) -> ExtendedDataItem {
    let at = data.as_ptr().expose_provenance() as u64;
    // SAFETY: the structure is of numbers alone, four of 16 bits and one of 64, without gaps; little endian, as this crate's targets are.
    unsafe { std::mem::transmute::<[u64; 2], ExtendedDataItem>([head, at]) }
}

/// An item of a kind, linked to none.
fn extended(kind: ExtType, data: &[u8]) -> ExtendedDataItem {
    // Items have 16 bits of size.
    item_of(u64::from(kind.0) << 16 | (data.len() as u64) << 48, data)
}

/// Callbacks get what they may not write as if they might, as published.
#[inline]
fn address_of(bytes: &[u8]) -> *mut c_void {
    bytes.as_ptr().cast_mut().cast()
}
