//! Ids that a session assigns.

/// Identifies a region of the session, and so the process that writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RegionId(pub u64);

/// Identifies a live consumer of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerId(pub u64);
