//! Compares values that TraceEvent printed with values that `weir` printed. The two spell numbers,
//! dates and enumerations differently.

use serde_json::Value;

/// Number of characters after which TraceEvent truncates text and adds three dots.
const TRUNCATED_CHARS: usize = 20;

/// Returns whether TraceEvent's text and our value spell the same value.
pub(super) fn values_agree(theirs: &str, ours: &Value) -> bool {
    let text = match ours {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        _ => return false,
    };
    texts_match(theirs, &text)
        || numbers_match(theirs, &text)
        || theirs.eq_ignore_ascii_case(&text)
        || (theirs == "None" && number(&text) == Some(0))
        || date(&text).is_some_and(|date| texts_match(theirs, &date))
        || flags_match(theirs, &text)
        || is_character_code(theirs, &text)
}

fn truncated_prefix(theirs: &str) -> Option<&str> {
    theirs.strip_suffix("...").filter(|prefix| prefix.chars().count() == TRUNCATED_CHARS)
}

fn texts_match(theirs: &str, ours: &str) -> bool {
    match truncated_prefix(theirs) {
        Some(prefix) => ours.starts_with(prefix) && ours.chars().count() > TRUNCATED_CHARS,
        None => theirs == ours,
    }
}

/// Parses a number in decimal, with or without separators, or in hexadecimal.
pub(super) fn number(text: &str) -> Option<i128> {
    let plain = text.replace(',', "");
    match plain.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).ok(),
        None => plain.parse().ok(),
    }
}

/// Compares numbers. TraceEvent does not distinguish signed from unsigned numbers.
fn numbers_match(theirs: &str, ours: &str) -> bool {
    let Some(our_number) = number(ours) else { return false };
    if let Some(prefix) = truncated_prefix(theirs) {
        return with_thousands_separators(our_number).starts_with(prefix);
    }
    let Some(their_number) = number(theirs) else { return false };
    let fit = |bits: u32| their_number.abs() < 1 << bits && our_number.abs() < 1 << bits;
    their_number == our_number
        || (fit(32) && their_number as u32 == our_number as u32)
        || (fit(64) && !fit(32) && their_number as u64 == our_number as u64)
}

fn with_thousands_separators(number: i128) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = if number < 0 { "-".to_owned() } else { String::new() };
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Converts `2020-07-29T00:07:10.6935923Z` to `20/07/29 00:07:10.6935923`.
pub(super) fn date(ours: &str) -> Option<String> {
    let (day, time) = ours.strip_suffix('Z')?.split_once('T')?;
    let (_, short) = day.split_at_checked(2)?;
    Some(format!("{} {time}", short.replace('-', "/")))
}

/// Compares flags in any order. TraceEvent separates them by commas, `weir` by bars.
fn flags_match(theirs: &str, ours: &str) -> bool {
    if !ours.contains('|') {
        return false;
    }
    let ours: Vec<_> = ours.split('|').collect();
    let prefix = truncated_prefix(theirs);
    let mut names: Vec<_> = prefix.unwrap_or(theirs).split([',', '|']).map(str::trim).collect();
    let last = prefix.and_then(|_| names.pop());
    names.iter().all(|name| ours.contains(name))
        && match last {
            Some(prefix) => ours.iter().any(|name| name.starts_with(prefix)) && names.len() < ours.len(),
            None => names.len() == ours.len(),
        }
}

/// Returns whether TraceEvent's text is the code of our single character.
fn is_character_code(theirs: &str, ours: &str) -> bool {
    let mut chars = ours.chars();
    let (first, second) = (chars.next(), chars.next());
    second.is_none() && first.is_some_and(|c| number(theirs) == Some(i128::from(u32::from(c))))
}

#[test]
fn values_agree_in_either_spelling() {
    let text = |t: &str| Value::from(t);
    assert!(values_agree("1,404,928", &Value::from(1_404_928)));
    assert!(values_agree("0x00187000", &text("0x187000")));
    assert!(values_agree("-1", &Value::from(u32::MAX)));
    assert!(values_agree("21/09/09 14:59:42.05...", &text("2021-09-09T14:59:42.0512345Z")));
    assert!(values_agree("DomainNeutral, Manif...", &text("DomainNeutral|Manifest")));
    assert!(values_agree("None", &Value::from(0)));
    assert!(values_agree("77", &text("M")));
    assert!(values_agree("-2,305,843,009,213,6...", &Value::from(-2_305_843_009_213_693_952_i64)));
    for (theirs, ours) in
        [("1", text("M")), ("DomainNeutral", text("DomainNeutral|Manifest")), ("", Value::from(0))]
    {
        assert!(!values_agree(theirs, &ours), "{theirs} matched {ours}");
    }
    assert!(!values_agree("0x1", &text("0x100000001")), "the upper 32 bits were ignored");
    assert!(
        !values_agree("C:\\Windows\\System32\\...", &text("C:\\Windows\\System32\\")),
        "a truncated value matched a value of the same length"
    );
}
