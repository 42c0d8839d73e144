//! Text for people and scripts: escapes, counts, tables, JSON objects, and values as users type
//! them. All other modules may use this module; it uses none of them.

mod json;
mod similar;
mod style;
mod table;
mod time_zone;
mod wrap;

pub(crate) use json::{JsonObject, json_array};
pub(crate) use similar::{find_similar_names, format_question, suggest_names};
pub(crate) use style::{ColorChoice, Paint, TerminalStyle, allows_colours, set_color_choice};
pub(crate) use table::{ColumnKind, format_table, format_table_of, join_lines};
pub(crate) use time_zone::TimeZone;
pub(crate) use traceweir_analysis::text::{
    EXPECTED_LEVEL, Moment, escape, escape_path, format_count, format_number, matches_pattern,
    parse_duration, parse_level, parse_mask, parse_moment,
};

/// Escapes text of several lines, such as an error with an illustration.
pub(crate) fn escape_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(escape).collect();
    lines.join("\n")
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

/// Formats a number of events, and the number of events that describe the log file, which the first
/// number does not include: "3 events and 1 of the file itself".
pub(crate) fn format_events(events: u64, file_events: u64) -> String {
    match file_events {
        0 => format_count(events, "event"),
        count => format!("{} and {} of the file itself", format_count(events, "event"), format_number(count)),
    }
}

/// Formats a number with one decimal and thousands separators.
pub(crate) fn format_tenths(value: f64) -> String {
    let tenths = (value * 10.0).round().max(0.0) as u64;
    format!("{}.{}", format_number(tenths / 10), tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_separators_and_the_right_number() {
        assert_eq!(format_events(1, 0), "1 event");
        assert_eq!(format_events(1_000, 1), "1,000 events and 1 of the file itself");
        assert_eq!((format_tenths(2195.12), format_tenths(0.0)), ("2,195.1".to_owned(), "0.0".to_owned()));
    }

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
