//! An error in an argument, shown with carets under its position.

use std::fmt;
use std::ops::Range;

use crate::text::escape;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ArgumentError {
    /// The complete argument.
    text: String,
    /// Byte range of the error in the argument.
    range: Range<usize>,
    /// The error, and what is expected at the position.
    reason: String,
}

impl ArgumentError {
    pub(super) fn new(text: &str, range: Range<usize>, reason: impl Into<String>) -> Self {
        Self { text: text.to_owned(), range, reason: reason.into() }
    }
}

impl fmt::Display for ArgumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The carets are placed under the escaped text.
        let count_chars = |part: Option<&str>| part.map_or(0, |part| escape(part).chars().count());
        let before = count_chars(self.text.get(..self.range.start));
        let marked = count_chars(self.text.get(self.range.clone())).max(1);
        let (text, carets) = (escape(&self.text), "^".repeat(marked));
        write!(f, "{}\n\n    {text}\n    {:before$}{carets}", self.reason, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_are_under_the_position() {
        let error = ArgumentError::new("é:zz:5", 3..5, "no keyword");
        assert_eq!(error.to_string(), "no keyword\n\n    é:zz:5\n      ^^");
        let at_end = ArgumentError::new("A:", 2..2, "something is missing");
        assert_eq!(at_end.to_string(), "something is missing\n\n    A:\n      ^");
    }
}
