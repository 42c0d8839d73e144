//! Skeleton: the bytes of messages.

use super::Message;
use crate::error::Result;

impl Message {
    /// Appends the message with its head: request number, kind, length.
    pub fn encode(&self, request: u32, out: &mut Vec<u8>) -> Result<()> {
        let _ = (request, out);
        todo!()
    }

    /// From one packet: request number and message.
    pub fn decode(bytes: &[u8]) -> Result<(u32, Self)> {
        let _ = bytes;
        todo!()
    }
}
