//! Encoded filters of an enable call: typed views and the rules that every filter obeys.
//!
//! ```text
//! SCHEMATIZED                   u16 id │ u8 version │ u8[5] 0 │ u64 instance │
//!                               u32 size of the filter │ u32 next │ the provider's data
//! PID, PROCESS_TREE             u32[1 to 8]
//! EXECUTABLE_NAME, PACKAGE_ID,
//! PACKAGE_APP_ID, CONTAINER     UTF-16, names separated by ';', an optional NUL at the end
//! EVENT_ID, STACKWALK           u8 in │ u8 0 │ u16 count │ u16[1 to 64]
//! EVENT_NAME, STACKWALK_NAME    u64 any │ u64 all │ u8 level │ u8 in │ u16 count │
//!                               UTF-8 names, each with a NUL
//! STACKWALK_LEVEL_KW            u64 any │ u64 all │ u8 level │ u8 in │ u8[6] 0
//! SYSTEM_FLAGS                  u32
//! TRACEHANDLE                   u64
//! PAYLOAD                       see [`payload`]
//! types without the top bit     whatever provider and controller agreed on
//! ```
//!
//! If `in` is 0, the filter selects all events except those that it describes. `any` and `all` are
//! keyword masks.
//!
//! A view can be created only from bytes that obey the rules, so its users need not check again.
//! Filters by level and keyword, and the level/keyword part of a name filter, differ from an enable
//! in one point: `all` is not used if `any` is 0 ([`Gate`]).
//!
//! The code that writes events applies filters to events; the daemon applies the filters that
//! select processes.
//!
//! Source: Documented ("EVENT_FILTER_DESCRIPTOR structure", "EVENT_FILTER_EVENT_ID",
//! "EVENT_FILTER_EVENT_NAME", "EVENT_FILTER_LEVEL_KW", "EVENT_FILTER_HEADER"). The list of
//! containers, the filter of process trees and the payload filter are layouts of this project.

pub mod encode;
pub mod payload;
#[cfg(test)]
mod tests;

use alloc::string::String;
use alloc::vec::Vec;

use crate::spec::enable as spec;
use crate::spec::event::class::SYSTEM_TRACE_CONTROL;
use crate::text::until_nul16;
use crate::wire::{Cursor, chunk};
use crate::{Error, Guid, Result};

/// Size of EVENT_FILTER_HEADER in bytes.
pub const HEADER_BYTES: usize = 24;
/// Size of EVENT_FILTER_LEVEL_KW in bytes.
const LEVEL_KW_BYTES: usize = 24;
/// The first filter type of the system; lower types belong to the providers.
const FIRST_SYSTEM_TYPE: u32 = spec::EVENT_FILTER_TYPE_SCHEMATIZED;

/// Checks all filters of one call. `provider` is the GUID of the provider or, if `is_group`, of the
/// group.
pub fn check_all<'a>(
    filters: impl Iterator<Item = (u32, &'a [u8])> + Clone,
    provider: &Guid,
    is_group: bool,
) -> Result<()> {
    if filters.clone().count() > spec::MAX_EVENT_FILTERS_COUNT {
        return Err(invalid("filters of a call", "at most 13 are allowed"));
    }
    let used = filters.filter(|(kind, _)| *kind != spec::EVENT_FILTER_TYPE_NONE);
    for (index, (kind, data)) in used.clone().enumerate() {
        if used.clone().take(index).any(|(earlier, _)| earlier == kind) {
            return Err(invalid("filters of a call", "each type is allowed once"));
        }
        if is_group && is_of_single_events(kind) {
            return Err(invalid("filter of a group", "ids, names and payloads belong to single providers"));
        }
        if is_kernel_filter(kind) && *provider != SYSTEM_TRACE_CONTROL {
            return Err(invalid(
                "filter of the kernel's provider",
                "the provider is not SystemTraceControlGuid",
            ));
        }
        check(kind, data)?;
    }
    Ok(())
}

/// Checks one filter without regard to other filters of the call.
pub fn check(kind: u32, data: &[u8]) -> Result<()> {
    use spec::*;
    let check_size = |bytes: usize| {
        if data.len() == bytes { Ok(()) } else { Err(invalid("filter", "the size is not that of its type")) }
    };
    match kind {
        EVENT_FILTER_TYPE_NONE => Ok(()),
        EVENT_FILTER_TYPE_SCHEMATIZED => Header::parse(data).map(drop),
        EVENT_FILTER_TYPE_SYSTEM_FLAGS => check_size(4),
        EVENT_FILTER_TYPE_TRACEHANDLE => check_size(8),
        EVENT_FILTER_TYPE_PID | EVENT_FILTER_TYPE_PROCESS_TREE => parse_pids(data).map(drop),
        EVENT_FILTER_TYPE_EXECUTABLE_NAME
        | EVENT_FILTER_TYPE_PACKAGE_ID
        | EVENT_FILTER_TYPE_PACKAGE_APP_ID
        | EVENT_FILTER_TYPE_CONTAINER => parse_name_list(data).map(drop),
        EVENT_FILTER_TYPE_PAYLOAD => payload::Filters::parse(data).map(drop),
        EVENT_FILTER_TYPE_EVENT_ID | EVENT_FILTER_TYPE_STACKWALK => EventIds::parse(data).map(drop),
        EVENT_FILTER_TYPE_EVENT_NAME | EVENT_FILTER_TYPE_STACKWALK_NAME => EventNames::parse(data).map(drop),
        EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW => LevelKeyword::parse(data).map(drop),
        _ if kind >= FIRST_SYSTEM_TYPE => Err(invalid("filter", "unknown type")),
        _ => check_max_size("filter of a provider", data, MAX_EVENT_FILTER_DATA_SIZE),
    }
}

/// Returns whether a filter is a scope filter: it selects processes, not events.
#[must_use]
pub const fn is_scope(kind: u32) -> bool {
    use spec::*;
    matches!(
        kind,
        EVENT_FILTER_TYPE_PID
            | EVENT_FILTER_TYPE_PROCESS_TREE
            | EVENT_FILTER_TYPE_EXECUTABLE_NAME
            | EVENT_FILTER_TYPE_PACKAGE_ID
            | EVENT_FILTER_TYPE_PACKAGE_APP_ID
            | EVENT_FILTER_TYPE_CONTAINER
    )
}

/// Returns whether a filter type is defined by the provider alone and passed to its callback
/// unchanged.
#[must_use]
pub const fn is_of_provider(kind: u32) -> bool {
    kind != spec::EVENT_FILTER_TYPE_NONE && kind < FIRST_SYSTEM_TYPE
}

/// Returns whether a filter selects events of a provider by id, name or payload.
#[must_use]
pub const fn is_of_single_events(kind: u32) -> bool {
    use spec::*;
    matches!(kind, EVENT_FILTER_TYPE_EVENT_ID | EVENT_FILTER_TYPE_EVENT_NAME | EVENT_FILTER_TYPE_PAYLOAD)
}

/// Returns whether a filter selects the events that get a call stack.
#[must_use]
pub const fn is_of_stacks(kind: u32) -> bool {
    use spec::*;
    matches!(
        kind,
        EVENT_FILTER_TYPE_STACKWALK | EVENT_FILTER_TYPE_STACKWALK_NAME | EVENT_FILTER_TYPE_STACKWALK_LEVEL_KW
    )
}

const fn is_kernel_filter(kind: u32) -> bool {
    matches!(kind, spec::EVENT_FILTER_TYPE_SYSTEM_FLAGS | spec::EVENT_FILTER_TYPE_TRACEHANDLE)
}

/// EVENT_FILTER_HEADER and the data after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The provider's number for the meaning of the filter.
    pub id: u16,
    /// The version of the filter's meaning.
    pub version: u8,
    /// The bit of the filter's session in a chain ([`append_to_chain`]).
    pub instance: u64,
    /// Offset of the next session's filter from the start of this one; 0 for the last.
    pub next: u32,
    /// The provider's data.
    pub data: &'a [u8],
}

impl<'a> Header<'a> {
    /// Views the bytes of one filter from a controller.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        const WHAT: &str = "schematized filter";
        check_max_size(WHAT, bytes, spec::MAX_EVENT_FILTER_DATA_SIZE)?;
        let mut cursor = Cursor::new(WHAT, bytes);
        let (id, version) = (cursor.u16()?, cursor.u8()?);
        cursor.bytes(5)?;
        let (instance, size, next) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        if usize::try_from(size) != Ok(bytes.len()) {
            return Err(invalid(WHAT, "the size in its header is not that of the filter"));
        }
        Ok(Self { id, version, instance, next, data: cursor.rest() })
    }

    /// Iterates over the filters of the chain that a callback gets. Ends at the first header that
    /// does not fit.
    pub fn chain(mut bytes: &'a [u8]) -> impl Iterator<Item = Self> {
        core::iter::from_fn(move || {
            // The size of a filter is at offset 16 of its header.
            let size = usize::try_from(u32::from_le_bytes(*chunk(bytes, 16)?)).ok()?;
            let filter = Self::parse(bytes.get(..size)?).ok()?;
            let next = usize::try_from(filter.next).ok().filter(|next| *next >= size);
            bytes = next.and_then(|next| bytes.get(next..)).unwrap_or_default();
            Some(filter)
        })
    }
}

/// Appends a schematized filter to a chain, with the bit of its session. `last` is the offset of
/// the last filter in the chain, and is updated. Filters in a chain begin at multiples of eight.
pub fn append_to_chain(chain: &mut Vec<u8>, last: &mut usize, filter: &[u8], instance: u64) {
    let start = crate::wire::align8(chain.len());
    chain.resize(start, 0);
    // The offset of the next filter is at offset 20 of the last header.
    if let Some(next) = chain.get_mut(last.saturating_add(20)..).and_then(|b| b.first_chunk_mut::<4>()) {
        let distance = start.saturating_sub(*last);
        *next = u32::try_from(distance).unwrap_or(0).to_le_bytes();
    }
    chain.extend_from_slice(filter);
    if let Some(header) = chain.get_mut(start..).and_then(|b| b.first_chunk_mut::<HEADER_BYTES>()) {
        // Eight bytes, the instance, the size, the offset of the next filter.
        let [_, _, _, _, _, _, _, _, instance_field @ .., _, _, _, _, n0, n1, n2, n3] = header;
        if let Some(instance_field) = instance_field.first_chunk_mut::<8>() {
            *instance_field = instance.to_le_bytes();
        }
        (*n0, *n1, *n2, *n3) = (0, 0, 0, 0);
    }
    *last = start;
}

/// EVENT_FILTER_EVENT_ID: only these ids, or all except these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventIds<'a> {
    /// True: only these ids. False: all except these.
    pub filter_in: bool,
    ids: &'a [[u8; 2]],
}

impl<'a> EventIds<'a> {
    /// Views the bytes of a filter.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        const WHAT: &str = "filter of event ids";
        let mut cursor = Cursor::new(WHAT, bytes);
        let (filter_in, _, count) = (cursor.u8()? != 0, cursor.u8()?, usize::from(cursor.u16()?));
        if count == 0 || count > spec::MAX_EVENT_FILTER_EVENT_ID_COUNT {
            return Err(invalid(WHAT, "it must hold 1 to 64 ids"));
        }
        match cursor.rest().as_chunks() {
            (ids, []) if ids.len() == count => Ok(Self { filter_in, ids }),
            _ => Err(invalid(WHAT, "the size does not fit the number of ids")),
        }
    }

    /// Returns the ids in the order of the filter.
    pub fn ids(&self) -> impl Iterator<Item = u16> + use<'a> {
        self.ids.iter().map(|id| u16::from_le_bytes(*id))
    }
}

/// The level/keyword part of a filter, which selects the events that the filter applies to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Keywords of which an event with keywords must have one; 0 admits all keywords.
    pub any: u64,
    /// Keywords of which an event with keywords must have all; not used if `any` is 0.
    pub all: u64,
    /// Highest level; 0 admits all levels.
    pub level: u8,
}

impl Gate {
    /// Returns whether the filter applies to an event of this level and keyword.
    #[inline]
    #[must_use]
    pub const fn admits(&self, level: u8, keyword: u64) -> bool {
        (self.level == 0 || level <= self.level)
            && (self.any == 0 || keyword == 0 || keyword & self.any != 0 && keyword & self.all == self.all)
    }

    fn read(cursor: &mut Cursor<'_>) -> Result<Self> {
        Ok(Self { any: cursor.u64()?, all: cursor.u64()?, level: cursor.u8()? })
    }
}

/// EVENT_FILTER_EVENT_NAME: of the events that the gate admits, only these names, or all except
/// these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventNames<'a> {
    /// Selects the events that the filter applies to; others are not affected.
    pub gate: Gate,
    /// True: only these names. False: all except these.
    pub filter_in: bool,
    names: &'a [u8],
    count: usize,
}

impl<'a> EventNames<'a> {
    /// Views the bytes of a filter. Zeros may follow the last name, because callers round sizes up.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        const WHAT: &str = "filter of event names";
        check_max_size(WHAT, bytes, spec::MAX_EVENT_FILTER_EVENT_NAME_SIZE)?;
        let mut cursor = Cursor::new(WHAT, bytes);
        let gate = Gate::read(&mut cursor)?;
        let (filter_in, count) = (cursor.u8()? != 0, usize::from(cursor.u16()?));
        let filter = Self { gate, filter_in, names: cursor.rest(), count };
        for _ in 0..count {
            if !cursor.rest().contains(&0) {
                return Err(invalid(WHAT, "there are fewer names than the count, or one is unterminated"));
            }
            cursor.ansi_z();
        }
        if count == 0 || cursor.rest().iter().any(|byte| *byte != 0) {
            return Err(invalid(WHAT, "the count does not match the names"));
        }
        Ok(filter)
    }

    /// Returns the names, without their NULs.
    pub fn names(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.names.split(|byte| *byte == 0).take(self.count)
    }
}

/// EVENT_FILTER_LEVEL_KW: the events that the gate admits, or all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelKeyword {
    /// Selects the events.
    pub gate: Gate,
    /// True: the events that the gate admits. False: all others.
    pub filter_in: bool,
}

impl LevelKeyword {
    /// Parses the bytes of a filter.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        const WHAT: &str = "filter of level and keyword";
        if bytes.len() != LEVEL_KW_BYTES {
            return Err(invalid(WHAT, "it must have 24 bytes"));
        }
        let mut cursor = Cursor::new(WHAT, bytes);
        Ok(Self { gate: Gate::read(&mut cursor)?, filter_in: cursor.u8()? != 0 })
    }
}

/// Parses the process ids of a filter.
pub fn parse_pids(bytes: &[u8]) -> Result<Vec<u32>> {
    let (ids, remaining) = bytes.as_chunks();
    if !remaining.is_empty() || ids.is_empty() || ids.len() > spec::MAX_EVENT_FILTER_PID_COUNT {
        return Err(invalid("filter of process ids", "it must hold 1 to 8 ids of four bytes"));
    }
    Ok(ids.iter().map(|id| u32::from_le_bytes(*id)).collect())
}

/// Parses the names of a filter of executables, packages, applications or containers. Returns
/// the names in lower case, because names are compared without regard to case.
pub fn parse_name_list(bytes: &[u8]) -> Result<Vec<String>> {
    Ok(parse_names_as_given(bytes)?.iter().map(|name| name.to_lowercase()).collect())
}

/// Like [`parse_name_list`], but in the original case, for display.
pub fn parse_names_as_given(bytes: &[u8]) -> Result<Vec<String>> {
    const WHAT: &str = "filter of names";
    check_max_size(WHAT, bytes, spec::MAX_EVENT_FILTER_DATA_SIZE)?;
    let text = until_nul16(bytes);
    if !bytes.len().is_multiple_of(2)
        || bytes.get(text.len()..).is_some_and(|remaining| remaining.iter().any(|byte| *byte != 0))
    {
        return Err(invalid(WHAT, "it must be one text of 16-bit units"));
    }
    let units = text.as_chunks().0.iter().map(|unit| u16::from_le_bytes(*unit));
    let text: core::result::Result<String, _> = char::decode_utf16(units).collect();
    let text = text.map_err(|_| invalid(WHAT, "the text is not UTF-16"))?;
    let names: Vec<String> =
        text.split(';').map(str::trim).filter(|name| !name.is_empty()).map(String::from).collect();
    if names.is_empty() {
        return Err(invalid(WHAT, "it holds no name"));
    }
    Ok(names)
}

fn check_max_size(what: &'static str, bytes: &[u8], limit: usize) -> Result<()> {
    if bytes.len() > limit {
        return Err(Error::TooLarge { what, size: bytes.len() as u64, limit: limit as u64 });
    }
    Ok(())
}

const fn invalid(what: &'static str, reason: &'static str) -> Error {
    Error::Invalid { what, offset: 0, reason }
}
