//! Patterns of provider names: `Contoso.*`, `*`.
//!
//! A `*` stands for any number of characters. Case is ignored, as in the hash of a provider name.
//! A name without `*` is no pattern. A pattern of stars alone also matches providers without a
//! name.

/// Returns whether a name is a pattern.
#[must_use]
pub fn is_pattern(name: &str) -> bool {
    name.contains('*')
}

/// Returns whether a pattern matches a provider name.
///
/// ```
/// use traceweir_format::name_pattern::is_match;
/// assert!(is_match("Contoso.*", "contoso.Shop") && is_match("*", ""));
/// assert!(!is_match("Contoso.*", "Fabrikam.Shop"));
/// ```
#[must_use]
pub fn is_match(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // The pattern after the last `*`, and the name up to which that `*` matches so far.
    let mut retry = None;
    loop {
        let name_before = name.clone();
        match (pattern.next(), name.next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                name = name_before.clone();
                retry = Some((pattern.clone(), name_before));
            }
            (Some(expected), Some(found)) if to_upper(expected) == to_upper(found) => {}
            _ => {
                let Some((after_star, mut from)) = retry else { return false };
                if from.next().is_none() {
                    return false;
                }
                pattern = after_star.clone();
                name = from.clone();
                retry = Some((after_star, from));
            }
        }
    }
}

/// Returns the upper case of a character where that is one character, as for the hash of a name.
fn to_upper(c: char) -> char {
    let mut upper = c.to_uppercase();
    match (upper.next(), upper.next()) {
        (Some(upper), None) => upper,
        _ => c,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_match_any_text_and_case_is_ignored() {
        for (pattern, name, expected) in [
            ("Contoso.*", "Contoso.Shop", true),
            ("contoso.*", "CONTOSO.", true),
            ("Contoso.*", "Contoso", false),
            ("*.Shop", "Contoso.Shop", true),
            ("*.Shop", "Contoso.Shop.Orders", false),
            ("*Shop*", "Contoso.Shop.Orders", true),
            ("C*S*p", "Contoso.Shop", true),
            ("C*S*p", "Contoso.Shops", false),
            ("*", "", true),
            ("**", "", true),
            ("a*", "", false),
            ("", "", true),
            ("Äpfel*", "äPFEL.1", true),
            ("*aab", "aaab", true),
        ] {
            assert_eq!(is_match(pattern, name), expected, "{pattern} on {name}");
        }
    }
}
