//! Loggers: the numbers that name the session of a classic provider.
//!
//! ```text
//!   logger   upper 32 bits: the low half of the outlet's ticket
//!            lower 32 bits: the number of the registration (generation and slot)
//! ```
//!
//! Each opening of an outlet draws a new ticket, and the registration keeps only the enable of its
//! current session. So a logger is refused once its session has ended or another session replaced
//! it, and once its registration has ended.

use traceweir_format::header::MAX_RECORD_BYTES;
use traceweir_transport::ring::{Block, Gather, Ticket, WriteFailure};

use super::TraceError;
use crate::process::outlets;
use crate::process::thread::{self, EventWriter};
use crate::registration::Handle;

/// The number that is never a valid logger.
pub const INVALID_LOGGER: u64 = u64::MAX;

/// Words of a record's prefix.
pub(super) const PREFIX_WORDS: usize = traceweir_transport::abi::PREFIX_BYTES / 8;
/// Maximum number of data blocks of one record.
pub(super) const MAX_DATA_BLOCKS: usize = 128;

/// The outlet and enable parameters of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logger {
    outlet: u8,
    ticket: Ticket,
    level: u8,
    flags: u32,
}

/// Returns the logger of the session that has a registration enabled now.
pub(super) fn current_logger(handle: Handle) -> Option<u64> {
    let enable = handle.slot().session_enables().next()?;
    let raw = low_half(enable.ticket) << 32 | u64::from(handle.number());
    (raw != INVALID_LOGGER).then_some(raw)
}

const fn low_half(ticket: Ticket) -> u64 {
    ticket.0 & 0xFFFF_FFFF
}

/// Returns the level that the session passed, unchanged, even if it is 0.
pub fn enable_level(logger: u64) -> Result<u8, TraceError> {
    Logger::find(logger).map(|logger| logger.level)
}

/// Returns the flags that the session enabled.
pub fn enable_flags(logger: u64) -> Result<u32, TraceError> {
    Logger::find(logger).map(|logger| logger.flags)
}

impl Logger {
    /// Finds a logger by its number.
    pub(super) fn find(raw: u64) -> Result<Self, TraceError> {
        let handle = (raw != INVALID_LOGGER).then(|| Handle::from_number(raw as u32)).flatten();
        let handle = handle.filter(|handle| handle.slot().is_classic()).ok_or(TraceError::InvalidHandle)?;
        let enable = handle.slot().session_enables().find(|enable| low_half(enable.ticket) == raw >> 32);
        let enable = enable.ok_or(TraceError::InvalidHandle)?;
        // The flags of a classic provider are passed as the low half of the any-mask.
        Ok(Self {
            outlet: enable.outlet,
            ticket: enable.ticket,
            level: enable.level,
            flags: enable.any as u32,
        })
    }

    /// Returns the id of the calling thread, if it may write. In a forked child that has not
    /// registered again, events for the parent's session are lost.
    pub(super) fn thread(&self) -> Result<u32, TraceError> {
        match thread::identify_writer() {
            EventWriter::Thread(thread) => Ok(thread),
            EventWriter::Forked(inherited) if inherited & (1 << self.outlet) != 0 => {
                self.count_lost_event(TraceError::NoRoom)
            }
            EventWriter::Forked(_) => Ok(thread::thread_id()),
        }
    }

    /// Counts an event as lost and returns the error.
    #[cold]
    fn count_lost_event<T>(&self, reason: TraceError) -> Result<T, TraceError> {
        outlets::get(self.outlet).count_lost(self.ticket);
        Err(reason)
    }

    /// Writes a record: a header of `header_bytes` bytes, which `words` contains after
    /// [`PREFIX_WORDS`] free words, then at most [`MAX_DATA_BLOCKS`] blocks of data. Stores the
    /// record's size in the first two bytes of the header.
    pub(super) fn write(
        &self,
        thread: u32,
        words: &mut [u64],
        header_bytes: usize,
        data: &[&[u8]],
        flags: u16,
    ) -> Result<(), TraceError> {
        let size = data.iter().fold(header_bytes, |sum, block| sum.saturating_add(block.len()));
        let Some(first) = words.get_mut(PREFIX_WORDS).filter(|_| data.len() <= MAX_DATA_BLOCKS) else {
            return Err(TraceError::InvalidParameter);
        };
        if size > MAX_RECORD_BYTES {
            return self.count_lost_event(TraceError::MoreData);
        }
        *first |= (size as u64).to_le();
        let staged = words.get_mut(..PREFIX_WORDS + header_bytes.div_ceil(8));
        let staged = staged.ok_or(TraceError::InvalidParameter)?;
        let rest = Block::from_slices(data);
        let mut record = Gather { staged, staged_bytes: header_bytes, further_parts: rest, flags };
        outlets::get(self.outlet).write(self.ticket, thread, &mut record).map_err(|failure| match failure {
            // The session has ended since the lookup: its logger is not valid any more.
            WriteFailure::Closed => TraceError::InvalidHandle,
            // The documented functions have no better code for a session whose buffers are full.
            WriteFailure::Full | WriteFailure::OwnerFull => TraceError::NoRoom,
            WriteFailure::TooLarge => TraceError::MoreData,
        })
    }
}
