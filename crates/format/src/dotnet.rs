//! The events of the .NET runtime that name generated code and its modules.
//!
//! ```text
//!   Microsoft-Windows-DotNETRuntime          MethodLoad 141, MethodUnload 142, verbose 143 and 144
//!                                            rundown of older runtimes: 137 to 140
//!   Microsoft-Windows-DotNETRuntimeRundown   MethodDCStart 141, MethodDCEnd 142, verbose 143 and 144
//!   method   00 u64 method id │ 08 u64 module id │ 10 u64 address │ 18 u32 size │ 1C u32 token
//!            20 u32 flags; then in verbose events namespace, name, signature: UTF-16 with NUL
//!   module   00 u64 module id │ 08 u64 assembly id │ 10 u32 flags │ 14 u32 reserved
//!            18 path of the IL file, path of the native file: UTF-16 with NUL
//! ```
//!
//! Fields that later versions append are ignored. Addresses have 64 bits in 32-bit processes too.
//!
//! Source: Documented (".NET runtime method events", "loader events").

use alloc::string::String;

use crate::guid::Guid;
use crate::header::Record;
use crate::text;
use crate::wire::{chunk, u32_at, u64_at};

/// The provider `Microsoft-Windows-DotNETRuntime`.
pub const RUNTIME: Guid = Guid::from_u128(0xe13c0d23_ccbc_4e12_931b_d9cc2eee27e4);
/// The provider `Microsoft-Windows-DotNETRuntimeRundown`.
pub const RUNDOWN: Guid = Guid::from_u128(0xa669021c_c450_4609_a035_5af59af4df18);

/// The longest text that is read, in UTF-16 units.
const MAX_TEXT_UNITS: usize = 2048;
/// Size of the fixed part of a method event, in bytes.
const METHOD_BYTES: usize = 0x24;
/// Size of the fixed part of a module event, in bytes.
const MODULE_BYTES: usize = 0x18;

/// The fact that a method event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodChange {
    /// The runtime has generated or loaded the method.
    Load,
    /// The runtime has freed the method.
    Unload,
    /// The method exists; when it was loaded is not known.
    Rundown,
}

/// Names of a method, as the runtime writes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MethodName {
    /// The full name of the type.
    pub namespace: String,
    /// The name of the method in its type.
    pub name: String,
    /// The signature in the notation of IL.
    pub signature: String,
}

/// An event about the code of a method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodEvent {
    /// The fact that the event reports.
    pub change: MethodChange,
    /// Identifies the method in its process.
    pub method_id: u64,
    /// Identifies the module of the method in its process.
    pub module_id: u64,
    /// The address of the first instruction.
    pub start: u64,
    /// The size of the code in bytes.
    pub size: u32,
    /// The names, if the event has them.
    pub name: Option<MethodName>,
}

/// An event that names the file of a module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleEvent {
    /// Identifies the module in its process.
    pub module_id: u64,
    /// The path of the file with IL code, or else of the file with native code.
    pub path: String,
}

/// Returns whether a record may be a method event or a module event.
#[inline]
#[must_use]
pub fn is_code_event(record: &Record<'_>) -> bool {
    // The id comes first, because it is cheaper to read than the provider.
    matches!(record.descriptor().id, 137..=144 | 151..=154)
        && record.hook().is_none()
        && [RUNTIME, RUNDOWN].contains(&record.provider())
}

impl MethodEvent {
    /// Parses a method event; `None` for other events and for payloads that are too short.
    #[must_use]
    pub fn parse(record: &Record<'_>) -> Option<Self> {
        let is_rundown = record.provider() == RUNDOWN;
        if !is_code_event(record) {
            return None;
        }
        let (change, is_verbose) = match (record.descriptor().id, is_rundown) {
            (137 | 138, false) | (141 | 142, true) => (MethodChange::Rundown, false),
            (139 | 140, false) | (143 | 144, true) => (MethodChange::Rundown, true),
            (141, false) => (MethodChange::Load, false),
            (142, false) => (MethodChange::Unload, false),
            (143, false) => (MethodChange::Load, true),
            (144, false) => (MethodChange::Unload, true),
            _ => return None,
        };
        Self::parse_payload(record.payload(), change, is_verbose)
    }

    /// Parses the payload of a method event, with names if `is_verbose`.
    #[must_use]
    pub fn parse_payload(payload: &[u8], change: MethodChange, is_verbose: bool) -> Option<Self> {
        let fixed: &[u8; METHOD_BYTES] = chunk(payload, 0)?;
        let mut texts = payload.get(METHOD_BYTES..).unwrap_or_default();
        let name = is_verbose.then(|| MethodName {
            namespace: take_text(&mut texts),
            name: take_text(&mut texts),
            signature: take_text(&mut texts),
        });
        Some(Self {
            change,
            method_id: u64_at(fixed, 0),
            module_id: u64_at(fixed, 8),
            start: u64_at(fixed, 0x10),
            size: u32_at(fixed, 0x18),
            name,
        })
    }
}

impl ModuleEvent {
    /// Parses a module event; `None` for other events and for payloads that are too short.
    #[must_use]
    pub fn parse(record: &Record<'_>) -> Option<Self> {
        // 151 of both providers and 152 of the rundown are about a module in an application domain, and
        // have another field.
        let is_module = match record.descriptor().id {
            152 => record.provider() == RUNTIME,
            153 | 154 => record.provider() == RUNDOWN,
            _ => false,
        };
        (is_module && is_code_event(record)).then(|| Self::parse_payload(record.payload()))?
    }

    /// Parses the payload of a module event.
    #[must_use]
    pub fn parse_payload(payload: &[u8]) -> Option<Self> {
        let fixed: &[u8; MODULE_BYTES] = chunk(payload, 0)?;
        let mut texts = payload.get(MODULE_BYTES..).unwrap_or_default();
        let il_path = take_text(&mut texts);
        let native_path = take_text(&mut texts);
        let path = if il_path.is_empty() { native_path } else { il_path };
        Some(Self { module_id: u64_at(fixed, 0), path })
    }
}

/// Reads a text up to its NUL and moves to the bytes after it. A text without a NUL extends to the
/// end of the bytes. The result has at most [`MAX_TEXT_UNITS`] units.
fn take_text(bytes: &mut &[u8]) -> String {
    let units = text::until_nul16(bytes);
    *bytes = bytes.get(units.len().saturating_add(2)..).unwrap_or_default();
    text::decode_utf16(units.get(..units.len().min(MAX_TEXT_UNITS.saturating_mul(2))).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::header::event::EventHeader;
    use crate::spec::event::EventDescriptor;
    use crate::wire::Put;

    fn method_payload(start: u64, size: u32, texts: &[&str]) -> Vec<u8> {
        let mut payload = Vec::new();
        payload.put_u64(7).put_u64(8).put_u64(start).put_u32(size).put_u32(0x0600_0001).put_u32(1);
        texts.iter().for_each(|text| {
            payload.put_wide_z(text);
        });
        payload
    }

    fn encode(provider: Guid, id: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let descriptor = EventDescriptor { id, ..EventDescriptor::default() };
        EventHeader { provider, descriptor, ..EventHeader::default() }.encode(payload, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn method_events_of_both_providers_are_parsed() {
        let verbose = method_payload(0x7FF0_0000_1000, 64, &["Shop.Cart", "Add", "instance void  (int32)"]);
        for (provider, id, change, has_name) in [
            (RUNTIME, 143, MethodChange::Load, true),
            (RUNTIME, 144, MethodChange::Unload, true),
            (RUNTIME, 141, MethodChange::Load, false),
            (RUNTIME, 142, MethodChange::Unload, false),
            (RUNTIME, 140, MethodChange::Rundown, true),
            (RUNTIME, 137, MethodChange::Rundown, false),
            (RUNDOWN, 143, MethodChange::Rundown, true),
            (RUNDOWN, 144, MethodChange::Rundown, true),
            (RUNDOWN, 142, MethodChange::Rundown, false),
        ] {
            let bytes = encode(provider, id, &verbose);
            let event = MethodEvent::parse(&Record::parse(&bytes, 0).unwrap()).unwrap();
            assert_eq!((event.change, event.name.is_some()), (change, has_name), "{provider} {id}");
            assert_eq!((event.method_id, event.module_id), (7, 8));
            assert_eq!((event.start, event.size), (0x7FF0_0000_1000, 64));
            if let Some(name) = event.name {
                assert_eq!((&*name.namespace, &*name.name), ("Shop.Cart", "Add"));
                assert_eq!(name.signature, "instance void  (int32)");
            }
        }
        for (provider, id) in [(RUNTIME, 145), (RUNDOWN, 140), (Guid::NULL, 143), (RUNTIME, 152)] {
            let bytes = encode(provider, id, &verbose);
            assert_eq!(MethodEvent::parse(&Record::parse(&bytes, 0).unwrap()), None, "{provider} {id}");
        }
    }

    #[test]
    fn short_payloads_are_rejected_and_texts_may_end_early() {
        let whole = method_payload(1, 2, &["A", "B", "C"]);
        for length in 0..METHOD_BYTES {
            assert_eq!(MethodEvent::parse_payload(&whole[..length], MethodChange::Load, true), None);
        }
        for length in METHOD_BYTES..whole.len() {
            let event = MethodEvent::parse_payload(&whole[..length], MethodChange::Load, true).unwrap();
            assert!(event.name.unwrap().signature.len() <= 1);
        }
    }

    #[test]
    fn module_events_name_their_file() {
        let mut payload = Vec::new();
        payload.put_u64(8).put_u64(9).put_u32(0).put_u32(0).put_wide_z("").put_wide_z("C:\\a.ni.dll");
        for (provider, id, is_module) in [
            (RUNTIME, 152, true),
            (RUNDOWN, 153, true),
            (RUNDOWN, 154, true),
            (RUNTIME, 151, false),
            (RUNTIME, 154, false),
            (RUNDOWN, 151, false),
            (RUNDOWN, 152, false),
        ] {
            let bytes = encode(provider, id, &payload);
            let event = ModuleEvent::parse(&Record::parse(&bytes, 0).unwrap());
            let expected = is_module.then(|| ModuleEvent { module_id: 8, path: "C:\\a.ni.dll".into() });
            assert_eq!(event, expected, "{provider} {id}");
        }
        assert_eq!(ModuleEvent::parse_payload(&payload[..MODULE_BYTES - 1]), None);
    }
}
