//! What two sides agree on before anything else is said.

use crate::error::{Error, Result};

/// The versions of the protocol that this library speaks: lowest, highest.
pub const VERSIONS: (u16, u16) = (1, 1);

/// The highest version that both sides speak.
pub fn common_version(theirs: (u16, u16)) -> Result<u16> {
    let version = theirs.1.min(VERSIONS.1);
    if version < theirs.0.max(VERSIONS.0) {
        return Err(Error::Version { theirs, ours: VERSIONS });
    }
    Ok(version)
}

/// Why somebody connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Registers providers and writes events.
    Provider,
    /// Starts, stops and changes sessions.
    Controller,
    /// Reads a live session.
    Consumer,
}
