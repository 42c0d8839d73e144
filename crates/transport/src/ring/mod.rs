//! The ring protocol.

pub mod drain;
pub mod outlet;

pub use drain::{Damaged, Head, RegionReader, RingReader};
pub use outlet::{Failure, Gather, Outlet, RegionSource, Ticket};
