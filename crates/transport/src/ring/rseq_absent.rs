//! Replacement for CPUs without an implementation of restartable sequences: every write takes the
//! lock of a ring.

use super::gate::Ticket;
use super::straight::WriteFrame;
use super::view::HotWords;

/// Returns 0: there is no area for sequences.
pub(super) fn area_offset() -> isize {
    0
}

/// Result of an attempt, always `Unavailable`; the other variants are those of the real
/// implementation.
#[allow(dead_code)]
pub(super) enum Attempt {
    Published(*mut u8, u64),
    Full(*mut u8),
    Closed,
    Unavailable,
}

/// Always returns [`Attempt::Unavailable`], as there is no area.
///
/// # Safety
/// No requirements; the signature is that of the real implementation.
pub(super) unsafe fn write(_: &HotWords, _: Ticket, _: isize, _: &WriteFrame) -> Attempt {
    Attempt::Unavailable
}
