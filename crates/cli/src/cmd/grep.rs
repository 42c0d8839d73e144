//! Looks for text in events, whatever the form in which they are written.

use memchr::memmem;
use traceweir_decode::format::Style;

use crate::export::{Sink, Text};
use crate::filter::Filter;
use crate::traces::Event;

/// Finds the text of `--grep`, without regard to case, in the line of text that an event makes.
pub(super) struct Grep<'f> {
    finder: Option<memmem::Finder<'f>>,
    /// Renders events that are not written as plain text.
    text: Option<Text>,
    line: Vec<u8>,
}

impl<'f> Grep<'f> {
    /// With `written_is_text` the bytes given to [`Grep::accepts`] are the line itself.
    pub(super) fn new(filter: &'f Filter, style: Style, written_is_text: bool) -> Self {
        let finder = filter.grep.as_ref().map(|t| memmem::Finder::new(t.as_bytes()));
        let text = (finder.is_some() && !written_is_text).then(|| Text::new(style, false));
        Self { finder, text, line: Vec::new() }
    }

    /// Whether an event, written as `written`, holds the text.
    pub(super) fn accepts(&mut self, event: &Event<'_>, written: &[u8]) -> bool {
        let Some(finder) = &self.finder else { return true };
        self.line.clear();
        match &mut self.text {
            Some(text) => {
                text.event(event, &mut self.line);
            }
            None => self.line.extend_from_slice(written),
        }
        let lower = String::from_utf8_lossy(&self.line).to_lowercase();
        finder.find(lower.as_bytes()).is_some()
    }
}
