//! Skeleton: activity ids of threads (EventActivityIdControl).

use traceweir_format::Guid;

/// The thread's activity id.
#[must_use]
pub fn current() -> Guid {
    todo!()
}

/// Sets the thread's activity id and returns the one before.
pub fn set(id: Guid) -> Guid {
    let _ = id;
    todo!()
}

/// A new id, unique on the machine until it restarts.
#[must_use]
pub fn create() -> Guid {
    todo!()
}
