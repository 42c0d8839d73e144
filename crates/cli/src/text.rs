//! Text for people and scripts: escapes, counts, tables, JSON objects, and values as users type
//! them. All other modules may use this module; it uses none of them.

mod json;
mod parse;
mod similar;
mod table;

pub(crate) use json::{JsonObject, json_array};
pub(crate) use parse::{
    EXPECTED_LEVEL, Moment, matches_pattern, parse_duration, parse_level, parse_mask, parse_moment,
};
pub(crate) use similar::{find_similar_names, format_question, suggest_names};
pub(crate) use table::{format_table, join_lines};

/// Escapes untrusted text for one line of a terminal.
pub(crate) fn escape(text: &str) -> String {
    let mut out = Vec::new();
    traceweir_decode::format::push_escaped_text(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes text of several lines, such as an error with an illustration.
pub(crate) fn escape_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escape).collect();
    lines.join("\n")
}

/// Escapes a path for one line of a terminal.
pub(crate) fn escape_path(path: &std::path::Path) -> String {
    escape(&path.display().to_string())
}

/// Quotes a word of a command line, if a shell would split or interpret it.
pub(crate) fn quote_for_shell(word: &str) -> String {
    let word = escape(word);
    let is_plain = |c: char| {
        c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | '+' | ':' | '@' | '%' | ',' | '=')
    };
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

pub(crate) fn quote_path_for_shell(path: &std::path::Path) -> String {
    quote_for_shell(&path.display().to_string())
}

/// Formats a count with its noun, in plural where needed: "3 events".
pub(crate) fn format_count(n: u64, noun: &str) -> String {
    let ending = match n {
        1 => "",
        _ if ["s", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", format_number(n))
}

/// Formats a number with thousands separators.
pub(crate) fn format_number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_words_are_quoted_where_needed() {
        for (word, quoted) in [
            ("App", "App"),
            ("/tmp/a-b_1.etl", "/tmp/a-b_1.etl"),
            ("My App", "'My App'"),
            ("it's", r"'it'\''s'"),
            ("a;b", "'a;b'"),
            ("", "''"),
        ] {
            assert_eq!(quote_for_shell(word), quoted, "{word}");
        }
    }
}
