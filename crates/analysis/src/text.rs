//! Text for people: escapes and counts; and values as users type them.

mod parse;

pub use parse::{
    EXPECTED_LEVEL, Moment, matches_pattern, parse_duration, parse_level, parse_mask, parse_moment,
};

/// Escapes untrusted text for one line of a terminal.
pub fn escape(text: &str) -> String {
    let mut out = Vec::new();
    traceweir_decode::format::push_escaped_text(text.as_bytes(), &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// Escapes a path for one line of a terminal.
pub fn escape_path(path: &std::path::Path) -> String {
    escape(&path.display().to_string())
}

/// Formats a count with its noun, in plural where needed: "3 events".
pub fn format_count(n: u64, noun: &str) -> String {
    if n != 1
        && let Some(stem) = noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'i', 'o', 'u']))
    {
        return format!("{} {stem}ies", format_number(n));
    }
    let ending = match n {
        1 => "",
        _ if ["s", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", format_number(n))
}

/// Formats a number with thousands separators.
pub fn format_number(n: u64) -> String {
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
    fn counts_have_separators_and_the_right_number() {
        assert_eq!(format_count(0, "event"), "0 events");
        assert_eq!(format_count(1, "process"), "1 process");
        assert_eq!(format_count(1_234_567, "flush"), "1,234,567 flushes");
        assert_eq!(format_count(2, "entry"), "2 entries");
        assert_eq!(format_count(2, "key"), "2 keys");
    }
}
