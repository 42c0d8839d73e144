//! Messages of events, with their fields filled in.

use traceweir_decode::expand::MessageExpander;
use traceweir_decode::format::Style;
use traceweir_decode::source::SchemaMatch;

/// The most bytes of a message.
const MAX_MESSAGE_BYTES: usize = 64 << 10;

/// Expands messages, with a buffer that is used again.
#[derive(Default)]
pub(crate) struct MessageReader {
    expander: MessageExpander,
    message: Vec<u8>,
}

impl MessageReader {
    /// Returns the message of an event; `None` if it has none.
    pub(crate) fn read(&mut self, schema: &SchemaMatch<'_, '_>, pointer_size: usize) -> Option<String> {
        self.message.clear();
        // If the payload ends early, the message keeps the placeholders of later fields.
        let _ = self.expander.expand(schema, pointer_size, Style::default(), &mut self.message)?;
        self.message.truncate(MAX_MESSAGE_BYTES);
        Some(String::from_utf8_lossy(&self.message).trim().to_owned()).filter(|message| !message.is_empty())
    }
}
