//! Instances of a class: numbers that tell transactions apart, and events about them.
//!
//! ```text
//!   class handle = generation of the registration (upper 32 bits) │ class + 1 (bits 11–31) │ slot + 1
//!
//!   a caller's header (56 bytes)      as EVENT_TRACE_HEADER, but 18 u64 class handle │ 20 u32 instance │ 24 u32 parent's │ 2C u32 flags
//!                                     30 u64 parent's class handle │ 38 data, or MOF_FIELDs
//! ```
//!
//! Which instance an event is about is told apart from the header; what the header has in these places is not looked at. The record is an
//! INSTANCE one (`traceweir_format::header::classic`), with the GUIDs of both classes in place of handles.

use std::sync::atomic::{AtomicU32, Ordering};

use traceweir_format::Guid;
use traceweir_format::header::classic;
use traceweir_format::spec::event::HeaderType;

use super::event::flag::WNODE_FLAG_TRACED_GUID;
use super::event::{Block, Head};
use super::logger::{Logger, PREFIX};
use super::{Behind, MAX_CLASSES, TraceError};
use crate::provider::{Handle, MAX_REGISTRATIONS};

/// Bytes of EVENT_INSTANCE_HEADER as a caller fills it.
const HEADER: usize = 56;
/// Where the class begins in a class handle.
const CLASS: u32 = 11;
const SLOTS: u64 = (1 << CLASS) - 1;

const _: () = assert!(MAX_REGISTRATIONS < 1 << CLASS && MAX_CLASSES < 1 << (32 - CLASS));

/// An instance of a class (EVENT_INSTANCE_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceInfo {
    /// The class, by the handle that its registration gave it.
    pub class: u64,
    /// The instance.
    pub id: u32,
}

/// The number of a class; the first one's is not that of the registration itself.
pub(super) fn class_handle(handle: Handle, class: usize) -> u64 {
    handle.to_raw() | (class as u64).saturating_add(1) << CLASS
}

/// The class behind a number.
fn class_of(class_handle: u64) -> Option<Guid> {
    let low = class_handle & 0xFFFF_FFFF;
    let handle = Handle::from_raw_of_any_kind(class_handle & !0xFFFF_FFFF | low & SLOTS)?;
    let class = usize::try_from(low >> CLASS).ok()?.checked_sub(1)?;
    handle.slot().classes().get(class).copied()
}

/// A new instance of a class, numbered from 1 in this process. A handle that no class has is ERROR_INVALID_PARAMETER.
pub fn create_instance_id(class: u64) -> Result<InstanceInfo, TraceError> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    class_of(class).ok_or(TraceError::InvalidParameter)?;
    let next = |last: u32| last.checked_add(1).unwrap_or(1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    Ok(InstanceInfo { class, id: next(last.unwrap_or(0)) })
}

/// Writes an event about an instance, and of its parent if there is one, as `TraceEventInstance` does.
pub fn trace_event_instance(
    logger: u64,
    block: &[u8],
    instance: &InstanceInfo,
    parent: Option<&InstanceInfo>,
    behind: &Behind<'_>,
) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if Block::flags_of(block, HEADER)? & WNODE_FLAG_TRACED_GUID == 0 {
        return Err(TraceError::InvalidFlags);
    }
    let block = Block::read(block, HEADER)?;
    let named = |info: &InstanceInfo| class_of(info.class).ok_or(TraceError::InvalidParameter);
    let of = Instance {
        class: named(instance)?,
        parent: parent.map(named).transpose()?.unwrap_or(Guid::NULL),
        ids: u64::from(instance.id) | parent.map_or(0, |parent| u64::from(parent.id)) << 32,
    };
    block.with_data(behind.fields, |data| write(&logger, &block.head, &of, data))
}

/// An instance as a record names it.
struct Instance {
    class: Guid,
    parent: Guid,
    ids: u64,
}

fn write(logger: &Logger, head: &Head, of: &Instance, data: &[&[u8]]) -> Result<(), TraceError> {
    let thread = logger.thread()?;
    let ([first, second, third], flags) = head.words(HeaderType::INSTANCE64, thread);
    let ([c, d], [e, f]) = (of.class.to_words().map(u64::to_le), of.parent.to_words().map(u64::to_le));
    let mut words = [0, 0, first, second, third, c, d, 0, of.ids.to_le(), e, f];
    const { assert!(PREFIX == 2 && classic::INSTANCE_SIZE == 9 * 8) };
    logger.write(thread, &mut words, classic::INSTANCE_SIZE, data, flags)
}
