//! An error in a text, shown with carets under its position.

use std::fmt;
use std::ops::Range;

use crate::text::plain;

/// An error in an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    /// The whole argument.
    text: String,
    /// The position, in bytes.
    at: Range<usize>,
    /// What is wrong, and what is expected there.
    reason: String,
}

impl Mistake {
    pub(super) fn new(text: &str, at: Range<usize>, reason: impl Into<String>) -> Self {
        Self { text: text.to_owned(), at, reason: reason.into() }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Positions are those of the escaped text.
        let width = |part: Option<&str>| part.map_or(0, |part| plain(part).chars().count());
        let before = width(self.text.get(..self.at.start));
        let marked = width(self.text.get(self.at.clone())).max(1);
        let (text, carets) = (plain(&self.text), "^".repeat(marked));
        write!(f, "{}\n\n    {text}\n    {:before$}{carets}", self.reason, "")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carets_are_under_the_position() {
        let mistake = Mistake::new("é:zz:5", 3..5, "no keyword");
        assert_eq!(mistake.to_string(), "no keyword\n\n    é:zz:5\n      ^^");
        let at_end = Mistake::new("A:", 2..2, "something is missing");
        assert_eq!(at_end.to_string(), "something is missing\n\n    A:\n      ^");
    }
}
