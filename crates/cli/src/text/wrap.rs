//! Wraps text for people at the width of the terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// The least number of columns for wrapped text. If the indentation leaves fewer, the lines are
/// wider than the terminal.
const MIN_COLUMNS: usize = 20;

/// Wraps a text that begins at the column `indent`, and indents the lines after the first. The text
/// is returned as it is if the output is not a terminal (`width` is `None`).
pub(super) fn wrap(text: &str, indent: usize, width: Option<usize>) -> String {
    let Some(width) = width else { return text.to_owned() };
    let columns = width.saturating_sub(indent).max(MIN_COLUMNS);
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        push_word(&mut lines, word, columns);
    }
    let lines: Vec<&str> = lines.iter().map(|line| line.trim_end()).collect();
    lines.join(&format!("\n{:indent$}", ""))
}

/// Appends a word to the last line, or to a new one. A word that is wider than a line is divided.
fn push_word(lines: &mut Vec<String>, word: &str, columns: usize) {
    let Some(line) = lines.last_mut() else { return };
    let is_first = line.is_empty();
    if is_first && word.width() <= columns {
        line.push_str(word);
        return;
    }
    if !is_first && line.width().saturating_add(1).saturating_add(word.width()) <= columns {
        line.push(' ');
        line.push_str(word);
        return;
    }
    let mut part = String::new();
    let mut used = 0_usize;
    if !is_first {
        lines.push(String::new());
    }
    for c in word.chars() {
        let char_width = c.width().unwrap_or(0);
        if used.saturating_add(char_width) > columns {
            append(lines, std::mem::take(&mut part));
            lines.push(String::new());
            used = 0;
        }
        part.push(c);
        used = used.saturating_add(char_width);
    }
    append(lines, part);
}

fn append(lines: &mut [String], part: String) {
    if let Some(line) = lines.last_mut() {
        line.push_str(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_after_the_first_are_indented() {
        let text = "one two three four five six seven";
        assert_eq!(wrap(text, 4, Some(24)), "one two three four\n    five six seven");
        assert_eq!(wrap(text, 4, Some(80)), text);
        assert_eq!(wrap(text, 4, None), text);
        assert_eq!(wrap("a  b", 4, Some(24)), "a  b", "spaces within a line stay");
        assert_eq!(wrap("", 4, Some(24)), "");
    }

    #[test]
    fn long_words_are_divided() {
        let path = "/a".repeat(25);
        let expected = format!("see\n  {}\n  {}\n  {} now", "/a".repeat(10), "/a".repeat(10), "/a".repeat(5));
        assert_eq!(wrap(&format!("see {path} now"), 2, Some(22)), expected);
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        let text = format!("日本語のとても長い名前です and {} words of {}", "x".repeat(100), "é".repeat(30));
        for width in 30..120 {
            for (index, line) in wrap(&text, 10, Some(width)).lines().enumerate() {
                let start = if index == 0 { 10 } else { 0 };
                assert!(start + line.width() <= width, "{width}: {line}");
            }
        }
    }
}
