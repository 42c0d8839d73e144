//! Instances of a class: numbers that distinguish transactions, and events about them.
//!
//! ```text
//!   class handle = generation of the registration (upper 32 bits) │ class index + 1 (bits 11–31) │
//!                  slot index + 1
//!
//!   EVENT_INSTANCE_HEADER (56 bytes)  as EVENT_TRACE_HEADER, but 18 u64 class handle │
//!                                     20 u32 instance │ 24 u32 parent instance │ 2C u32 flags
//!                                     30 u64 parent's class handle │ 38 data, or MOF_FIELDs
//! ```
//!
//! The caller passes the instance and its parent as separate arguments; the handle and instance
//! fields of the header are ignored. The record has the type INSTANCE
//! (`traceweir_format::header::classic`) and contains the GUIDs of both classes.

use std::sync::atomic::{AtomicU32, Ordering};

use traceweir_format::Guid;
use traceweir_format::header::classic;
use traceweir_format::spec::event::HeaderType;

use super::event::flag::WNODE_FLAG_TRACED_GUID;
use super::event::{CallerBlock, CommonFields};
use super::logger::{Logger, PREFIX_WORDS};
use super::{MAX_CLASSES, PointerTargets, TraceError};
use crate::registration::{Handle, MAX_REGISTRATIONS};

/// Bytes of an EVENT_INSTANCE_HEADER.
const INSTANCE_HEADER_BYTES: usize = 56;
/// Bit offset of the class index in a class handle.
const CLASS_SHIFT: u32 = 11;
const SLOT_MASK: u64 = (1 << CLASS_SHIFT) - 1;

const _: () = assert!(MAX_REGISTRATIONS < 1 << CLASS_SHIFT && MAX_CLASSES < 1 << (32 - CLASS_SHIFT));

/// An instance of a class (EVENT_INSTANCE_INFO).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstanceInfo {
    /// The class handle from the registration.
    pub class: u64,
    /// Number of the instance.
    pub id: u32,
}

/// Returns the handle of a class, which always differs from the handle of the registration.
pub(super) fn class_handle(handle: Handle, class: usize) -> u64 {
    handle.to_raw() | (class as u64).saturating_add(1) << CLASS_SHIFT
}

fn find_class(class_handle: u64) -> Option<Guid> {
    let low = class_handle & 0xFFFF_FFFF;
    let handle = Handle::from_raw_any_kind(class_handle & !0xFFFF_FFFF | low & SLOT_MASK)?;
    let class = usize::try_from(low >> CLASS_SHIFT).ok()?.checked_sub(1)?;
    handle.slot().classes().get(class).copied()
}

/// Creates an instance of a class. All classes of the process share one sequence of numbers, which
/// starts at 1.
///
/// Fails with ERROR_INVALID_PARAMETER for an unknown class handle.
pub fn create_instance_id(class: u64) -> Result<InstanceInfo, TraceError> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    find_class(class).ok_or(TraceError::InvalidParameter)?;
    let next = |last: u32| last.checked_add(1).unwrap_or(1);
    let last = LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
    Ok(InstanceInfo { class, id: next(last.unwrap_or(0)) })
}

/// Writes an event about an instance, and its parent if there is one, like `TraceEventInstance`.
pub fn trace_event_instance(
    logger: u64,
    block: &[u8],
    instance: &InstanceInfo,
    parent: Option<&InstanceInfo>,
    targets: &PointerTargets<'_>,
) -> Result<(), TraceError> {
    let logger = Logger::find(logger)?;
    if CallerBlock::read_flags(block, INSTANCE_HEADER_BYTES)? & WNODE_FLAG_TRACED_GUID == 0 {
        return Err(TraceError::InvalidFlags);
    }
    let block = CallerBlock::parse(block, INSTANCE_HEADER_BYTES)?;
    let class_guid = |info: &InstanceInfo| find_class(info.class).ok_or(TraceError::InvalidParameter);
    let record_instance = RecordInstance {
        class: class_guid(instance)?,
        parent: parent.map(class_guid).transpose()?.unwrap_or(Guid::NULL),
        ids: u64::from(instance.id) | parent.map_or(0, |parent| u64::from(parent.id)) << 32,
    };
    block.with_data(targets.fields, |data| write(&logger, &block.common, &record_instance, data))
}

/// The class GUIDs and numbers of an instance and its parent, as a record contains them.
struct RecordInstance {
    class: Guid,
    parent: Guid,
    /// The number of the instance in the lower half, of its parent in the upper half.
    ids: u64,
}

fn write(
    logger: &Logger,
    common: &CommonFields,
    instance: &RecordInstance,
    data: &[&[u8]],
) -> Result<(), TraceError> {
    let thread = logger.thread()?;
    let ([first, second, third], flags) = common.to_words(HeaderType::INSTANCE64, thread);
    let [class_low, class_high] = instance.class.to_words().map(u64::to_le);
    let [parent_low, parent_high] = instance.parent.to_words().map(u64::to_le);
    let ids = instance.ids.to_le();
    // Two free words for the prefix, then the header. The 0 after the class stands for the times.
    let mut words = [0, 0, first, second, third, class_low, class_high, 0, ids, parent_low, parent_high];
    const { assert!(PREFIX_WORDS == 2 && classic::INSTANCE_SIZE == 9 * 8) };
    logger.write(thread, &mut words, classic::INSTANCE_SIZE, data, flags)
}
