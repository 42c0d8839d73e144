//! Replaces rseq.rs on CPU architectures for which it has no assembly: every write takes the lock
//! of a ring.

use super::gate::Ticket;
use super::straight::WriteFrame;
use super::view::HotWords;

/// Returns 0: there is no area for sequences.
pub(super) fn area_offset() -> isize {
    0
}

/// Result of an attempt to write, always `Unavailable`. The other variants exist because the
/// implementation in rseq.rs has them.
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
/// No requirements; the signature is that of the implementation in rseq.rs.
pub(super) unsafe fn write(_: &HotWords, _: Ticket, _: isize, _: &mut WriteFrame) -> Attempt {
    Attempt::Unavailable
}
