//! Records of the modules that contain a session's providers.
//!
//! ```text
//!   a process ──record with flag BINARY_PATH──▶ collector ──┬── live: among the events
//!                                                           └── log:  after each file header
//! ```
//!
//! This way a reader of a file learns of modules before the first event, and every file of a
//! sequence, a circular log and the snapshot of a flight recorder are complete in themselves. The
//! header buffer is written again as soon as a module is known, so a file that was never finalised
//! has the module records too. In the header buffer, they have the stamp of the header.
//!
//! A record stands among the events, at the time when it came, in real-time sessions and in files
//! whose header buffer has no room (small buffers, very many modules) or must not change
//! (compressed or continued files).
//!
//! - M1 The record of a process is checked, and the process id in it replaced with the true one.
//! - M2 Records of the same content are kept once.
//! - M3 All kept records together leave [`RESERVED_BYTES`] bytes of the header buffer free.

use traceweir_format::binary_path::{BinaryPath, PROCESS_ID_OFFSET};
use traceweir_format::header::{Record, classic};

/// Bytes that the header buffer needs for itself: its header, the log-file header with two names of
/// 1023 UTF-16 units, and the record about the system.
const RESERVED_BYTES: usize = 8 << 10;
/// Largest total size of the kept records, whatever the size of buffers.
const MAX_KEPT_BYTES: usize = 256 << 10;
/// Position of the time stamp in a record.
const TIME_RANGE: std::ops::Range<usize> = 0x10..0x18;

/// Result of adding a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModuleAdded {
    /// The record is new and kept.
    New,
    /// The same record was kept before.
    Duplicate,
    /// There is no room for the record.
    NoRoom,
}

/// The module records of a session.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Payloads of the kept records, to find duplicates.
    payloads: Vec<Vec<u8>>,
    /// Bytes that are left for records.
    free_bytes: usize,
    /// The part of them that records of processes may use: half at first, so that modules always
    /// have the other half.
    free_process_bytes: usize,
}

impl Modules {
    /// Creates an empty set for a session with buffers of `buffer_bytes` bytes.
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        let free_bytes = buffer_bytes.saturating_sub(RESERVED_BYTES).min(MAX_KEPT_BYTES);
        Self { payloads: Vec::new(), free_bytes, free_process_bytes: free_bytes / 2 }
    }

    /// Adds a record that [`check_and_set_process`] has accepted, padded to a multiple of eight
    /// bytes.
    pub(crate) fn add(&mut self, record: &[u8]) -> ModuleAdded {
        let payload = record.get(classic::SIZE..).unwrap_or(&[]);
        if self.payloads.iter().any(|known| known == payload) {
            return ModuleAdded::Duplicate;
        }
        let Some(free_bytes) = self.free_bytes.checked_sub(record.len()) else { return ModuleAdded::NoRoom };
        self.free_bytes = free_bytes;
        self.payloads.push(payload.to_vec());
        ModuleAdded::New
    }

    /// Adds the record of an attached process, which follows the log-file header like those of
    /// modules. A process attaches again if all its providers were disabled and one is enabled.
    pub(crate) fn add_process(&mut self, record: &[u8]) -> ModuleAdded {
        if self.payloads.iter().any(|known| known == record) {
            return ModuleAdded::Duplicate;
        }
        let size = record.len();
        let (Some(free_bytes), Some(free_process_bytes)) =
            (self.free_bytes.checked_sub(size), self.free_process_bytes.checked_sub(size))
        else {
            return ModuleAdded::NoRoom;
        };
        (self.free_bytes, self.free_process_bytes) = (free_bytes, free_process_bytes);
        self.payloads.push(record.to_vec());
        ModuleAdded::New
    }
}

/// Checks a record of `length` bytes, padded with zeros, and sets the true process id. Returns
/// whether it is a valid module record.
pub(crate) fn check_and_set_process(record: &mut [u8], length: usize, process: u32) -> bool {
    let is_valid = record
        .get(..length)
        .and_then(|record| Record::parse(record, 0).ok())
        .is_some_and(|view| BinaryPath::is_in(&view) && BinaryPath::parse(view.payload()).is_ok());
    let at = classic::SIZE.saturating_add(PROCESS_ID_OFFSET);
    match record.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        Some(field) if is_valid => {
            *field = process.to_le_bytes();
            true
        }
        _ => false,
    }
}

/// Returns a copy of a record with another time stamp.
pub(crate) fn with_time(record: &[u8], time: i64) -> Vec<u8> {
    let mut record = record.to_vec();
    if let Some(field) = record.get_mut(TIME_RANGE) {
        field.copy_from_slice(&time.to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::Guid;

    fn module_record(path: &str) -> Vec<u8> {
        let base = BinaryPath { process_id: 1, guids: vec![Guid::from_u128(7)], ..BinaryPath::default() };
        BinaryPath { path: path.to_owned(), ..base }.to_record().unwrap()
    }

    fn record_length(record: &[u8]) -> usize {
        usize::from(u16::from_le_bytes([record[0], record[1]]))
    }

    #[test]
    fn check_sets_the_true_process_id_only() {
        let before = module_record("/lib/x.so");
        let mut after = before.clone();
        assert!(check_and_set_process(&mut after, record_length(&before), 4711));
        let view = Record::parse(&after, 0).unwrap();
        let read = BinaryPath::parse(view.payload()).unwrap();
        assert_eq!((read.process_id, &read.path[..]), (4711, "/lib/x.so"));
        // Apart from the process id, nothing has changed.
        after[0x38..0x3C].copy_from_slice(&before[0x38..0x3C]);
        assert_eq!(after, before);
    }

    #[test]
    fn invalid_module_record_stays_unchanged() {
        let valid = module_record("/lib/x.so");
        // Opcode, version, class, number of GUIDs, header marker.
        for (at, byte) in [(4, 0x44), (6, 2), (0x18, 9), (0x3C, 200), (3, 0)] {
            let mut invalid = valid.clone();
            invalid[at] = byte;
            let before = invalid.clone();
            assert!(
                !check_and_set_process(&mut invalid, record_length(&valid), 4711),
                "accepted a wrong byte at {at}"
            );
            assert_eq!(invalid, before);
        }
        assert!(!check_and_set_process(&mut [], 0, 1));
        assert!(!check_and_set_process(&mut valid.clone(), 20, 1));
    }

    #[test]
    fn equal_records_are_kept_once_within_size_limit() {
        let mut modules = Modules::new(64 << 10);
        assert_eq!(modules.add(&module_record("/a")), ModuleAdded::New);
        assert_eq!(modules.add(&with_time(&module_record("/a"), 99)), ModuleAdded::Duplicate);
        let mut record_count = 1;
        while modules.add(&module_record(&format!("/{record_count}/{}", "x".repeat(1000))))
            == ModuleAdded::New
        {
            record_count += 1;
            assert!(record_count < 100);
        }
        assert_eq!(modules.add(&module_record(&"y".repeat(2000))), ModuleAdded::NoRoom);
        assert_eq!(modules.add(&module_record("/a")), ModuleAdded::Duplicate);
        assert_eq!(Modules::new(4096).add(&module_record("/a")), ModuleAdded::NoRoom);
    }

    #[test]
    fn process_is_added_once_while_there_is_room() {
        let mut modules = Modules::new(RESERVED_BYTES + 48);
        assert_eq!(modules.add_process(&[1; 16]), ModuleAdded::New);
        assert_eq!(modules.add_process(&[1; 16]), ModuleAdded::Duplicate);
        assert_eq!(modules.add_process(&[2; 16]), ModuleAdded::NoRoom);
        assert_eq!(modules.add_process(&[2; 8]), ModuleAdded::New);
        assert_eq!(modules.free_bytes, 24, "the other half is left for modules");
    }
}
