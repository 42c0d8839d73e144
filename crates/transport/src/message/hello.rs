//! Protocol versions and roles, which a client and a daemon exchange first.

use crate::error::{Error, Result};

/// Lowest and highest protocol version that this library supports.
pub const VERSIONS: (u16, u16) = (1, 1);

/// Returns the highest version that this library and the peer support. Ranges are the lowest and
/// the highest version.
pub fn common_version(theirs: (u16, u16)) -> Result<u16> {
    let version = theirs.1.min(VERSIONS.1);
    if version < theirs.0.max(VERSIONS.0) {
        return Err(Error::Version { theirs, ours: VERSIONS });
    }
    Ok(version)
}

/// The role of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers providers and writes events.
    Provider,
    /// Starts, stops and changes sessions.
    Controller,
    /// Reads a live session.
    Consumer,
}
