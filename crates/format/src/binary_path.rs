//! The event that names the binary with the decoding resources for the GUIDs of a registration.
//!
//! ```text
//!   class EventTraceGuid, opcode 0x43, version 3
//!   00 u64 tag of the registration, 0: none │ 08 u32 process id │ 0C u32 GUID count │ 10 GUIDs
//!   then the absolute path of the binary, UTF-16 with its NUL
//!   then the GNU build id of the binary in hexadecimal, UTF-16 with its NUL; empty if unknown
//! ```
//!
//! Windows writes version 2: number of GUIDs, GUIDs, path. Version 3 is Traceweir's own: it adds
//! the tag and the process id before the fields of version 2, and the build id after them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::guid::Guid;
use crate::header::Record;
use crate::header::classic::ClassicHeader;
use crate::spec::event::class;
use crate::text;
use crate::wire::{Put, guid_at, u32_at, u64_at};
use crate::{Error, Result};

/// The opcode of the event.
pub const OPCODE: u8 = 0x43;
/// The version of the event that Traceweir writes.
pub const VERSION: u16 = 3;
/// The most GUIDs that are accepted in one event; a registration writes at most two.
pub const MAX_GUIDS: usize = 16;
/// The longest path, in UTF-16 units without the NUL: the number of bytes in Linux's `PATH_MAX`.
pub const MAX_PATH_UNITS: usize = 4096;
/// The longest build id, in digits.
pub const MAX_BUILD_ID_DIGITS: usize = 128;
/// Offset of the process id in the payload.
pub const PROCESS_ID_OFFSET: usize = 0x08;

const GUIDS_OFFSET: usize = 0x10;

/// The payload of the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BinaryPath {
    /// A number that identifies the registration within the process; 0 for none.
    pub tag: u64,
    /// The id of the process.
    pub process_id: u32,
    /// The control GUID of the provider, then the GUID that decodes its events if it differs.
    pub guids: Vec<Guid>,
    /// The absolute path of the binary.
    pub path: String,
    /// The GNU build id of the binary in hexadecimal, or empty.
    pub build_id: String,
}

impl BinaryPath {
    /// Returns whether a record is a binary-path event.
    #[must_use]
    pub fn is_in(record: &Record<'_>) -> bool {
        let descriptor = record.descriptor();
        record.provider() == class::EVENT_TRACE
            && descriptor.opcode == OPCODE
            && u16::from(descriptor.version) == VERSION
    }

    /// Encodes the payload. Lists and texts beyond their limits are truncated, and NULs within
    /// texts are left out.
    #[must_use]
    pub fn to_payload(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let count = self.guids.len().min(MAX_GUIDS);
        out.put_u64(self.tag);
        out.put_u32(self.process_id);
        out.put_u32(u32::try_from(count).unwrap_or(0));
        for guid in self.guids.iter().take(count) {
            out.extend_from_slice(&guid.to_bytes());
        }
        for (text, max_units) in [(&self.path, MAX_PATH_UNITS), (&self.build_id, MAX_BUILD_ID_DIGITS)] {
            let units = text.encode_utf16().filter(|unit| *unit != 0).take(max_units);
            for unit in units.chain([0]) {
                out.put_u16(unit);
            }
        }
        out
    }

    /// Encodes the record with its header, padded to eight bytes. Thread id and time are 0.
    pub fn to_record(&self) -> Result<Vec<u8>> {
        let header = ClassicHeader {
            class: class::EVENT_TRACE,
            opcode: OPCODE,
            version: VERSION,
            pointer_size: 8,
            level: 0,
            thread_id: 0,
            process_id: self.process_id,
            time: 0,
            cpu_times: (0, 0),
            instance: None,
        };
        let mut record = Vec::new();
        header.encode(&self.to_payload(), &mut record)?;
        Ok(record)
    }

    /// Parses a payload; fails if a part is missing or exceeds its limit. Bytes after the build id
    /// are ignored.
    pub fn parse(payload: &[u8]) -> Result<Self> {
        let invalid = |reason| Error::Invalid { what: "binary path", offset: 0, reason };
        if payload.len() < GUIDS_OFFSET {
            return Err(invalid("shorter than its fixed part"));
        }
        let count = u32_at(payload, 0x0C) as usize;
        if count > MAX_GUIDS {
            return Err(invalid("too many GUIDs"));
        }
        let end = GUIDS_OFFSET.saturating_add(count.saturating_mul(16));
        let remaining = payload.get(end..).ok_or_else(|| invalid("GUIDs exceed the payload"))?;
        let guids =
            (0..count).map(|i| guid_at(payload, GUIDS_OFFSET.saturating_add(i.saturating_mul(16)))).collect();
        let (path, remaining) =
            split_text(remaining, MAX_PATH_UNITS).ok_or_else(|| invalid("path without NUL or too long"))?;
        let (build_id, _) = split_text(remaining, MAX_BUILD_ID_DIGITS)
            .ok_or_else(|| invalid("build id without NUL or too long"))?;
        Ok(Self {
            tag: u64_at(payload, 0),
            process_id: u32_at(payload, PROCESS_ID_OFFSET),
            guids,
            path,
            build_id,
        })
    }
}

/// Splits `bytes` into a text of at most `max_units` UTF-16 units and the bytes after its NUL.
fn split_text(bytes: &[u8], max_units: usize) -> Option<(String, &[u8])> {
    let text = text::until_nul16(bytes);
    let remaining = bytes.get(text.len().checked_add(2)?..)?;
    (text.len() / 2 <= max_units).then(|| (text::decode_utf16(text), remaining))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn sample_path() -> BinaryPath {
        BinaryPath {
            tag: 0x0102_0304_0506_0708,
            process_id: 4711,
            guids: [Guid::from_u128(1), Guid::from_u128(2)].to_vec(),
            path: "/opt/ä/libprovider.so".to_string(),
            build_id: "00ff".to_string(),
        }
    }

    #[test]
    fn encoded_event_reads_back() {
        for path in [sample_path(), BinaryPath::default()] {
            assert_eq!(BinaryPath::parse(&path.to_payload()), Ok(path.clone()));
            let record = path.to_record().unwrap();
            let record = Record::parse(&record, 0).unwrap();
            assert!(BinaryPath::is_in(&record));
            assert_eq!(BinaryPath::parse(record.payload()), Ok(path));
        }
    }

    #[test]
    fn every_truncated_payload_is_rejected() {
        let payload = sample_path().to_payload();
        for length in 0..payload.len() {
            assert!(BinaryPath::parse(&payload[..length]).is_err(), "parsed a prefix of {length} bytes");
        }
    }

    #[test]
    fn excess_is_truncated_by_encoding_and_rejected_by_parsing() {
        let long = BinaryPath { path: "x".repeat(5000), build_id: "y".repeat(500), ..sample_path() };
        let read = BinaryPath::parse(&long.to_payload()).unwrap();
        assert_eq!((read.path.len(), read.build_id.len()), (MAX_PATH_UNITS, MAX_BUILD_ID_DIGITS));
        let mut many = sample_path().to_payload();
        many[0x0C..0x10].copy_from_slice(&17_u32.to_le_bytes());
        many.resize(4000, 0);
        assert!(BinaryPath::parse(&many).is_err());
        let mut too_long = BinaryPath::default().to_payload();
        too_long.truncate(GUIDS_OFFSET);
        too_long.resize(GUIDS_OFFSET + 2 * (MAX_PATH_UNITS + 1), b'x');
        too_long.resize(too_long.len() + 8, 0);
        assert!(BinaryPath::parse(&too_long).is_err());
    }
}
