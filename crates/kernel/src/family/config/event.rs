//! An event about the machine, before it is written.

use traceweir_format::wire::Put;

/// An event about the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConfigEvent {
    pub(super) hook: u16,
    pub(super) version: u8,
    pub(super) payload: Vec<u8>,
}

impl ConfigEvent {
    pub(super) const fn new(hook: u16, version: u8, payload: Vec<u8>) -> Self {
        Self { hook, version, payload }
    }
}

/// Appends text in a field of `units` UTF-16 units, filled with NULs, at least one. Text that is
/// too long is cut between characters.
pub(super) fn put_wide(out: &mut Vec<u8>, text: &str, units: usize) {
    let mut left = units;
    for character in text.chars() {
        let Some(rest) = left.checked_sub(character.len_utf16()).filter(|rest| *rest > 0) else { break };
        left = rest;
        for unit in character.encode_utf16(&mut [0; 2]) {
            out.put_u16(*unit);
        }
    }
    for _ in 0..left {
        out.put_u16(0);
    }
}
