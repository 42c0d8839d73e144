//! Suggests similar names for a mistyped word.

use std::cmp::Reverse;

const MAX_SUGGESTIONS: usize = 3;
/// Maximum length of a word to compare, because the cost grows with the product of the lengths.
const MAX_WORD_BYTES: usize = 64;
/// Maximum number of names to compare; the number of providers and sessions has no fixed limit.
const MAX_NAMES: usize = 10_000;
const MAX_TYPOS: usize = 2;
/// Minimum length of a word that may have one more typing error.
const LONG_WORD_CHARS: usize = 12;
/// Minimum length of a word that is compared with the beginnings of names.
const MIN_PREFIX_BYTES: usize = 3;
/// Minimum number of letters and digits of a name that is compared with the beginning of the word.
const MIN_STEM_CHARS: usize = 4;

/// Returns names similar to a word, best first: names with a few typing errors, names that begin
/// with the word, and names that the word begins with. Two wrong letters at the start make another
/// word: `export` is not a mistyped `report`. Of names with equally many errors, those with the longer common beginning
/// come first. `normalize` returns the part of a name to compare.
pub(crate) fn find_similar_names(
    word: &str,
    names: impl Iterator<Item = String>,
    normalize: impl Fn(&str) -> String,
) -> Vec<String> {
    let word = normalize(word);
    if word.is_empty() || word.len() > MAX_WORD_BYTES {
        return Vec::new();
    }
    let word_chars = word.chars().count();
    let max_typos = if word_chars < LONG_WORD_CHARS { MAX_TYPOS } else { MAX_TYPOS + 1 };
    let rank = |name: &str| {
        let normalized = normalize(name);
        if normalized.len() > 2 * MAX_WORD_BYTES {
            return None;
        }
        let distance = edit_distance(&word, &normalized);
        let is_mostly_right = distance.saturating_mul(2) < word_chars.max(3);
        let has_other_start = distance > 1
            && word_chars == normalized.chars().count()
            && word.chars().zip(normalized.chars()).take(2).all(|(a, b)| a != b);
        let has_few_typos = distance <= max_typos && is_mostly_right && !has_other_start;
        let is_stem = word.starts_with(&normalized)
            && normalized.chars().filter(|c| c.is_alphanumeric()).count() >= MIN_STEM_CHARS;
        let is_prefix = word.len() >= MIN_PREFIX_BYTES && normalized.starts_with(&word);
        let common_chars = word.chars().zip(normalized.chars()).take_while(|(a, b)| a == b).count();
        (has_few_typos || is_prefix || is_stem).then_some((distance, Reverse(common_chars)))
    };
    let mut similar: Vec<_> = names.take(MAX_NAMES).filter_map(|name| Some((rank(&name)?, name))).collect();
    similar.sort();
    similar.dedup();
    similar.into_iter().map(|(_, name)| name).take(MAX_SUGGESTIONS).collect()
}

/// Returns the question "Did you mean A or B?" for the names similar to a word, without regard to
/// case; `None` if no name is similar.
pub(crate) fn suggest_names<N: Into<String>>(
    word: &str,
    names: impl IntoIterator<Item = N>,
) -> Option<String> {
    let similar = find_similar_names(word, names.into_iter().map(Into::into), str::to_lowercase);
    format_question(&similar)
}

/// Formats suggestions as a question; `None` if there are none.
pub(crate) fn format_question(similar: &[String]) -> Option<String> {
    let escaped: Vec<String> = similar.iter().map(|name| super::escape(name)).collect();
    (!escaped.is_empty()).then(|| format!("Did you mean {}?", escaped.join(" or ")))
}

/// Returns the number of wrong, missing, extra or swapped letters.
fn edit_distance(word: &str, name: &str) -> usize {
    let name: Vec<char> = name.chars().collect();
    let mut above: Vec<usize> = (0..=name.len()).collect();
    let (mut two_rows_above, mut previous_letter) = (Vec::new(), None);
    for (row, letter) in word.chars().enumerate() {
        let mut current = vec![row.saturating_add(1)];
        for (column, name_letter) in name.iter().enumerate() {
            let cell = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX);
            let next = column.saturating_add(1);
            let replaced = cell(&above, column).saturating_add(usize::from(letter != *name_letter));
            let mut least = replaced
                .min(cell(&above, next).saturating_add(1))
                .min(cell(&current, column).saturating_add(1));
            let left = column.checked_sub(1);
            if let Some(left) =
                left.filter(|left| previous_letter == Some(*name_letter) && name.get(*left) == Some(&letter))
            {
                least = least.min(cell(&two_rows_above, left).saturating_add(1));
            }
            current.push(least);
        }
        two_rows_above = std::mem::replace(&mut above, current);
        previous_letter = Some(letter);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distance_counts_letters_and_swaps() {
        for (word, name, count) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("swtich", "cswitch", 2),
            ("abc", "", 3),
            ("", "ab", 2),
        ] {
            assert_eq!(
                (edit_distance(word, name), edit_distance(name, word)),
                (count, count),
                "{word} {name}"
            );
        }
    }

    fn suggest(word: &str, names: &[&str]) -> Vec<String> {
        find_similar_names(word, names.iter().map(|name| (*name).to_owned()), str::to_lowercase)
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let names = ["disk", "diskio", "net"];
        assert_eq!(suggest("dsk", &names), ["disk"]);
        assert_eq!(suggest("Disk", &names), ["disk", "diskio"]);
        assert_eq!(suggest("x", &names), [""; 0]);
        assert_eq!(suggest(&"disk".repeat(50), &names), [""; 0]);
    }

    #[test]
    fn fewest_errors_come_first_then_the_longest_common_beginning() {
        let verbs = ["relog", "repair", "report", "record", "stop", "start", "stats"];
        assert_eq!(suggest("recrod", &verbs), ["record"]);
        assert_eq!(suggest("reprot", &verbs), ["report"]);
        assert_eq!(suggest("stat", &verbs), ["stats", "start"]);
        assert_eq!(suggest("stap", &verbs), ["stop"]);
    }

    #[test]
    fn word_may_begin_with_a_name_but_not_with_two_other_letters() {
        let verbs = ["report", "flame", "ask", "record"];
        assert_eq!(suggest("flamegraph", &verbs), ["flame"]);
        assert_eq!(suggest("asking", &verbs), [""; 0]);
        assert_eq!(suggest("export", &verbs), [""; 0]);
        assert_eq!(suggest("eport", &verbs), ["report"]);
        assert_eq!(suggest("erport", &verbs), ["report"]);
    }

    #[test]
    fn long_names_may_have_three_errors() {
        assert_eq!(suggest("Contso.Paymets.Gatway", &["Contoso.Payments.Gateway"]).len(), 1);
        assert_eq!(suggest("Contoso.Orders", &["Fabrikam.Orders"]), [""; 0]);
    }

    #[test]
    fn question_names_all_suggestions() {
        assert_eq!(suggest_names("stat", ["start", "stats"]).unwrap(), "Did you mean stats or start?");
        assert_eq!(suggest_names("zzz", ["stop"]), None);
    }
}
