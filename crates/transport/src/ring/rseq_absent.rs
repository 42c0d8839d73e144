//! Where no restartable sequence is written for the processor: every write takes the lock of a ring.

use super::Outcome;
use super::gather::Gather;
use super::outlet::{Outlet, Ticket};
use super::view::View;

/// Where the sequence's area is, relative to the thread pointer; 0: nowhere.
pub(super) fn area_offset() -> isize {
    0
}

/// Never fits, as there is no area.
///
/// # Safety
/// None is needed; the signature is that of the real one.
pub(super) unsafe fn write(_: &Outlet, _: Ticket, _: &View, _: &mut Gather<'_>, _: usize) -> Outcome {
    Outcome::Unfit
}
