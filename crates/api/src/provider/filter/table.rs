//! Looking up ids and names in a compiled filter: the same steps for whoever fills a table and whoever searches it.

use traceweir_format::filter::Gate;

use super::cells::Words;
use super::compile::{IDS_HEAD, NAMES_HEAD};

/// An odd number whose bits are well mixed (2⁶⁴ / golden ratio).
const MIX: u64 = 0x9E37_79B9_7F4A_7C15;

/// Where the search for an id begins, in a table of so many bits.
#[inline(always)]
pub(super) fn ids_place(id: u16, bits: u32) -> usize {
    (u64::from(id).wrapping_mul(MIX) >> (64 - bits.clamp(1, 32))) as usize
}

/// Where the search for a name begins.
#[inline(always)]
pub(super) fn names_place(hash: u64, bits: u32) -> usize {
    (hash >> (64 - bits.clamp(1, 32))) as usize
}

/// Whether an id filter passes an event.
#[inline(always)]
pub(super) fn id_passes(words: Words<'_>, at: usize, id: u16) -> bool {
    let head = words.get(at);
    let (filter_in, bits) = (head & 1 != 0, (head >> 32) as u32 & 31);
    let mask = (1_usize << bits) - 1;
    let mut place = ids_place(id, bits) & mask;
    for _ in 0..=mask {
        match words.get(at + IDS_HEAD + place) {
            0 => break,
            entry if entry == u64::from(id) + 1 => return filter_in,
            _ => place = (place + 1) & mask,
        }
    }
    !filter_in
}

/// Whether a name filter passes an event; one without a name has none of the names.
#[inline(always)]
pub(super) fn name_passes(words: Words<'_>, at: usize, level: u8, keyword: u64, name: Option<&[u8]>) -> bool {
    let (gate, filter_in, bits) = gate(words, at);
    !gate.admits(level, keyword) || name.is_some_and(|name| has_name(words, at, bits, name)) == filter_in
}

/// Whether a filter by level and keyword passes an event.
pub(super) fn level_keyword_passes(words: Words<'_>, at: usize, level: u8, keyword: u64) -> bool {
    let (gate, filter_in, _) = gate(words, at);
    gate.admits(level, keyword) == filter_in
}

#[inline(always)]
fn gate(words: Words<'_>, at: usize) -> (Gate, bool, u32) {
    let rest = words.get(at + 2);
    let gate = Gate { any: words.get(at), all: words.get(at + 1), level: rest as u8 };
    (gate, rest >> 8 & 1 != 0, (rest >> 16) as u32 & 31)
}

#[inline(always)]
fn has_name(words: Words<'_>, at: usize, bits: u32, name: &[u8]) -> bool {
    let (hash, mask) = (hash_name(name), (1_usize << bits) - 1);
    let mut place = names_place(hash, bits) & mask;
    for _ in 0..=mask {
        let entry = at + NAMES_HEAD + 2 * place;
        match words.get(entry) {
            0 => return false,
            found if found == hash && is_name(words, at, words.get(entry + 1), name) => return true,
            _ => place = (place + 1) & mask,
        }
    }
    false
}

#[inline(always)]
fn is_name(words: Words<'_>, at: usize, place: u64, name: &[u8]) -> bool {
    let text = at + (place >> 32) as usize;
    place & 0xFFFF_FFFF == name.len() as u64
        && name_words(name).enumerate().all(|(index, word)| words.get(text + index) == word)
}

/// A number for a name; never 0, which is an empty place.
#[inline(always)]
pub(super) fn hash_name(name: &[u8]) -> u64 {
    let start = (name.len() as u64).wrapping_mul(MIX);
    name_words(name).fold(start, |hash, word| {
        let mixed = (hash ^ word).wrapping_mul(MIX);
        mixed ^ mixed >> 29
    }) | 1
}

/// A name as words: of names of one length, different ones differ. The last word may overlap the one before it, which saves gathering
/// single bytes.
#[inline(always)]
pub(super) fn name_words(name: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = name.as_chunks::<8>();
    let last = match (name.last_chunk::<8>(), name.first_chunk::<4>(), name.last_chunk::<4>(), name) {
        _ if rest.is_empty() => None,
        (Some(last), ..) => Some(u64::from_le_bytes(*last)),
        (_, Some(first), Some(last), _) => {
            Some(u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32)
        }
        (.., [first, .., last]) => {
            let middle = name.get(name.len() / 2).copied().unwrap_or(0);
            Some(u64::from(*first) | u64::from(middle) << 8 | u64::from(*last) << 16)
        }
        (.., name) => name.first().map(|only| u64::from(*only)),
    };
    whole.iter().map(|word| u64::from_le_bytes(*word)).chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_length_differ_in_their_words() {
        for length in 0..40 {
            let name = vec![b'n'; length];
            let words: Vec<u64> = name_words(&name).collect();
            assert_eq!(words.len(), length.div_ceil(8));
            for at in 0..length {
                let mut other = name.clone();
                other[at] = b'm';
                assert_ne!(name_words(&other).collect::<Vec<_>>(), words, "{length} {at}");
                assert_ne!(hash_name(&other), hash_name(&name), "{length} {at}");
            }
        }
    }
}
