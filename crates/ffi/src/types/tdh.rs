//! Structures of tdh.h. A field that is a union in C has the name of its most common member.
//!
//! Source: Documented (tdh.h). A test compares every size and offset with what C compilers compute
//! from the header.
#![allow(missing_docs)] // The fields are documented with the published structures.

use traceweir::{EventDescriptor, Guid};

/// The published structure EVENT_PROPERTY_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventPropertyInfo {
    pub flags: u32,
    pub name_offset: u32,
    /// The in type of a value, or the index of the first member of a structure.
    pub in_type: u16,
    /// The out type of a value, or the number of members of a structure.
    pub out_type: u16,
    /// The offset of the name of a map, or of a custom schema.
    pub map_name_offset: u32,
    /// The count, or the index of the property that has the count.
    pub count: u16,
    /// The length, or the index of the property that has the length.
    pub length: u16,
    pub tags: u32,
}

/// The published structure TRACE_EVENT_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceEventInfo {
    pub provider_guid: Guid,
    pub event_guid: Guid,
    pub event_descriptor: EventDescriptor,
    pub decoding_source: u32,
    pub provider_name_offset: u32,
    pub level_name_offset: u32,
    pub channel_name_offset: u32,
    pub keywords_name_offset: u32,
    pub task_name_offset: u32,
    pub opcode_name_offset: u32,
    pub event_message_offset: u32,
    pub provider_message_offset: u32,
    pub binary_xml_offset: u32,
    pub binary_xml_size: u32,
    pub event_name_offset: u32,
    pub event_attributes_offset: u32,
    pub property_count: u32,
    pub top_level_property_count: u32,
    /// Flags in the low four bits, tags in the others.
    pub flags: u32,
    pub event_property_info_array: [EventPropertyInfo; 1],
}

/// The published structure EVENT_MAP_ENTRY.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventMapEntry {
    pub output_offset: u32,
    pub value: u32,
}

/// The published structure EVENT_MAP_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct EventMapInfo {
    pub name_offset: u32,
    pub flag: u32,
    pub entry_count: u32,
    pub value_type: u32,
    pub map_entry_array: [EventMapEntry; 1],
}

/// The published structure PROPERTY_DATA_DESCRIPTOR.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PropertyDataDescriptor {
    /// The address of the property's name.
    pub property_name: u64,
    /// The index of an array element; `u32::MAX` selects the whole property.
    pub array_index: u32,
    pub reserved: u32,
}

/// The published structure TRACE_PROVIDER_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TraceProviderInfo {
    pub provider_guid: Guid,
    pub schema_source: u32,
    pub provider_name_offset: u32,
}

/// The published structure PROVIDER_ENUMERATION_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProviderEnumerationInfo {
    pub number_of_providers: u32,
    pub reserved: u32,
    pub trace_provider_info_array: [TraceProviderInfo; 1],
}

/// The published structure PROVIDER_FIELD_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProviderFieldInfo {
    pub name_offset: u32,
    pub description_offset: u32,
    pub value: u64,
}

/// The published structure PROVIDER_FIELD_INFOARRAY.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProviderFieldInfoArray {
    pub number_of_elements: u32,
    pub field_type: u32,
    pub field_info_array: [ProviderFieldInfo; 1],
}

/// The published structure PROVIDER_EVENT_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProviderEventInfo {
    pub number_of_events: u32,
    pub reserved: u32,
    pub event_descriptors_array: [EventDescriptor; 1],
}

/// The published structure PROVIDER_FILTER_INFO.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ProviderFilterInfo {
    pub id: u8,
    pub version: u8,
    pub message_offset: u32,
    pub reserved: u32,
    pub property_count: u32,
    pub event_property_info_array: [EventPropertyInfo; 1],
}

/// The published structure TDH_CONTEXT.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TdhContext {
    /// A number, or the address of a text.
    pub parameter_value: u64,
    pub parameter_type: u32,
    pub parameter_size: u32,
}

/// The published structure PAYLOAD_FILTER_PREDICATE.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PayloadFilterPredicate {
    pub field_name: *const u16,
    pub compare_op: u16,
    pub value: *const u16,
}

const _: () = assert!(size_of::<TraceEventInfo>() == 136 && size_of::<EventPropertyInfo>() == 24);
const _: () = assert!(size_of::<EventMapInfo>() == 24 && size_of::<TdhContext>() == 16);
