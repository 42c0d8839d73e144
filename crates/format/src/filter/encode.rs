//! Encodes filters: the layouts that the views of the parent module parse.
//!
//! The functions do not check their input: [`check`](super::check) rejects too many ids, a missing
//! name or a text that is too long. A count that does not fit its field is written as the largest
//! number, which no rule allows.

use alloc::vec::Vec;

use super::{Gate, HEADER_BYTES, LEVEL_KW_BYTES};
use crate::wire::Put;

/// Encodes EVENT_FILTER_EVENT_ID: only these ids (`filter_in`), or all except these.
#[must_use]
pub fn event_ids(filter_in: bool, ids: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u8(u8::from(filter_in)).put_u8(0).put_u16(saturated_count(ids));
    out.extend(ids.iter().flat_map(|id| id.to_le_bytes()));
    out
}

/// Encodes EVENT_FILTER_EVENT_NAME: of the events that the gate admits, only these names
/// (`filter_in`), or all except these.
#[must_use]
pub fn event_names(gate: Gate, filter_in: bool, names: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let mut out = encode_gate(gate, filter_in);
    out.put_u16(saturated_count(names));
    for name in names {
        out.put(name.as_ref()).put_u8(0);
    }
    out
}

/// Encodes EVENT_FILTER_LEVEL_KW: the events that the gate admits (`filter_in`), or all others.
#[must_use]
pub fn level_keyword(gate: Gate, filter_in: bool) -> Vec<u8> {
    let mut out = encode_gate(gate, filter_in);
    out.resize(LEVEL_KW_BYTES, 0);
    out
}

/// Encodes a filter of process ids.
#[must_use]
pub fn pids(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|id| id.to_le_bytes()).collect()
}

/// Encodes a filter of executables, packages, applications or containers. A semicolon separates two
/// names.
#[must_use]
pub fn name_list(names: &[impl AsRef<str>]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, name) in names.iter().enumerate() {
        let separator = (index > 0).then_some(u16::from(b';'));
        out.extend(separator.into_iter().chain(name.as_ref().encode_utf16()).flat_map(u16::to_le_bytes));
    }
    out
}

/// Encodes EVENT_FILTER_HEADER and the provider's data: a filter that only the provider
/// understands. The traced process fills in the bit of the session
/// ([`append_to_chain`](super::append_to_chain)).
#[must_use]
pub fn schematized(id: u16, version: u8, data: &[u8]) -> Vec<u8> {
    let size = HEADER_BYTES.saturating_add(data.len());
    let mut out = Vec::with_capacity(size);
    out.put_u16(id).put_u8(version).put(&[0; 5]).put_u64(0);
    out.put_u32(u32::try_from(size).unwrap_or(u32::MAX)).put_u32(0).put(data);
    out
}

/// Encodes the common start of filters with a gate.
fn encode_gate(gate: Gate, filter_in: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEVEL_KW_BYTES);
    out.put_u64(gate.any).put_u64(gate.all).put_u8(gate.level).put_u8(u8::from(filter_in));
    out
}

fn saturated_count<T>(list: &[T]) -> u16 {
    u16::try_from(list.len()).unwrap_or(u16::MAX)
}
