//! Identifiers from arbitrary names.
//!
//! | Name | C name | Constant | Rust function or argument | Rust type |
//! |---|---|---|---|---|
//! | `ut:LowVolume` | `LowVolume` | `LOW_VOLUME` | `low_volume` | `LowVolume` |
//! | `Microsoft-Quic` | `Microsoft_Quic` | `MICROSOFT_QUIC` | `microsoft_quic` | `MicrosoftQuic` |
//! | `1st type` | `_1st_type` | `_1ST_TYPE` | `_1st_type` | `_1stType` |
//!
//! Constants have this form in both languages, in C after a prefix. Keywords of C, C++ and Rust get
//! an underscore after them, and a name that is already used in its scope gets a number.

use std::borrow::Cow;
use std::collections::HashMap;

/// Keywords of C and C++, and macros that any header may define.
const C_KEYWORDS: &str = " alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t \
    char8_t class co_await co_return co_yield compl concept const const_cast consteval constexpr constinit continue decltype \
    default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline int \
    linux long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register \
    reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast struct switch \
    template this thread_local throw true try typedef typeid typename typeof union unix unsigned using virtual void volatile \
    wchar_t while xor xor_eq NULL TRUE FALSE EOF errno stdin stdout stderr assert IN OUT INOUT OPTIONAL VOID BOOL BYTE \
    WORD DWORD GUID SID CONST ";

/// Keywords of Rust.
const RUST_KEYWORDS: &str = " abstract as async await become box break const continue crate do dyn else enum extern false final fn \
    for gen if impl in let loop macro match mod move mut override priv pub ref return self Self static struct super trait \
    true try type typeof union unsafe unsized use virtual where while yield ";

/// Number of characters that are kept of a longer name. An underscore and a hash of the complete
/// name follow, so that cut names stay distinct.
///
/// Names are combined with others, so long ones would make a header many times as long as its
/// manifest. A symbol is never cut in C, because programs use it as the manifest spells it
/// ([`to_c_symbol`]).
const MAX_NAME_CHARS: usize = 200;

/// Returns the name, or the start of a long name with its hash (FNV-1a).
fn shorten(name: &str) -> Cow<'_, str> {
    let Some((end, _)) = name.char_indices().nth(MAX_NAME_CHARS) else { return name.into() };
    let step = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3);
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325, step);
    format!("{}_{hash:016x}", name.get(..end).unwrap_or_default()).into()
}

/// The names used in one scope, each with the last number that was appended to it.
///
/// The number saves a search: a repeated name becomes unique as fast as a new one.
#[derive(Default)]
pub(crate) struct UsedNames(HashMap<String, u32>);

impl UsedNames {
    /// Marks exactly this name as used. Unlike [`Self::make_unique`], this appends no number.
    pub(crate) fn reserve(&mut self, name: &str) {
        self.0.entry(name.to_owned()).or_insert(1);
    }

    /// Returns the name, with a number appended if it is used already.
    pub(crate) fn make_unique(&mut self, name: String) -> String {
        self.make_unique_with(name, &[""])
    }

    /// Like [`Self::make_unique`], for a name that is used with each of several endings: the result
    /// is unused with all of them.
    pub(crate) fn make_unique_with(&mut self, name: String, endings: &[&str]) -> String {
        let mut number = self.0.get(&name).copied().unwrap_or(0).max(1);
        let mut candidate = name.clone();
        while endings.iter().any(|ending| self.0.contains_key(&format!("{candidate}{ending}"))) {
            number = number.saturating_add(1);
            candidate = format!("{name}_{number}");
        }
        for ending in endings {
            self.0.entry(format!("{candidate}{ending}")).or_insert(1);
        }
        self.0.insert(name, number);
        candidate
    }
}

/// Splits a name into words: runs of letters and digits, split again where camel case starts a
/// word.
fn split_words(name: &str) -> Vec<String> {
    let name = name.rsplit_once(':').map_or(name, |(_, local)| local);
    let chars: Vec<char> = shorten(name).chars().collect();
    let mut words: Vec<String> = Vec::new();
    let mut in_word = false;
    for (index, &c) in chars.iter().enumerate() {
        if !c.is_ascii_alphanumeric() {
            in_word = false;
            continue;
        }
        let before = index.checked_sub(1).and_then(|i| chars.get(i)).copied().unwrap_or(' ');
        let after = chars.get(index.saturating_add(1)).copied().unwrap_or(' ');
        let starts_word = c.is_ascii_uppercase()
            && (before.is_ascii_lowercase()
                || before.is_ascii_digit()
                || (before.is_ascii_uppercase() && after.is_ascii_lowercase()));
        match words.last_mut() {
            Some(word) if in_word && !starts_word => word.push(c),
            _ => words.push(c.to_string()),
        }
        in_word = true;
    }
    words
}

/// Returns an identifier with a valid first character. An empty identifier becomes `unnamed`,
/// whatever the style.
fn fix_first_char(identifier: String) -> String {
    match identifier.chars().next() {
        Some(c) if c.is_ascii_digit() => format!("_{identifier}"),
        Some(_) => identifier,
        None => "unnamed".to_owned(),
    }
}

fn avoid_keyword(list: &str, identifier: String) -> String {
    if list.contains(&format!(" {identifier} ")) { format!("{identifier}_") } else { identifier }
}

/// Returns a name in the style `LOW_VOLUME`.
pub(crate) fn to_constant_name(name: &str) -> String {
    fix_first_char(split_words(name).join("_").to_ascii_uppercase())
}

/// Returns a name in the style `low_volume`.
pub(crate) fn to_snake_case(name: &str) -> String {
    avoid_keyword(RUST_KEYWORDS, fix_first_char(split_words(name).join("_").to_ascii_lowercase()))
}

/// Returns a name in the style `LowVolume`.
pub(crate) fn to_camel_case(name: &str) -> String {
    let mut out = String::new();
    for word in split_words(name) {
        let mut chars = word.chars();
        out.extend(chars.next().map(|c| c.to_ascii_uppercase()));
        out.push_str(chars.as_str());
    }
    avoid_keyword(RUST_KEYWORDS, fix_first_char(out))
}

/// Returns the name with underscores for characters that C does not allow.
pub(crate) fn to_c_name(name: &str) -> String {
    to_c_symbol(&shorten(name.rsplit_once(':').map_or(name, |(_, local)| local)))
}

/// Like [`to_c_name`], at any length: the symbol that the manifest gives to programs.
pub(crate) fn to_c_symbol(name: &str) -> String {
    let name = name.rsplit_once(':').map_or(name, |(_, local)| local);
    let cleaned = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    avoid_keyword(C_KEYWORDS, fix_first_char(cleaned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_style_of_each_language() {
        for (name, expected) in [
            ("ut:LowVolume", ["LOW_VOLUME", "low_volume", "LowVolume", "LowVolume"]),
            ("Microsoft-Quic", ["MICROSOFT_QUIC", "microsoft_quic", "MicrosoftQuic", "Microsoft_Quic"]),
            ("1st type", ["_1ST_TYPE", "_1st_type", "_1stType", "_1st_type"]),
            ("type", ["TYPE", "type_", "Type", "type"]),
            ("int", ["INT", "int", "Int", "int_"]),
            ("é", ["unnamed", "unnamed", "unnamed", "_"]),
            ("QUICConnID", ["QUIC_CONN_ID", "quic_conn_id", "QUICConnID", "QUICConnID"]),
            ("", ["unnamed", "unnamed", "unnamed", "unnamed"]),
        ] {
            assert_eq!(
                [to_constant_name(name), to_snake_case(name), to_camel_case(name), to_c_name(name)],
                expected
            );
        }
    }

    #[test]
    fn long_names_stay_distinct() {
        let long = "ü1Name-".repeat(100);
        let long_names = [format!("{long}A"), format!("{long}B")];
        for to_identifier in [to_constant_name, to_snake_case, to_camel_case, to_c_name] {
            let identifiers = long_names.each_ref().map(|name| to_identifier(name));
            assert_ne!(identifiers[0], identifiers[1]);
            assert!(
                identifiers.iter().all(|name| name.len() < 2 * MAX_NAME_CHARS && name.is_ascii()),
                "{identifiers:?}"
            );
            assert_eq!(identifiers[0], to_identifier(&long_names[0]), "equal names must be cut alike");
        }
        let exact = "x".repeat(MAX_NAME_CHARS);
        assert_eq!((to_c_name(&exact), to_c_name(&format!("{exact}x")).len()), (exact, MAX_NAME_CHARS + 17));
        let symbol = "S".repeat(3 * MAX_NAME_CHARS);
        assert_eq!(to_c_symbol(&symbol), symbol, "symbols must not be cut");
    }

    #[test]
    fn used_name_gets_a_number() {
        let mut used_names = UsedNames::default();
        let names = ["a", "a", "a_2", "a"].map(|name| used_names.make_unique(name.to_owned()));
        assert_eq!(names, ["a", "a_2", "a_2_2", "a_3"]);
    }

    #[test]
    fn unique_name_is_unused_with_each_ending() {
        let mut used_names = UsedNames::default();
        let names = ["on_enabled", "on", "on"]
            .map(|name| used_names.make_unique_with(name.to_owned(), &["", "_enabled"]));
        assert_eq!(names, ["on_enabled", "on_2", "on_3"]);
    }

    #[test]
    fn one_name_can_be_made_unique_200000_times() {
        let mut used_names = UsedNames::default();
        let last = (0..200_000).map(|_| used_names.make_unique("a".to_owned())).last();
        assert_eq!(last.as_deref(), Some("a_200000"));
    }
}
