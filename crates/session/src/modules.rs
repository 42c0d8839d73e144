//! Modules that the providers of a session live in, and where the session keeps them.
//!
//! ```text
//!   a process ──record with flag BINARY_PATH──▶ collector ──┬── live: among the events, as it comes
//!                                                           └── log:  behind the header of the file, and of each file that follows
//! ```
//!
//! A reader of a file learns of modules before the first event, and a file of a row, a circular log and the snapshot of a flight recorder are complete in
//! themselves. The header buffer is written again as soon as a module is known, so a file that was never finalised has them too. Their stamp there is that of
//! the header.
//!
//! Where the front has no room (small buffers, very many modules), where a file has a front that must stay as it is (compressed, continued), and for live
//! consumers, the record stands among the events at the time when it came.
//!
//! M1 What a process says is checked, the process id in it replaced by the true one. M2 Records of the same content are kept once. M3 All of them together
//! leave [`RESERVED`] bytes of the header buffer free.

use traceweir_format::binary_path::{BinaryPath, PROCESS_ID};
use traceweir_format::header::{Record, classic};

/// What the header buffer needs for itself: its header, the log-file header with two names of 1023 units, the system's record.
const RESERVED: usize = 8 << 10;
/// Bytes of records at most, whatever the size of buffers.
const MAX_BYTES: usize = 256 << 10;
/// Where the time stamp stands in a record.
const TIME: std::ops::Range<usize> = 0x10..0x18;

/// What became of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is kept from now on.
    New,
    /// It was known.
    Known,
    /// There is no room for it.
    No,
}

/// The records that a session keeps.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    /// Payloads.
    known: Vec<Vec<u8>>,
    /// Bytes that may still be kept.
    room: usize,
}

impl Modules {
    /// For a session whose buffers have so many bytes.
    pub(crate) fn new(buffer_bytes: usize) -> Self {
        Self { known: Vec::new(), room: buffer_bytes.saturating_sub(RESERVED).min(MAX_BYTES) }
    }

    /// Keeps a signed record, padded to eight bytes.
    pub(crate) fn add(&mut self, record: &[u8]) -> Kept {
        let payload = record.get(classic::SIZE..).unwrap_or(&[]);
        if self.known.iter().any(|known| known == payload) {
            return Kept::Known;
        }
        let Some(room) = self.room.checked_sub(record.len()) else { return Kept::No };
        self.room = room;
        self.known.push(payload.to_vec());
        Kept::New
    }
}

/// Checks a record of `length` bytes, padded with zeros, and puts the true process into it. Whether it tells of a module.
pub(crate) fn sign(record: &mut [u8], length: usize, process: u32) -> bool {
    let is_sound = record
        .get(..length)
        .and_then(|record| Record::parse(record, 0).ok())
        .is_some_and(|view| BinaryPath::is_in(&view) && BinaryPath::parse(view.payload()).is_ok());
    let at = classic::SIZE.saturating_add(PROCESS_ID);
    match record.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        Some(place) if is_sound => {
            *place = process.to_le_bytes();
            true
        }
        _ => false,
    }
}

/// A record with another time stamp.
pub(crate) fn stamped(record: &[u8], time: i64) -> Vec<u8> {
    let mut record = record.to_vec();
    if let Some(place) = record.get_mut(TIME) {
        place.copy_from_slice(&time.to_le_bytes());
    }
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir_format::Guid;

    fn record(path: &str) -> Vec<u8> {
        let told = BinaryPath { process_id: 1, guids: vec![Guid::from_u128(7)], ..BinaryPath::default() };
        BinaryPath { path: path.to_owned(), ..told }.to_record().unwrap()
    }

    fn length_of(record: &[u8]) -> usize {
        usize::from(u16::from_le_bytes([record[0], record[1]]))
    }

    #[test]
    fn the_true_process_is_put_in_and_nothing_else_changes() {
        let before = record("/lib/x.so");
        let mut after = before.clone();
        assert!(sign(&mut after, length_of(&before), 4711));
        let view = Record::parse(&after, 0).unwrap();
        let read = BinaryPath::parse(view.payload()).unwrap();
        assert_eq!((read.process_id, &read.path[..]), (4711, "/lib/x.so"));
        after[0x38..0x3C].copy_from_slice(&before[0x38..0x3C]);
        assert_eq!(after, before);
    }

    #[test]
    fn what_is_no_such_record_is_left_alone() {
        let sound = record("/lib/x.so");
        for (at, byte) in [(4, 0x44), (6, 2), (0x18, 9), (0x3C, 200), (3, 0)] {
            let mut wrong = sound.clone();
            wrong[at] = byte;
            let before = wrong.clone();
            assert!(!sign(&mut wrong, length_of(&sound), 4711), "{at}");
            assert_eq!(wrong, before);
        }
        assert!(!sign(&mut [], 0, 1));
        assert!(!sign(&mut sound.clone(), 20, 1));
    }

    #[test]
    fn each_is_kept_once_and_all_within_bounds() {
        let mut modules = Modules::new(64 << 10);
        assert_eq!(modules.add(&record("/a")), Kept::New);
        assert_eq!(modules.add(&stamped(&record("/a"), 99)), Kept::Known);
        let mut kept = 1;
        while modules.add(&record(&format!("/{kept}/{}", "x".repeat(1000)))) == Kept::New {
            kept += 1;
            assert!(kept < 100);
        }
        assert_eq!(modules.add(&record(&"y".repeat(2000))), Kept::No);
        assert_eq!(modules.add(&record("/a")), Kept::Known);
        assert_eq!(Modules::new(4096).add(&record("/a")), Kept::No);
    }
}
