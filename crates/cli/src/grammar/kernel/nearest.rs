//! Suggests similar names for a mistyped word.

const MAX_SUGGESTIONS: usize = 3;
/// Maximum length of a word to compare, because the cost grows with the product of the lengths.
const MAX_WORD_BYTES: usize = 64;
const MAX_TYPOS: usize = 2;
/// Minimum length of a word that is compared with the beginnings of names.
const MIN_PREFIX_BYTES: usize = 3;

/// Returns names similar to a word, best first: names with a few typing errors, and names that
/// begin with the word. `normalize` returns the part of a name to compare.
pub(super) fn find_similar_names(
    word: &str,
    names: impl Iterator<Item = String>,
    normalize: impl Fn(&str) -> String,
) -> Vec<String> {
    if word.is_empty() || word.len() > MAX_WORD_BYTES {
        return Vec::new();
    }
    let similar_distance = |name: &str| {
        let normalized = normalize(name);
        let distance = edit_distance(word, &normalized);
        let is_mostly_right = distance.saturating_mul(2) < word.chars().count().max(3);
        let has_few_typos = distance <= MAX_TYPOS && is_mostly_right;
        let is_prefix = word.len() >= MIN_PREFIX_BYTES && normalized.starts_with(word);
        (has_few_typos || is_prefix).then_some(distance)
    };
    let mut similar: Vec<(usize, String)> =
        names.filter_map(|name| Some((similar_distance(&name)?, name))).collect();
    similar.sort();
    similar.into_iter().map(|(_, name)| name).take(MAX_SUGGESTIONS).collect()
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

    #[test]
    fn only_similar_names_are_suggested() {
        let suggest = |word: &str| {
            find_similar_names(word, ["disk", "diskio", "net"].into_iter().map(str::to_owned), str::to_owned)
        };
        assert_eq!(suggest("dsk"), ["disk"]);
        assert_eq!(suggest("disk"), ["disk", "diskio"]);
        assert_eq!(suggest("x"), [""; 0]);
        assert_eq!(suggest(&"disk".repeat(50)), [""; 0]);
    }
}
