//! The data of TraceSetInformation, TraceQueryInformation and EnumerateTraceGuidsEx: typed requests
//! and answers, and their encoding.
//!
//! ```text
//!   C buffer ──Set::from_bytes──▶ Set ──check──▶ a setting of a session or of the system
//!   C buffer ──Query::from_bytes─▶ Query ──▶ Answer ──to_bytes──▶ C buffer
//!                                   GuidInfo, GroupInfo ──to_bytes──▶ C buffer
//! ```
//!
//! The documented rules are checked in a fixed order. This module checks the rules that concern the
//! arguments of the call alone. The numbers are the status of a violation (24 ERROR_BAD_LENGTH,
//! 50 ERROR_NOT_SUPPORTED, 87 ERROR_INVALID_PARAMETER):
//!
//! 1. The class allows this call (50).
//! 2. There is a buffer (87).
//! 3. The buffer is long enough (24).
//! 4. The buffer holds whole elements (24).
//! 5. There are not too many elements (87); for group masks this comes before rule 4.
//!
//! Callers then check the number of counters ([`Set::check_counters`]), the session, the rights of
//! the client, the kind of session and the machine. At last [`Set::check`] checks the content. The
//! count in the buffer of `TracePeriodicCaptureStateListInfo` is content, so [`Set::check`] reports
//! a count that is too large for the length (24).
//!
//! The structures are those of evntrace.h, with natural alignment and little-endian numbers.

mod list;
mod query;
mod set;

pub use list::{EnableInfo, GroupInfo, GuidInfo, InstanceInfo, guids_from_bytes, guids_to_bytes};
pub use query::{Answer, CounterOwner, PmcSession, ProfileSource, Query};
pub use set::{Branches, Set};

use alloc::vec::Vec;

use crate::guid::Guid;
use crate::kernel::hook::hook_of;
use crate::spec::status::Status;
pub use crate::spec::system::GroupMask;
use crate::wire::{Put, guid_at, u8_at, u16_at, u32_at};
use crate::{Error, Result};

/// The most events of one list of `TraceStackTracingInfo` or `TraceContextRegisterInfo`.
pub const MAX_CLASSIC_EVENTS: usize = 256;
/// The most events of one `TracePmcEventListInfo`.
pub const MAX_PMC_EVENTS: usize = 4;
/// The most events of one `TraceLbrEventListInfo` or TraceConfigureLastBranchRecord.
pub const MAX_LBR_EVENTS: usize = 4;
/// The most counters of one `TraceProfileSourceConfigInfo` or `TracePmcCounterListInfo` on any
/// machine. `TraceMaxPmcCounterQuery` returns how many this machine has, and
/// [`Set::check_counters`] checks that limit.
pub const MAX_COUNTERS: usize = 255;
/// The most providers of one `TraceSetDisallowList`.
pub const MAX_DISALLOWED_PROVIDERS: usize = 1024;
/// The shortest period of `TracePeriodicCaptureStateListInfo`, in seconds.
pub const MIN_CAPTURE_STATE_SECONDS: u32 = 10;
/// The most providers of one `TracePeriodicCaptureStateListInfo`.
pub const MAX_CAPTURE_STATE_PROVIDERS: u16 = 20;

/// A kernel event (CLASSIC_EVENT_ID, 24 bytes): `00 GUID of the class │ 10 u8 type │ 11 reserved`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ClassicEventId {
    /// GUID of the event class.
    pub class: Guid,
    /// The event type within the class.
    pub opcode: u8,
}

impl ClassicEventId {
    /// Size of the structure in bytes.
    pub const SIZE: usize = 24;

    /// Parses consecutive structures; an incomplete one at the end is ignored.
    #[must_use]
    pub fn parse_list(bytes: &[u8]) -> Vec<Self> {
        parse_elements(bytes, Self::SIZE, Self::from_bytes)
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        Self { class: guid_at(bytes, 0), opcode: u8_at(bytes, 16) }
    }

    fn put(self, out: &mut Vec<u8>) {
        out.put_guid(&self.class).put_u8(self.opcode).put(&[0; 7]);
    }

    /// Returns the hook id of the event. `None` if there is no such event: its class is not a
    /// kernel class, or no event has the type.
    #[must_use]
    pub fn hook_id(&self) -> Option<u16> {
        hook_of(&self.class, self.opcode)
    }
}

/// The sampling interval of a profile source (TRACE_PROFILE_INTERVAL, 8 bytes): `0 u32 source │ 4
/// u32 interval`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProfileInterval {
    /// The id of the source.
    pub source: u32,
    /// The interval in 100 ns for the timer, in counts for a counter.
    pub interval: u32,
}

/// Providers that are asked for their state periodically (TRACE_PERIODIC_CAPTURE_STATE_INFO and the
/// GUIDs after it): `0 u32 seconds │ 4 u16 count │ 6 reserved │ 8 GUIDs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeriodicCaptureState {
    /// The period in seconds.
    pub seconds: u32,
    /// The providers that are asked.
    pub providers: Vec<Guid>,
}

/// A cache of stacks (TRACE_STACK_CACHING_INFO, 12 bytes): `0 u8 enabled │ 4 u32 bytes │ 8 u32
/// buckets`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackCaching {
    /// Whether the cache is enabled.
    pub is_enabled: bool,
    /// The size of the cache in bytes; 0 for the default.
    pub bytes: u32,
    /// The number of buckets; 0 for the default.
    pub buckets: u32,
}

impl StackCaching {
    const DEFAULT_BYTES: u32 = 1 << 20;
    const DEFAULT_BUCKETS: u32 = 4096;
    const MIN_BYTES: u32 = 64 << 10;
    const MAX_BYTES: u32 = 64 << 20;
    /// More buckets than this could not each hold a stack.
    const MAX_BUCKETS: u32 = 1 << 20;

    /// Returns the values in use: defaults for 0, within the bounds, and a power of two of buckets.
    #[must_use]
    pub fn adjust(self) -> Self {
        let or_default = |value: u32, default: u32| if value == 0 { default } else { value };
        let bytes = or_default(self.bytes, Self::DEFAULT_BYTES).clamp(Self::MIN_BYTES, Self::MAX_BYTES);
        let buckets =
            or_default(self.buckets, Self::DEFAULT_BUCKETS).min(Self::MAX_BUCKETS).next_power_of_two();
        Self { bytes, buckets, ..self }
    }
}

fn reject<T>(status: Status, reason: &'static str) -> Result<T> {
    Err(Error::Information { status, reason })
}

fn reject_length<T>(reason: &'static str) -> Result<T> {
    reject(Status::ERROR_BAD_LENGTH, reason)
}

fn reject_invalid<T>(reason: &'static str) -> Result<T> {
    reject(Status::ERROR_INVALID_PARAMETER, reason)
}

/// Parses consecutive elements of a fixed size.
fn parse_elements<T>(bytes: &[u8], size: usize, read: impl Fn(&[u8]) -> T) -> Vec<T> {
    bytes.chunks_exact(size.max(1)).map(read).collect()
}

fn put_words(words: &[u32], out: &mut Vec<u8>) {
    for word in words {
        out.put_u32(*word);
    }
}

/// Parses the buffer of `TracePeriodicCaptureStateListInfo`; `None` if it is shorter than its count
/// requires. Bytes after the GUIDs are ignored. At most one GUID more than allowed is parsed.
fn parse_capture_state(bytes: &[u8]) -> Option<PeriodicCaptureState> {
    let count = usize::from(u16_at(bytes, 4));
    let guids = bytes.get(8..)?.get(..count.checked_mul(16)?)?;
    let max_parsed = usize::from(MAX_CAPTURE_STATE_PROVIDERS).saturating_add(1);
    let listed = guids.chunks_exact(16).take(max_parsed).map(|guid| guid_at(guid, 0)).collect();
    // A provider that is listed twice is asked once. Duplicates stay in a list that is too long.
    let providers = if count < max_parsed { set::remove_duplicates(listed) } else { listed };
    Some(PeriodicCaptureState { seconds: u32_at(bytes, 0), providers })
}

#[cfg(test)]
mod tests;
