//! Facts about the recording and its machine: names, build ids, names of events, clocks.
//!
//! ```text
//!   text          u32 size │ bytes, with a NUL at the end and padding
//!   build ids     record header │ i32 process │ 20 bytes │ u8 size, 3 bytes │ name, NUL
//!   event names   u32 count │ u32 attr size │ each: attribute, u32 ids, text, ids
//!   clock         u32 version │ u32 clock id │ u64 wall time │ u64 time of that clock, both in ns
//! ```
//!
//! Source: the page "perf.data-file-format" of the Linux sources.

use std::collections::HashMap;

use traceweir_format::wire::{Cursor, u16_at, u32_at, u64_at};

use super::attr::EventTable;
use super::record::until_nul;

/// Bits of features.
pub(super) mod bit {
    pub(in super::super) const TRACING_DATA: u32 = 1;
    pub(in super::super) const BUILD_ID: u32 = 2;
    pub(in super::super) const HOSTNAME: u32 = 3;
    pub(in super::super) const OS_RELEASE: u32 = 4;
    pub(in super::super) const CPU_COUNT: u32 = 7;
    pub(in super::super) const EVENT_DESC: u32 = 12;
    pub(in super::super) const CLOCK_DATA: u32 = 29;
}

/// The most files whose build ids are kept.
const MAX_BUILD_IDS: usize = 1 << 16;
/// The most bytes of their names.
const MAX_ALL_NAME_BYTES: usize = 16 << 20;
/// The longest name of a file in bytes.
const MAX_NAME_BYTES: usize = 4096;
/// The longest name of a machine or kernel in bytes.
const MAX_TEXT_BYTES: usize = 256;
/// The number of bytes that traces have for a build id.
pub(super) const BUILD_ID_BYTES: usize = 20;
/// The flag of a build id with a size.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
/// The kind of a record that updates an event: a new name.
const UPDATE_NAME: u64 = 2;

/// A build id, padded with zeros.
pub(super) type BuildId = [u8; BUILD_ID_BYTES];

/// Pads a build id; `None` if it is empty or all zeros.
pub(super) fn pad_build_id(bytes: &[u8]) -> Option<BuildId> {
    let mut id = BuildId::default();
    id.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    id.iter().any(|byte| *byte != 0).then_some(id)
}

/// Wall time and event time of one moment, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClockReading {
    pub(super) wall_ns: u64,
    pub(super) event_ns: u64,
}

/// What a recording says about its machine.
#[derive(Debug, Default)]
pub(super) struct Features {
    pub(super) host_name: String,
    pub(super) kernel_release: String,
    pub(super) processors: u32,
    pub(super) clock: Option<ClockReading>,
    /// Build ids by the name of the file.
    pub(super) build_ids: HashMap<Box<[u8]>, BuildId>,
    /// Bytes of the names in `build_ids`.
    build_id_name_bytes: usize,
}

impl Features {
    /// Returns whether an import needs a feature.
    pub(super) const fn is_needed(feature: u32) -> bool {
        matches!(
            feature,
            bit::TRACING_DATA
                | bit::BUILD_ID
                | bit::HOSTNAME
                | bit::OS_RELEASE
                | bit::CPU_COUNT
                | bit::EVENT_DESC
                | bit::CLOCK_DATA
        )
    }

    /// Reads the section or record of a feature.
    pub(super) fn read(&mut self, feature: u32, bytes: &[u8], events: &mut EventTable) {
        match feature {
            bit::BUILD_ID => self.read_build_ids(bytes),
            bit::HOSTNAME => self.host_name = read_text(bytes),
            bit::OS_RELEASE => self.kernel_release = read_text(bytes),
            // The number of processors that are online comes first.
            bit::CPU_COUNT => self.processors = u32_at(bytes, 4),
            bit::EVENT_DESC => {
                // Whatever was read before the damage is used.
                let _ = read_event_names(bytes, events);
            }
            bit::CLOCK_DATA if bytes.len() >= 24 => {
                let (wall_ns, event_ns) = (u64_at(bytes, 8), u64_at(bytes, 16));
                self.clock = Some(ClockReading { wall_ns, event_ns });
            }
            _ => {}
        }
    }

    fn read_build_ids(&mut self, mut bytes: &[u8]) {
        while bytes.len() > 8 {
            let size = usize::from(u16_at(bytes, 6));
            let Some((record, rest)) = bytes.split_at_checked(size).filter(|_| size > 8) else { return };
            self.add_build_id(record);
            bytes = rest;
        }
    }

    /// Adds the build id in a record.
    pub(super) fn add_build_id(&mut self, record: &[u8]) {
        let (Some(field), Some(name)) = (record.get(12..36), record.get(36..)) else { return };
        let has_size = u16_at(record, 4) & MISC_BUILD_ID_SIZE != 0;
        let size = match field.get(BUILD_ID_BYTES) {
            Some(size) if has_size => usize::from(*size).min(BUILD_ID_BYTES),
            _ => BUILD_ID_BYTES,
        };
        let name = until_nul(name);
        let name_bytes = self.build_id_name_bytes.saturating_add(name.len());
        if self.build_ids.len() < MAX_BUILD_IDS
            && name.len() <= MAX_NAME_BYTES
            && name_bytes <= MAX_ALL_NAME_BYTES
            && let Some(id) = field.get(..size).and_then(pad_build_id)
        {
            self.build_id_name_bytes = name_bytes;
            self.build_ids.insert(name.into(), id);
        }
    }
}

fn read_text(bytes: &[u8]) -> String {
    let size = usize::try_from(u32_at(bytes, 0)).unwrap_or(usize::MAX);
    let text = bytes.get(4..).unwrap_or_default();
    let text = until_nul(text.get(..size.min(MAX_TEXT_BYTES)).unwrap_or(text));
    String::from_utf8_lossy(text.get(..MAX_TEXT_BYTES).unwrap_or(text)).into_owned()
}

fn read_event_names(bytes: &[u8], events: &mut EventTable) -> traceweir_format::Result<()> {
    let mut cursor = Cursor::new("event names of perf", bytes);
    let (count, attr_size) = (cursor.u32()?, cursor.u32()? as usize);
    for _ in 0..count {
        cursor.bytes(attr_size)?;
        let (id_count, name_size) = (cursor.u32()?, cursor.u32()? as usize);
        let name = until_nul(cursor.bytes(name_size)?);
        for _ in 0..id_count {
            events.set_name(cursor.u64()?, name);
        }
        if id_count == 0 && cursor.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Reads a record that updates an event.
pub(super) fn read_event_update(body: &[u8], events: &mut EventTable) {
    if u64_at(body, 0) == UPDATE_NAME {
        events.set_name(u64_at(body, 8), until_nul(body.get(16..).unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_build_ids_is_bounded() {
        let mut features = Features::default();
        for number in 0..10_000_u32 {
            let mut record = vec![1; 36];
            record.extend(number.to_string().bytes());
            record.resize(36 + MAX_NAME_BYTES, b'x');
            features.add_build_id(&record);
        }
        let bytes: usize = features.build_ids.keys().map(|name| name.len()).sum();
        assert!(bytes <= MAX_ALL_NAME_BYTES && bytes + MAX_NAME_BYTES > MAX_ALL_NAME_BYTES);
    }
}
