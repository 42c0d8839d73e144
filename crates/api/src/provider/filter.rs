//! Which events pass the filters of a session.

use super::enable::Wish;
use super::registration::Slot;
use super::write::Event;

/// Whether an event that level and keyword let through passes the session's filters.
#[inline]
pub(super) fn passes(_slot: &Slot, _wish: &Wish, _event: &Event<'_>) -> bool {
    true
}

/// Whether an event that the session gets is to have a stack, as far as the session's filters decide it.
#[inline]
pub(super) fn wants_stack(_slot: &Slot, _wish: &Wish, _event: &Event<'_>) -> bool {
    true
}
