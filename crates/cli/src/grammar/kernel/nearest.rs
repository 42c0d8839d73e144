//! Suggests similar names for a mistyped word.

/// Maximum number of suggestions.
const MAX_SUGGESTIONS: usize = 3;
/// Maximum length of a word to compare, because the cost grows with the product of the lengths.
const MAX_WORD_LENGTH: usize = 64;

/// Returns names similar to a word, best first: those a few typing errors away, and those that
/// begin with it. `plain` returns the part of a name to compare.
pub(super) fn nearest(
    word: &str,
    names: impl Iterator<Item = String>,
    plain: impl Fn(&str) -> String,
) -> Vec<String> {
    if word.is_empty() || word.len() > MAX_WORD_LENGTH {
        return Vec::new();
    }
    let far = |name: &str| {
        let plain = plain(name);
        let slips = slips(word, &plain);
        let is_near = slips <= 2 && slips.saturating_mul(2) < word.chars().count().max(3);
        let is_begun = word.len() >= 3 && plain.starts_with(word);
        (is_near || is_begun).then_some(slips)
    };
    let mut near: Vec<(usize, String)> = names.filter_map(|name| Some((far(&name)?, name))).collect();
    near.sort();
    near.into_iter().map(|(_, name)| name).take(MAX_SUGGESTIONS).collect()
}

/// Returns the number of wrong, missing, extra or swapped letters.
fn slips(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut above: Vec<usize> = (0..=other.len()).collect();
    let (mut two_above, mut before) = (Vec::new(), None);
    for (row, letter) in one.chars().enumerate() {
        let mut now = vec![row.saturating_add(1)];
        for (column, its) in other.iter().enumerate() {
            let at = |row: &[usize], column: usize| row.get(column).copied().unwrap_or(usize::MAX);
            let next = column.saturating_add(1);
            let same = at(&above, column).saturating_add(usize::from(letter != *its));
            let mut least =
                same.min(at(&above, next).saturating_add(1)).min(at(&now, column).saturating_add(1));
            let left = column.checked_sub(1);
            if let Some(left) = left.filter(|left| before == Some(*its) && other.get(*left) == Some(&letter))
            {
                least = least.min(at(&two_above, left).saturating_add(1));
            }
            now.push(least);
        }
        two_above = std::mem::replace(&mut above, now);
        before = Some(letter);
    }
    above.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_count_letters_and_swaps() {
        for (one, other, count) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("swtich", "cswitch", 2),
            ("abc", "", 3),
            ("", "ab", 2),
        ] {
            assert_eq!((slips(one, other), slips(other, one)), (count, count), "{one} {other}");
        }
    }

    #[test]
    fn only_similar_names_are_suggested() {
        let near = |word: &str| {
            nearest(word, ["disk", "diskio", "net"].into_iter().map(str::to_owned), str::to_owned)
        };
        assert_eq!(near("dsk"), ["disk"]);
        assert_eq!(near("disk"), ["disk", "diskio"]);
        assert_eq!(near("x"), [""; 0]);
        assert_eq!(near(&"disk".repeat(50)), [""; 0]);
    }
}
