//! Where no restartable sequence is written for the processor: every write takes the lock of a ring.

use super::outlet::{Outlet, Ticket};
use super::straight::Frame;

/// Where the sequence's area is, relative to the thread pointer; 0: nowhere.
pub(super) fn area_offset() -> isize {
    0
}

/// What becomes of an attempt; the others are those of the real one.
#[allow(dead_code)]
pub(super) enum Attempt {
    Published(*mut u8, u64),
    Full(*mut u8),
    Closed,
    Unfit,
}

/// Never fits, as there is no area.
///
/// # Safety
/// None is needed; the signature is that of the real one.
pub(super) unsafe fn write(_: &Outlet, _: Ticket, _: isize, _: &Frame) -> Attempt {
    Attempt::Unfit
}
