//! Makes the structures that callbacks receive: EVENT_RECORD, and EVENT_TRACE for older callbacks.
//!
//! ```text
//!   record in its buffer   [ header │ items │ payload ]
//!                              │        ▲        ▲
//!   EVENT_RECORD           [ copy  │ ExtendedData ─▶ items[…].DataPtr │ UserData ]
//! ```
//!
//! 1. Nothing is allocated and no payload is copied: the structures live here and point into the
//!    buffer while a callback runs.
//! 2. The assembler adds flags that a file does not store: 32 or 64 bits, classic, private, whether
//!    there are CPU times, and how the payload is described.

use std::ffi::c_void;

use traceweir::Guid;
use traceweir_format::header::extended::MAX_ITEMS;
use traceweir_format::header::{Family, Record, message};
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

// The bits EVENT_HEADER_PROPERTY_….
const PROPERTY_XML: u16 = 1;
const PROPERTY_LEGACY_EVENTLOG: u16 = 4;
/// The value of ETW_BUFFER_CONTEXT.Alignment.
const PROCESSOR_ALIGNMENT: u16 = 8;
/// The most processors whose numbers all fit into one byte.
const MAX_PROCESSORS_WITH_BYTE_NUMBERS: u32 = 256;
const NO_ITEM: ExtendedDataItem =
    ExtendedDataItem { reserved1: 0, ext_type: 0, linkage: 0, data_size: 0, data_ptr: 0 };

/// A summary of the extended data items of an event.
struct ItemSummary {
    count: u16,
    /// An item names the provider through which the event was enabled.
    has_control_guid: bool,
    /// An item describes the event's fields.
    has_schema: bool,
}

/// Makes the structures of one event at a time.
pub(super) struct Assembler {
    record: EventRecord,
    trace: EventTrace,
    items: [ExtendedDataItem; MAX_ITEMS],
    instance: InstanceItem,
    /// The program's context, which each event carries.
    context: *mut c_void,
    /// Flags of all events of the session.
    session_flags: u16,
    logger_id: u16,
    session_has_wide_index: bool,
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
            session_flags: 0,
            logger_id: 0,
            session_has_wide_index: false,
        }
    }

    /// Sets what all events of a session have in common.
    pub(super) fn begin_session(&mut self, header: &LogFileHeader, logger: u16) {
        let is_private =
            header.log_file_mode & (EVENT_TRACE_PRIVATE_LOGGER_MODE | EVENT_TRACE_PRIVATE_IN_PROC) != 0;
        self.session_has_wide_index = header.processors > MAX_PROCESSORS_WITH_BYTE_NUMBERS;
        self.session_flags = if is_private { EVENT_HEADER_FLAG_PRIVATE_SESSION } else { 0 };
        self.logger_id = logger;
    }

    /// Returns the event as an EVENT_RECORD that is valid until the next call.
    #[inline(always)]
    pub(super) fn fill_record(&mut self, record: &Record<'_>, stamp: i64) -> *mut EventRecord {
        let is_wide = self.has_wide_index(record);
        let flags = self.common_flags(record, is_wide);
        if record.family() == Family::Event {
            self.fill_event(record, flags);
        } else {
            self.fill_other_family(record, flags);
        }
        self.record.event_header.time_stamp = stamp;
        self.record.buffer_context = self.buffer_context_of(record, is_wide);
        let payload = record.payload();
        // The size of a record has 16 bits.
        self.record.user_data_length = payload.len() as u16;
        self.record.user_data = mutable_address(payload);
        self.record.user_context = self.context;
        &raw mut self.record
    }

    /// Returns the flags that a file does not store and that every kind of event has.
    #[inline(always)]
    fn common_flags(&self, record: &Record<'_>, is_wide: bool) -> u16 {
        let width = if record.pointer_size() == 4 {
            EVENT_HEADER_FLAG_32_BIT_HEADER
        } else {
            EVENT_HEADER_FLAG_64_BIT_HEADER
        };
        let index = if is_wide { EVENT_HEADER_FLAG_PROCESSOR_INDEX } else { 0 };
        self.session_flags | width | index
    }

    /// Fills in a record of family EVENT. Its header in the file has the layout of EVENT_HEADER.
    #[inline(always)]
    fn fill_event(&mut self, record: &Record<'_>, flags: u16) {
        let bytes = record.bytes();
        if let Some(header) = bytes.first_chunk::<{ size_of::<EventHeader>() }>() {
            // SAFETY: the chunk has the size of the structure, whose fields are numbers in the
            // file's order; little endian, as this crate's targets are.
            self.record.event_header = unsafe { header.as_ptr().cast::<EventHeader>().read_unaligned() };
        }
        let ItemSummary { count, has_control_guid, has_schema } = self.fill_items(record);
        let header = &mut self.record.event_header;
        // In the file, the high byte is the record's marker.
        header.header_type &= 0xFF;
        let string_flag = header.flags & EVENT_HEADER_FLAG_STRING_ONLY;
        let describes_itself = has_schema || header.event_descriptor.channel == CHANNEL_TRACELOGGING;
        if string_flag == 0 && !describes_itself {
            header.event_property |= PROPERTY_XML;
        }
        let items_flag = if count == 0 { 0 } else { EVENT_HEADER_FLAG_EXTENDED_INFO };
        let guid_flag = if has_control_guid { EVENT_HEADER_FLAG_DECODE_GUID } else { 0 };
        header.flags = string_flag
            | flags
            | items_flag
            | guid_flag
            | cpu_time_flag(header.kernel_time, header.user_time);
    }

    /// Fills in the extended data items of a record of family EVENT, in one pass.
    ///
    /// The items keep the links that they have in the record: the parser has checked that the last
    /// item is not linked to another, and that there are at most `MAX_ITEMS` items.
    #[inline(always)]
    fn fill_items(&mut self, record: &Record<'_>) -> ItemSummary {
        // One bit for each type of item; all types from 63 on share a bit.
        let (mut count, mut type_bits) = (0_u16, 0_u64);
        for (to, (first_word, data)) in self.items.iter_mut().zip(record.items().iter_published()) {
            *to = make_item(first_word, data);
            type_bits |= 1_u64 << (first_word >> 16 & 0xFFFF).min(63);
            count = count.wrapping_add(1);
        }
        self.set_items(count);
        let has = |kind: ExtType| type_bits & (1 << kind.0) != 0;
        ItemSummary {
            count,
            has_control_guid: has(ExtType::CONTROL_GUID),
            has_schema: has(ExtType::EVENT_SCHEMA_TL),
        }
    }

    /// Fills in a kernel event, a classic event or a message.
    #[inline(never)]
    fn fill_other_family(&mut self, record: &Record<'_>, flags: u16) {
        let (kernel_time, user_time) = record.cpu_times().unwrap_or((0, 0));
        let (family_flag, event_property) = match record.family() {
            Family::Message => (EVENT_HEADER_FLAG_TRACE_MESSAGE, 0),
            Family::Other(_) => (0, 0),
            _ => (EVENT_HEADER_FLAG_CLASSIC_HEADER, PROPERTY_LEGACY_EVENTLOG),
        };
        self.record.event_header = EventHeader {
            size: record.bytes().len() as u16,
            header_type: 0,
            flags: flags | family_flag | cpu_time_flag(kernel_time, user_time),
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
        let instance = self.make_instance_item(record);
        let counters = record.pmc_counters();
        let counters = (!counters.is_empty()).then(|| make_unlinked_item(ExtType::PMC_COUNTERS, counters));
        let count = self.store_items([instance, counters]);
        if count != 0 {
            self.record.event_header.flags |= EVENT_HEADER_FLAG_EXTENDED_INFO;
        }
    }

    /// Makes the extended data item for the instance of a classic event, or for the sequence number
    /// of a message, which takes the place of the instance id. It points into `self`.
    fn make_instance_item(&mut self, record: &Record<'_>) -> Option<ExtendedDataItem> {
        self.instance = if record.family() == Family::Message {
            let instance_id = message::sequence(record.bytes())?;
            InstanceItem { instance_id, parent_instance_id: 0, parent_guid: Guid::NULL }
        } else {
            let instance = record.instance()?;
            InstanceItem {
                instance_id: instance.id,
                parent_instance_id: instance.parent_id,
                parent_guid: instance.parent_class,
            }
        };
        let data_ptr = (&raw const self.instance).expose_provenance() as u64;
        let data_size = size_of::<InstanceItem>() as u16;
        Some(ExtendedDataItem { ext_type: ExtType::INSTANCE_INFO.0, data_size, data_ptr, ..NO_ITEM })
    }

    /// Stores extended data items in this order, each except the last linked to the next. Returns
    /// their number.
    fn store_items<const N: usize>(&mut self, new_items: [Option<ExtendedDataItem>; N]) -> u16 {
        const { assert!(N <= MAX_ITEMS) };
        let mut count = 0_u16;
        let mut remaining = new_items.into_iter().flatten().peekable();
        for to in &mut self.items {
            let Some(item) = remaining.next() else { break };
            *to = ExtendedDataItem { linkage: u16::from(remaining.peek().is_some()), ..item };
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

    /// Returns the event as an EVENT_TRACE that is valid until the next call.
    pub(super) fn fill_trace(&mut self, record: &Record<'_>, stamp: i64) -> *mut EventTrace {
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
            mof_data: mutable_address(payload),
            mof_length: payload.len() as u32,
            buffer_context: self.buffer_context_of(record, self.has_wide_index(record)),
            ..EventTrace::NONE
        };
        if let Some(instance) = record.instance() {
            self.trace.instance_id = instance.id;
            self.trace.parent_instance_id = instance.parent_id;
            self.trace.parent_guid = instance.parent_class;
        } else if record.family() == Family::Message {
            self.trace.instance_id = message::sequence(record.bytes()).unwrap_or(0);
        }
        &raw mut self.trace
    }

    /// Returns the last EVENT_TRACE without its payload: the payload is no longer valid.
    pub(super) fn last_trace(&self) -> EventTrace {
        EventTrace { mof_data: std::ptr::null_mut(), mof_length: 0, ..self.trace }
    }

    /// Returns whether the processor's number needs more than a byte, in this event or in any event
    /// of the session.
    #[inline]
    fn has_wide_index(&self, record: &Record<'_>) -> bool {
        self.session_has_wide_index || record.cpu() > 0xFF
    }

    #[inline]
    fn buffer_context_of(&self, record: &Record<'_>, is_wide: bool) -> BufferContext {
        let cpu = record.cpu();
        let processor_index = if is_wide { cpu } else { cpu & 0xFF | PROCESSOR_ALIGNMENT << 8 };
        BufferContext { processor_index, logger_id: self.logger_id }
    }
}

#[inline(always)]
const fn cpu_time_flag(kernel_time: u32, user_time: u32) -> u16 {
    if kernel_time | user_time == 0 { EVENT_HEADER_FLAG_NO_CPUTIME } else { 0 }
}

/// Makes an extended data item from its first eight bytes and the address of its data.
#[inline(always)]
fn make_item(first_word: u64, data: &[u8]) -> ExtendedDataItem {
    let at = data.as_ptr().expose_provenance() as u64;
    // SAFETY: the structure consists of numbers, four of 16 bits and one of 64, without padding;
    // little endian, as this crate's targets are.
    unsafe { std::mem::transmute::<[u64; 2], ExtendedDataItem>([first_word, at]) }
}

/// Makes an extended data item that is not linked to another.
fn make_unlinked_item(kind: ExtType, data: &[u8]) -> ExtendedDataItem {
    // The size of an item has 16 bits.
    make_item(u64::from(kind.0) << 16 | (data.len() as u64) << 48, data)
}

/// Returns an address for a callback. The published structures have mutable pointers to data that
/// callbacks must not change.
#[inline]
fn mutable_address(bytes: &[u8]) -> *mut c_void {
    bytes.as_ptr().cast_mut().cast()
}
